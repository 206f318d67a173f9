"""A report for the terminal as HTML: the same parts, figures and words.

Every text is escaped by the template library; control characters, which could reorder or hide
text, are replaced.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import TYPE_CHECKING

from rich.console import Group, RenderableType
from rich.padding import Padding
from rich.table import Column, Table
from rich.text import Text

from planner.report.text.pieces import BAD, FAINT, FAIR, GOOD, STRONG, Bar, Phrases, Section

if TYPE_CHECKING:
    from markupsafe import Markup

CLASSES = {STRONG: "strong", FAINT: "faint", GOOD: "good", FAIR: "fair", BAD: "bad"}
"""Word of a style → class of the page."""


def markup_of(part: RenderableType) -> Markup:
    """The HTML of a part of a report.

    Raises:
        TypeError: a kind of part that the page does not know.
    """
    from markupsafe import Markup

    if isinstance(part, Section):
        heading = Markup("<h2>{}</h2>").format(clean(part.title))
        body = Markup("").join(_in_section(inner, part.title) for inner in part.body)
        return Markup("<section>{}{}</section>").format(heading, body)
    if isinstance(part, Table):
        return table_markup(part, "")
    if isinstance(part, Group):
        return Markup("").join(markup_of(inner) for inner in part.renderables)
    if isinstance(part, Padding):
        return markup_of(part.renderable)
    if isinstance(part, Text | str | Phrases):
        text = inline(part)
        return Markup("<p>{}</p>").format(text) if str(text).strip() else Markup("")
    if isinstance(part, Bar):
        return _bar(part)
    raise TypeError(f"no HTML for {type(part).__name__}")


def _in_section(part: RenderableType, heading: str) -> Markup:
    return table_markup(part, heading) if isinstance(part, Table) else markup_of(part)


def clean(text: str) -> str:
    """Text without characters that a page would obey rather than show; lines stay."""
    return "".join(c if c.isprintable() or c == "\n" else "�" for c in text)


def inline(part: RenderableType) -> Markup:
    """Text, a styled text, phrases or a bar as the content of a cell or paragraph."""
    from markupsafe import Markup, escape

    if isinstance(part, str):
        return escape(clean(part))
    if isinstance(part, Phrases):
        words = escape(clean(part.joint.join(part.phrases)))
        return _styled(words, part.style)
    if isinstance(part, Text):
        return _styled(Markup("").join(_runs(part)), str(part.style))
    if isinstance(part, Bar):
        return _bar(part)
    if isinstance(part, Group):
        return Markup("<br>").join(inline(inner) for inner in part.renderables)
    raise TypeError(f"no HTML for {type(part).__name__} in a line")


def _runs(text: Text) -> list[Markup]:
    """Stretches of a text with the styles that spans give them."""
    from markupsafe import escape

    cuts = sorted({0, len(text), *(end for span in text.spans for end in (span.start, span.end))})
    runs = []
    for start, end in pairwise(cuts):
        style = " ".join(str(s.style) for s in text.spans if s.start <= start and end <= s.end)
        style = "plain" if "not bold" in style else style  # it lifts a style: the page's own
        runs.append(_styled(escape(clean(text.plain[start:end])), style))
    return runs


def _styled(text: Markup, style: str) -> Markup:
    from markupsafe import Markup

    known = [CLASSES[word] for word in style.split() if word in CLASSES]
    if style == "plain":
        known = ["plain"]
    return Markup('<span class="{}">{}</span>').format(" ".join(known), text) if known else text


def _bar(bar: Bar) -> Markup:
    """A bar whose length says the share; decoration, since the figure stands beside it."""
    from markupsafe import Markup

    kind = CLASSES.get(bar.style.split()[-1], "link" if bar.style == "cyan" else "fair")
    return Markup(
        '<svg class="bar{}" viewBox="0 0 100 10" preserveAspectRatio="none" aria-hidden="true">'
        '<rect class="{}" width="{}" height="10"/></svg>'
    ).format(" track" if bar.track else "", kind, f"{100 * bar.share:.3g}")


# ---------------------------------------------------------------- tables


def table_markup(table: Table, name: str, links: Sequence[str] = ()) -> Markup:
    """A table in a box of its own that scrolls sideways; one with heads can be sorted.

    links: where the first cell of each row leads.
    """
    from markupsafe import Markup

    columns = table.columns
    heads = [inline(column.header) if column.header else Markup("") for column in columns]
    rows = list(zip(*(column.cells for column in columns), strict=True))
    sortable = any(str(head) for head in heads) and len(rows) > 1
    kinds = [_kind(column, rows, i) for i, column in enumerate(columns)]
    head = Markup("")
    if any(str(text) for text in heads):
        cells = Markup("").join(
            Markup('<th scope="col" class="{}">{}</th>').format(kind, text)
            if str(text)
            else Markup('<td class="{}"></td>').format(kind)
            for kind, text in zip(kinds, heads, strict=True)
        )
        head = Markup("<thead><tr>{}</tr></thead>").format(cells)
    lines = [
        (_row(rows, i, kinds, links[i] if links else None, sortable), row)
        for i, row in enumerate(rows)
    ]
    # a faint row sums up those above it: it stays below them
    body, foot = (
        Markup("").join(line for line, row in lines if (sortable and _faint(row)) is below)
        for below in (False, True)
    )
    return Markup(
        '<div class="scroll" role="group" aria-label="{}">'
        '<table class="{}">{}<tbody>{}</tbody>{}</table></div>'
    ).format(
        clean(name) or "facts", "sortable" if sortable else "facts", head, body,
        Markup("<tfoot>{}</tfoot>").format(foot) if foot else foot,
    )  # fmt: skip


def _kind(column: Column, rows: Sequence[Sequence[RenderableType]], number: int) -> str:
    """Class of a column: bars, right, left on one line, or wrapped."""
    if any(isinstance(row[number], Bar) for row in rows):
        return "b"
    if column.justify == "right":
        return "r"
    return "l" if column.no_wrap else "w"


def _faint(row: Sequence[RenderableType]) -> bool:
    return isinstance(row[0], Text) and str(row[0].style) == FAINT


def _row(
    rows: Sequence[Sequence[RenderableType]], number: int, kinds: Sequence[str], link: str | None,
    sortable: bool,
) -> Markup:  # fmt: skip
    from markupsafe import Markup

    cells = []
    for i, (cell, kind) in enumerate(zip(rows[number], kinds, strict=True)):
        text = inline(cell)
        key = Markup("")
        if sortable and number and not str(text):  # it continues the row above, sorts with it
            key = Markup(' data-key="{}"').format(_key(rows, number, i))
        if i == 0 and link is not None:
            text = Markup('<a href="#{}">{}</a>').format(link, text)
        if i == 0 and str(text):
            cells.append(Markup('<th scope="row" class="{}"{}>{}</th>').format(kind, key, text))
        else:
            cells.append(Markup('<td class="{}"{}>{}</td>').format(kind, key, text))
    return Markup("<tr>{}</tr>").format(Markup("").join(cells))


def _key(rows: Sequence[Sequence[RenderableType]], number: int, column: int) -> str:
    """The text of the nearest row above a row that has one in the column."""
    texts = (inline(rows[above][column]).striptags() for above in range(number - 1, -1, -1))
    return next((text for text in texts if text), "")
