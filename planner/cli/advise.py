"""Commands that give advice: `planner explain`, `check`, `roofline` and `shrink`."""

from __future__ import annotations

import shlex
import sys
from typing import TYPE_CHECKING

import click

from planner.cli import options
from planner.cli.program import DONE, NO_LAYOUT

if TYPE_CHECKING:
    from planner.problem.scenario import Scenario


@click.command()
@click.option(
    "--layout",
    metavar="KEY=VALUE,...",
    help="Explain this layout instead of the best one. Keys: planner evaluate --help.",
)
@click.option(
    "--measured", metavar="KEY=VALUE,...",
    help="A measured run of the layout: mfu=0.31, step_seconds, tokens_per_second or tflops (per "
    "accelerator). Shows what could slow it down.",
)  # fmt: skip
@click.option(
    "--why-not", "why_not", metavar="KEY=VALUE,...",
    help="Why the plan is not this layout, or the best one with these keys: the rules or the limit "
    "that forbid it, or what it loses and where.",
)  # fmt: skip
@click.option(
    "--what-if", "what_if", is_flag=True,
    help="What other hardware, precisions and counts would gain, each planned anew.",
)  # fmt: skip
@options.as_json
@options.scenario
def explain(
    named: options.NamedScenario,
    layout: str | None,
    measured: str | None,
    why_not: str | None,
    what_if: bool,
    as_json: bool,
) -> int:
    """Explain why each group lives where it does, and what would make the step faster.

    With --measured: compare a run with its prediction, and list possible causes. With --why-not:
    what keeps a layout from being the plan; keys that are not given are free. With --what-if: what
    other hardware would gain, the bandwidth at which FSDP would suffice, and the scaling curve.

    Exit codes: 0 answered, 1 no layout fits, 2 bad input.
    """
    if why_not is not None and (layout is not None or measured is not None):
        raise click.UsageError(
            "--why-not cannot be combined with --layout or --measured",
            click.get_current_context(),
        )
    if what_if and any(other is not None for other in (layout, measured, why_not)):
        raise click.UsageError(
            "--what-if cannot be combined with --layout, --measured or --why-not",
            click.get_current_context(),
        )
    scenario = named.load()
    if why_not is not None:
        return _why_not(scenario, why_not, as_json)
    if what_if:
        return _what_if(scenario, as_json)
    if measured is not None:
        return _diagnose(scenario, measured, layout, as_json)
    return _explain(scenario, layout, as_json)


def _explain(scenario: Scenario, layout: str | None, as_json: bool) -> int:
    from planner import api
    from planner.cli.output import show
    from planner.cli.progress import SearchWatch
    from planner.report.text.explanation import explanation_report

    with SearchWatch() as watch:
        explanation = api.explain(scenario, layout, watch)
    show(explanation.to_document(), explanation_report(explanation), as_json)
    # an infeasible plan is explained too: by its nearest miss and its reasons
    fits = explanation.plan.layout is not None and explanation.plan.status != "infeasible"
    return DONE if fits else NO_LAYOUT


def _diagnose(scenario: Scenario, measured: str, layout: str | None, as_json: bool) -> int:
    from planner import api
    from planner.cli.output import show
    from planner.report.text.diagnosis import diagnosis_report

    diagnosis = api.diagnose(scenario, measured, layout)
    show(diagnosis.to_document(), diagnosis_report(diagnosis), as_json)
    return DONE


def _why_not(scenario: Scenario, layout: str, as_json: bool) -> int:
    from planner import api
    from planner.cli.output import show
    from planner.cli.progress import SearchWatch
    from planner.report.text.why_not import why_not_report

    with SearchWatch() as watch:
        answer = api.why_not(scenario, layout, watch=watch)
    show(answer.to_document(), why_not_report(answer), as_json)
    return DONE


def _what_if(scenario: Scenario, as_json: bool) -> int:
    from planner import api
    from planner.cli.output import show
    from planner.cli.progress import announcer
    from planner.report.text.what_if import what_if_report

    answer = api.what_if(scenario, say=announcer())
    show(answer.to_document(), what_if_report(answer), as_json)
    return DONE if answer.plan.layout is not None else NO_LAYOUT


# ---------------------------------------------------------------- check

ARGUMENTS = "arguments after --"


class _WithArguments(click.Command):
    """A command that keeps apart what follows `--`."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Parse the words before `--`; keep those behind it as they are."""
        # click itself drops the `--` and mixes what is on both sides
        if "--" in args:
            cut = args.index("--")
            args, ctx.meta[ARGUMENTS] = args[:cut], args[cut + 1 :]
        return super().parse_args(ctx, args)


@click.command(cls=_WithArguments)
@click.argument("names", nargs=-1, metavar="[SCRIPT] SCENARIO [-- ARGUMENT...]")
@click.option(
    "--target", metavar="NAME",
    help="What the script is: megatron, torchtitan, torchtitan-toml, deepspeed or accelerate. "
    "By default its content tells.",
)  # fmt: skip
@click.option(
    "--env", "variables", multiple=True, metavar="NAME=VALUE", callback=options.assignments,
    help="Value of a shell variable, whatever the script assigns. Repeatable.",
)  # fmt: skip
@click.option(
    "--layout", metavar="KEY=VALUE,...",
    help="Layout keys that the script leaves open. Keys: planner evaluate --help.",
)  # fmt: skip
@options.as_json
@options.overrides
def check(
    names: tuple[str, ...],
    target: str | None,
    variables: dict[str, str],
    layout: str | None,
    as_json: bool,
    overrides: dict[str, str],
) -> int:
    """Check a launch script of your own against a scenario.

    SCRIPT is a file, or - for standard input: Megatron-LM or torchtitan arguments, a shell script
    with them, torchtitan's TOML, DeepSpeed's JSON, accelerate's YAML. It is read, never run.
    Arguments may follow -- instead.

    Exit codes: 0 it runs, 1 it will not run (a rule is broken, or it does not fit), 2 bad input.
    """
    ctx = click.get_current_context()
    arguments = ctx.meta.get(ARGUMENTS)
    if len(names) != (2 if arguments is None else 1):
        raise click.UsageError(
            "give SCRIPT and SCENARIO, or only SCENARIO with the arguments after --", ctx
        )
    from planner import api
    from planner.cli.output import show
    from planner.report.text.check import check_report

    path = names[0] if arguments is None else ARGUMENTS
    text = _read(path) if arguments is None else shlex.join(arguments)
    scenario = api.load_scenario(names[-1], overrides)
    answer = api.check(text, scenario, path, target, variables, layout)
    show(answer.to_document(), check_report(answer), as_json)
    return DONE if answer.runs else NO_LAYOUT


def _read(path: str) -> str:
    from planner.errors import InputError
    from planner.inputs.text import file_text, stream_text

    allowed = "a launch script or configuration"
    if path != "-":
        return file_text(path, allowed, pipes=True)
    if sys.stdin is None:
        raise InputError("cannot be read: standard input is closed", path=path, allowed=allowed)
    return stream_text(sys.stdin.buffer, allowed, shown=path)


# ---------------------------------------------------------------- roofline


@click.command()
@click.argument("subject", metavar="SCENARIO|TOPOLOGY")
@click.option("--out", metavar="FILE", help="Also draw it, as FILE.svg, FILE.png or FILE.pdf.")
@options.as_json
@options.time_limit
@options.overrides
def roofline(
    subject: str,
    out: str | None,
    as_json: bool,
    time_limit: float | None,
    overrides: dict[str, str],
) -> int:
    """Show bandwidth and compute roofs, ridges, latency knees, and the work under them.

    A SCENARIO is planned, and its groups are placed under the roofs too.

    Exit codes: 0 done, 1 no layout fits, 2 bad input.
    """
    if out is not None:
        from planner.report.plots.drawing import check_format

        check_format(out)  # before the search, which may take a while
    from planner import api
    from planner.cli.output import show
    from planner.report.text.roofline import roofline_report

    roofs = api.roofline(api.load_subject(subject, overrides), time_limit)
    if roofs.plan is not None and roofs.plan.layout is None:
        from planner.report.text.plan import plan_report

        show(roofs.plan.to_document(), plan_report(roofs.plan), as_json)
        return NO_LAYOUT
    if out is not None:
        from planner.report.plots.drawing import save
        from planner.report.plots.roofs import roofs_page

        save(roofs_page(roofs, api.generations(roofs)), out)
        click.echo(f"wrote {out}", err=True)
    show(roofs.to_document(), roofline_report(roofs), as_json)
    return DONE


# ---------------------------------------------------------------- shrink


@click.command()
@click.argument("plan_path", metavar="PLAN")
@click.option(
    "--lose", "lose", multiple=True, required=True, metavar="NODE",
    help="A node, a host list such as n[1-3], a pattern such as 'rack3-*', or a number of nodes "
    "(the last of the job). Repeatable; more may follow.",
)  # fmt: skip
@click.argument("more", nargs=-1, metavar="[NODE...]")
@options.as_json
@options.out(text="Write a folder with plan.json and report.txt here for each option.")
@options.time_limit
def shrink(
    plan_path: str,
    lose: tuple[str, ...],
    more: tuple[str, ...],
    as_json: bool,
    out: str | None,
    time_limit: float | None,
) -> int:
    """Show how to go on after losing nodes, with the same global batch.

    Compares the same layout if there are enough spare nodes, the same with fewer data-parallel
    ranks, and the best layouts on what is left, each with its loss, its nodes and its rank table.

    Exit codes: 0 done, 1 no option keeps the batch and fits, 2 bad input.
    """
    from planner import api
    from planner.cli.output import show, write_results
    from planner.report.text.plan import plan_report
    from planner.report.text.shrink import shrink_report

    shrunk = api.shrink(api.read_plan(plan_path), (*lose, *more), time_limit)
    if out is not None:
        for option in shrunk.options:
            folder = f"{out}/{option.name.replace(' ', '-')}"
            write_results(folder, "plan.json", option.plan.to_document(), plan_report(option.plan))
    show(shrunk.to_document(), shrink_report(shrunk), as_json)
    return DONE if shrunk.options else NO_LAYOUT
