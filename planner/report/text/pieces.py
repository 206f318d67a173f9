"""Pieces that every report is put together from: console, sections, facts, tables, bars.

A report is a `rich` renderable; the same pieces become HTML in `planner.report.page.markup`.
"""

from __future__ import annotations

import io
from collections.abc import Iterable, Sequence
from typing import IO

from rich.cells import cell_len
from rich.console import Console, ConsoleOptions, Group, RenderableType, RenderResult
from rich.measure import Measurement
from rich.padding import Padding
from rich.segment import Segment
from rich.style import Style
from rich.table import Table
from rich.text import Text

BLOCKS = " ▏▎▍▌▋▊▉█"
"""A cell filled to 0, 1 … 8 eighths."""

WIDEST_BAR = 48
"""Columns."""

GOOD, FAIR, BAD, FAINT, STRONG = "green", "yellow", "red", "dim", "bold"
VERDICT_STYLES = {"fits": GOOD, "fragile": FAIR, "no": BAD}

Row = Sequence[RenderableType | str]
Fact = tuple[str, RenderableType | str | None]
Column = tuple[str, str]
"""Head and kind: l left, r right (neither is wrapped), w left and wrapped, b bar."""


# ---------------------------------------------------------------- consoles


def printable(text: object) -> str:
    """Text of a file on one line without control characters, which a terminal would obey."""
    # escape sequences could move the cursor or hide text; line breaks would break tables
    return "".join(c if c.isprintable() else "�" for c in " ".join(str(text).split()))


def console(file: IO[str], width: int | None = None) -> Console:
    """A console that prints what it is given: no markup, no guessing of colours for numbers."""
    return Console(file=file, width=width, markup=False, highlight=False, emoji=False)


def plain_text(report: RenderableType, width: int = 100) -> str:
    """The report without colours, `width` columns wide."""
    buffer = io.StringIO()
    plain = Console(
        file=buffer, width=width, markup=False, highlight=False, emoji=False, no_color=True,
        force_terminal=False,
    )  # fmt: skip
    # rich pads lines to the full width, which a file does not need
    plain.print(report)
    return "".join(line.rstrip() + "\n" for line in buffer.getvalue().splitlines())


# ---------------------------------------------------------------- bars and phrases


class Bar:
    """A bar that fills `share` (0 to 1) of its column, which is at most WIDEST_BAR wide; with
    `track` the rest is drawn too."""

    def __init__(self, share: float, style: str = "cyan", track: bool = False) -> None:
        self.share = min(max(share, 0.0), 1.0)
        self.style = style
        self.track = track

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        width = min(options.max_width, WIDEST_BAR)
        if options.ascii_only:
            drawn = "#" * round(self.share * width)
        else:
            # block characters have eight widths per column
            full, eighths = divmod(round(self.share * width * 8), 8)
            drawn = BLOCKS[8] * full + (BLOCKS[eighths] if eighths else "")
        rest = width - len(drawn)
        yield Segment(drawn, Style.parse(self.style))
        yield Segment((("." if options.ascii_only else "░") if self.track else " ") * rest)
        yield Segment.line()

    def __rich_measure__(self, console: Console, options: ConsoleOptions) -> Measurement:
        # narrower than 4 columns a bar shows nothing
        return Measurement(4, min(options.max_width, WIDEST_BAR))


class Phrases:
    """Phrases one after the other; lines break between phrases rather than within."""

    def __init__(self, phrases: Iterable[str | None], style: str = "", joint: str = ", ") -> None:
        self.phrases = [phrase for phrase in phrases if phrase]
        self.style = style
        self.joint = joint

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        lines: list[str] = []
        last = len(self.phrases) - 1
        for position, phrase in enumerate(self.phrases):
            piece = phrase + (self.joint if position < last else "")
            # a joint at the end of a line loses its blank, so it is not measured
            if lines and cell_len(lines[-1] + piece.rstrip()) <= options.max_width:
                lines[-1] += piece
            else:
                lines.append(piece)
        yield Text("\n".join(line.rstrip() for line in lines), self.style)

    def __rich_measure__(self, console: Console, options: ConsoleOptions) -> Measurement:
        widths = [cell_len(phrase + self.joint) for phrase in self.phrases] or [0]
        on_one_line = cell_len(self.joint.join(self.phrases))
        most = options.max_width
        return Measurement(min(max(widths), most), min(on_one_line, most))


# ---------------------------------------------------------------- sections and tables


def stacked(*blocks: RenderableType | None) -> Group:
    """Those blocks that there are, one under the other."""
    return Group(*(block for block in blocks if block is not None))


class Section(Group):
    """A blank line, a heading, and the body two columns in; a web page reads title and body."""

    def __init__(self, title: str, *body: RenderableType) -> None:
        self.title = title
        self.body = body
        # (top, right, bottom, left)
        indented = (Padding(block, (0, 0, 0, 2)) for block in body)
        super().__init__(Text(""), Text(title, STRONG), *indented)


def section(title: str, *body: RenderableType | None) -> Section:
    """A heading over those blocks of the body that there are."""
    return Section(title, *(block for block in body if block is not None))


def facts(rows: Iterable[Fact]) -> Table:
    """Name and value, one fact a row; facts without a value are left out."""
    table = Table.grid(padding=(0, 2))
    table.add_column(style=FAINT, no_wrap=True)
    table.add_column(overflow="fold")
    for name, value in rows:
        if value is not None:
            table.add_row(name, value)
    return table


def table(columns: Sequence[Column], rows: Iterable[Row]) -> Table:
    """Rows under column heads, without lines."""
    shown = Table(
        # no lines: two blanks between columns, none after the last
        box=None, padding=(0, 2, 0, 0), pad_edge=False, header_style=FAINT,
        show_header=any(head for head, _ in columns),
    )  # fmt: skip
    for head, kind in columns:
        if kind == "r":
            shown.add_column(head, justify="right", no_wrap=True)
        elif kind == "l":
            shown.add_column(head, no_wrap=True, overflow="fold")
        elif kind == "b":
            shown.add_column(head)
        else:
            shown.add_column(head, overflow="fold")
    for row in rows:
        shown.add_row(*row)
    return shown


def note(text: str) -> Text:
    """A faint line that explains a table."""
    return Text(text, FAINT)


def warnings_section(warnings: Iterable[str]) -> Section | None:
    """What to be careful about."""
    lines = [Text(f"! {printable(text)}", FAIR) for text in warnings]
    return Section(WARNINGS, *lines) if lines else None


WARNINGS = "Warnings"
"""Title of the section that a web page moves to the top."""
