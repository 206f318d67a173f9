"""`planner validate runs`, `planner calibrate runs` and `planner calibrate errors`."""

from __future__ import annotations

from typing import Literal

import click

from planner.cli import options

Half = Literal["fit", "test", "all"]


@click.command(name="runs")
@click.argument("files", metavar="[FILE]...", nargs=-1)
@options.quality
@options.min_mfu()
@options.half("all")
@click.option(
    "--leave-one-out", is_flag=True,
    help="Predict each source with software coefficients fitted without it (about a minute).",
)  # fmt: skip
@options.as_json
def validate_runs(
    files: tuple[str, ...],
    quality: str,
    min_mfu: float,
    half: Half,
    leave_one_out: bool,
    as_json: bool,
) -> None:
    """Predict measured training runs (default: the published ones that ship)."""
    from planner import api
    from planner.cli.output import show
    from planner.evidence.published import read_runs
    from planner.report.runs import runs_report

    paths = files or (api.PUBLISHED_RUNS,)
    if leave_one_out:
        document = api.validate_left_out(
            paths, quality=quality, min_mfu=min_mfu, half=half
        ).to_document()
    else:
        measured = [run for file in paths for run in read_runs(file)]
        document = api.validate_runs(
            measured, quality=quality, min_mfu=min_mfu, half=half
        ).to_document()
    show(document, runs_report(document), as_json)


@click.command(name="runs")
@click.argument("files", metavar="[FILE]...", nargs=-1)
@click.option(
    "--out", metavar="FILE.yaml", required=True,
    help="Write the profile here; of several, FILE-NAME.yaml each.",
)  # fmt: skip
@options.quality
@options.min_mfu(0.15)
@options.half("fit")
@click.option(
    "--afresh", is_flag=True,
    help="Start from what other profiles have, not from the profile's own numbers: for the shipped "
    "profiles, whose numbers come from these rows already.",
)  # fmt: skip
@options.as_json
def calibrate_runs(
    files: tuple[str, ...],
    out: str,
    quality: str,
    min_mfu: float,
    half: Half,
    afresh: bool,
    as_json: bool,
) -> None:
    """Fit the software coefficients of the profiles that measured runs touch.

    FILE has the fields of scenarios/published/measured_runs.jsonl (the default); give --half all
    for runs of your own. A scenario uses the result with `software: FILE.yaml`.
    """
    from pathlib import Path

    from planner import api
    from planner.cli.output import show, write
    from planner.report.runs import calibration_report

    found = api.calibrate_runs(
        files or (api.PUBLISHED_RUNS,), quality=quality, min_mfu=min_mfu, half=half, afresh=afresh
    )
    path, single = Path(out), len(found.profiles) == 1
    stems = {name: path.stem if single else f"{path.stem}-{name}" for name in found.profiles}
    texts = {
        f"{stems[name]}{path.suffix or '.yaml'}": api.profile_yaml(fitted, stems[name])
        for name, fitted in found.profiles.items()
    }
    write(str(path.parent), texts)
    document = found.to_document()
    show(document, calibration_report(document), as_json)


@click.command(name="errors")
@click.argument("files", metavar="[FILE]...", nargs=-1)
@click.option("--out", metavar="FILE.yaml", required=True, help="Write the error bars here.")
@options.quality
@options.min_mfu(0.15)
@options.as_json
def calibrate_errors(
    files: tuple[str, ...], out: str, quality: str, min_mfu: float, as_json: bool
) -> None:
    """Fit the error bars of predictions to the fitting half of measured runs (default: the
    published ones), and hold them against the other half.

    Those that ship are scenarios/published/prediction_errors.yaml; write them anew after a change
    of the cost model or of coefficients.
    """
    from pathlib import Path

    from planner import api
    from planner.cli.output import show, write
    from planner.report.runs import errors_report

    found = api.calibrate_errors(files or (api.PUBLISHED_RUNS,), quality=quality, min_mfu=min_mfu)
    write(str(Path(out).parent), {Path(out).name: found.to_yaml()})
    document = found.to_document()
    show(document, errors_report(document), as_json)
