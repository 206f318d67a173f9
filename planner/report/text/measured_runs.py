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
    signed_share,
    skipped_rows,
)
from planner.report.text.numbers import ABSENT, percent, plural
from planner.report.text.pieces import (
    FAINT,
    STRONG,
    Column,
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


def runs_report(document: Document, fitted: bool = False) -> RenderableType:
    """Errors of predicted step times by source and accelerator, ranking, fits, memory.

    fitted: whether the numbers were fitted to these very rows, which then cannot judge intervals.
    """
    left_out = document.get("leave_one_out")
    return stacked(
        _scored(document),
        *([] if left_out is None else _left_out(document)),
        _errors("Step time by source", document["by_source"], document["time"]),
        _errors("Step time by accelerator", document["by_accelerator"], document["time"]),
        _assumed_software(document["assumed_software"])
        if document["rows_assumed_software"]
        else None,
        section("Other checks", _checks(document)),
        note(FITTED)
        if fitted
        else section(
            "Measurements inside the prediction intervals", _intervals(document["intervals"])
        ),
        _skipped(document["rows_skipped"]),
    )


FITTED = (
    "the numbers that ship were fitted to these rows: --leave-one-out judges them, and the "
    "prediction intervals"
)


def _scored(document: Document) -> RenderableType:
    skipped = sum(document["rows_skipped"].values())
    text = f"{document['rows_scored']:,} rows scored, {skipped:,} skipped"
    assumed = document.get("rows_assumed_network", 0)
    if assumed:
        text += f"; {assumed:,} with an unknown NIC take the accelerator's usual fabric"
    without_profile = document["rows_assumed_software"]
    if without_profile:
        text += (
            f"; {without_profile:,} more, of frameworks without a profile, take software fallback "
            "and count in no figure but their own"
        )
    return Text(text, STRONG)


GROUPS = {
    "source": ("source", "sources"),
    "family": ("model family", "model families"),
    "half": ("half", "halves"),
}
"""What was left out, one and many."""

MODELS = {"dense": "dense models", "moe": "models with experts"}

LEFT_OUT_COLUMNS: list[Column] = [
    ("", "w"), ("rows", "r"), ("MAPE", "r"), ("bias", "r"), ("inside intervals", "r"),
]  # fmt: skip


def _left_out(document: Document) -> list[RenderableType]:
    """What was left out with the error of each sort of model, and a table for each sort."""
    one, many = GROUPS[document["left_out_by"]]
    errors = {
        MODELS[models]: found
        for models, found in document["left_out"].items()
        if found["total"]["time"]["rows"]
    }
    mapes = ", ".join(
        f"{share(found['macro_mape_fraction'])} of {models}" for models, found in errors.items()
    )
    head = (
        f"each {one} predicted with numbers fitted without it: MAPE "
        f"{mapes or ABSENT}, each {one} counted once"
    )
    tables = (
        section(f"{many.capitalize()} left out, {models}", _left_out_table(one, found))
        for models, found in errors.items()
    )
    return [Text(head, STRONG), *tables]


def _left_out_table(one: str, errors: Document) -> RenderableType:
    folds = sorted(errors["by_fold"].items(), key=lambda item: -item[1]["time"]["rows"])
    rows: list[Row] = [(printable(name), *_left_out_cells(found)) for name, found in folds]
    macro = share(errors["macro_mape_fraction"])
    rows.append((Text(f"each {one} once", STRONG), "", macro, "", ""))
    rows.append((Text("all", STRONG), *_left_out_cells(errors["total"])))
    return table(LEFT_OUT_COLUMNS, rows)


def _left_out_cells(errors: Document) -> tuple[str, ...]:
    time = errors["time"]
    return (
        f"{time['rows']:,}",
        share(time["mape_fraction"]),
        signed_share(time["bias_fraction"]),
        share(errors["inside_fraction"]),
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


def _assumed_software(errors: Document) -> RenderableType:
    title = "Step time of frameworks without a profile"
    inside = share(errors["intervals"]["step_seconds"]["all"]["inside_fraction"])
    return stacked(
        _errors(title, errors["by_framework"], errors["time"]),
        note(f"inside the prediction intervals: {inside}"),
    )


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
        section("Clocks under load, of the peak", _clocks(document["clocks"])),
        section("Clusters", _clusters(document["overheads"])),
        *(
            note(f"{printable(name)} keeps its coefficients: {plural(rows, 'timed row')}")
            for name, rows in document["too_few"].items()
        ),
        _skipped(document["rows_skipped"]),
    )


def _clocks(clocks: Mapping[str, Mapping[str, float]]) -> RenderableType:
    rows: list[Row] = [
        (printable(owner), precision, f"{value:.4g}")
        for owner, values in clocks.items()
        for precision, value in values.items()
    ]
    return table([("", "l"), ("", "l"), ("fraction", "r")], rows)


def _clusters(overheads: Mapping[str, Document]) -> RenderableType:
    rows: list[Row] = [
        (
            term_words(name),
            f"{found['value']:.4g}",
            f"{found['low']:.4g} to {found['high']:.4g}",
            str(found["clusters"]),
        )
        for name, found in overheads.items()
    ]
    columns: list[Column] = [("", "l"), ("usual", "r"), ("range", "r"), ("clusters", "r")]
    return table(columns, rows)


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
    """The interval of every kind of run, and the share of its rows, each left out, inside."""
    columns = [
        ("kind of run", "l"), ("interval", "r"), ("rows", "r"), ("sources", "r"), ("left out", "r"),
        ("inside", "r"),
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
    judged = document["inside_without_own_source"]
    lowest, covered = min(
        (
            (source, found)
            for source, found in document["inside_by_source"].items()
            if found["rows"] >= MANY_ROWS
        ),
        key=lambda item: item[1]["inside_fraction"],
        default=(None, None),
    )
    worst = (
        f"; least of a source with {MANY_ROWS} rows or more: "
        f"{share(covered['inside_fraction'])} of {printable(lowest)}"
        if lowest and covered
        else ""
    )
    return Group(
        *sections,
        note(f"intervals are made to hold {coverage} of the measurements"),
        note(
            f"each source judged by intervals made without it: "
            f"{share(judged['inside_fraction'])} inside{worst}"
        ),
    )


MANY_ROWS = 15
"""Rows from which on a source's coverage is more than chance."""


def _inside(document: Document, quantity: str, kind: str) -> tuple[str, str]:
    """Rows of a kind that were left out of what predicts them, and the share of them inside."""
    found = document["inside"][quantity].get(kind)
    if found is None:
        return ABSENT, ABSENT
    return f"{found['rows']:,}", share(found["inside_fraction"])
