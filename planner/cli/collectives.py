"""`planner validate collectives` and `planner calibrate collectives`."""

from __future__ import annotations

import click

from planner.cli import options

on_topology = "Predict on this topology (a name or a file), not on the shipped fabrics that match."


@click.command(name="collectives")
@click.argument("files", metavar="[FILE]...", nargs=-1)
@click.option("--topology", metavar="TOPOLOGY", help=on_topology)
@options.as_json
def validate_collectives(files: tuple[str, ...], topology: str | None, as_json: bool) -> None:
    """Predict measured collectives (default: the published ones that ship).

    FILE is text of nccl-tests, or JSON lines with the fields of
    scenarios/published/nccl_measurements.jsonl. Text whose header does not say what it ran on
    needs --topology.
    """
    from planner import api
    from planner.cli.output import show
    from planner.report.text.collective_errors import collectives_report

    document = api.validate_collectives(
        files or (api.PUBLISHED_COLLECTIVES,), topology
    ).to_document()
    show(document, collectives_report(document), as_json)


@click.command(name="collectives")
@click.argument("logs", metavar="LOG...", nargs=-1, required=True)
@click.option("--topology", metavar="TOPOLOGY", required=True, help="What the logs ran on.")
@click.option("--out", metavar="FILE", required=True, help="Write the fitted fabric here (YAML).")
@options.as_json
def calibrate_collectives(logs: tuple[str, ...], topology: str, out: str, as_json: bool) -> None:
    """Fit the fabric of the outermost tier that nccl-tests logs cross.

    Shows the error at each size, and the hosts that are far slower than they should be. A
    topology uses the result with `fabric: FILE`.
    """
    from pathlib import Path

    from planner import api
    from planner.cli.output import show, write_file
    from planner.report.text.collective_errors import calibration_report

    found = api.calibrate_collectives(logs, topology, Path(out).stem)
    write_file(out, found.to_yaml())
    document = found.to_document()
    show(document, calibration_report(document), as_json)
