"""The page of a sweep: what came out, pictures, a row per point, and each point's plan in short."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from rich.console import RenderableType
from rich.text import Text

from planner.report.page.frame import Block, Picture, render
from planner.report.page.markup import clean, markup_of, table_markup
from planner.report.text.numbers import (
    gigabytes,
    in_words,
    or_absent,
    percent,
    plural,
    seconds,
)
from planner.report.text.pieces import (
    BAD,
    FAINT,
    FAIR,
    GOOD,
    STRONG,
    VERDICT_STYLES,
    Fact,
    Phrases,
    facts,
    table,
)
from planner.report.text.pieces import Row as Cells
from planner.report.text.sweep_rows import (
    COUNT,
    Row,
    axis_words,
    capital,
    planned,
    reason_of,
    value_text,
    values_of,
    varying,
    where,
    with_figure,
)
from planner.report.text.terms import SMALL_FRACTION, term_words

if TYPE_CHECKING:
    from markupsafe import Markup

STATUS_STYLES = {"optimal": GOOD, "feasible": FAIR, "unknown": FAIR}

BEST = (
    ("highest MFU", "mfu", 1), ("most tokens/s", "tokens_per_second", 1),
    ("lowest cost", "cost", -1), ("fewest days", "days", -1),
)  # fmt: skip
"""What the summary names: its words, the figure, and 1 if more is better, -1 if less."""


def sweep_page(
    rows: Sequence[Row], axes: Sequence[str], name: str, pictures: Sequence[Picture] = (),
    notes: Sequence[str] = (),
) -> str:  # fmt: skip
    """The page's text.

    Raises:
        PlannerError: Jinja2 is not installed.
    """
    blocks = [
        Block(markup_of(_summary(rows, axes))),
        *(Block(markup_of(Text("")), [picture]) for picture in pictures),
        Block(_all_points(rows, axes)),
        Block(_each_point(rows, axes)),
    ]
    heading = f"Sweep {name}: {plural(len(rows), 'point')}"
    return render(heading, [_axes(rows, axes)], blocks, notes)


def _axes(rows: Sequence[Row], axes: Sequence[str]) -> str:
    return "; ".join(
        f"{axis_words(key)}: {plural(len(values_of(rows, key)), 'value')}" for key in axes
    )


def _summary(rows: Sequence[Row], axes: Sequence[str]) -> RenderableType:
    counts = Counter(str(row.get("status")) for row in rows)
    points = Phrases(f"{number:,} {status}" for status, number in counts.most_common())
    # a row that is best in several figures is named once
    best: dict[int, tuple[Row, list[str]]] = {}
    for words, key, sign in BEST:
        known = with_figure(rows, key)
        if known:
            row = max(known, key=lambda row: sign * row[key])
            best.setdefault(id(row), (row, []))[1].append(words)
    shown: list[Fact] = [("Points", points)]
    shown += [(capital(", ".join(names)), _point_line(row, axes)) for row, names in best.values()]
    return facts(shown)


def _point_line(row: Row, axes: Sequence[str]) -> RenderableType:
    """A point in a line: its layout, figures and values."""
    text = Text(str(row.get("layout") or ""), STRONG)
    text.append(
        f": {', '.join(_figures(row))}; point {row.get('point')}, {_at(row, axes)}",
        "not bold",
    )
    return text


def _at(row: Row, axes: Sequence[str]) -> str:
    return where({key: row.get(key) for key in axes}) or "the only one"


def _figures(row: Row) -> list[str]:
    forms: tuple[tuple[str, Callable[[float], str]], ...] = (
        ("mfu", lambda v: f"MFU {percent(v)}"),
        ("step_seconds", lambda v: f"step {seconds(v, 4)}"),
        ("tokens_per_second", lambda v: f"{in_words(v)} tokens/s"),
        ("days", lambda v: f"{v:,.1f} days"),
        ("cost", lambda v: f"{in_words(v)} USD"),
    )
    return [form(row[key]) for key, form in forms if row.get(key) is not None]


# ---------------------------------------------------------------- all points


def _all_points(rows: Sequence[Row], axes: Sequence[str]) -> Markup:
    from markupsafe import Markup

    with_plan = planned(rows)
    subjects = [
        key for key in ("model", "topology", "software", COUNT)
        if key not in axes and varying(with_plan, [key])
    ]  # fmt: skip
    shown = [*axes, *subjects]
    optional = [
        (key, head)
        for key, head in (("days", "days"), ("cost", "cost, USD"))
        if with_figure(rows, key)
    ]
    columns = [("point", "r"), *((_head(key), _column_kind(rows, key)) for key in shown)]
    columns += [("status", "l"), ("layout", "w"), ("step", "r"), ("MFU", "r")]
    columns += [("tokens/s per accelerator", "r"), ("GB", "r"), *((h, "r") for _, h in optional)]
    body = [_cells(row, shown, [key for key, _ in optional]) for row in rows]
    links = [f"point-{row.get('point')}" for row in rows]
    markup = table_markup(table(columns, body), "All points", links)
    # thousands of rows scroll in a box of limited height
    markup = Markup(str(markup).replace('class="scroll"', 'class="scroll long"', 1))
    return Markup("<section><h2>All points</h2>{}</section>").format(markup)


def _head(key: str) -> str:
    return capital(axis_words(key))


def _column_kind(rows: Sequence[Row], key: str) -> str:
    numbers = all(isinstance(row.get(key), int | float | None) for row in rows)
    return "r" if numbers else "l"


def _cells(row: Row, shown: Sequence[str], optional: Sequence[str]) -> Cells:
    status, layout = str(row.get("status")), str(row.get("layout") or "")
    return (
        str(row.get("point")),
        *(value_text(row.get(key)) for key in shown),
        Text(status, STATUS_STYLES.get(status, BAD)),
        layout or Text(_reason(row), FAINT),
        or_absent(lambda step: seconds(step, 4), row.get("step_seconds")),
        or_absent(percent, row.get("mfu")),
        or_absent(lambda rate: f"{rate:,.0f}", row.get("tokens_per_second_per_accelerator")),
        or_absent(gigabytes, row.get("peak_bytes")),
        *(or_absent(in_words, row.get(key)) for key in optional),
    )


LONGEST_REASON = 90


def _reason(row: Row) -> str:
    reason = clean(reason_of(row))
    return reason if len(reason) <= LONGEST_REASON else f"{reason[: LONGEST_REASON - 1]}…"


# ---------------------------------------------------------------- each point


def _each_point(rows: Sequence[Row], axes: Sequence[str]) -> Markup:
    from markupsafe import Markup

    points = Markup("").join(
        Markup('<details id="point-{}"><summary>{}</summary>{}</details>').format(
            row.get("point"), clean(_line(row, axes)), markup_of(_point(row))
        )
        for row in rows
    )
    return Markup("<section><h2>Each point's plan</h2>{}</section>").format(points)


def _line(row: Row, axes: Sequence[str]) -> str:
    result = row.get("layout") or str(row.get("status"))
    return f"Point {row.get('point')}, {_at(row, axes)}: {result}"


def _point(row: Row) -> RenderableType:
    """What the plan is and where its time goes, in one table of facts."""
    step, verdict = row.get("step_seconds"), row.get("memory_verdict")
    shown: list[Fact] = [
        *((_head(key), value_text(row.get(key))) for key in ("model", "topology", "software")),
        ("Reason", str(row["reason"]) if row.get("reason") else None),
    ]
    if step:
        shown += [
            ("Figures", Phrases(_figures(row))),
            ("Gap", None if row.get("gap_fraction") is None else percent(row["gap_fraction"], 2)),
            ("Layout", Phrases(_layout(row))),
            ("Time", Phrases(_time(row, step))),
        ]
    if row.get("peak_bytes") and verdict:
        text = Text(str(verdict), VERDICT_STYLES.get(str(verdict), FAINT))
        text.append(f": {gigabytes(row['peak_bytes'])} GB", "not bold default")
        shown.append(("Memory", text))
    return facts(shown)


def _layout(row: Row) -> list[str]:
    return [
        f"{key.removeprefix('layout.')} {value_text(value)}"
        for key, value in row.items()
        if key.startswith("layout.") and value is not None and key != "layout.stage_layers"
    ]


def _time(row: Row, step: float) -> list[str]:
    terms = {
        term_words(key.removeprefix("time.")): value
        for key, value in row.items()
        if key.startswith("time.") and value and value >= SMALL_FRACTION * step
    }
    return [
        f"{name} {seconds(value)} ({percent(value / step)})"
        for name, value in sorted(terms.items(), key=lambda item: -item[1])
    ]
