"""The accuracy tables in Markdown: errors by source, accelerator and axis, both halves, peers."""

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

HALVES = ("all", "fit", "test")

Selection = Callable[[Document], Mapping[str, Any]]
"""From a validation its errors by source, accelerator, or the values of an axis."""


def accuracy_page(document: Document, made_with: str) -> str:
    """The page. document: of `evidence.maintenance.accuracy`; made_with: command, commit."""
    halves, left_out = document["halves"], document["leave_one_out"]
    blocks = [
        "# Accuracy tables",
        f"Made with {made_with}. [accuracy.md](accuracy.md) explains the tables.",
        f"![Predicted against measured step times]({PREDICTED})",
        f"![Relative errors along every axis]({RESIDUALS})",
        "## By source",
        _errors_by_source(halves, left_out),
        "## By accelerator",
        _errors(halves, left_out, lambda validation: validation["by_accelerator"]),
    ]
    for axis in halves["all"]["by_axis"]:
        blocks += [f"## By {AXIS_TITLES.get(axis, axis)}", _errors_by_axis(halves, left_out, axis)]
    blocks += ["## Prediction intervals", _intervals(halves)]
    blocks += ["## Against other planners", _peers(document)]
    return "\n\n".join(blocks) + "\n"


# ---------------------------------------------------------------- errors


def _errors(halves: Document, left_out: Document | None, select: Selection) -> str:
    return _table(*_error_rows(halves, left_out, select))


def _errors_by_axis(halves: Document, left_out: Document | None, axis: str) -> str:
    return _errors(halves, left_out, lambda validation: validation["by_axis"][axis])


def _errors_by_source(halves: Document, left_out: Document | None) -> str:
    """As others, and a row in which each source counts once."""
    head, rows = _error_rows(halves, left_out, lambda validation: validation["by_source"])
    every, fit, test = (share(halves[half]["macro_mape_fraction"]) for half in HALVES)
    macro = ["**each source once**", "", every, "", "", "", "", fit, "", test]
    if left_out is not None:
        macro.append(share(left_out["macro_mape_fraction"]))
    return _table(head, [*rows, macro])


def _error_rows(
    halves: Document, left_out: Document | None, select: Selection
) -> tuple[list[str], list[list[str]]]:
    """Heads, and a row for each name of the selection; the last is of all rows."""
    every, fit, test = (select(halves[half]) for half in HALVES)
    names = sorted(every, key=lambda name: (_first_degree(name), -every[name]["rows"], name))
    head = ["", "rows", "MAPE", "median", "bias", "p95", "fitted rows", "MAPE", "held-out rows",
            "MAPE"]  # fmt: skip
    rows = [[printable(name), *_cells(every[name], fit.get(name), test.get(name))]
            for name in names]  # fmt: skip
    rows.append(["**all**", *_cells(*(halves[half]["time"] for half in HALVES))])
    if left_out is not None:
        head.append("source left out, MAPE")
        errors = [*(select(left_out).get(name) for name in names), left_out["time"]]
        rows = [[*row, _mape(own)] for row, own in zip(rows, errors, strict=True)]
    return head, rows


def _first_degree(name: str) -> int:
    """What a degree or a range of them begins with, 17 for '17-32'; 0 for words."""
    first = name.split("-")[0]
    return int(first) if first.isdigit() else 0


def _cells(every: Document, fit: Document | None, test: Document | None) -> list[str]:
    return [
        f"{every['rows']:,}",
        _mape(every),
        share(every["median_fraction"]),
        signed_share(every["bias_fraction"]),
        share(every["p95_fraction"]),
        *(cell for half in (fit, test) for cell in (_count(half), _mape(half))),
    ]


def _count(errors: Document | None) -> str:
    return ABSENT if errors is None else f"{errors['rows']:,}"


def _mape(errors: Document | None) -> str:
    return ABSENT if errors is None else share(errors["mape_fraction"])


# ---------------------------------------------------------------- intervals, peers


def _intervals(halves: Document) -> str:
    rows = []
    for quantity in ("step_seconds", "peak_bytes"):
        fit, test = (halves[half]["intervals"][quantity] for half in ("fit", "test"))
        for kind in {**fit, **test}:
            cells = [*_inside(fit.get(kind)), *_inside(test.get(kind))]
            rows.append([quantity.split("_")[0], kind, *cells])
    head = ["", "kind of run", "fitted rows", "inside", "held-out rows", "inside"]
    return _table(head, sorted(rows, key=lambda row: (row[0] != "step", row[1] == "all")))


def _inside(counts: Document | None) -> tuple[str, str]:
    if counts is None:
        return ABSENT, ABSENT
    return f"{counts['rows']:,}", share(counts["inside_fraction"])


def _peers(document: Document) -> str:
    rows = [
        [
            peer["rows"] + (" (the peer fitted on them)" if peer["in_sample"] else ""),
            percent(peer["mape_fraction"]),
            _mape(peer["ours"]["test"]),
            _mape(peer["ours"]["all"]),
            _count(peer["ours"]["all"]),
        ]
        for peer in document["peers"]
    ]
    every, test = (document["halves"][half]["time"] for half in ("all", "test"))
    rows += [
        [f"all dense rows each can express: {name}", percent(fraction), _mape(test), _mape(every),
         _count(every)]
        for name, fraction in document["over_all_dense_rows"].items()
    ]  # fmt: skip
    head = ["rows", "best peer", "ours, held out", "ours, all", "our rows"]
    return _table(head, rows)


def _table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A Markdown table: the first column to the left, the rest to the right."""
    rule = ["---", *["--:"] * (len(head) - 1)]
    return "\n".join("| " + " | ".join(cells) + " |" for cells in (head, rule, *rows))
