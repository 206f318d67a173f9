"""Predictions against measured runs, fitted coefficients and prediction intervals, in tables."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from rich.console import Group, RenderableType
from rich.text import Text

from planner.report.text.errors import (
    ERROR_COLUMNS,
    Document,
    error_cells,
    share,
    skipped_rows,
)
from planner.report.text.numbers import ABSENT, percent, plural
from planner.report.text.pieces import (
    FAINT,
    STRONG,
    Row,
    facts,
    note,
    printable,
    section,
    stacked,
    table,
)
from planner.report.text.terms import term_words

COUNTED_COLUMNS = [("rows", "r"), *ERROR_COLUMNS]


# ---------------------------------------------------------------- validate


def runs_report(document: Document) -> RenderableType:
    """Errors of predicted step times by source and accelerator, ranking, fits, memory."""
    left_out = document.get("leave_one_out")
    return stacked(
        _scored(document),
        None if left_out is None else _left_out(document),
        _errors("Step time by source", document["by_source"], document["time"]),
        _errors("Step time by accelerator", document["by_accelerator"], document["time"]),
        section("Other checks", _checks(document)),
        section("Measurements inside the prediction intervals", _intervals(document["intervals"])),
        _skipped(document["rows_skipped"]),
    )


def _scored(document: Document) -> RenderableType:
    skipped = sum(document["rows_skipped"].values())
    text = f"{document['rows_scored']:,} rows scored, {skipped:,} skipped"
    assumed = document.get("rows_assumed_network", 0)
    if assumed:
        text += f"; {assumed:,} with an unknown NIC take the accelerator's usual fabric"
    return Text(text, STRONG)


def _left_out(document: Document) -> RenderableType:
    return Text(
        "each source predicted with software coefficients fitted without it: MAPE "
        f"{share(document['macro_mape_fraction'])}, each source counted once",
        STRONG,
    )


def _skipped(reasons: Mapping[str, int]) -> RenderableType | None:
    return skipped_rows(dict(sorted(reasons.items(), key=lambda item: -item[1])))


def _counted_cells(errors: Document) -> tuple[str, ...]:
    return f"{errors['rows']:,}", *error_cells(errors)


def _errors(title: str, groups: Mapping[str, Document], total: Document) -> RenderableType:
    rows: list[Row] = [
        (printable(name), *_counted_cells(errors))
        for name, errors in sorted(groups.items(), key=lambda item: -item[1]["rows"])
    ]
    rows.append((Text("all", STRONG), *_counted_cells(total)))
    return section(title, table([("", "w"), *COUNTED_COLUMNS], rows))


def _checks(document: Document) -> RenderableType:
    ranking, fits, memory = document["ranking"], document["fits"], document["memory"]
    sources = (
        f"MAPE {share(document.get('macro_mape_fraction'))}, pairs in the measured order "
        f"{share(document.get('macro_pairwise_fraction'))}, each source counted once"
    )
    order = (
        f"{share(ranking['pairwise_fraction'])} of pairs in the measured order, "
        f"{ranking['groups']} groups; our pick loses {share(ranking['regret_median_fraction'])} "
        f"(median), {share(ranking['regret_max_fraction'])} (worst); "
        f"{ranking['picks_oom']} of {ranking['picks']} picks ran out of memory"
    )
    verdicts = (
        f"predicted to fit: {fits['true_fit']} ran, {fits['false_fit']} ran out of memory; "
        f"predicted not to fit: {fits['true_oom']} ran out of memory, {fits['false_oom']} ran; "
        f"balanced accuracy {share(fits['balanced_accuracy'])}"
    )
    peak = (
        f"{memory['rows']} rows: median error {share(memory['median_fraction'])}, at most "
        f"{share(memory['max_under_fraction'])} under and "
        f"{share(memory['max_over_fraction'])} over"
    )
    return facts([("sources", sources), ("ranking", order), ("fits", verdicts), ("memory", peak)])


INTERVAL_COLUMNS = (("inside", "r"), ("below", "r"), ("above", "r"))


def _intervals(quantities: Mapping[str, Mapping[str, Document]]) -> RenderableType:
    rows: list[Row] = [
        (
            quantity.split("_")[0],
            kind,
            f"{counts['rows']:,}",
            *(share(counts[f"{where}_fraction"]) for where, _ in INTERVAL_COLUMNS),
        )
        for quantity, kinds in quantities.items()
        for kind, counts in kinds.items()
    ]
    return table([("", "l"), ("kind of run", "l"), ("rows", "r"), *INTERVAL_COLUMNS], rows)


# ---------------------------------------------------------------- calibrate runs


def calibration_report(document: Document) -> RenderableType:
    """For each profile: rows by source, the error before and after, and what changed."""
    return stacked(
        *(
            section(printable(name), _profile(profile))
            for name, profile in document["profiles"].items()
        ),
        *(
            note(f"{printable(name)} keeps its coefficients: {plural(rows, 'timed row')}")
            for name, rows in document["too_few"].items()
        ),
        _skipped(document["rows_skipped"]),
    )


def _profile(profile: Document) -> RenderableType:
    errors: list[Row] = [(when, *_counted_cells(profile[when])) for when in ("before", "after")]
    changes: list[Row] = [
        (term_words(name), f"{values['before']:.4g}", f"{values['after']:.4g}")
        for name, values in profile["coefficients"].items()
    ]
    sources = ", ".join(f"{printable(source)} {n}" for source, n in profile["sources"].items())
    unchanged = _names(profile["kept"])
    return stacked(
        Text(sources, FAINT),
        table([("", "l"), *COUNTED_COLUMNS], errors),
        Text(""),
        table([("", "l"), ("before", "r"), ("after", "r")], changes),
        note(f"unchanged, as no row depends on them: {unchanged}") if unchanged else None,
    )


def _names(coefficients: Sequence[str]) -> str:
    return ", ".join(map(term_words, coefficients))


def own_report(document: Document) -> RenderableType:
    """Each run before and after, and what changed within which bounds."""
    columns = [
        ("run", "l"), ("measured", "r"), ("MFU", "r"), ("before", "r"), ("after", "r"),
        ("error before", "r"), ("after", "r"),
    ]  # fmt: skip
    changes = [("", "l"), ("before", "r"), ("after", "r"), ("within", "r"), ("", "l")]
    before, after = (percent(document[when]["mape_fraction"]) for when in ("before", "after"))
    unchanged = _names(document["kept"])
    notes = [
        f"mean error {before} before, {after} after, of the runs that were fitted",
        f"unchanged, as no run depends on them: {unchanged}" if unchanged else None,
        "a coefficient at its bound suggests that something else is slow: `planner explain "
        "SCENARIO --layout ... --measured step_seconds=...` looks for it"
        if document["at_ends"]
        else None,
    ]
    return stacked(
        section(
            f"{printable(document['software'])}, tuned",
            table(columns, [_own_run(run) for run in document["rows"]]),
        ),
        Text(""),
        table(changes, [_own_change(document, name) for name in document["coefficients"]]),
        *(note(line) for line in notes if line),
    )


def _own_run(run: Document) -> Row:
    measured = run["measured_seconds"]
    predicted = run["before_seconds"], run["after_seconds"]
    return (
        printable(run["name"]),
        f"{measured:.4g} s",
        percent(run["measured_mfu"]),
        *(f"{seconds:.4g} s" for seconds in predicted),
        *(f"{100 * (seconds / measured - 1):+.1f} %" for seconds in predicted),
    )


def _own_change(document: Document, name: str) -> Row:
    values, (lowest, highest) = document["coefficients"][name], document["bounds"][name]
    return (
        term_words(name),
        f"{values['before']:.4g}",
        f"{values['after']:.4g}",
        f"{lowest:.4g} to {highest:.4g}",
        "at its bound" if name in document["at_ends"] else "",
    )


# ---------------------------------------------------------------- calibrate errors


def intervals_report(document: Document) -> RenderableType:
    """The interval of every kind of run, and how many rows of either half lie inside."""
    columns = [
        ("kind of run", "l"), ("interval", "r"), ("rows", "r"), ("sources", "r"), ("inside", "r"),
        ("held-out rows", "r"), ("inside", "r"),
    ]  # fmt: skip
    sections = []
    for quantity, title in (("step_seconds", "Step time"), ("peak_bytes", "Peak memory")):
        rows: list[Row] = [
            (
                kind,
                f"{ends['low']['value']:.3f} to {ends['high']['value']:.3f}",
                f"{ends['rows']:,}",
                str(ends["sources"]),
                *_inside(document, quantity, kind),
            )
            for kind, ends in document[quantity].items()
        ]
        rows.append((Text("all", STRONG), "", "", "", *_inside(document, quantity, "all")))
        sections.append(section(f"{title}, measured / predicted", table(columns, rows)))
    coverage = percent(document["coverage"]["value"], 0)
    return Group(*sections, note(f"intervals are made to hold {coverage} of the measurements"))


def _inside(document: Document, quantity: str, kind: str) -> tuple[str, str, str]:
    """Share of the fitted rows inside; held-out rows, and the share of them inside."""
    fit, test = (document["inside"][half][quantity].get(kind) for half in ("fit", "test"))
    return (
        ABSENT if fit is None else share(fit["inside_fraction"]),
        ABSENT if test is None else f"{test['rows']:,}",
        ABSENT if test is None else share(test["inside_fraction"]),
    )
