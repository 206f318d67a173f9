"""What the search reads, what it answers, what it reports on the way, and when it must stop.

`SearchProblem` is all that the best-first search (`planner.search.optimize`) and the certificate
(`planner.search.certify`) know of layouts: how many there are, their degrees, a lower bound of each
and the exact step of any placement. The tests solve random problems of this form by brute force.
"""

from __future__ import annotations

import time
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, field
from math import inf
from typing import Literal, Protocol

from planner.layouts.arrays import FloatArray, IntArray

__all__ = [
    "NO_CONSTRAINTS",
    "Budget",
    "Counts",
    "PlacedLayout",
    "Progress",
    "SearchProblem",
    "SearchResult",
    "SideConstraints",
    "Status",
    "Watch",
    "unwatched",
]

Status = Literal["optimal", "feasible", "infeasible", "unknown"]


# --- what is read ---------------------------------------------------------------------------------


class SearchProblem(Protocol):
    """Layouts to choose among, their bounds and their exact costs. A atoms, T tiers.

    A layout is known by its index, 0 to num_layouts - 1. All have the same number of atoms (an
    unused atom has degree 1), and each runs on the product of its degrees. A row is a layout with
    one placement: rows are passed as two arrays, layout indices (R) and placements (R, A, T).
    """

    @property
    def num_layouts(self) -> int: ...

    @property
    def widths(self) -> tuple[int, ...]:
        """Children per domain of every tier, inner to outer."""
        ...

    @property
    def degrees(self) -> IntArray:
        """Degrees of the atoms, (num_layouts, A)."""
        ...

    def lower_bounds(self) -> FloatArray:
        """Seconds (num_layouts) below which no placement's step lies; inf rules a layout out."""
        ...

    def tighter_bounds(self, indices: IntArray) -> FloatArray:
        """Bounds of some layouts that take longer to compute and may be closer, (R) → (R)."""
        ...

    def step_seconds(self, indices: IntArray, placements: IntArray) -> FloatArray:
        """Exact steps of rows, (R), (R, A, T) → (R); inf rules a row out."""
        ...

    def slow_tier_seconds(self, indices: IntArray, placements: IntArray) -> FloatArray:
        """Busy seconds of all tiers but the innermost, (R), (R, A, T) → (R), for the tie rule."""
        ...

    def degrees_sum(self, indices: IntArray) -> IntArray:
        """A sum of degrees that should be small, (R) → (R), for the tie rule."""
        ...

    def framework_orders(self, i: int) -> Sequence[tuple[int, ...]]:
        """The framework's rank orders of layout i: every atom once, innermost first."""
        ...

    def groups(self, i: int) -> Mapping[str, tuple[int, ...]]:
        """Atoms of each communicating group of layout i, by the group's name."""
        ...

    def identity(self, i: int) -> Hashable:
        """Layouts with one identity count as one among the runners-up."""
        ...


@dataclass(frozen=True)
class SideConstraints:
    """Restrictions on where groups may live. They only remove rows.

    keep_within: group → tier; beyond that tier every factor of the group's atoms is 1.
    orders: 'framework' allows only the placements that a rank order of the framework gives.
    """

    keep_within: Mapping[str, int] = field(default_factory=dict)
    orders: Literal["any", "framework"] = "any"


NO_CONSTRAINTS = SideConstraints()


# --- what is answered -----------------------------------------------------------------------------


@dataclass(frozen=True)
class PlacedLayout:
    """A layout with one placement (A tuples of T factors) and its exact step.

    layout_index: of the problem's layouts; fill: children used per domain of each tier; order: the
    framework's rank order that gives the placement, None where none does.
    """

    layout_index: int
    fill: tuple[int, ...]
    placement: tuple[tuple[int, ...], ...]
    step_seconds: float
    order: tuple[int, ...] | None


@dataclass(frozen=True)
class Counts:
    """Layouts in the problem, layouts opened, placements costed (those of incumbents included)."""

    layouts: int
    opened: int
    placements: int


@dataclass(frozen=True)
class SearchResult:
    """The answer with what proves it.

    best: what the tie rule chose; fastest: the row of the lowest step, to which objective, bound
    and gap belong. runners_up: the best rows of the next layouts, at most top_k - 1, by rising
    step. threshold_seconds: max(K-th best layout's step, end of the tie band); an optimal answer's
    unopened layouts have no lower bound.
    """

    status: Status
    best: PlacedLayout | None
    fastest: PlacedLayout | None
    objective_seconds: float | None
    bound_seconds: float | None
    threshold_seconds: float
    runners_up: tuple[PlacedLayout, ...]
    counts: Counts
    opened_layouts: tuple[int, ...]

    @property
    def gap_fraction(self) -> float | None:
        """(objective - bound) / objective."""
        if self.objective_seconds is None or self.bound_seconds is None:
            return None
        return (self.objective_seconds - self.bound_seconds) / self.objective_seconds


# --- what is reported, and when to stop -----------------------------------------------------------


@dataclass(frozen=True)
class Progress:
    """How far a search is.

    layouts: enumerated so far; opened: of these, with all placements costed; placements: costed.
    best_seconds: the lowest step so far, inf before the first; bound_seconds: no layout is faster.
    """

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
    """Called now and then with a search's progress; it answers whether the search shall stop."""

    def __call__(self, progress: Progress, /) -> bool: ...


def unwatched(progress: Progress, /) -> bool:
    """The watch of a search that nobody follows and nothing stops."""
    return False


@dataclass(frozen=True)
class Budget:
    """When a search must stop: at a deadline (of `time.monotonic`), or once its watch says so."""

    deadline: float
    watch: Watch = unwatched

    @classmethod
    def of(cls, time_limit_seconds: float | None, watch: Watch = unwatched) -> Budget:
        """A budget from now on; without a limit only the watch stops the search."""
        if time_limit_seconds is None:
            return cls(inf, watch)
        return cls(time.monotonic() + time_limit_seconds, watch)

    @property
    def is_out_of_time(self) -> bool:
        """Whether the deadline has passed."""
        return time.monotonic() >= self.deadline

    @property
    def seconds_left(self) -> float | None:
        """Seconds until the deadline; None without one."""
        return None if self.deadline == inf else max(0.0, self.deadline - time.monotonic())

    def is_spent(self, progress: Progress) -> bool:
        """Report the progress; whether the watch or the clock stops the search."""
        return self.watch(progress) or self.is_out_of_time
