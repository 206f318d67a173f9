"""`planner validate kernels` and `planner calibrate kernels`."""

from __future__ import annotations

import click

from planner.cli import options


@click.command(name="kernels")
@click.argument("files", metavar="[FILE]...", nargs=-1)
@options.as_json
def validate_kernels(files: tuple[str, ...], as_json: bool) -> None:
    """Predict measured matrix products (default: those of the package aiconfigurator-core).

    FILE is a CSV with the columns accelerator, dtype, m, n, k, latency, or a gemm_perf.parquet of
    that package. Without FILE its attention and expert kernels are predicted too.
    """
    from planner import api
    from planner.cli.output import show
    from planner.report.text.kernel_errors import kernels_report

    document = api.validate_kernels(files).to_document()
    show(document, kernels_report(document), as_json)


@click.command(name="kernels")
@click.argument("files", metavar="[FILE]...", nargs=-1)
@click.option("--package", is_flag=True, help="Fit to the package aiconfigurator-core.")
@click.option(
    "--out", metavar="PATH", required=True,
    help="Write the accelerator's file here (YAML); of several accelerators, a folder of them.",
)  # fmt: skip
@options.as_json
def calibrate_kernels(files: tuple[str, ...], package: bool, out: str, as_json: bool) -> None:
    """Fit the matmul coefficients of accelerators to measured products.

    FILE is as for `planner validate kernels`. Fitted are efficiency, k_half, tile and overhead on
    four fifths of the shapes; the errors shown are those of the others. A topology uses the result
    with `accelerator: FILE`.
    """
    if bool(files) == package:
        raise click.UsageError(
            "give either FILE... or --package", click.get_current_context(silent=True)
        )
    from pathlib import Path

    from planner import api
    from planner.cli.output import show, write, write_file
    from planner.report.text.kernel_errors import calibration_report

    found = api.calibrate_kernels(files)
    texts = {name: found.to_yaml(name) for name in found.accelerators}
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
    document = found.to_document()
    show(document, calibration_report(document), as_json)
