"""A launch script checked against a scenario, in its one form: what `planner check` answers.

`to_document()` gives the JSON; what fills it in is `planner.advise.check`, what shows it is
`planner.report.text.check`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any, Literal

from pydantic import InstanceOf, PlainSerializer

from planner.errors import IllegalLayoutError
from planner.frameworks.launch import Note, Said
from planner.planning.document import LayoutValue, json_values, versions
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


def _rule(error: IllegalLayoutError) -> dict[str, Any]:
    return {
        "id": error.rule,
        "source": error.source,
        "value": str(error.value),
        "message": error.message,
        "nearest": list(error.nearest),
    }


Rule = Annotated[InstanceOf[IllegalLayoutError], PlainSerializer(_rule)]


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
    products: tuple[str, ...]
    layout: LayoutValue | None
    gain_seconds: float | None
    gain_fraction: float | None
    terms: Mapping[str, float] | None
    understood: tuple[Said, ...]
    defaults: tuple[Note, ...]
    otherwise: tuple[Note, ...]
    ignored: tuple[Note, ...]
    unread: tuple[Note, ...]
    contradictions: tuple[Contradiction, ...]
    crossings: tuple[Crossing, ...]
    rules: tuple[Rule, ...]
    plan: Plan | None
    better: Plan | None

    @property
    def runs(self) -> bool:
        """Whether it will run."""
        return self.verdict in ("fits", "fragile")

    def to_document(self) -> dict[str, Any]:
        """The check as one JSON document."""
        return {**versions(), "runs": self.runs, **json_values(self)}
