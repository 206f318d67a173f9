"""Predicted collectives against measured ones, and a fitted fabric, in words and tables."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from rich.console import RenderableType
from rich.text import Text

from planner.report.text.errors import Document, share, signed_share
from planner.report.text.numbers import ABSENT, seconds, signed_percent
from planner.report.text.pieces import BAD, FAINT, STRONG, printable, section, stacked, table

SECTIONS: Mapping[str, str] = {
    "fit": "fitted: one run per fabric",
    "held_out": "held out: other operations and node counts",
    "without_fit": "fabrics that no run was fitted on",
    "degraded": "clusters reported as degraded",
    "held_out_sound": "held out, without suspicious hosts",
}

ERROR_COLUMNS = [
    ("", "w"), ("logs", "r"), ("points", "r"), ("median", "r"), ("p95", "r"), ("bias", "r"),
    ("α+S/β median", "r"), ("p95", "r"),
]  # fmt: skip
"""The last two are of the plain line α + S/β, for comparison."""


# ---------------------------------------------------------------- validate


def collectives_report(document: Document) -> RenderableType:
    """Errors of predicted times by section, operation and log, and those of the plain line."""
    held_out = document["sections"]["held_out"]
    head = (
        f"{document['logs']} logs, {document['points']:,} points: median error "
        f"{share(document['median_fraction'])}, 95th percentile "
        f"{share(document['p95_fraction'])}; held out from every fit "
        f"{share(held_out['median_fraction'])} and {share(held_out['p95_fraction'])}"
    )
    sections = {SECTIONS[name]: errors for name, errors in document["sections"].items()}
    return stacked(
        Text(head, STRONG),
        section("Error of time by section", _errors(sections)),
        section("By operation, fitted and held out", _errors(document["by_operation"])),
        section("By log", _logs(document["by_log"])),
        _suspicious(document["by_log"]),
        _skipped(document["skipped"]),
    )


def _errors(entries: Mapping[str, Document]) -> RenderableType:
    rows = [
        (
            name,
            str(errors["logs"]),
            f"{errors['points']:,}",
            share(errors["median_fraction"]),
            share(errors["p95_fraction"]),
            signed_share(errors["bias_fraction"]),
            share(errors["line_median_fraction"]),
            share(errors["line_p95_fraction"]),
        )
        for name, errors in entries.items()
        if errors["logs"]
    ]
    return table(ERROR_COLUMNS, rows)


def _logs(logs: Mapping[str, Document]) -> RenderableType:
    rows = [
        (
            printable(name),
            log["section"].replace("_", " "),
            str(log["points"]),
            share(log["median_fraction"]),
            share(log["p95_fraction"]),
            signed_share(log["bias_fraction"]),
            share(log["line_median_fraction"]),
        )
        for name, log in logs.items()
    ]
    columns = [
        ("", "w"), ("section", "l"), ("points", "r"), ("median", "r"), ("p95", "r"), ("bias", "r"),
        ("α+S/β", "r"),
    ]  # fmt: skip
    return table(columns, rows)


def _suspicious(logs: Mapping[str, Document]) -> RenderableType | None:
    rows = [
        (Text(_times(log["slowdown"]), BAD), _times(log["peer_slowdown"]), printable(name))
        for name, log in sorted(logs.items(), key=lambda item: -(item[1]["slowdown"] or 0.0))
        if log["suspicious"]
    ]
    if not rows:
        return None
    return section(
        "Suspicious hosts: large messages take this many times the predicted time, and that of logs"
        " of the same fabrics over as many or more domains",
        table([("predicted", "r"), ("others", "r"), ("", "w")], rows),
    )


def _times(ratio: float | None) -> str:
    return ABSENT if ratio is None else f"{ratio:.1f}×"


def _skipped(reasons: Mapping[str, str]) -> RenderableType | None:
    """Logs that were not scored, each with its reason."""
    if not reasons:
        return None
    rows = [(printable(name), printable(reason)) for name, reason in reasons.items()]
    return section("Skipped", table([("", "w"), ("", "w")], rows))


# ---------------------------------------------------------------- calibrate


def calibration_report(document: Document) -> RenderableType:
    """What was fitted, the error at each size, what was kept, and hosts under suspicion."""
    errors = document["errors"]
    head = (
        f"fabric {printable(document['fabric'])} of tier {printable(document['tier'])}: "
        f"median error {share(errors['median_fraction'])}, 95th percentile "
        f"{share(errors['p95_fraction'])} over {errors['points']} points "
        f"(the line α+S/β: {share(errors['line_median_fraction'])}, "
        f"{share(errors['line_p95_fraction'])})"
    )
    return stacked(
        Text(head, STRONG),
        section("Parameters", _parameters(document)),
        *_fitted_logs(document["by_log"]),
        *(
            Text(f"suspicious: {printable(name)}: {why}", BAD)
            for name, why in document["suspicious"].items()
        ),
        *(Text(f"kept: {key}: {why}", FAINT) for key, why in document["kept"].items()),
    )


def _parameters(document: Document) -> RenderableType:
    rows = [
        (key, figure["value"], figure["status"], printable(figure["source"]))
        for key, figure in document["figures"].items()
    ]
    return table([("", "l"), ("value", "r"), ("status", "l"), ("source", "w")], rows)


def _fitted_logs(logs: Mapping[str, Document]) -> Iterator[RenderableType]:
    for name, log in logs.items():
        yield section(
            f"{printable(name)}: {log['operation']} of {log['ranks']} ranks", _points(log)
        )
        yield from (Text(printable(text), FAINT) for text in log["notes"])


def _points(log: Document) -> RenderableType:
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
    return table([("bytes", "r"), ("measured", "r"), ("busbw GB/s", "r"), ("error", "r")], rows)
