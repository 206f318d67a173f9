"""What the tables of predictions against measurements share: errors as cells, skipped rows."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rich.console import RenderableType

from planner.report.text.numbers import or_absent, percent, signed_percent
from planner.report.text.pieces import Column, printable, section, table

Document = Mapping[str, Any]
"""A validation or calibration as JSON values."""

ERROR_COLUMNS: list[Column] = [("median", "r"), ("MAPE", "r"), ("bias", "r"), ("p95", "r")]


def share(fraction: float | None) -> str:
    """'4.9 %', or ABSENT."""
    return or_absent(percent, fraction)


def signed_share(fraction: float | None) -> str:
    """'-0.9 %', or ABSENT."""
    return or_absent(signed_percent, fraction)


def error_cells(errors: Document) -> tuple[str, str, str, str]:
    """The cells of ERROR_COLUMNS: median and mean absolute relative error, mean signed one, 95th
    percentile."""
    return (
        share(errors["median_fraction"]),
        share(errors["mape_fraction"]),
        signed_share(errors["bias_fraction"]),
        share(errors["p95_fraction"]),
    )


def skipped_rows(reasons: Mapping[str, int]) -> RenderableType | None:
    """How many rows were skipped, by reason."""
    if not reasons:
        return None
    rows = [(f"{count:,}", printable(reason)) for reason, count in reasons.items()]
    return section("Skipped", table([("", "r"), ("", "w")], rows))
