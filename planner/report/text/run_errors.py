"""Predictions against measured runs, fitted coefficients and prediction intervals, in tables."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from rich.console import Group, RenderableType
from rich.text import Text

from planner.report.text.numbers import ABSENT, percent, plural, signed_percent
from planner.report.text.pieces import FAINT, STRONG, facts, note, printable, section, table

Row = Sequence[RenderableType | str]


def runs_report(document: Mapping[str, Any]) -> RenderableType:
    """Errors of predicted step times by source and accelerator, ranking, fits, memory."""
    left_out = document.get("leave_one_out")
    parts: list[RenderableType | None] = [
        _scored(document),
        None if left_out is None else _left_out(document),
        _errors("Step time by source", document["by_source"], document["time"]),
        _errors("Step time by accelerator", document["by_accelerator"], document["time"]),
        section("Other checks", _checks(document)),
        section("Measurements inside the prediction intervals", _coverage(document["intervals"])),
        _skipped(document["rows_skipped"]),
    ]
    return Group(*(part for part in parts if part is not None))


def _scored(document: Mapping[str, Any]) -> RenderableType:
    skipped = sum(document["rows_skipped"].values())
    text = f"{document['rows_scored']:,} rows scored, {skipped:,} skipped"
    assumed = document.get("rows_assumed_network", 0)
    if assumed:
        text += f"; {assumed:,} with an unknown NIC take the part's usual fabric"
    return Text(text, STRONG)


def _errors(
    title: str, parts: Mapping[str, Mapping[str, Any]], whole: Mapping[str, Any]
) -> RenderableType | None:
    rows: list[Row] = [
        (printable(name), *_error_cells(errors))
        for name, errors in sorted(parts.items(), key=lambda item: -item[1]["rows"])
    ]
    rows.append((Text("all", STRONG), *_error_cells(whole)))
    columns = [
        ("", "w"), ("rows", "r"), ("median", "r"), ("MAPE", "r"), ("bias", "r"), ("p95", "r"),
    ]  # fmt: skip
    return section(title, table(columns, rows))


def _error_cells(errors: Mapping[str, Any]) -> tuple[str, ...]:
    return (
        f"{errors['rows']:,}",
        _share(errors["median_fraction"]),
        _share(errors["mape_fraction"]),
        ABSENT if errors["bias_fraction"] is None else signed_percent(errors["bias_fraction"]),
        _share(errors["p95_fraction"]),
    )


def _share(fraction: float | None) -> str:
    return ABSENT if fraction is None else percent(fraction)


def _checks(document: Mapping[str, Any]) -> RenderableType:
    ranking, fits, memory = document["ranking"], document["fits"], document["memory"]
    sources = (
        f"MAPE {_share(document.get('macro_mape_fraction'))}, pairs in order "
        f"{_share(document.get('macro_pairwise_fraction'))}, each source counted once"
    )
    order = (
        f"{_share(ranking['pairwise_fraction'])} of pairs in the measured order, "
        f"{ranking['groups']} groups; our pick loses {_share(ranking['regret_median_fraction'])} "
        f"(median), {_share(ranking['regret_max_fraction'])} (worst); "
        f"{ranking['picks_oom']} of {ranking['picks']} picks ran out of memory"
    )
    verdicts = (
        f"{fits['true_fit']} ran as said, {fits['false_oom']} ran though said not to; "
        f"{fits['true_oom']} ran out of memory as said, {fits['false_fit']} though said to fit; "
        f"balanced accuracy {_share(fits['balanced_accuracy'])}"
    )
    peak = (
        f"{memory['rows']} rows: median error {_share(memory['median_fraction'])}, at most "
        f"{_share(memory['max_under_fraction'])} under and "
        f"{_share(memory['max_over_fraction'])} over"
    )
    return facts([("sources", sources), ("ranking", order), ("fits", verdicts), ("memory", peak)])


def _skipped(skipped: Mapping[str, int]) -> RenderableType | None:
    if not skipped:
        return None
    rows = [
        (f"{count:,}", printable(reason))
        for reason, count in sorted(skipped.items(), key=lambda item: -item[1])
    ]
    return section("Skipped", table([("", "r"), ("", "w")], rows))


def _left_out(document: Mapping[str, Any]) -> RenderableType:
    return Text(
        "each source predicted with software coefficients fitted without it: MAPE "
        f"{_share(document['macro_mape_fraction'])}, each source counted once",
        STRONG,
    )


def _coverage(intervals: Mapping[str, Mapping[str, Any]]) -> RenderableType:
    rows: list[Row] = [
        (quantity.split("_")[0], kind, f"{found['rows']:,}", *_inside(found))
        for quantity, kinds in intervals.items()
        for kind, found in kinds.items()
    ]
    columns = [("", "l"), ("kind", "l"), ("rows", "r"), *INSIDE]
    return table(columns, rows)


INSIDE = (("inside", "r"), ("below", "r"), ("above", "r"))


def _inside(found: Mapping[str, Any]) -> tuple[str, ...]:
    return tuple(_share(found[f"{where}_fraction"]) for where, _ in INSIDE)


# ---------------------------------------------------------------- calibrate


def calibration_report(document: Mapping[str, Any]) -> RenderableType:
    """For each profile: rows by source, the error before and after, and what moved."""
    parts: list[RenderableType | None] = []
    for name, found in document["profiles"].items():
        parts.append(section(printable(name), _profile(found)))
    for name, rows in document["too_few"].items():
        parts.append(note(f"{printable(name)} keeps its numbers: {plural(rows, 'timed row')}"))
    parts.append(_skipped(document["rows_skipped"]))
    return Group(*(part for part in parts if part is not None))


def _profile(found: Mapping[str, Any]) -> RenderableType:
    errors: list[Row] = [(when, *_error_cells(found[when])) for when in ("before", "after")]
    columns = [
        ("", "l"), ("rows", "r"), ("median", "r"), ("MAPE", "r"), ("bias", "r"), ("p95", "r"),
    ]  # fmt: skip
    moved: list[Row] = [
        (name.replace("_", " "), f"{values['before']:.4g}", f"{values['after']:.4g}")
        for name, values in found["coefficients"].items()
    ]
    rows = ", ".join(f"{printable(source)} {n}" for source, n in found["sources"].items())
    kept = ", ".join(name.replace("_", " ") for name in found["kept"])
    return Group(
        Text(rows, FAINT),
        table(columns, errors),
        Text(""),
        table([("", "l"), ("before", "r"), ("after", "r")], moved),
        *([note(f"kept, as no row depends on them: {kept}")] if kept else []),
    )


def own_report(document: Mapping[str, Any]) -> RenderableType:
    """Each run before and after, and what moved within which bounds."""
    rows: list[Row] = []
    for row in document["rows"]:
        measured = row["measured_seconds"]
        errors = (row[when] / measured - 1 for when in ("before_seconds", "after_seconds"))
        rows.append(
            (
                printable(row["name"]), f"{measured:.4g} s", percent(row["measured_mfu"]),
                f"{row['before_seconds']:.4g} s", f"{row['after_seconds']:.4g} s",
                *(f"{100 * error:+.1f} %" for error in errors),
            )
        )  # fmt: skip
    columns = [
        ("run", "l"), ("measured", "r"), ("MFU", "r"), ("before", "r"), ("after", "r"),
        ("error before", "r"), ("after", "r"),
    ]  # fmt: skip
    moved: list[Row] = []
    for name, values in document["coefficients"].items():
        least, most = document["bounds"][name]
        moved.append(
            (name.replace("_", " "), f"{values['before']:.4g}", f"{values['after']:.4g}",
             f"{least:.4g} to {most:.4g}", "at its end" if name in document["at_ends"] else "")
        )  # fmt: skip
    kept = ", ".join(name.replace("_", " ") for name in document["kept"])
    before, after = (percent(document[when]["mape_fraction"]) for when in ("before", "after"))
    notes = [f"mean error {before} before, {after} after, of the runs that were fitted"]
    if kept:
        notes.append(f"kept, as no run depends on them: {kept}")
    if document["at_ends"]:
        notes.append(
            "a number at the end of its bounds says that something it does not stand for is slow: "
            "`planner explain SCENARIO --layout ... --measured step_seconds=...` looks for it"
        )
    return Group(
        section(f"{printable(document['software'])}, tuned", table(columns, rows)),
        Text(""),
        table([("", "l"), ("before", "r"), ("after", "r"), ("within", "r"), ("", "l")], moved),
        *(note(line) for line in notes),
    )


def intervals_report(document: Mapping[str, Any]) -> RenderableType:
    """The interval of every kind, and the share of either half's rows inside it."""
    parts = []
    columns = [
        ("kind", "l"), ("interval", "r"), ("rows", "r"), ("sources", "r"), ("inside", "r"),
        ("test rows", "r"), ("inside", "r"),
    ]  # fmt: skip
    for quantity, title in (("step_seconds", "Step time"), ("peak_bytes", "Peak memory")):
        rows: list[Row] = []
        for kind, interval in document[quantity].items():
            text = f"{interval['low']['value']:.3f} to {interval['high']['value']:.3f}"
            halves = _halves(document, quantity, kind)
            rows.append((kind, text, f"{interval['rows']:,}", str(interval["sources"]), *halves))
        rows.append((Text("all", STRONG), "", "", "", *_halves(document, quantity, "all")))
        parts.append(section(f"{title}, measured / predicted", table(columns, rows)))
    share = percent(document["coverage"]["value"], 0)
    return Group(*parts, note(f"intervals are made to contain {share} of the measurements"))


def _halves(document: Mapping[str, Any], quantity: str, kind: str) -> tuple[str, str, str]:
    fit, test = (document["inside"][half][quantity].get(kind) for half in ("fit", "test"))
    return (
        ABSENT if fit is None else _share(fit["inside_fraction"]),
        ABSENT if test is None else f"{test['rows']:,}",
        ABSENT if test is None else _share(test["inside_fraction"]),
    )
