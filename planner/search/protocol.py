"""What the search reads and what it answers: the problem's protocol and plain values."""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass
from math import inf
from typing import Literal, Protocol

import numpy as np
from numpy.typing import NDArray

from planner.search.placement import IntArray

__all__ = [
    "Counts",
    "Progress",
    "Row",
    "SearchProblem",
    "SearchResult",
    "Status",
    "Watch",
    "unwatched",
]

FloatArray = NDArray[np.float64]
Status = Literal["optimal", "feasible", "infeasible", "unknown"]


class SearchProblem(Protocol):
    """Shapes to choose among, their bounds and their exact costs. A atoms, T tiers.

    All shapes have the same number of atoms (an unused atom has degree 1); a shape runs on the
    product of its degrees. Rows are (shape index, placement) pairs given as two arrays.
    """

    @property
    def num_shapes(self) -> int: ...

    @property
    def widths(self) -> tuple[int, ...]:
        """Children per domain of every tier, inner to outer."""
        ...

    @property
    def degrees(self) -> IntArray:
        """Degrees of the atoms, (num_shapes, A)."""
        ...

    def lower_bounds(self) -> FloatArray:
        """Seconds (num_shapes) no placement of the shape can beat; inf rules a shape out."""
        ...

    def tighter_bounds(self, shapes: IntArray) -> FloatArray:
        """A bound of the given shapes that takes longer and may be closer, (R) → (R)."""
        ...

    def score_rows(self, shapes: IntArray, placements: IntArray) -> FloatArray:
        """Exact step seconds of rows: (R), (R, A, T) → (R); inf rules a row out."""
        ...

    def slow_byte_seconds(self, shapes: IntArray, placements: IntArray) -> FloatArray:
        """Tie rule: byte-seconds on slow tiers of rows, (R), (R, A, T) → (R)."""
        ...

    def degrees_sum(self, shapes: IntArray) -> IntArray:
        """Tie rule: the sum of degrees that should be small, (R) → (R)."""
        ...

    def orders(self, i: int) -> Sequence[tuple[int, ...]]:
        """Framework rank orders of shape i: every atom index once, innermost first."""
        ...

    def groups(self, i: int) -> Mapping[str, tuple[int, ...]]:
        """Atom indices of each named group of shape i (for `keep_within`)."""
        ...

    def key(self, i: int) -> Hashable:
        """Identity of the layout: shapes of one key count as one among the runners-up."""
        ...


@dataclass(frozen=True)
class Row:
    """One shape with one placement (A tuples of T factors) and its exact step."""

    shape: int
    fill: tuple[int, ...]
    placement: tuple[tuple[int, ...], ...]
    step_seconds: float
    order: tuple[int, ...] | None
    """The framework order that gives the placement, if any."""


@dataclass(frozen=True)
class Counts:
    """Shapes in the problem, shapes opened, rows costed (incumbents included)."""

    shapes: int
    opened: int
    placements: int


@dataclass(frozen=True)
class SearchResult:
    """Answer with its proof.

    `best` is the tie rule's choice, `least` the row of the least step; objective, bound and gap
    belong to `least`. `runners_up` are the best rows of the next distinct layouts, at most
    top_k - 1. Every shape outside `opened_shapes` has L ≥ threshold_seconds when optimal.
    """

    status: Status
    best: Row | None
    least: Row | None
    objective_seconds: float | None
    bound_seconds: float | None
    threshold_seconds: float
    runners_up: tuple[Row, ...]
    counts: Counts
    opened_shapes: tuple[int, ...]

    @property
    def gap_fraction(self) -> float | None:
        """(objective - bound) / objective."""
        if self.objective_seconds is None or self.bound_seconds is None:
            return None
        return (self.objective_seconds - self.bound_seconds) / self.objective_seconds


@dataclass(frozen=True)
class Progress:
    """How far a search is: layouts written out and opened, rows costed, the least step seen (inf
    before the first) and the least that could still be, in seconds."""

    layouts: int
    opened: int
    placements: int
    best_seconds: float
    bound_seconds: float

    @property
    def gap_fraction(self) -> float:
        """(best - bound) / best; 1 before there is a best."""
        if self.best_seconds == inf:
            return 1.0
        return max(0.0, (self.best_seconds - self.bound_seconds) / self.best_seconds)


class Watch(Protocol):
    """Told every now and then how far a search is; its answer is whether the search shall stop."""

    def __call__(self, progress: Progress, /) -> bool: ...


def unwatched(progress: Progress, /) -> bool:
    """The watch of a search that nobody follows and nothing stops."""
    return False
