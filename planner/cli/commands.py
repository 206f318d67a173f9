"""The commands. Each parses, calls one function of `planner.api`, and shows what it returns."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from planner import __version__
from planner.cli import options
from planner.cli.program import DONE, INTERRUPTED, NO_LAYOUT, Program, Subjects

if TYPE_CHECKING:
    from planner.inputs.files import FileKind
    from planner.planning.plan import Plan

KINDS: dict[str, FileKind] = {
    "topologies": "topology",
    "inventories": "inventory",
    "models": "model",
    "scenarios": "scenario",
    "software": "software",
    "accelerators": "accelerator",
    "sweeps": "sweep",
}
SCHEMAS = ("scenario", "topology", "inventory", "model", "sweep")


@click.group(
    cls=Program,
    name="planner",
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
)
@click.version_option(__version__, prog_name="planner")
def main() -> None:
    """Choose how to split a training job over the bandwidth tiers of a cluster, with a proof.

    SCENARIO is a shipped name (`planner list scenarios`) or a YAML file. PLAN is a plan.json or
    the folder that holds one. Exit codes: 0 done, 1 no layout fits or a target cannot express the
    plan, 2 bad input.
    """


@main.command()
@click.argument("scenario")
@options.top
@options.as_json
@options.out()
@options.time_limit
@options.robust
@options.overrides
def plan(
    scenario: str,
    top_k: int,
    as_json: bool,
    out: str | None,
    time_limit: float | None,
    robust: bool,
    overrides: dict[str, str],
) -> int:
    """Find the best layout and placement, and prove it.

    Ctrl-C stops the search as a time limit does: the best so far is shown with its gap, exit code
    0; 130 where nothing was found yet. A second Ctrl-C ends at once. A search of more than a second
    says on stderr how far it is.
    """
    from planner import api
    from planner.cli.progress import Follower

    if robust:
        overrides = {**overrides, "search.robust": "true"}
    problem = api.load_scenario(scenario, overrides)
    with Follower() as watch:
        found = api.plan(problem, top_k, time_limit, watch)
    _show_plan(found, as_json, out)
    if found.layout is not None:
        return DONE
    return INTERRUPTED if watch.interrupted else NO_LAYOUT


@main.command()
@click.argument("scenario")
@click.option("--layout", metavar="KEY=VALUE,...", help="One layout, such as tp=8,pp=4,mbs=1.")
@click.option("--layouts", metavar="FILE.csv", help="Many layouts, a row each; columns are keys.")
@options.as_json
@options.out()
@options.overrides
def evaluate(
    scenario: str,
    layout: str | None,
    layouts: str | None,
    as_json: bool,
    out: str | None,
    overrides: dict[str, str],
) -> int:
    """Cost given layouts: time, memory, MFU, walls.

    Exit codes: 0 fits or is fragile, 1 does not fit, 2 breaks a rule.
    """
    if (layout is None) == (layouts is None):
        raise click.UsageError(
            "give either --layout KEY=VALUE,... or --layouts FILE.csv", click.get_current_context()
        )
    from planner import api
    from planner.errors import IllegalLayoutError

    problem = api.load_scenario(scenario, overrides)
    if layout is None:
        assert layouts is not None
        return _evaluate_many(problem, layouts, as_json, out)
    try:
        found = api.evaluate(problem, layout)
    except IllegalLayoutError as error:
        if as_json:
            from planner.cli.output import print_json

            print_json(_illegal(error))
        raise
    _show_plan(found, as_json, out)
    return _exit_code([found])


def _evaluate_many(problem: Any, path: str, as_json: bool, out: str | None) -> int:
    from planner import api
    from planner.cli.layouts_file import read_layouts
    from planner.cli.output import show, write_results
    from planner.errors import IllegalLayoutError, InputError
    from planner.report.text.tables import evaluations_report

    rows = read_layouts(path)
    reached = [0]

    def layouts() -> Iterator[dict[str, str]]:
        for number, row in rows:
            reached[0] = number
            yield row

    try:
        results = api.evaluate_many(problem, layouts())
    except InputError as error:
        if error.path != "--layout":
            raise
        raise InputError(
            error.message,
            path=path,
            line=reached[0],
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


def _illegal(error: Any) -> dict[str, Any]:
    return {
        "illegal": error.rule,
        "source": error.source,
        "value": error.value,
        "message": error.message,
        "nearest": list(error.nearest),
    }


def _exit_code(evaluated: list[Plan]) -> int:
    fit = any(plan.memory is None or plan.memory.verdict != "no" for plan in evaluated)
    return DONE if fit else NO_LAYOUT


def _show_plan(found: Plan, as_json: bool, out: str | None) -> None:
    from planner.cli.output import show, write_results
    from planner.report.text.plan import plan_report

    document, report = found.to_document(), plan_report(found)
    if out is not None:
        write_results(out, "plan.json", document, report)
        if found.layout is not None and found.layout.pp > 1:
            _write_timeline(found, out)
    show(document, report, as_json)


def _write_timeline(found: Plan, folder: str) -> None:
    """A picture of the plan's pipeline beside its report, or why there is none."""
    from planner import api
    from planner.errors import PlannerError
    from planner.report.plots import drawing
    from planner.report.plots import timeline as timeline_plot

    path = Path(folder) / "timeline.png"
    try:
        drawing.check_format(path)
    except PlannerError as error:
        click.echo(f"no {path.name}: {error}", err=True)
        return
    assert found.layout is not None
    played = api.timeline(api.scenario_of(found), found)
    ax = timeline_plot.plot_timeline(played, None, found.layout.num_microbatches)
    drawing.save(drawing.page_of(ax), path)
    click.echo(f"wrote {path}", err=True)


@main.command()
@click.argument("first", metavar="PLAN")
@click.argument("second", metavar="PLAN")
@options.as_json
def compare(first: str, second: str, as_json: bool) -> None:
    """Show two plans term by term."""
    from planner import api
    from planner.cli.output import show
    from planner.report.text.tables import comparison_report

    plans = api.read_plan(first), api.read_plan(second)
    compared = api.compare(*plans)
    report = comparison_report(*plans, compared.time, compared.memory)
    show(compared.to_document(), report, as_json)


@main.command(name="list")
@click.argument("kind", metavar="KIND", type=options.Choice([*KINDS, "targets"]))
@options.as_json
def list_(kind: str, as_json: bool) -> None:
    """List what ships.

    KIND is topologies, inventories, models, scenarios, software, accelerators, sweeps or targets.
    """
    from planner.cli.output import show
    from planner.report.text.listing import facts_of, listing_report

    facts = _targets() if kind == "targets" else facts_of(KINDS[kind])
    show({kind: facts}, listing_report(facts), as_json)


def _targets() -> list[dict[str, Any]]:
    from planner import api

    return [
        {"name": to.name, "version": to.version, "tier": str(to.tier), "writes": to.description}
        for to in api.targets()
    ]


@main.command()
@click.argument("kind", metavar="NAME", type=options.Choice(SCHEMAS))
def schema(kind: str) -> None:
    """Print the JSON Schema of a kind of file, for editors.

    NAME is scenario, topology, inventory, model or sweep.
    """
    from planner import api
    from planner.cli.output import print_json

    print_json(api.schema(kind))


@main.group(cls=Subjects)
def validate() -> None:
    """Compare predictions with measurements."""


@main.group(cls=Subjects)
def calibrate() -> None:
    """Fit parameters to measurements."""


@main.command()
@click.argument("plan_path", metavar="PLAN")
@click.option("--target", required=True, metavar="NAME", help="See `planner list targets`.")
@options.out(required=True, text="Write the target's files here.")
@click.option("--resolve", is_flag=True, help="Write the best plan that the target can express.")
def export(plan_path: str, target: str, out: str, resolve: bool) -> None:
    """Write a plan as launch files of a training framework or scheduler.

    A plan that the target cannot express is refused (exit code 1), with the best one it can.
    """
    from planner import api
    from planner.cli.output import write

    write(out, api.export_plan(api.read_plan(plan_path), target, resolve))
