"""What is left of a job after it lost nodes: the answer of `planner shrink`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from planner.planning.document import json_values
from planner.planning.plan import Plan

SAME, FEWER, BEST = "same layout on spares", "fewer dp", "best of the search"


@dataclass(frozen=True, slots=True)
class Remaining:
    """One way on: a plan, and its step over the former one's, less 1."""

    name: str
    loss_fraction: float
    num_accelerators: int
    plan: Plan


@dataclass(frozen=True, slots=True)
class Shrunk:
    """What is left after a loss: nodes lost, accelerators usable in one job, ways on.

    options: the fastest first. searched: numbers of accelerators on which layouts were searched;
    ruled_out: how many more numbers have layouts whose bounds lie above the best step.
    """

    lost: tuple[str, ...]
    usable_accelerators: int
    former_step_seconds: float
    searched_num_accelerators: tuple[int, ...] = ()
    ruled_out_by_bound: int = 0
    options: tuple[Remaining, ...] = ()

    def to_document(self) -> dict[str, Any]:
        """The answer as JSON values."""
        return json_values(self)
