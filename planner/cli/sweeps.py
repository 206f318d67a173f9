"""`planner sweep`: many scenarios planned in batch."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import click

from planner.cli import options
from planner.cli.program import DONE, NO_LAYOUT

if TYPE_CHECKING:
    from planner.sweep import Progress

FORMATS = ("csv", "jsonl", "parquet")
SECONDS_BETWEEN_LINES = 5.0


@click.command()
@click.argument("sweep")
@options.out(required=True, text="Keep the results here. Repeat the command to resume.")
@click.option(
    "--workers", type=click.IntRange(1, 1024), metavar="N",
    help="Number of worker processes. Default: one per CPU.",
)  # fmt: skip
@click.option(
    "--scheduler",
    metavar="ADDRESS",
    help="Plan on the workers of the Dask scheduler at this address, such as tcp://head:8786.",
)
@click.option(
    "--format", "formats", multiple=True, type=options.Choice(FORMATS),
    help="Format in which the rows must be written. CSV and JSON lines always are, Parquet if "
    "pyarrow is installed. Repeatable.",
)  # fmt: skip
@options.as_json
def sweep(
    sweep: str,
    out: str,
    workers: int | None,
    scheduler: str | None,
    formats: tuple[Any, ...],
    as_json: bool,
) -> int:
    """Plan many scenarios: a base, and axes of values for its keys.

    SWEEP is a shipped name (`planner list sweeps`) or a YAML file. Every point is a full plan and
    is stored in DIR/sweep.sqlite as soon as it is finished.

    Exit codes: 0 done, 1 no point has a layout, 2 bad input.
    """
    if workers is not None and scheduler is not None:
        raise click.UsageError(
            "give --workers or --scheduler, not both", click.get_current_context()
        )
    from planner import api
    from planner.cli.output import show
    from planner.report.text.sweep import sweep_report

    with _progress(out) as tell:
        results = api.run_sweep(
            sweep, out, workers=workers, scheduler=scheduler, formats=formats, tell=tell
        )
    show(results.to_document(), sweep_report(results), as_json)
    planned = any(row["layout"] is not None for row in results.rows)
    return DONE if planned else NO_LAYOUT


# ---------------------------------------------------------------- progress


@contextmanager
def _progress(folder: str) -> Iterator[Callable[[Progress], None]]:
    """What to call after each finished point: draws a bar on a terminal, else prints lines."""
    latest: Progress | None = None
    with _bar() if sys.stderr.isatty() else _lines() as show:

        def tell(progress: Progress) -> None:
            nonlocal latest
            latest = progress
            show(progress)

        try:
            yield tell
        except KeyboardInterrupt:
            if latest is not None:
                click.echo(
                    f"interrupted: {latest.done:,} of {latest.total:,} points are kept in "
                    f"{folder}; repeat the command to resume",
                    err=True,
                )
            raise
    if latest is not None:
        click.echo(f"{_state(latest)}; wrote {folder}", err=True)


@contextmanager
def _bar() -> Iterator[Callable[[Progress], None]]:
    from rich.progress import BarColumn, MofNCompleteColumn, TextColumn
    from rich.progress import Progress as Bars

    from planner.report.text.pieces import console

    columns = (BarColumn(), MofNCompleteColumn(), TextColumn("{task.description}"))
    # transient: the bar disappears, and the last line says how it ended
    with Bars(*columns, console=console(sys.stderr), transient=True) as bars:
        task = bars.add_task("", total=None)

        def show(progress: Progress) -> None:
            bars.update(
                task, total=progress.total, completed=progress.done, description=_pace(progress)
            )

        yield show


@contextmanager
def _lines() -> Iterator[Callable[[Progress], None]]:
    printed_at = time.monotonic()

    def show(progress: Progress) -> None:
        nonlocal printed_at
        if time.monotonic() - printed_at >= SECONDS_BETWEEN_LINES:
            printed_at = time.monotonic()
            click.echo(f"{_state(progress)}, {_pace(progress)}", err=True)

    yield show


def _state(progress: Progress) -> str:
    reused = f", {progress.reused:,} of them from before" if progress.reused else ""
    return f"{progress.done:,} of {progress.total:,} points{reused}"


def _pace(progress: Progress) -> str:
    left = progress.seconds_left
    if left is None:
        return "starting"
    rate = progress.points_per_second
    return f"{rate:.3g} points/s, {_duration(left)} left"


def _duration(seconds: float) -> str:
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    if hours:
        return f"{hours} h {minutes:02d} min"
    return f"{minutes} min {rest:02d} s" if minutes else f"{rest} s"
