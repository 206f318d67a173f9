"""`planner roofline`: the roofs of a cluster, and where kernels and a plan's groups stand."""

from __future__ import annotations

import click

from planner.cli import options
from planner.cli.program import DONE, NO_LAYOUT


@click.command()
@click.argument("subject", metavar="SCENARIO|TOPOLOGY")
@click.option("--out", metavar="FILE", help="Draw it too, as FILE.svg, FILE.png or FILE.pdf.")
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
        from planner.report.plots.roofline import check_format

        check_format(out)  # before the search, which may take a while
    from planner import api
    from planner.cli.output import show
    from planner.report.text.roofline import roofline_report

    found = api.roofline(api.load_subject(subject, overrides), time_limit)
    if found.plan is not None and found.plan.layout is None:
        from planner.report.text.plan import plan_report

        show(found.plan.to_document(), plan_report(found.plan), as_json)
        return NO_LAYOUT
    if out is not None:
        from planner.report.plots.roofline import page, save

        save(page(found, api.generations(found)), out)
        click.echo(f"wrote {out}", err=True)
    show(found.to_document(), roofline_report(found), as_json)
    return DONE
