"""`planner validate runs`, `planner calibrate runs` and `planner calibrate errors`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

import click

from planner.cli import options

Half = Literal["fit", "test", "all"]


@click.command(name="runs")
@click.argument("files", metavar="[FILE]...", nargs=-1)
@options.quality
@options.min_mfu()
@options.half("all")
@click.option(
    "--models", type=options.Choice(["dense", "moe", "all"]), default="all", show_default=True,
    help="Rows of dense models, of models with experts, or of both.",
)  # fmt: skip
@click.option(
    "--leave-one-out", is_flag=True,
    help="Predict each source with software coefficients fitted without it (about a minute).",
)  # fmt: skip
@click.option(
    "--report", metavar="DIR",
    help="Write tables of both halves and pictures here too (needs matplotlib).",
)  # fmt: skip
@options.as_json
def validate_runs(
    files: tuple[str, ...],
    quality: str,
    min_mfu: float,
    half: Half,
    models: Literal["dense", "moe", "all"],
    leave_one_out: bool,
    report: str | None,
    as_json: bool,
) -> None:
    """Predict measured training runs (default: the published ones that ship)."""
    if report is not None:
        from planner.report.plots.drawing import require_matplotlib

        require_matplotlib()  # before the predictions, which take a while
    from planner import api
    from planner.cli.output import show
    from planner.evidence.measuring import read_runs
    from planner.report.text.run_errors import runs_report

    paths = files or (api.PUBLISHED_RUNS,)
    left = None
    if leave_one_out:
        left = api.validate_left_out(
            paths, quality=quality, min_mfu=min_mfu, half=half, models=models
        )
        document = left.to_document()
    else:
        measured = [run for file in paths for run in read_runs(file)]
        document = api.validate_runs(
            measured, quality=quality, min_mfu=min_mfu, half=half, models=models
        ).to_document()
    if report is not None:
        whole = api.accuracy(paths, quality=quality, min_mfu=min_mfu, models=models, left_out=left)
        _write_report(report, whole.to_document(), quality, min_mfu, models)
    show(document, runs_report(document), as_json)


def _write_report(
    folder: str, document: Mapping[str, Any], quality: str, min_mfu: float, models: str
) -> None:
    """accuracy-tables.md and two pictures."""
    from pathlib import Path

    from planner.cli.output import write
    from planner.report.plots.accuracy import predicted_page, residuals_page
    from planner.report.plots.drawing import save
    from planner.report.text.accuracy import PREDICTED, RESIDUALS, accuracy_page

    left = "" if document["leave_one_out"] is None else " --leave-one-out"
    rows = "" if models == "all" else f" --models {models}"
    command = (
        f"planner validate runs --quality {quality} --min-mfu {min_mfu:g}{rows}{left} --report DIR"
    )
    made_with = f"`{command}`{_commit()}"
    write(folder, {"accuracy-tables.md": accuracy_page(document, made_with)})
    for name, page in ((PREDICTED, predicted_page), (RESIDUALS, residuals_page)):
        save(page(document["points"]), Path(folder) / name)
        click.echo(f"wrote {Path(folder) / name}", err=True)


def _commit() -> str:
    """' at commit ...' where the program runs from a checkout, '+' for one that was changed."""
    import subprocess

    from planner.inputs.files import data_root

    if not (data_root() / ".git").exists():
        return ""
    try:
        done = subprocess.run(
            ["git", "-C", str(data_root()), "describe", "--always", "--dirty=+", "--exclude=*"],
            capture_output=True, text=True, check=False, timeout=10,
        )  # fmt: skip
    except (OSError, subprocess.SubprocessError):
        return ""
    return f" at commit {done.stdout.strip()}" if done.returncode == 0 else ""


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
    """Tune a software profile to two or three runs of your own, or fit them all to many.

    FILE holds your runs: YAML, JSON lines or CSV with scenario, layout and step_seconds each. The
    few numbers of their software move a little, towards what you measured. A scenario uses the
    result with `software: FILE.yaml`.

    Without FILE, or with many rows of scenarios/published/measured_runs.jsonl's fields, every
    profile that the rows touch is fitted; --quality, --min-mfu, --half and --afresh are for those.
    """
    from pathlib import Path

    from planner import api
    from planner.cli.output import show, write, write_file
    from planner.report.text.run_errors import calibration_report, own_report

    if files and api.is_own(files):
        own = api.calibrate_own_runs(files)
        write_file(out, api.profile_yaml(own.fit, Path(out).stem))
        document = own.to_document()
        show(document, own_report(document), as_json)
        return
    found = api.calibrate_runs(
        files or (api.PUBLISHED_RUNS,), quality=quality, min_mfu=min_mfu, half=half, afresh=afresh
    )
    path, single = Path(out), len(found.profiles) == 1
    stems = {name: path.stem if single else f"{path.stem}-{name}" for name in found.profiles}
    texts = {
        f"{stems[name]}{path.suffix or '.yaml'}": api.profile_yaml(fitted, stems[name])
        for name, fitted in found.profiles.items()
    }
    write(path.parent, texts)
    document = found.to_document()
    show(document, calibration_report(document), as_json)


@click.command(name="errors")
@click.argument("files", metavar="[FILE]...", nargs=-1)
@click.option(
    "--out", metavar="FILE.yaml", required=True, help="Write the prediction intervals here."
)
@options.quality
@options.min_mfu(0.15)
@options.as_json
def calibrate_errors(
    files: tuple[str, ...], out: str, quality: str, min_mfu: float, as_json: bool
) -> None:
    """Fit the prediction intervals to the fitted half of measured runs (default: the published
    ones), and report how many measurements of either half lie inside.

    Those that ship are scenarios/published/prediction_intervals.yaml; write them anew after a
    change of the cost model or of coefficients.
    """
    from planner import api
    from planner.cli.output import show, write_file
    from planner.report.text.run_errors import intervals_report

    found = api.calibrate_errors(files or (api.PUBLISHED_RUNS,), quality=quality, min_mfu=min_mfu)
    write_file(out, found.to_yaml())
    document = found.to_document()
    show(document, intervals_report(document), as_json)
