"""`planner shrink`: what a job can go on with after it lost nodes."""

from __future__ import annotations

import click

from planner.cli import options
from planner.cli.program import DONE, NO_LAYOUT


@click.command()
@click.argument("plan_path", metavar="PLAN")
@click.option(
    "--lose", "lose", multiple=True, required=True, metavar="NODE",
    help="A node, a host list such as n[1-3], a pattern such as 'rack3-*', or a number of nodes "
    "(the last of the job). Repeatable; more may follow.",
)  # fmt: skip
@click.argument("more", nargs=-1, metavar="[NODE...]")
@options.as_json
@options.out(text="Write each way on as a folder with its plan.json and report.txt here.")
@options.time_limit
def shrink(
    plan_path: str,
    lose: tuple[str, ...],
    more: tuple[str, ...],
    as_json: bool,
    out: str | None,
    time_limit: float | None,
) -> int:
    """Find what is left to run after losing nodes, with the same global batch.

    Compared are the same layout where spares suffice, the same with fewer data-parallel ranks,
    and the best layouts on what is left, each with its loss, its nodes and its rank table.

    Exit codes: 0 done, 1 nothing that is left keeps the batch and fits, 2 bad input.
    """
    from planner import api
    from planner.cli.output import show, write_results
    from planner.report.text.plan import plan_report
    from planner.report.text.shrink import shrink_report

    found = api.shrink(api.read_plan(plan_path), (*lose, *more), time_limit)
    if out is not None:
        for option in found.options:
            folder = f"{out}/{option.name.replace(' ', '-')}"
            write_results(folder, "plan.json", option.plan.to_document(), plan_report(option.plan))
    show(found.to_document(), shrink_report(found), as_json)
    return DONE if found.options else NO_LAYOUT
