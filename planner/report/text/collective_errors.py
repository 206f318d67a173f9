"""Predicted collectives against measured ones, and a fitted fabric, in words and tables."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rich.console import Group, RenderableType
from rich.text import Text

from planner.report.text.numbers import ABSENT, percent, seconds, signed_percent
from planner.report.text.pieces import BAD, FAINT, STRONG, printable, section, table

SECTIONS: Mapping[str, str] = {
    "fit": "fitted: one run per fabric",
    "held_out": "held out: other operations and node counts",
    "without_fit": "fabrics that no run was fitted on",
    "degraded": "clusters called degraded",
    "held_out_sound": "held out, without suspicious hosts",
}

ERROR_COLUMNS = [
    ("", "w"), ("logs", "r"), ("points", "r"), ("median", "r"), ("p95", "r"), ("bias", "r"),
    ("α+S/β median", "r"), ("p95", "r"),
]  # fmt: skip


def collectives_report(document: Mapping[str, Any]) -> RenderableType:
    """Errors of predicted times by section, operation and log; the plain line beside them."""
    held_out = document["sections"]["held_out"]
    parts: list[RenderableType | None] = [
        Text(
            f"{document['logs']} logs, {document['points']:,} points: median error "
            f"{_share(document['median_fraction'])}, 95th percentile "
            f"{_share(document['p95_fraction'])}; held out from every fit "
            f"{_share(held_out['median_fraction'])} and {_share(held_out['p95_fraction'])}",
            STRONG,
        ),
        section("Error of time by section", _sections(document)),
        section("By operation, fitted and held out", _operations(document)),
        section("By log", _logs(document["by_log"])),
        _suspicious(document["by_log"]),
        _skipped(document["skipped"]),
    ]
    return Group(*(part for part in parts if part is not None))


def _share(fraction: float | None) -> str:
    return ABSENT if fraction is None else percent(fraction)


def _signed(fraction: float | None) -> str:
    return ABSENT if fraction is None else signed_percent(fraction)


def _cells(errors: Mapping[str, Any]) -> tuple[str, ...]:
    return (
        str(errors["logs"]),
        f"{errors['points']:,}",
        _share(errors["median_fraction"]),
        _share(errors["p95_fraction"]),
        _signed(errors["bias_fraction"]),
        _share(errors["line_median_fraction"]),
        _share(errors["line_p95_fraction"]),
    )


def _sections(document: Mapping[str, Any]) -> RenderableType:
    rows = [
        (SECTIONS[name], *_cells(errors))
        for name, errors in document["sections"].items()
        if errors["logs"]
    ]
    return table(ERROR_COLUMNS, rows)


def _operations(document: Mapping[str, Any]) -> RenderableType:
    rows = [
        (name, *_cells(errors))
        for name, errors in document["by_operation"].items()
        if errors["logs"]
    ]
    return table(ERROR_COLUMNS, rows)


def _logs(logs: Mapping[str, Mapping[str, Any]]) -> RenderableType:
    rows = [
        (
            printable(name),
            log["section"].replace("_", " "),
            str(log["points"]),
            _share(log["median_fraction"]),
            _share(log["p95_fraction"]),
            _signed(log["bias_fraction"]),
            _share(log["line_median_fraction"]),
        )
        for name, log in logs.items()
    ]
    columns = [
        ("", "w"), ("section", "l"), ("points", "r"), ("median", "r"), ("p95", "r"), ("bias", "r"),
        ("α+S/β", "r"),
    ]  # fmt: skip
    return table(columns, rows)


def _suspicious(logs: Mapping[str, Mapping[str, Any]]) -> RenderableType | None:
    found = {name: log["slowdown"] for name, log in logs.items() if log["suspicious"]}
    if not found:
        return None
    rows = [
        (Text(f"{ratio:.1f}×", BAD), printable(name))
        for name, ratio in sorted(found.items(), key=lambda item: -item[1])
    ]
    return section(
        "Suspicious hosts: large messages take so many times as long as predicted",
        table([("", "r"), ("", "w")], rows),
    )


def _skipped(skipped: Mapping[str, str]) -> RenderableType | None:
    if not skipped:
        return None
    rows = [(printable(name), printable(reason)) for name, reason in skipped.items()]
    return section("Skipped", table([("", "w"), ("", "w")], rows))


# ---------------------------------------------------------------- calibrate


def calibration_report(document: Mapping[str, Any]) -> RenderableType:
    """What was fitted, the error at each size, what was kept, and hosts under suspicion."""
    errors = document["errors"]
    head = (
        f"fabric {printable(document['fabric'])} of tier {printable(document['tier'])}: "
        f"median error {_share(errors['median_fraction'])}, 95th percentile "
        f"{_share(errors['p95_fraction'])} over {errors['points']} points "
        f"(the line α+S/β: {_share(errors['line_median_fraction'])}, "
        f"{_share(errors['line_p95_fraction'])})"
    )
    parts: list[RenderableType] = [
        Text(head, STRONG),
        section("Parameters", _parameters(document)),
    ]
    for name, log in document["by_log"].items():
        title = f"{printable(name)}: {log['operation']} of {log['ranks']} ranks"
        parts.append(section(title, _points(log)))
        parts += [Text(printable(note), FAINT) for note in log["notes"]]
    for name, why in document["suspicious"].items():
        parts.append(Text(f"suspicious: {printable(name)}: {why}", BAD))
    parts += [Text(f"kept: {key}: {why}", FAINT) for key, why in document["kept"].items()]
    return Group(*parts)


def _parameters(document: Mapping[str, Any]) -> RenderableType:
    rows = [
        (key, figure["value"], figure["status"], printable(figure["source"]))
        for key, figure in document["figures"].items()
    ]
    return table([("", "l"), ("value", "r"), ("status", "l"), ("source", "w")], rows)


def _points(log: Mapping[str, Any]) -> RenderableType:
    rows = [
        (f"{size:,.0f}", seconds(measured), f"{busbw / 1e9:.2f}", signed_percent(error))
        for size, measured, busbw, error in zip(
            log["num_bytes"],
            log["measured_seconds"],
            log["busbw"],
            log["error_fraction"],
            strict=True,
        )
    ]
    return table([("bytes", "r"), ("measured", "r"), ("busbw GB/s", "r"), ("fit", "r")], rows)
