"""Predicted kernels against measured ones, and fitted coefficients, in words and tables."""

from __future__ import annotations

from collections.abc import Iterator

from rich.console import RenderableType
from rich.text import Text

from planner.report.text.errors import ERROR_COLUMNS, Document, error_cells, share, skipped_rows
from planner.report.text.numbers import plural, seconds
from planner.report.text.pieces import STRONG, Row, note, printable, section, stacked, table

SCORED = {"held_out": " held out from every fit", "all": ""}
"""Which rows the errors are of."""


# ---------------------------------------------------------------- validate


def kernels_report(document: Document) -> RenderableType:
    """Errors of matmuls by accelerator and type; of attention and experts where there are any."""
    head = (
        f"{plural(document['rows'], 'matmul')}{SCORED[document['scored']]}: median error "
        f"{share(document['median_fraction'])}, MAPE {share(document['mape_fraction'])}, "
        f"95th percentile {share(document['p95_fraction'])}"
    )
    return stacked(
        Text(head, STRONG),
        section("Matmuls", _gemm(document), _borrowed(document)),
        _attention(document["attention"]),
        _experts(document["experts"]),
        skipped_rows(document["skipped"]),
    )


def _entries(accelerators: Document) -> Iterator[tuple[str, str, Document]]:
    """Accelerator (once), name and entry of a two-level mapping."""
    for accelerator, entries in accelerators.items():
        for position, (name, entry) in enumerate(entries.items()):
            yield printable(accelerator) if position == 0 else "", name, entry


def _shapes_and_errors(errors: Document) -> tuple[str, ...]:
    return f"{errors['rows']:,}", *error_cells(errors)


def _gemm(document: Document) -> RenderableType:
    rows = [
        (accelerator, dtype, *_shapes_and_errors(entry[document["scored"]]))
        for accelerator, dtype, entry in _entries(document["gemm"])
    ]
    return table([("", "l"), ("type", "l"), ("shapes", "r"), *ERROR_COLUMNS], rows)


def _borrowed(document: Document) -> RenderableType | None:
    """Which types have no coefficients of their own."""
    borrowed = {
        dtype: entry["coefficients"]
        for entries in document["gemm"].values()
        for dtype, entry in entries.items()
        if "_" in dtype
    }
    if not borrowed:
        return None
    words = ", ".join(f"{dtype} is predicted with those of {of}" for dtype, of in borrowed.items())
    return note(f"Coefficients: {words}.")


def _attention(accelerators: Document) -> RenderableType | None:
    if not accelerators:
        return None
    rows = [
        (accelerator, head_dim, *_shapes_and_errors(entry["flash"]))
        for accelerator, head_dim, entry in _entries(accelerators)
    ]
    columns = [("", "l"), ("head", "r"), ("shapes", "r"), *ERROR_COLUMNS]
    return section("Attention by head dimension: forward, BF16, causal", table(columns, rows))


def _experts(accelerators: Document) -> RenderableType | None:
    if not accelerators:
        return None
    rows = [
        (
            accelerator,
            dtype,
            *_shapes_and_errors(entry["one launch"]),
            share(entry["a launch each"]["median_fraction"]),
        )
        for accelerator, dtype, entry in _entries(accelerators)
    ]
    columns = [("", "l"), ("type", "l"), ("shapes", "r"), *ERROR_COLUMNS, ("separate", "r")]
    return section(
        "Experts, forward, even routing, all experts in one launch",
        table(columns, rows),
        note("separate: median error if every expert were a launch of its own"),
    )


# ---------------------------------------------------------------- calibrate


def calibration_report(document: Document) -> RenderableType:
    """What was fitted, by accelerator and type, and the errors on the held-out shapes."""
    fits = document["fits"]
    return stacked(
        section("Coefficients", _coefficients(fits)),
        section(
            "Errors on the held-out shapes",
            _fit_errors(fits),
            note("before: median error with the coefficients that the accelerator's file had"),
        ),
        skipped_rows(document["skipped"]),
    )


def _coefficients(fits: Document) -> RenderableType:
    rows: list[Row] = []
    for accelerator, dtype, fit in _entries(fits):
        values = fit["coefficients"]
        rows.append(
            (
                accelerator,
                dtype,
                f"{values['efficiency']:.4g}",
                f"{values['k_half']:.4g}",
                f"{values['tile_m']:.0f} × {values['tile_n']:.0f}",
                seconds(values["overhead_seconds"]),
            )
        )
    columns = [
        ("", "l"), ("type", "l"), ("efficiency", "r"), ("k_half", "r"), ("tile", "r"),
        ("overhead", "r"),
    ]  # fmt: skip
    return table(columns, rows)


def _fit_errors(fits: Document) -> RenderableType:
    rows: list[Row] = [
        (
            accelerator,
            dtype,
            *_shapes_and_errors(fit["held_out"]),
            share((fit["held_out_before"] or {}).get("median_fraction")),
        )
        for accelerator, dtype, fit in _entries(fits)
    ]
    columns = [("", "l"), ("type", "l"), ("shapes", "r"), *ERROR_COLUMNS, ("before", "r")]
    return table(columns, rows)
