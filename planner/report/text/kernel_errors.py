"""Predicted kernels against measured ones, and fitted coefficients, in words and tables."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from rich.console import Group, RenderableType
from rich.text import Text

from planner.report.text.numbers import ABSENT, percent, plural, seconds, signed_percent
from planner.report.text.pieces import STRONG, note, printable, section, table

WHICH = {"held_out": " that no fit has seen", "all": ""}
ERRORS = [("median", "r"), ("MAPE", "r"), ("bias", "r"), ("p95", "r")]

Document = Mapping[str, Any]


def kernels_report(document: Document) -> RenderableType:
    """Errors of products by accelerator and type; of attention and experts where there are any."""
    head = (
        f"{plural(document['rows'], 'product')}{WHICH[document['scored']]}: median error "
        f"{_share(document['median_fraction'])}, MAPE {_share(document['mape_fraction'])}, "
        f"95th percentile {_share(document['p95_fraction'])}"
    )
    parts: list[RenderableType | None] = [
        Text(head, STRONG),
        section("Matrix products", _gemm(document), _borrowed(document)),
        _attention(document["attention"]),
        _experts(document["experts"]),
        _skipped(document["skipped"]),
    ]
    return Group(*(part for part in parts if part is not None))


def _share(fraction: float | None) -> str:
    return ABSENT if fraction is None else percent(fraction)


def _cells(errors: Document) -> tuple[str, ...]:
    bias = errors["bias_fraction"]
    return (
        _share(errors["median_fraction"]),
        _share(errors["mape_fraction"]),
        ABSENT if bias is None else signed_percent(bias),
        _share(errors["p95_fraction"]),
    )


def _named(parts: Document) -> Iterator[tuple[str, str, Document]]:
    """Accelerator (once), name and entry of a two-level mapping."""
    for part, entries in parts.items():
        for position, (name, entry) in enumerate(entries.items()):
            yield printable(part) if position == 0 else "", name, entry


def _gemm(document: Document) -> RenderableType:
    rows = [
        (
            part,
            dtype,
            f"{entry[document['scored']]['rows']:,}",
            *_cells(entry[document["scored"]]),
        )
        for part, dtype, entry in _named(document["gemm"])
    ]
    columns = [("", "l"), ("type", "l"), ("shapes", "r"), *ERRORS]
    return table(columns, rows)


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


def _attention(parts: Document) -> RenderableType | None:
    if not parts:
        return None
    rows = [
        (part, head_dim, f"{entry['flash']['rows']:,}", *_cells(entry["flash"]))
        for part, head_dim, entry in _named(parts)
    ]
    columns = [("", "l"), ("head", "r"), ("shapes", "r"), *ERRORS]
    return section("Attention by head dimension: forward, BF16, causal", table(columns, rows))


def _experts(parts: Document) -> RenderableType | None:
    if not parts:
        return None
    rows = [
        (
            part,
            dtype,
            f"{entry['one launch']['rows']:,}",
            *_cells(entry["one launch"]),
            _share(entry["a launch each"]["median_fraction"]),
        )
        for part, dtype, entry in _named(parts)
    ]
    columns = [("", "l"), ("type", "l"), ("shapes", "r"), *ERRORS, ("apart", "r")]
    return section(
        "Experts, forward, even routing, all experts in one launch",
        table(columns, rows),
        note("apart: median error if every expert were a launch of its own"),
    )


def _skipped(skipped: Mapping[str, int]) -> RenderableType | None:
    if not skipped:
        return None
    rows = [(f"{count:,}", printable(reason)) for reason, count in skipped.items()]
    return section("Skipped", table([("", "r"), ("", "w")], rows))


# ---------------------------------------------------------------- calibrate


def calibration_report(document: Document) -> RenderableType:
    """What was fitted, by accelerator and type, and the errors on the shapes held out."""
    fits = document["fits"]
    parts: list[RenderableType | None] = [
        section("Coefficients", _coefficients(fits)),
        section(
            "Errors on the shapes held out",
            _fit_errors(fits),
            note("before: median error with the coefficients that the accelerator's file had"),
        ),
        _skipped(document["skipped"]),
    ]
    return Group(*(part for part in parts if part is not None))


def _coefficients(fits: Document) -> RenderableType:
    rows = []
    for part, dtype, fit in _named(fits):
        found = fit["coefficients"]
        tile = f"{found['tile_m']:.0f} × {found['tile_n']:.0f}"
        rows.append(
            (part, dtype, f"{found['efficiency']:.4g}", f"{found['k_half']:.4g}", tile,
             seconds(found["overhead_seconds"]))
        )  # fmt: skip
    columns = [
        ("", "l"), ("type", "l"), ("efficiency", "r"), ("k_half", "r"), ("tile", "r"),
        ("overhead", "r"),
    ]  # fmt: skip
    return table(columns, rows)


def _fit_errors(fits: Document) -> RenderableType:
    rows: list[Sequence[RenderableType | str]] = [
        (
            part,
            dtype,
            f"{fit['held_out']['rows']:,}",
            *_cells(fit["held_out"]),
            _share((fit["held_out_before"] or {}).get("median_fraction")),
        )
        for part, dtype, fit in _named(fits)
    ]
    columns = [
        ("", "l"), ("type", "l"), ("shapes", "r"), *ERRORS, ("before", "r"),
    ]  # fmt: skip
    return table(columns, rows)
