"""Planning a changed scenario anew, and counting what that took."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from planner.advise.baseline import changed_scenario
from planner.errors import PlannerError
from planner.layouts.layout import Layout
from planner.planning.plan import Plan
from planner.planning.solve import evaluate, plan
from planner.problem.scenario import Scenario, scenario_to_document

Say = Callable[[str], None]


@dataclass
class Planner:
    """Plans scenarios, one layout each; tells `say` before each, and counts them."""

    say: Say | None = None
    made: int = 0

    def best(self, scenario: Scenario, text: str, reasons: bool = False) -> Plan:
        """The best plan of a scenario; where nothing fits, with reasons if they are asked for."""
        if self.say is not None:
            self.say(text)
        self.made += 1
        return plan(scenario, 1, reasons=reasons)


def changed(scenario: Scenario, keys: Mapping[str, Any]) -> Scenario:
    """The scenario with dotted keys set.

    Raises:
        InputError: the changed scenario is not valid.
    """
    return changed_scenario(scenario, scenario_to_document(scenario), keys)


def step_of(scenario: Scenario, layout: Layout) -> float | None:
    """The least step of a layout in a scenario, at the upper end of its bar where the search is
    robust; None where it is not legal or does not fit, so too."""
    free = scenario.replace(search=scenario.search.replace(tie_fraction=0.0))
    try:
        found = evaluate(free, layout)
    except PlannerError:
        return None
    memory, robust = found.memory, scenario.search.robust
    if memory is None or memory.verdict not in _accepted(scenario):
        return None
    if robust and (memory.peak_high_bytes or 0.0) > memory.capacity_bytes:
        return None
    return found.step_seconds_high if robust else found.step_seconds


def _accepted(scenario: Scenario) -> tuple[str, ...]:
    return ("fits", "fragile") if scenario.search.memory == "fragile" else ("fits",)
