"""What every picture shares: figures, axes, colours, line styles, text, and files.

Dark on light in the colours of Okabe and Ito, which colour-blind readers can tell apart; every
colour comes with a line style or a marker of its own, so that nothing is lost in a grey print.
Sizes are those of the printed page. matplotlib loads inside the functions and draws without a
screen.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import log10
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

from planner.errors import InputError, nearest_of
from planner.report.libraries import require_matplotlib
from planner.report.plots.labels import wrapped
from planner.report.text.pieces import printable

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

Box = tuple[float, float, float, float]

FORMATS = ("svg", "png", "pdf")
"""Formats of picture files."""

BLACK, BLUE, VERMILION, GREEN, PURPLE, ORANGE = (
    "#000000", "#0072B2", "#D55E00", "#009E73", "#AA4499", "#E69F00",
)  # fmt: skip
SKY, YELLOW = "#56B4E9", "#F0E442"
GREY, PALE = "#444444", "#DDDDDD"

STYLES: tuple[tuple[str, Any], ...] = (
    (BLACK, "-"), (BLUE, (0, (7, 2))), (VERMILION, (0, (7, 2, 1.5, 2))), (GREEN, (0, (3, 1.5))),
    (PURPLE, (0, (1.2, 1.2))),
)  # fmt: skip
"""Colour and line style of each curve; of rooflines: memory, then tiers, inner to outer."""

LABEL, SMALL = 8.5, 7.5
"""Points of labels, on the printed page."""

TITLE, BOLD = 10, 1.13
"""Points of titles; width of bold letters over that of others."""

SHORT = ((1e12, 1e12, "T"), (1e9, 1e9, "G"), (1e6, 1e6, "M"), (1e5, 1e3, "k"))
"""From this number on, divided by this, a tick has this letter."""

DOTS, DENSE_DOTS = (0, (1, 3)), (0, (1, 1.5))


def check_format(path: str | Path) -> None:
    """Refuse a file name whose format cannot be written, and any if matplotlib is missing.

    Raises:
        InputError: not .svg, .png or .pdf.
        PlannerError: matplotlib is not installed.
    """
    suffix = Path(path).suffix.lower().removeprefix(".")
    if suffix not in FORMATS:
        raise InputError(
            f"'{suffix}' is no format of pictures" if suffix else "the file name has no ending",
            path=str(path),
            key="--out",
            value=str(path),
            allowed=f"a file name that ends in {', '.join(f'.{name}' for name in FORMATS)}",
            nearest=nearest_of(suffix, FORMATS),
        )
    require_matplotlib()


def save(figure: Figure, path: str | Path) -> None:
    """Write a figure in the format of the file name; the same picture gives the same bytes.

    Raises:
        InputError: a format, or a place, that cannot be written.
    """
    check_format(path)
    file = Path(path)
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        with file.open("wb") as opened:
            save_to(figure, opened, file.suffix.lower().removeprefix("."))
    except OSError as error:
        raise InputError(
            f"cannot be written: {error.strerror}", path=str(path), key="--out",
            allowed="a file in a folder that can be made and written to",
        ) from None  # fmt: skip


def save_to(figure: Figure, file: IO[bytes], picture_format: str) -> None:
    """Write a figure in one of FORMATS; the same picture gives the same bytes."""
    from matplotlib import rc_context

    # dates and random ids would make every file different
    undated = {"svg": {"Date": None}, "pdf": {"CreationDate": None}}
    with rc_context({"svg.hashsalt": "planner", "pdf.fonttype": 42}):
        figure.savefig(file, format=picture_format, dpi=200, metadata=undated.get(picture_format))


def figure_of(width: float, height: float) -> Figure:
    """An empty figure, in inches, that needs no screen."""
    require_matplotlib()
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(width, height), facecolor="white")
    # a canvas of its own, without pyplot, whose figures are global and need a screen
    FigureCanvasAgg(figure)
    return figure


def axes_of(
    ax: Axes | None, width: float, height: float, box: Box = (0.1, 0.12, 0.77, 0.8)
) -> Axes:
    """Axes in our style: the given ones, or new ones on a page of this size in inches.

    box: where on the page, as shares of it (left, bottom, width, height).
    """
    if ax is None:
        ax = figure_of(width, height).add_axes(box)
    ax.set_facecolor("white")
    ax.grid(True, color=PALE, linewidth=0.6)
    ax.set_axisbelow(True)
    ax.tick_params(labelsize=LABEL, length=3)
    # axes without a frame
    for side in ("top", "right"):
        ax.spines[side].set_visible(False)
    return ax


def title(ax: Axes, text: str, x: float = 0.0) -> None:
    """What the picture shows, over the axes, from `x` of their width on, on as many lines as it
    needs."""
    page_inches, axes_inches = page_of(ax).get_size_inches()[0], inches(ax)[0]
    free_inches = page_inches - ax.get_position().x0 * page_inches - x * axes_inches - 0.05
    lines = wrapped(text, free_inches, TITLE * BOLD)
    ax.set_title(lines, loc="left", fontsize=TITLE, fontweight="bold", x=x)


def page_of(ax: Axes) -> Figure:
    """The figure that axes are on."""
    figure = ax.get_figure(root=True)
    assert figure is not None
    return figure


def inches(ax: Axes) -> tuple[float, float]:
    """Width and height of the axes on the page."""
    box, (width, height) = ax.get_position(), page_of(ax).get_size_inches()
    return box.width * width, box.height * height


def per_decade(ax: Axes) -> tuple[float, float]:
    """Inches per decade along each (logarithmic) axis."""
    width, height = inches(ax)
    (left, right), (bottom, top) = ax.get_xlim(), ax.get_ylim()
    return width / log10(right / left), height / log10(top / bottom)


def label_once(ax: Axes, label: str) -> str | None:
    """The label if no line has it yet, so that the legend has each only once."""
    return None if any(line.get_label() == label for line in ax.lines) else label


def escaped(name: str) -> str:
    """A name from a file as text for a picture, in which $ would start mathematics."""
    return printable(name).replace("$", r"\$")


def escaped_lines(text: str) -> str:
    """The same for text of several lines."""
    return "\n".join(escaped(line) for line in text.split("\n"))


def with_space(values: Sequence[float], ax: Axes, inches_apart: float = 0.45) -> list[float]:
    """Those of the values, rising, whose names do not overlap along a logarithmic x axis."""
    left, right = ax.get_xlim()
    across, kept = inches(ax)[0] / log10(right / left), list(values[:1])
    for value in values[1:]:
        if across * log10(value / kept[-1]) >= inches_apart:
            kept.append(value)
    return kept


def power_tick(value: float, _: object = None) -> str:
    """The label of a tick at a power of ten: 0.1, 1,000, 10⁶."""
    return f"{value:,g}" if 1e-3 < value < 1e5 else f"$10^{{{round(log10(value))}}}$"


def short_tick(value: float, _: object = None) -> str:
    """The label of a tick at a large number: 20,000, 500k, 1.5M."""
    for least, factor, letter in SHORT:
        if value >= least:
            return f"{value / factor:,g}{letter}"
    return f"{value:,g}"


def halo() -> list[Any]:
    """A white edge that lifts text off the lines it crosses."""
    from matplotlib.patheffects import withStroke

    return [withStroke(linewidth=2.5, foreground="white")]


def text_colour(background: Any) -> str:
    """Black or white, whichever reads better on a background (relative luminance of WCAG 2)."""
    from matplotlib.colors import to_rgb

    linear = [
        c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in to_rgb(background)
    ]
    luminance = 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]
    return "black" if luminance > 0.179 else "white"


def tint(colour: str, share: float) -> tuple[float, float, float]:
    """A colour, such as #56B4E9, mixed with white: share 1 is the colour itself."""
    red, green, blue = (1 - share * (1 - c / 255) for c in bytes.fromhex(colour.removeprefix("#")))
    return red, green, blue
