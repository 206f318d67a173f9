"""The accuracy page in Markdown: errors by source, accelerator and axis, both halves, peers."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from planner.report.text.numbers import ABSENT, percent, signed_percent
from planner.report.text.pieces import printable

PREDICTED, RESIDUALS = "accuracy-predicted.png", "accuracy-residuals.png"

AXIS_TITLES = {
    "tp": "tensor parallel", "cp": "context parallel", "pp": "pipeline parallel",
    "dp": "data parallel", "precision": "precision", "recompute": "recompute",
    "software": "software profile",
}  # fmt: skip


def accuracy_page(document: Mapping[str, Any], made_with: str) -> str:
    """The page. document: of `evidence.maintenance.accuracy`; made_with: command, commit."""
    halves, left = document["halves"], document["leave_one_out"]
    parts = [
        "# Accuracy tables",
        f"Made with {made_with}. What the tables mean is said in [accuracy.md](accuracy.md).",
        f"![Predicted against measured step times]({PREDICTED})",
        f"![Relative errors along every axis]({RESIDUALS})",
        "## By source",
        _errors(halves, left, "by_source"),
        "## By accelerator",
        _errors(halves, left, "by_accelerator"),
    ]
    for axis in halves["all"]["by_axis"]:
        parts += [f"## By {AXIS_TITLES.get(axis, axis)}", _errors(halves, left, "by_axis", axis)]
    parts += ["## Prediction intervals", _coverage(halves)]
    parts += ["## Beside other planners", _peers(document)]
    return "\n\n".join(parts) + "\n"


def _errors(
    halves: Mapping[str, Any], left: Mapping[str, Any] | None, key: str, axis: str | None = None
) -> str:
    def of(validation: Mapping[str, Any]) -> Mapping[str, Any]:
        return validation[key] if axis is None else validation[key][axis]  # type: ignore[no-any-return]

    every = of(halves["all"])
    names = sorted(every, key=lambda name: (_degree(name), -every[name]["rows"], name))
    head = ["", "rows", "MAPE", "median", "bias", "p95", "fitted rows", "MAPE", "held-out rows",
            "MAPE"]  # fmt: skip
    rows = [[printable(name), *_row(of, halves, name)] for name in names]
    whole = {half: halves[half]["time"] for half in halves}
    rows.append(["**all**", *_cells(whole["all"], whole["fit"], whole["test"])])
    if left is not None:
        head.append("source left out, MAPE")
        for row, name in zip(rows, [*names, None], strict=True):
            errors = left["time"] if name is None else of(left).get(name)
            row.append(_share(errors))
    if key == "by_source":
        macro = [_fraction(halves[half]["macro_mape_fraction"]) for half in ("all", "fit", "test")]
        own = ["**each source once**", "", macro[0], "", "", "", "", macro[1], "", macro[2]]
        rows.append(own if left is None else [*own, _fraction(left["macro_mape_fraction"])])
    return _table(head, rows)


def _degree(name: str) -> int:
    """What a degree or a range of them begins with; 0 of words."""
    first = name.split("-")[0]
    return int(first) if first.isdigit() else 0


def _row(of: Any, halves: Mapping[str, Any], name: str) -> list[str]:
    return _cells(*(of(halves[half]).get(name) for half in ("all", "fit", "test")))


def _cells(
    every: Mapping[str, Any], fit: Mapping[str, Any] | None, test: Mapping[str, Any] | None
) -> list[str]:
    bias = every["bias_fraction"]
    return [
        f"{every['rows']:,}",
        _share(every),
        _fraction(every["median_fraction"]),
        ABSENT if bias is None else signed_percent(bias),
        _fraction(every["p95_fraction"]),
        *(cell for part in (fit, test) for cell in (_count(part), _share(part))),
    ]


def _count(errors: Mapping[str, Any] | None) -> str:
    return ABSENT if errors is None else f"{errors['rows']:,}"


def _share(errors: Mapping[str, Any] | None) -> str:
    return ABSENT if errors is None else _fraction(errors["mape_fraction"])


def _fraction(value: float | None) -> str:
    return ABSENT if value is None else percent(value)


def _coverage(halves: Mapping[str, Any]) -> str:
    rows = []
    for quantity in ("step_seconds", "peak_bytes"):
        fit, test = (halves[half]["intervals"][quantity] for half in ("fit", "test"))
        for kind in {**fit, **test}:
            cells = [_inside(part.get(kind)) for part in (fit, test)]
            rows.append([quantity.split("_")[0], kind, *(c for pair in cells for c in pair)])
    head = ["", "kind", "fitted rows", "inside", "held-out rows", "inside"]
    return _table(head, sorted(rows, key=lambda row: (row[0] != "step", row[1] == "all")))


def _inside(found: Mapping[str, Any] | None) -> tuple[str, str]:
    if found is None:
        return ABSENT, ABSENT
    return f"{found['rows']:,}", _fraction(found["inside_fraction"])


def _peers(document: Mapping[str, Any]) -> str:
    rows = [
        [
            peer["rows"] + (" (the peer fitted on them)" if peer["in_sample"] else ""),
            percent(peer["mape_fraction"]),
            _share(peer["ours"]["test"]),
            _share(peer["ours"]["all"]),
            f"{peer['ours']['all']['rows']:,}",
        ]
        for peer in document["peers"]
    ]
    halves = document["halves"]
    ours = [_share(halves[half]["time"]) for half in ("test", "all")]
    number = f"{halves['all']['time']['rows']:,}"
    best = document["over_all_dense_rows"]
    rows += [
        [f"all dense rows each can express: {name}", percent(share), *ours, number]
        for name, share in best.items()
    ]
    head = ["rows", "best peer", "ours, held out", "ours, all", "our rows"]
    return _table(head, rows)


def _table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A Markdown table: the first column to the left, the rest to the right."""
    rule = ["---", *["--:"] * (len(head) - 1)]
    return "\n".join("| " + " | ".join(cells) + " |" for cells in (head, rule, *rows))
