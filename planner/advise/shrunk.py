"""What is left of a job after it lost nodes: the answer of `planner shrink`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from planner.planning.plan import Plan

SAME, FEWER, BEST = "same layout on spares", "fewer dp", "best of the search"


@dataclass(frozen=True, slots=True)
class Remaining:
    """One way on: a plan, and its step over the former one's, less 1."""

    name: str
    plan: Plan
    loss_fraction: float


@dataclass(frozen=True, slots=True)
class Shrunk:
    """What is left after a loss: nodes lost, accelerators usable in one job, ways on.

    options: the fastest first. searched: numbers of accelerators on which layouts were searched;
    ruled_out: how many more numbers have layouts whose bounds lie above the best step.
    """

    lost: tuple[str, ...]
    usable: int
    former_seconds: float
    options: tuple[Remaining, ...]
    searched: tuple[int, ...]
    ruled_out: int

    def to_document(self) -> dict[str, Any]:
        """The answer as JSON values."""
        return {
            "lost": list(self.lost),
            "usable_accelerators": self.usable,
            "former_step_seconds": self.former_seconds,
            "searched_num_accelerators": list(self.searched),
            "ruled_out_by_bound": self.ruled_out,
            "options": [
                {
                    "name": option.name,
                    "loss_fraction": option.loss_fraction,
                    "num_accelerators": option.plan.inputs["num_accelerators"],
                    "plan": option.plan.to_document(),
                }
                for option in self.options
            ],
        }
