"""A report for the terminal as HTML: the same blocks, figures and words.

markupsafe escapes every text; control characters, which could reorder or hide text, are replaced.
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


def markup_of(block: RenderableType) -> Markup:
    """The HTML of a block of a report.

    Raises:
        TypeError: a block that has no HTML.
    """
    from markupsafe import Markup

    if isinstance(block, Section):
        heading = Markup("<h2>{}</h2>").format(clean(block.title))
        body = Markup("").join(_in_section(inner, block.title) for inner in block.body)
        return Markup("<section>{}{}</section>").format(heading, body)
    if isinstance(block, Table):
        return table_markup(block, "")
    if isinstance(block, Group):
        return Markup("").join(markup_of(inner) for inner in block.renderables)
    if isinstance(block, Padding):
        return markup_of(block.renderable)
    if isinstance(block, Text | str | Phrases):
        text = inline(block)
        return Markup("<p>{}</p>").format(text) if str(text).strip() else Markup("")
    if isinstance(block, Bar):
        return _bar(block)
    raise TypeError(f"no HTML for {type(block).__name__}")


def _in_section(block: RenderableType, heading: str) -> Markup:
    return table_markup(block, heading) if isinstance(block, Table) else markup_of(block)


def clean(text: str) -> str:
    """Text without characters that a page would obey rather than show; lines stay."""
    return "".join(c if c.isprintable() or c == "\n" else "�" for c in text)


def inline(text: RenderableType) -> Markup:
    """Text, a styled text, phrases or a bar as the content of a cell or paragraph."""
    from markupsafe import Markup, escape

    if isinstance(text, str):
        return escape(clean(text))
    if isinstance(text, Phrases):
        words = escape(clean(text.joint.join(text.phrases)))
        return _styled(words, text.style)
    if isinstance(text, Text):
        return _styled(Markup("").join(_runs(text)), str(text.style))
    if isinstance(text, Bar):
        return _bar(text)
    if isinstance(text, Group):
        return Markup("<br>").join(inline(inner) for inner in text.renderables)
    raise TypeError(f"no HTML for {type(text).__name__} in a line")


def _runs(text: Text) -> list[Markup]:
    """Stretches of a text with the styles that spans give them."""
    from markupsafe import escape

    # every end of a span begins or ends a stretch of one style
    cuts = sorted({0, len(text), *(end for span in text.spans for end in (span.start, span.end))})
    runs = []
    for start, end in pairwise(cuts):
        style = " ".join(str(s.style) for s in text.spans if s.start <= start and end <= s.end)
        # it cancels the style of the text around it: the page has a class for that
        style = "plain" if "not bold" in style else style
        runs.append(_styled(escape(clean(text.plain[start:end])), style))
    return runs


def _styled(text: Markup, style: str) -> Markup:
    from markupsafe import Markup

    known = [CLASSES[word] for word in style.split() if word in CLASSES]
    if style == "plain":
        known = ["plain"]
    return Markup('<span class="{}">{}</span>').format(" ".join(known), text) if known else text


def _bar(bar: Bar) -> Markup:
    """A bar as long as its share; hidden from screen readers, since its row has the figure."""
    from markupsafe import Markup

    colour = CLASSES.get(bar.style.split()[-1], "link" if bar.style == "cyan" else "fair")
    return Markup(
        '<svg class="bar{}" viewBox="0 0 100 10" preserveAspectRatio="none" aria-hidden="true">'
        '<rect class="{}" width="{}" height="10"/></svg>'
    ).format(" track" if bar.track else "", colour, f"{100 * bar.share:.3g}")


# ---------------------------------------------------------------- tables


Cells = Sequence[RenderableType]


def table_markup(table: Table, name: str, links: Sequence[str] = ()) -> Markup:
    """A table that scrolls sideways by itself; one with heads and rows can be sorted.

    name: what screen readers call it. links: the anchor that the first cell of each row leads to.
    """
    from markupsafe import Markup

    columns = table.columns
    heads = [inline(column.header) if column.header else Markup("") for column in columns]
    rows: list[Cells] = list(zip(*(column.cells for column in columns), strict=True))
    sortable = any(str(head) for head in heads) and len(rows) > 1
    classes = [_column_class(column, rows, i) for i, column in enumerate(columns)]
    lines = [
        _row(rows, number, classes, links[number] if links else None, sortable)
        for number in range(len(rows))
    ]
    # a faint row sums up those above it: in the foot it stays below them, however they are sorted
    sums = [sortable and _is_faint(row) for row in rows]
    body = Markup("").join(line for line, is_sum in zip(lines, sums, strict=True) if not is_sum)
    foot = Markup("").join(line for line, is_sum in zip(lines, sums, strict=True) if is_sum)
    return Markup(
        '<div class="scroll" role="group" aria-label="{}">'
        '<table class="{}">{}<tbody>{}</tbody>{}</table></div>'
    ).format(
        clean(name) or "facts", "sortable" if sortable else "facts", _head(heads, classes), body,
        Markup("<tfoot>{}</tfoot>").format(foot) if foot else foot,
    )  # fmt: skip


def _head(heads: Sequence[Markup], classes: Sequence[str]) -> Markup:
    from markupsafe import Markup

    if not any(str(text) for text in heads):
        return Markup("")
    cells = Markup("").join(
        Markup('<th scope="col" class="{}">{}</th>').format(name, text)
        if str(text)
        else Markup('<td class="{}"></td>').format(name)
        for name, text in zip(classes, heads, strict=True)
    )
    return Markup("<thead><tr>{}</tr></thead>").format(cells)


def _column_class(column: Column, rows: Sequence[Cells], number: int) -> str:
    """Class of a column: bars, right, left on one line, or wrapped."""
    if any(isinstance(row[number], Bar) for row in rows):
        return "b"
    if column.justify == "right":
        return "r"
    return "l" if column.no_wrap else "w"


def _is_faint(row: Cells) -> bool:
    return isinstance(row[0], Text) and str(row[0].style) == FAINT


def _row(
    rows: Sequence[Cells], number: int, classes: Sequence[str], link: str | None, sortable: bool
) -> Markup:
    from markupsafe import Markup

    cells = []
    for i, (cell, name) in enumerate(zip(rows[number], classes, strict=True)):
        text = inline(cell)
        key = Markup("")
        if sortable and number and not str(text):  # it continues the row above, sorts with it
            key = Markup(' data-key="{}"').format(_text_above(rows, number, i))
        if i == 0 and link is not None:
            text = Markup('<a href="#{}">{}</a>').format(link, text)
        if i == 0 and str(text):
            cells.append(Markup('<th scope="row" class="{}"{}>{}</th>').format(name, key, text))
        else:
            cells.append(Markup('<td class="{}"{}>{}</td>').format(name, key, text))
    return Markup("<tr>{}</tr>").format(Markup("").join(cells))


def _text_above(rows: Sequence[Cells], number: int, column: int) -> str:
    """The text of the nearest row above a row that has one in the column."""
    texts = (inline(rows[above][column]).striptags() for above in range(number - 1, -1, -1))
    return next((text for text in texts if text), "")
