"""The accuracy tables in Markdown: errors by source, accelerator and axis, other planners."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from planner.report.text.errors import Document, share, signed_share
from planner.report.text.numbers import ABSENT, percent
from planner.report.text.pieces import printable

PREDICTED, RESIDUALS = "accuracy-predicted.png", "accuracy-residuals.png"

AXIS_TITLES = {
    "tp": "tensor parallel", "cp": "context parallel", "pp": "pipeline parallel",
    "dp": "data parallel", "precision": "precision", "recompute": "recompute",
    "software": "software profile",
}  # fmt: skip

Selection = Callable[[Document], Mapping[str, Any]]
"""From a validation its errors by source, accelerator, or the values of an axis."""


def accuracy_page(document: Document, made_with: str) -> str:
    """The page. document: of `evidence.maintenance.accuracy`; made_with: command, commit."""
    fitted, left_out = document["fitted"], document["leave_one_out"]
    blocks = [
        "# Accuracy tables",
        f"Made with {made_with}. [accuracy.md](accuracy.md) explains the tables.",
        f"![Predicted against measured step times]({PREDICTED})",
        f"![Relative errors along every axis]({RESIDUALS})",
        "## By source",
        _errors_by_source(fitted, left_out),
        "## By accelerator",
        _errors(fitted, left_out, lambda validation: validation["by_accelerator"]),
    ]
    for axis in fitted["by_axis"]:
        blocks += [f"## By {AXIS_TITLES.get(axis, axis)}", _errors_by_axis(fitted, left_out, axis)]
    if left_out is not None:
        blocks += ["## Prediction intervals", _intervals(left_out)]
    blocks += ["## Against other planners", _peers(document)]
    return "\n\n".join(blocks) + "\n"


# ---------------------------------------------------------------- errors


def _errors(fitted: Document, left_out: Document | None, select: Selection) -> str:
    return _table(*_error_rows(fitted, left_out, select))


def _errors_by_axis(fitted: Document, left_out: Document | None, axis: str) -> str:
    return _errors(fitted, left_out, lambda validation: validation["by_axis"][axis])


def _errors_by_source(fitted: Document, left_out: Document | None) -> str:
    """As others, and a row in which each source counts once."""
    head, rows = _error_rows(fitted, left_out, lambda validation: validation["by_source"])
    macro = ["**each source once**", "", share(fitted["macro_mape_fraction"]), "", "", ""]
    if left_out is not None:
        macro += [share(left_out["macro_mape_fraction"]), ""]
    return _table(head, [*rows, macro])


def _error_rows(
    fitted: Document, left_out: Document | None, select: Selection
) -> tuple[list[str], list[list[str]]]:
    """Heads, and a row for each name of the selection; the last is of all rows."""
    every = select(fitted)
    names = sorted(every, key=lambda name: (_first_degree(name), -every[name]["rows"], name))
    head = ["", "rows", "fitted, MAPE", "median", "bias", "p95"]
    rows = [[printable(name), *_cells(every[name])] for name in names]
    rows.append(["**all**", *_cells(fitted["time"])])
    if left_out is not None:
        head += [f"{left_out['left_out_by']} left out, MAPE", "bias"]
        errors = [*(select(left_out).get(name) for name in names), left_out["time"]]
        rows = [[*row, *_left_out(own)] for row, own in zip(rows, errors, strict=True)]
    return head, rows


def _left_out(errors: Document | None) -> tuple[str, str]:
    if errors is None:
        return ABSENT, ABSENT
    return share(errors["mape_fraction"]), signed_share(errors["bias_fraction"])


def _first_degree(name: str) -> int:
    """What a degree or a range of them begins with, 17 for '17-32'; 0 for words."""
    first = name.split("-")[0]
    return int(first) if first.isdigit() else 0


def _cells(errors: Document) -> list[str]:
    return [
        f"{errors['rows']:,}",
        _mape(errors),
        share(errors["median_fraction"]),
        signed_share(errors["bias_fraction"]),
        share(errors["p95_fraction"]),
    ]


def _mape(errors: Document) -> str:
    return share(errors["mape_fraction"])


# ---------------------------------------------------------------- intervals, peers


def _intervals(left_out: Document) -> str:
    """Of rows that were left out of the numbers that predict them."""
    rows = [
        [quantity.split("_")[0], kind, f"{counts['rows']:,}", share(counts["inside_fraction"])]
        for quantity in ("step_seconds", "peak_bytes")
        for kind, counts in left_out["intervals"][quantity].items()
    ]
    return _table(["", "kind of run", "rows", "inside"], rows)


def _peers(document: Document) -> str:
    rows = [
        [
            peer["rows"] + (" (the peer fitted on them)" if peer["in_sample"] else ""),
            percent(peer["mape_fraction"]),
            _mape(peer["ours"]["left_out"]),
            _mape(peer["ours"]["fitted"]),
            f"{peer['ours']['fitted']['rows']:,}",
        ]
        for peer in document["peers"]
    ]
    fitted, left_out = document["fitted"]["time"], document["leave_one_out"]
    apart = ABSENT if left_out is None else _mape(left_out["time"])
    rows += [
        [f"all dense rows each can express: {name}", percent(fraction), apart, _mape(fitted),
         f"{fitted['rows']:,}"]
        for name, fraction in document["over_all_dense_rows"].items()
    ]  # fmt: skip
    return _table(["rows", "best peer", "ours, left out", "ours, fitted", "our rows"], rows)


def _table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A Markdown table: the first column to the left, the rest to the right."""
    rule = ["---", *["--:"] * (len(head) - 1)]
    return "\n".join("| " + " | ".join(cells) + " |" for cells in (head, rule, *rows))
