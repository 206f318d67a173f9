"""A picture of which ranks live in which domain: each tier's repeating unit, outermost tier first.

A panel per tier shows one domain and its children; it is the inside of the marked box in the panel
above it. Children are in rows and columns by the atoms that vary there, so that a panel of 32 nodes
says 'pp down, dp across' once instead of in every box; of long rows beginning and end are shown.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import prod
from typing import TYPE_CHECKING, Any

from planner.layouts.rank_orders import atom_coordinates
from planner.planning.plan import Plan
from planner.problem.scenario import scenario_from_document
from planner.report.plots.drawing import (
    BLACK,
    BLUE,
    GREEN,
    GREY,
    LABEL,
    ORANGE,
    PURPLE,
    SMALL,
    VERMILION,
    escaped,
    figure_of,
    inches,
    text_colour,
    tint,
    title,
)
from planner.report.plots.labels import text_inches

if TYPE_CHECKING:
    from matplotlib.axes import Axes


@dataclass(frozen=True, slots=True)
class Factor:
    """What a tier tells apart of an atom: `size` blocks of `members_each` of its members. Boxes
    that are only laid out in a grid have no atom."""

    atom: str
    size: int
    members_each: int


COLOURS = {"tp": BLUE, "cp": GREEN, "dp_shard": ORANGE, "dp_replicate": PURPLE, "pp": VERMILION}
"""Colour of each axis."""

WIDTH, CELL, HEAD, GAP, MARGIN, SIDE = 7.6, 0.27, 0.46, 0.16, 0.12, 0.7
"""Inches: page, a row of boxes, a panel's heads, between panels, margin, names of rows."""

MOST_COLUMNS, MOST_ROWS = 16, 10
"""Boxes shown of a row and of a column; others in the middle are left out."""

MOST_TEXTS = 4
"""Boxes in a row where each says what it holds."""

READABLE, FILLED = 5.5, 0.86
"""Points below which a box gets a shorter text, not a smaller one; share of its width for text."""


@dataclass(frozen=True, slots=True)
class Panel:
    """A domain of a tier: its children as rows and columns of the factors that vary there.

    inner_across: whether columns are the inner factors. child_ranks: ranks in a child. domains: how
    many domains of the tier there are. texts: what each child holds, where atoms do not nest in
    domains; else empty.
    """

    tier: str
    below: str
    columns: tuple[Factor, ...]
    rows: tuple[Factor, ...]
    child_ranks: int
    domains: int
    inner_across: bool = True
    texts: tuple[str, ...] = ()

    @property
    def num_columns(self) -> int:
        return prod(factor.size for factor in self.columns)

    @property
    def num_rows(self) -> int:
        return prod(factor.size for factor in self.rows)

    @property
    def num_children(self) -> int:
        """Children of the domain; a grid of texts may have empty places at its end."""
        return len(self.texts) or self.num_columns * self.num_rows

    def child(self, row: int, column: int) -> int:
        """Which child is there, counted as ranks are."""
        if self.inner_across:
            return row * self.num_columns + column
        return column * self.num_rows + row


# ---------------------------------------------------------------- what to draw


def split_order(
    order: Sequence[tuple[str, int]], sizes: Sequence[int]
) -> list[list[Factor]] | None:
    """The factors of the rank order that each tier tells apart, inner to outer.

    sizes: children of each tier. None where a domain's boundary falls inside an atom unevenly.
    """
    rest = [(atom, degree) for atom, degree in order if degree > 1]
    placed: dict[str, int] = {}  # members of each atom in the tiers further in
    tiers: list[list[Factor]] = []
    for size in sizes:
        factors: list[Factor] = []
        while size > 1:
            if not rest:
                return None
            atom, degree = rest.pop(0)
            if degree > size:  # the tier holds only some of the atom's members
                if degree % size:
                    return None
                rest.insert(0, (atom, degree // size))
                degree = size
            elif size % degree:
                return None
            factors.append(Factor(atom, degree, placed.get(atom, 1)))
            placed[atom] = placed.get(atom, 1) * degree
            size //= degree
        tiers.append(factors)
    return tiers


def panels(plan: Plan) -> list[Panel]:
    """What to draw, outermost tier first; tiers of which one child is used are left out."""
    assert plan.fill is not None and plan.rank_order is not None
    names = [t.name for t in scenario_from_document(plan.inputs, "plan").topology.tiers]
    sizes = [plan.fill.get(name, 1) for name in names]
    factors = split_order(plan.rank_order, sizes)
    inner_first, below = [], "accelerator"
    for i, (name, size) in enumerate(zip(names, sizes, strict=True)):
        if size == 1:
            continue
        child_ranks, domains = prod(sizes[:i]), prod(sizes[i + 1 :])
        if factors is None:
            texts = _holdings(plan.rank_order, child_ranks, size)
            inner_first.append(_panel_of_texts(name, below, child_ranks, domains, texts))
        else:
            inner_first.append(_panel_of_factors(factors[i], name, below, child_ranks, domains))
        below = f"{name} domain"
    return inner_first[::-1]


def _panel_of_factors(
    factors: Sequence[Factor], tier: str, below: str, child_ranks: int, domains: int
) -> Panel:
    """The outermost factor down and the others across, or the reverse where that is flatter."""
    *inner, outer = factors
    # ranks count up along a row, as people read
    across, down = tuple(inner), (outer,)
    if prod(factor.size for factor in across) < outer.size:
        return Panel(tier, below, down, across, child_ranks, domains, inner_across=False)
    return Panel(tier, below, across, down, child_ranks, domains)


def _panel_of_texts(
    tier: str, below: str, child_ranks: int, domains: int, texts: tuple[str, ...]
) -> Panel:
    """Children with what each holds written in, where atoms do not nest in domains."""
    across = min(len(texts), MOST_TEXTS)
    down = -(-len(texts) // across)
    grid = (Factor("", across, 1),), (Factor("", down, 1),)
    return Panel(tier, below, *grid, child_ranks, domains, texts=texts)


def _holdings(order: Sequence[tuple[str, int]], child_ranks: int, size: int) -> tuple[str, ...]:
    """What each child of a tier's first domain holds: 'tp 0–5, dp 3'."""
    members = {atom: values for atom, values in atom_coordinates(order).items() if values.max() > 0}
    texts = []
    for child in range(size):
        ranks = slice(child * child_ranks, (child + 1) * child_ranks)
        texts.append(
            ", ".join(
                f"{_short(atom)} {_range(int(values[ranks].min()), int(values[ranks].max()))}"
                for atom, values in members.items()
                # an atom of which the child holds all members needs no mention
                if len(set(values[ranks].tolist())) < int(values.max()) + 1
            )
        )
    return tuple(texts)


def _range(low: int, high: int) -> str:
    return f"{low:,}" if low == high else f"{low:,}–{high:,}"


def _short(atom: str) -> str:
    """'dp_shard.ep' as 'dp·ep': data ranks that are expert ranks too."""
    axis, _, expert = atom.partition(".")
    name = {"dp_shard": "dp", "dp_replicate": "replica"}.get(axis, axis)
    return f"{name}·{expert}" if expert else name


# ---------------------------------------------------------------- drawing


def plot_placement(plan: Plan, ax: Axes | None = None) -> Axes:
    """Every tier's domain with the ranks of its children (of wide ones the first rank)."""
    shown = panels(plan)
    heights = [HEAD + CELL * len(_kept(panel.num_rows, MOST_ROWS)) for panel in shown]
    total = 2 * MARGIN + 0.3 + sum(heights) + GAP * max(len(shown) - 1, 0)
    if ax is None:
        figure = figure_of(WIDTH, total)
        ax = figure.add_axes((MARGIN / WIDTH, 0, 1 - 2 * MARGIN / WIDTH, 1 - 0.32 / total))
    width, height = inches(ax)
    ax.set_xlim(0, width)
    ax.set_ylim(height, 0)  # inches from the top
    ax.axis("off")
    top = 0.12
    for number, (panel, panel_height) in enumerate(zip(shown, heights, strict=True)):
        is_first, is_last = number == 0, number == len(shown) - 1
        heading = _heading(panel, inside=not is_first)
        ax.text(0, top + 0.07, heading, fontsize=LABEL, va="center", fontweight="bold")
        _draw(panel, top + HEAD, marked=None if is_last else 0, ax=ax)
        top += panel_height + GAP
    title(ax, _title(plan, shown))
    return ax


def _kept(number: int, most: int) -> list[int | None]:
    """Positions shown, None where some are left out."""
    if number <= most:
        return list(range(number))
    return [*range(most - 2), None, number - 1]


def _draw(panel: Panel, top: float, marked: int | None, ax: Axes) -> None:
    """Draw the boxes of a panel and the names of its rows and columns, the boxes from `top` on.

    marked: the child that the next panel shows inside of.
    """
    width, _ = inches(ax)
    columns = _kept(panel.num_columns, MOST_COLUMNS)
    rows = _kept(panel.num_rows, MOST_ROWS)
    cell = min((width - SIDE) / len(columns), 1.7)
    size, text_of = _texts(panel, cell)
    for i, name in enumerate(_column_names(panel, columns, cell)):
        ax.text(SIDE + (i + 0.5) * cell, top - 0.09, name, fontsize=SMALL, ha="center",
                va="center", color=GREY)  # fmt: skip
    for j, row in enumerate(rows):
        y = top + j * CELL
        name = "…" if row is None else _members(panel.rows, row)
        ax.text(SIDE - 0.06, y + CELL / 2, name, fontsize=SMALL, ha="right", va="center",
                color=GREY)  # fmt: skip
        for i, column in enumerate(columns):
            left = SIDE + i * cell
            if row is None or column is None:
                ax.text(left + cell / 2, y + CELL / 2, "…", ha="center", va="center",
                        fontsize=LABEL, color=GREY)  # fmt: skip
                continue
            child = panel.child(row, column)
            if child < panel.num_children:
                colour = _colour(panel, row, column)
                _box((left, y, cell), colour, child == marked, ax)
                ax.text(left + cell / 2, y + CELL / 2, text_of(child), fontsize=size, ha="center",
                        va="center", color=text_colour(colour))  # fmt: skip


def _column_names(panel: Panel, columns: Sequence[int | None], width: float) -> list[str]:
    """Names of the columns; where they would overlap, only the first has its axis."""
    names = ["…" if column is None else _members(panel.columns, column) for column in columns]
    if max(text_inches(name, SMALL) for name in names) > 0.96 * width:
        names[1:] = [name.rpartition(" ")[2] for name in names[1:]]
    return names


def _texts(panel: Panel, width: float) -> tuple[float, Callable[[int], str]]:
    """The size of the texts in a panel's boxes of this width, and the text of a child: its ranks,
    or what it holds.

    All have the same size and form, which the longest text decides.
    """
    last = panel.num_children - 1
    longest = max((*panel.texts, _range(*_ranks(panel, last))), key=len)
    size = _fitting_size(longest, width)
    if panel.texts:
        return size, panel.texts.__getitem__
    if size >= READABLE:
        return size, lambda child: _range(*_ranks(panel, child))

    def first_rank(child: int) -> str:
        return f"{_ranks(panel, child)[0]:,}"

    return _fitting_size(first_rank(last), width), first_rank


def _fitting_size(text: str, width: float) -> float:
    return min(SMALL, SMALL * FILLED * width / text_inches(text, SMALL))


def _box(place: tuple[float, float, float], colour: Any, marked: bool, ax: Axes) -> None:
    """A child at (left, top, width)."""
    from matplotlib.patches import Rectangle

    left, top, width = place
    ax.add_patch(
        Rectangle(
            (left + 0.015, top + 0.015), width - 0.03, CELL - 0.03, facecolor=colour,
            edgecolor=BLACK if marked else GREY, linewidth=2.0 if marked else 0.5,
        )
    )  # fmt: skip


def _ranks(panel: Panel, child: int) -> tuple[int, int]:
    """First and last rank of a child."""
    return child * panel.child_ranks, (child + 1) * panel.child_ranks - 1


def _members(factors: Sequence[Factor], position: int) -> str:
    """Which members of the factors' atoms a position holds: 'pp 3', 'cp 1 dp 16–31'."""
    words = []
    for factor in factors:
        if factor.atom:
            first = position % factor.size * factor.members_each
            last = first + factor.members_each - 1
            words.append(f"{_short(factor.atom)} {_range(first, last)}")
            position //= factor.size
    return " ".join(words)


def _colour(panel: Panel, row: int, column: int) -> Any:
    """Of the outermost axis that varies in the panel, darker from member to member."""
    if panel.texts:
        return tint(GREY, 0.12)
    factors, position = (panel.rows, row) if panel.rows else (panel.columns, column)
    *inner, outer = factors
    position //= prod(factor.size for factor in inner)
    colour = COLOURS[outer.atom.partition(".")[0]]
    return tint(colour, 0.15 + 0.6 * (position / (outer.size - 1) if outer.size > 1 else 0))


# ---------------------------------------------------------------- words


def _heading(panel: Panel, inside: bool) -> str:
    """inside: whether the panel is the inside of the box marked above."""
    outer_first = (panel.rows, panel.columns) if panel.inner_across else (panel.columns, panel.rows)
    factors = " × ".join(
        f"{_short(factor.atom)} {factor.size}"
        for side in outer_first
        for factor in side
        if factor.atom
    )
    tier, number = escaped(panel.tier), panel.num_children
    where = f"{tier}: all" if panel.domains == 1 else f"one of {panel.domains:,} {tier} domains:"
    children = f"{number:,} {escaped(panel.below)}{'s' if number != 1 else ''}"
    ranks = "" if panel.child_ranks == 1 else f" of {panel.child_ranks:,} ranks"
    text = f"{where} {children}{ranks}" + (f" = {factors}" if factors else "")
    return f"Inside the marked box, {text}" if inside else f"{text[0].upper()}{text[1:]}"


def _title(plan: Plan, shown: Sequence[Panel]) -> str:
    """Where the axes live: '1,024 ranks: tp within nvlink; cp, pp within leaf'."""
    assert plan.fill is not None
    reach: dict[str, str] = {}  # axis → the outermost tier in which it varies
    inner_first = shown[::-1]
    for panel in inner_first:
        for factor in (*panel.columns, *panel.rows):
            reach |= {axis: panel.tier for axis in _short(factor.atom).split("·") if axis}
    lives = "; ".join(
        f"{', '.join(axis for axis in reach if reach[axis] == panel.tier)} "
        f"within {escaped(panel.tier)}"
        for panel in inner_first
        if panel.tier in reach.values()
    )
    ranks = f"{prod(plan.fill.values()):,} ranks"
    return f"{ranks}: {lives}" if lives else f"{ranks}, by domain"
