"""`planner explain`: why this plan, what would make it faster, what a slow run hides."""

from __future__ import annotations

from typing import Any

import click

from planner.cli import options
from planner.cli.program import DONE, NO_LAYOUT


@click.command()
@click.argument("scenario")
@click.option(
    "--layout", metavar="KEY=VALUE,...", help="Explain this layout instead of the best one."
)
@click.option(
    "--measured", metavar="KEY=VALUE,...",
    help="A measured run of the layout: mfu=0.31, step_seconds, tokens_per_second or tflops (of "
    "one accelerator); says what hides.",
)  # fmt: skip
@click.option(
    "--why-not", "why_not", metavar="KEY=VALUE,...",
    help="Why the plan is not this layout, or the best one with these keys: the rules or the limit "
    "that forbid it, or what it loses and where.",
)  # fmt: skip
@click.option(
    "--what-if", "what_if", is_flag=True,
    help="What other machines, precisions and counts would buy, each planned anew.",
)  # fmt: skip
@options.as_json
@options.overrides
def explain(
    scenario: str,
    layout: str | None,
    measured: str | None,
    why_not: str | None,
    what_if: bool,
    as_json: bool,
    overrides: dict[str, str],
) -> int:
    """Say why each group lives where it does and what would make the step faster.

    With --measured: compare a run with its prediction, and say what could be wrong. With --why-not:
    what keeps a layout from being the plan; keys that are not given are free. With --what-if: what
    other machines would buy, the bandwidth at which FSDP would do, and the scaling curve.

    Exit codes: 0 answered, 1 no layout fits, 2 bad input.
    """
    from planner import api
    from planner.cli.output import show
    from planner.cli.progress import Follower

    if why_not is not None and (layout is not None or measured is not None):
        raise click.UsageError(
            "--why-not is a question of its own: leave out --layout and --measured",
            click.get_current_context(),
        )
    if what_if and any(other is not None for other in (layout, measured, why_not)):
        raise click.UsageError(
            "--what-if is a question of its own: leave out --layout, --measured and --why-not",
            click.get_current_context(),
        )
    problem = api.load_scenario(scenario, overrides)
    if why_not is not None:
        from planner.report.text.why_not import why_not_report

        with Follower() as watch:
            answer = api.why_not(problem, why_not, watch=watch)
        show(answer.to_document(), why_not_report(answer), as_json)
        return DONE
    if what_if:
        return _what_if(problem, as_json)
    if measured is not None:
        from planner.report.text.diagnosis import diagnosis_report

        diagnosis = api.diagnose(problem, measured, layout)
        show(diagnosis.to_document(), diagnosis_report(diagnosis), as_json)
        return DONE
    from planner.report.text.explanation import explanation_report

    with Follower() as watch:
        explanation = api.explain(problem, layout, watch)
    show(explanation.to_document(), explanation_report(explanation), as_json)
    fits = explanation.plan.layout is not None and explanation.plan.status != "infeasible"
    return DONE if fits else NO_LAYOUT


def _what_if(problem: Any, as_json: bool) -> int:
    from planner import api
    from planner.cli.output import show
    from planner.cli.progress import saying
    from planner.report.text.what_if import what_if_report

    found = api.what_if(problem, say=saying())
    show(found.to_document(), what_if_report(found), as_json)
    return DONE if found.plan.layout is not None else NO_LAYOUT
