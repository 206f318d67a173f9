"""A launch script checked against a scenario, in its one form: what `planner check` answers.

`to_document()` gives the JSON; what fills it in is `planner.advise.check`, what shows it is
`planner.report.text.check`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any, Literal

from planner import __version__
from planner.errors import IllegalLayoutError
from planner.frameworks.script import Note, StatedKey
from planner.planning.document import SCHEMA_VERSION
from planner.planning.plan import Plan

Verdict = Literal["fits", "fragile", "no", "illegal"]


@dataclass(frozen=True, slots=True)
class Contradiction:
    """A key that script and scenario say differently; `judged` is the value that counts."""

    key: str
    script: Any
    scenario: Any
    judged: Any
    line: int | None = None


@dataclass(frozen=True, slots=True)
class Crossing:
    """A group that leaves the innermost tier where that costs.

    inside: its members in one innermost domain. exposed_seconds: what of its traffic a step waits
    for. best_too: whether the best layout's group leaves it as well.
    """

    group: str
    members: int
    inside: float
    tiers: tuple[str, ...]
    exposed_seconds: float
    reason: str
    best_too: bool


@dataclass(frozen=True, slots=True)
class Check:
    """A script's layout on a scenario's hardware.

    verdict: illegal where a rule is broken, no where it does not fit in memory; only fits and
    fragile run. plan: the layout in the framework's own rank order, None where it is illegal.
    better: the best plan of the scenario under the same training; gain_seconds a step and
    gain_fraction of the script's step, terms by what takes longer in the script's.
    """

    target: str
    target_version: str
    path: str
    software: str
    num_accelerators: int
    verdict: Verdict
    understood: tuple[StatedKey, ...]
    defaults: tuple[Note, ...]
    otherwise: tuple[Note, ...]
    ignored: tuple[Note, ...]
    unread: tuple[Note, ...]
    contradictions: tuple[Contradiction, ...]
    broken: tuple[IllegalLayoutError, ...]
    products: tuple[str, ...]
    layout: Mapping[str, Any] | None
    plan: Plan | None
    crossings: tuple[Crossing, ...]
    better: Plan | None
    gain_seconds: float | None = None
    gain_fraction: float | None = None
    terms: Mapping[str, float] | None = None

    @property
    def runs(self) -> bool:
        """Whether it will run."""
        return self.verdict in ("fits", "fragile")

    def to_document(self) -> dict[str, Any]:
        """The check as one JSON document."""
        plain = (
            "target", "target_version", "path", "software", "num_accelerators", "verdict",
            "products", "layout", "gain_seconds", "gain_fraction", "terms",
        )  # fmt: skip
        listed = (
            "understood", "defaults", "otherwise", "ignored", "unread", "contradictions",
            "crossings",
        )  # fmt: skip
        return {
            "schema_version": SCHEMA_VERSION,
            "planner_version": __version__,
            "runs": self.runs,
            **{name: getattr(self, name) for name in plain},
            **{name: [asdict(item) for item in getattr(self, name)] for name in listed},
            "rules": [
                {
                    "id": error.rule, "source": error.source, "value": str(error.value),
                    "message": error.message, "nearest": list(error.nearest),
                }
                for error in self.broken
            ],
            "plan": None if self.plan is None else self.plan.to_document(),
            "better": None if self.better is None else self.better.to_document(),
        }  # fmt: skip
