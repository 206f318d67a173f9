"""Commands about plans: `planner plan`, `evaluate`, `compare` and `export`."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from planner.cli import options
from planner.cli.program import DONE, INTERRUPTED, NO_LAYOUT

if TYPE_CHECKING:
    from planner.errors import IllegalLayoutError
    from planner.planning.plan import Plan
    from planner.problem.scenario import Scenario

LAYOUTS_FILE = "a CSV file whose first line names layout keys, such as tp,pp,mbs"


@click.command()
@options.top
@options.as_json
@options.out()
@options.time_limit
@options.robust
@options.scenario
def plan(
    named: options.NamedScenario,
    top_k: int,
    as_json: bool,
    out: str | None,
    time_limit: float | None,
    robust: bool,
) -> int:
    """Find the best layout and placement, and prove it.

    Ctrl-C stops the search as a time limit does: the best layout so far is shown with its gap,
    exit code 0; 130 if there is none yet. A second Ctrl-C ends at once. A search of more than a
    second reports its progress on stderr.
    """
    from planner import api
    from planner.cli.progress import SearchWatch

    # --robust is short for a key of the scenario, so that plan files and sweeps can have it too
    scenario = named.load({"search.robust": "true"} if robust else {})
    with SearchWatch() as watch:
        best = api.plan(scenario, top_k, time_limit, watch)
    show_plan(best, as_json, out)
    if best.layout is not None:
        return DONE
    return INTERRUPTED if watch.interrupted else NO_LAYOUT


def show_plan(plan: Plan, as_json: bool, out: str | None) -> None:
    """Print a plan; with a folder, write it there, and draw its pipeline."""
    from planner.cli.output import show, write_results
    from planner.report.text.plan import plan_report

    document, report = plan.to_document(), plan_report(plan)
    if out is not None:
        write_results(out, "plan.json", document, report)
        if plan.layout is not None and plan.layout.pp > 1:
            _write_timeline(plan, out)
    show(document, report, as_json)


def _write_timeline(plan: Plan, folder: str) -> None:
    """Write a picture of the plan's pipeline, or say on stderr why there is none."""
    from planner import api
    from planner.errors import PlannerError
    from planner.report.plots import drawing
    from planner.report.plots.timeline import plot_timeline

    path = Path(folder) / "timeline.png"
    try:
        # matplotlib is optional: a plan without its picture is still a plan
        drawing.check_format(path)
    except PlannerError as error:
        click.echo(f"no {path.name}: {error}", err=True)
        return
    assert plan.layout is not None
    timeline = api.timeline(api.scenario_of(plan), plan)
    ax = plot_timeline(timeline, None, plan.layout.num_microbatches)
    drawing.save(drawing.page_of(ax), path)
    click.echo(f"wrote {path}", err=True)


# ---------------------------------------------------------------- evaluate


@click.command(cls=options.LayoutCommand)
@click.option("--layout", metavar="KEY=VALUE,...", help="One layout, such as tp=8,pp=4,mbs=1.")
@click.option("--layouts", metavar="FILE.csv", help="Many layouts, one per row; columns are keys.")
@options.as_json
@options.out()
@options.scenario
def evaluate(
    named: options.NamedScenario,
    layout: str | None,
    layouts: str | None,
    as_json: bool,
    out: str | None,
) -> int:
    """Predict time, memory, MFU and walls of given layouts.

    Exit codes: 0 fits or is fragile, 1 does not fit, 2 breaks a rule.
    """
    if (layout is None) == (layouts is None):
        raise click.UsageError(
            "give either --layout KEY=VALUE,... or --layouts FILE.csv", click.get_current_context()
        )
    from planner import api
    from planner.errors import IllegalLayoutError

    scenario = named.load()
    if layout is None:
        assert layouts is not None
        return _evaluate_many(scenario, layouts, as_json, out)
    try:
        plan = api.evaluate(scenario, layout)
    except IllegalLayoutError as error:
        if as_json:
            from planner.cli.output import print_json

            print_json(_illegal(error))
        raise
    show_plan(plan, as_json, out)
    return _exit_code([plan])


def _evaluate_many(scenario: Scenario, path: str, as_json: bool, out: str | None) -> int:
    from planner import api
    from planner.cli.output import show, write_results
    from planner.errors import IllegalLayoutError, InputError
    from planner.report.text.comparison import evaluations_report

    rows = read_layouts(path)
    line = [0]  # of the row that is evaluated now: errors name it

    def layouts() -> Iterator[dict[str, str]]:
        for line[0], row in rows:
            yield row

    try:
        results = api.evaluate_many(scenario, layouts())
    except InputError as error:
        # the message names the option; here the layout came from a line of the file
        if error.path != "--layout":
            raise
        raise InputError(
            error.message,
            path=path,
            line=line[0],
            key=error.key,
            value=error.value,
            allowed=error.allowed,
            nearest=error.nearest,
        ) from None
    document = {
        "results": [
            _illegal(result) if isinstance(result, IllegalLayoutError) else result.to_document()
            for result in results
        ]
    }
    report = evaluations_report(results)
    if out is not None:
        write_results(out, "results.json", document, report)
    show(document, report, as_json)
    return _exit_code([r for r in results if not isinstance(r, IllegalLayoutError)])


def read_layouts(path: str) -> list[tuple[int, dict[str, str]]]:
    """Rows of a CSV file of layouts, one per row, with their line numbers; no empty cells.

    Raises:
        InputError: unreadable, without rows, or with a row of another length than the head.
    """
    from planner.inputs.csv_rows import read_rows
    from planner.layouts.keys import KEYS

    return read_rows(path, KEYS, "layout key", LAYOUTS_FILE)


def _illegal(error: IllegalLayoutError) -> dict[str, Any]:
    return {
        "illegal": error.rule,
        "source": error.source,
        "value": error.value,
        "message": error.message,
        "nearest": list(error.nearest),
    }


def _exit_code(plans: Sequence[Plan]) -> int:
    fits = any(plan.memory is None or plan.memory.verdict != "no" for plan in plans)
    return DONE if fits else NO_LAYOUT


# ---------------------------------------------------------------- compare, export


@click.command()
@click.argument("first", metavar="PLAN")
@click.argument("second", metavar="PLAN")
@options.as_json
def compare(first: str, second: str, as_json: bool) -> None:
    """Show two plans term by term."""
    from planner import api
    from planner.cli.output import show
    from planner.report.text.comparison import comparison_report

    comparison = api.compare(api.read_plan(first), api.read_plan(second))
    show(comparison.to_document(), comparison_report(comparison), as_json)


@click.command()
@click.argument("plan_path", metavar="PLAN")
@click.option("--target", required=True, metavar="NAME", help="See `planner list targets`.")
@options.out(required=True, text="Write the target's files here.")
@click.option("--resolve", is_flag=True, help="Write the best plan that the target can express.")
def export(plan_path: str, target: str, out: str, resolve: bool) -> None:
    """Write a plan as launch files of a training framework or scheduler.

    A plan that the target cannot express is refused (exit code 1); the best one that it can
    express is named.
    """
    from planner import api
    from planner.cli.output import write

    write(out, api.export_plan(api.read_plan(plan_path), target, resolve))
