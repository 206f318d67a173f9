"""Commands about measurements: `planner validate` holds predictions against them, `planner
calibrate` fits parameters to them; each for runs, collectives and kernels."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal

import click

from planner.cli import options
from planner.cli.program import Subjects


@click.group(cls=Subjects)
def validate() -> None:
    """Compare predictions with measurements."""


@click.group(cls=Subjects)
def calibrate() -> None:
    """Fit parameters to measurements."""


# ---------------------------------------------------------------- training runs


class _LeftOut(options.Choice):
    """What to leave out; a file that follows the bare flag is taken for it."""

    def get_invalid_choice_message(self, value: Any, ctx: click.Context | None) -> str:
        """What is allowed, and where files go."""
        return f"{super().get_invalid_choice_message(value, ctx)}; files go before --leave-one-out"


@validate.command(name="runs")
@click.argument("files", metavar="[FILE]...", nargs=-1)
@options.rows(min_mfu=0.0, half="all")
@click.option(
    "--models", type=options.Choice(["dense", "moe", "all"]), default="all", show_default=True,
    help="Rows of dense models, of models with experts, or of both.",
)  # fmt: skip
@click.option(
    "--leave-one-out", type=_LeftOut(["source", "family", "half"]), is_flag=False,
    flag_value="source", metavar="[source|family|half]",
    help="Predict each source, each family of models, or each half, with coefficients, clocks and "
    "cluster numbers fitted without its rows (a minute). Without a value: source.",
)  # fmt: skip
@click.option(
    "--report", metavar="DIR",
    help="Also write tables and pictures of all rows here (needs matplotlib).",
)  # fmt: skip
@options.as_json
def validate_runs(
    files: tuple[str, ...],
    rows: options.Rows,
    models: Literal["dense", "moe", "all"],
    leave_one_out: Literal["source", "family", "half"] | None,
    report: str | None,
    as_json: bool,
) -> None:
    """Predict measured training runs (default: the published ones that ship)."""
    if report is not None:
        from planner.report.libraries import require_matplotlib

        require_matplotlib()  # before the predictions, which take a while
    from planner import api
    from planner.cli.output import show
    from planner.evidence.published_runs import read_runs
    from planner.report.text.measured_runs import runs_report

    paths = files or (api.PUBLISHED_RUNS,)
    left_out = None
    if leave_one_out is not None:
        left_out = api.validate_left_out(
            paths, quality=rows.quality, min_mfu=rows.min_mfu, half=rows.half, models=models,
            by=leave_one_out,
        )  # fmt: skip
        document = left_out.to_document()
    else:
        runs = [run for file in paths for run in read_runs(file)]
        document = api.validate_runs(
            runs, quality=rows.quality, min_mfu=rows.min_mfu, half=rows.half, models=models
        ).to_document()
    if report is not None:
        accuracy = api.accuracy(
            paths, quality=rows.quality, min_mfu=rows.min_mfu, models=models, left_out=left_out
        )
        _write_accuracy(report, accuracy.to_document(), rows, models)
    fitted = not files and leave_one_out is None
    show(document, runs_report(document, fitted), as_json)


def _write_accuracy(
    folder: str, document: Mapping[str, Any], rows: options.Rows, models: str
) -> None:
    """Write accuracy-tables.md and its two pictures."""
    from planner.cli.output import write
    from planner.report.plots.accuracy import predicted_page, residuals_page
    from planner.report.plots.drawing import save
    from planner.report.text.accuracy_tables import PREDICTED, RESIDUALS, accuracy_page

    command = f"planner validate runs --quality {rows.quality} --min-mfu {rows.min_mfu:g}"
    if models != "all":
        command += f" --models {models}"
    if document["leave_one_out"] is not None:
        by = document["leave_one_out"]["left_out_by"]
        command += " --leave-one-out" + (f" {by}" if by != "source" else "")
    made_with = f"`{command} --report DIR`{_commit()}"
    write(folder, {"accuracy-tables.md": accuracy_page(document, made_with)})
    for name, page in ((PREDICTED, predicted_page), (RESIDUALS, residuals_page)):
        save(page(document["points"]), Path(folder) / name)
        click.echo(f"wrote {Path(folder) / name}", err=True)


def _commit() -> str:
    """' at commit ...' if the program runs from a checkout, with '+' if that was changed."""
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


@calibrate.command(name="runs")
@click.argument("files", metavar="[FILE]...", nargs=-1)
@click.option(
    "--out", metavar="FILE.yaml", required=True,
    help="Write the profile here; of several, FILE-NAME.yaml each.",
)  # fmt: skip
@options.rows(min_mfu=0.15, half="all")
@click.option(
    "--afresh", is_flag=True,
    help="Start from what other profiles have, not from the profile's own coefficients: for the "
    "shipped profiles, which were fitted to these rows already.",
)  # fmt: skip
@options.as_json
def calibrate_runs(
    files: tuple[str, ...], out: str, rows: options.Rows, afresh: bool, as_json: bool
) -> None:
    """Tune a software profile to two or three runs of your own, or fit them all to many.

    FILE holds your runs: YAML, JSON lines or CSV with scenario, layout and step_seconds each. The
    coefficients of their software move a little, towards what you measured. A scenario uses the
    result with `software: FILE.yaml`.

    Without FILE, or with many rows that have the fields of
    scenarios/published/measured_runs.jsonl, every profile that the rows touch is fitted;
    --quality, --min-mfu, --half and --afresh apply only to those.
    """
    from planner import api
    from planner.cli.output import show, write, write_file
    from planner.report.text.measured_runs import calibration_report, own_report

    # own runs have other fields than published ones, and a method of their own
    if files and api.is_own(files):
        own = api.calibrate_own_runs(files)
        write_file(out, api.profile_yaml(own.fit, Path(out).stem))
        document = own.to_document()
        show(document, own_report(document), as_json)
        return
    calibration = api.calibrate_runs(
        files or (api.PUBLISHED_RUNS,),
        quality=rows.quality, min_mfu=rows.min_mfu, half=rows.half, afresh=afresh,
    )  # fmt: skip
    # one profile takes the name of the file, several append theirs to it
    path, single = Path(out), len(calibration.profiles) == 1
    stems = {name: path.stem if single else f"{path.stem}-{name}" for name in calibration.profiles}
    texts = {
        f"{stems[name]}{path.suffix or '.yaml'}": api.profile_yaml(fitted, stems[name])
        for name, fitted in calibration.profiles.items()
    }
    write(path.parent, texts)
    document = calibration.to_document()
    show(document, calibration_report(document), as_json)


@calibrate.command(name="errors")
@click.argument("files", metavar="[FILE]...", nargs=-1)
@click.option(
    "--out", metavar="FILE.yaml", required=True, help="Write the prediction intervals here."
)
@options.quality
@options.minimum_mfu(0.15)
@options.as_json
def calibrate_errors(
    files: tuple[str, ...], out: str, quality: str, min_mfu: float, as_json: bool
) -> None:
    """Fit the prediction intervals to measured runs (default: the published ones), each predicted
    by numbers fitted without its source or, with experts, its family of models.

    Those that ship are in scenarios/published/prediction_intervals.yaml; write them anew after a
    change of the cost model or of coefficients.
    """
    from planner import api
    from planner.cli.output import show, write_file
    from planner.report.text.measured_runs import intervals_report

    calibration = api.calibrate_errors(
        files or (api.PUBLISHED_RUNS,), quality=quality, min_mfu=min_mfu
    )
    write_file(out, calibration.to_yaml())
    document = calibration.to_document()
    show(document, intervals_report(document), as_json)


# ---------------------------------------------------------------- collectives


@validate.command(name="collectives")
@click.argument("files", metavar="[FILE]...", nargs=-1)
@click.option(
    "--topology", metavar="TOPOLOGY",
    help="Predict on this topology (a name or a file), not on the shipped fabrics that match.",
)  # fmt: skip
@options.as_json
def validate_collectives(files: tuple[str, ...], topology: str | None, as_json: bool) -> None:
    """Predict measured collectives (default: the published ones that ship).

    FILE is text of nccl-tests, or JSON lines with the fields of
    scenarios/published/nccl_measurements.jsonl. Text whose header does not say what it ran on
    needs --topology.
    """
    from planner import api
    from planner.cli.output import show
    from planner.report.text.measured_collectives import collectives_report

    document = api.validate_collectives(
        files or (api.PUBLISHED_COLLECTIVES,), topology
    ).to_document()
    show(document, collectives_report(document), as_json)


@calibrate.command(name="collectives")
@click.argument("logs", metavar="LOG...", nargs=-1, required=True)
@click.option("--topology", metavar="TOPOLOGY", required=True, help="What the logs ran on.")
@click.option("--out", metavar="FILE", required=True, help="Write the fitted fabric here (YAML).")
@options.as_json
def calibrate_collectives(logs: tuple[str, ...], topology: str, out: str, as_json: bool) -> None:
    """Fit the fabric of the outermost tier that nccl-tests logs cross.

    Shows the error at each size, and the hosts that are far slower than they should be. A
    topology uses the result with `fabric: FILE`.
    """
    from planner import api
    from planner.cli.output import show, write_file
    from planner.report.text.measured_collectives import calibration_report

    calibration = api.calibrate_collectives(logs, topology, Path(out).stem)
    write_file(out, calibration.to_yaml())
    document = calibration.to_document()
    show(document, calibration_report(document), as_json)


# ---------------------------------------------------------------- kernels


@validate.command(name="kernels")
@click.argument("files", metavar="[FILE]...", nargs=-1)
@options.as_json
def validate_kernels(files: tuple[str, ...], as_json: bool) -> None:
    """Predict measured matmuls (default: those of the package aiconfigurator-core).

    FILE is a CSV with the columns accelerator, dtype, m, n, k, latency, or a gemm_perf.parquet of
    that package. Without FILE its attention and expert kernels are predicted too.
    """
    from planner import api
    from planner.cli.output import show
    from planner.report.text.measured_kernels import kernels_report

    document = api.validate_kernels(files).to_document()
    show(document, kernels_report(document), as_json)


@calibrate.command(name="kernels")
@click.argument("files", metavar="[FILE]...", nargs=-1)
@click.option("--package", is_flag=True, help="Fit to the package aiconfigurator-core.")
@click.option(
    "--out", metavar="PATH", required=True,
    help="Write the accelerator's file here (YAML); of several accelerators, a folder of them.",
)  # fmt: skip
@options.as_json
def calibrate_kernels(files: tuple[str, ...], package: bool, out: str, as_json: bool) -> None:
    """Fit the matmul coefficients of accelerators to measured matmuls.

    FILE is as for `planner validate kernels`. Efficiency, k_half, tile and overhead are fitted on
    four fifths of the shapes; the errors shown are those of the others. A topology uses the result
    with `accelerator: FILE`.
    """
    if bool(files) == package:
        raise click.UsageError(
            "give either FILE... or --package", click.get_current_context(silent=True)
        )
    from planner import api
    from planner.cli.output import show, write, write_file
    from planner.report.text.measured_kernels import calibration_report

    calibration = api.calibrate_kernels(files)
    texts = {name: calibration.to_yaml(name) for name in calibration.accelerators}
    # a name with an ending is a file, any other a folder
    if Path(out).suffix in (".yaml", ".yml"):
        if len(texts) > 1:
            raise click.UsageError(
                f"--out must be a folder: {', '.join(texts)} were measured",
                click.get_current_context(silent=True),
            )
        (text,) = texts.values()
        write_file(out, text)
    else:
        write(out, {f"{name}.yaml": text for name, text in texts.items()})
    document = calibration.to_document()
    show(document, calibration_report(document), as_json)
