"""Searches that are followed and stopped: bounds stay true, the best so far is kept."""

from __future__ import annotations

from typing import Any

import pytest

from planner import api
from planner.planning.plan import Plan
from planner.problem.scenario import Scenario, Search
from planner.search import families as searching
from planner.search.certify import certify
from planner.search.interface import Progress
from planner.search.optimize import search
from tests.expert_scenarios import experts
from tests.scenarios import (
    small_model,
    small_scenario,
    small_software,
    small_topology,
    small_training,
)
from tests.search.synthetic import random_problem
from tests.search.test_optimize import large_problem

SCENARIOS = {
    "dense": small_scenario(16, software=small_software(cp_kinds=("ring", "all_gather"))),
    "experts": small_scenario(
        8,
        topology=small_topology((2, 4)),
        model=small_model(moe=experts(expert_ffn_hidden_size=512)),
        training=small_training(sequence_length=960, global_batch_size=8),
        software=small_software(dispatchers=("flex",), recompute=("none", "full")),
        search=Search(mbs=(1,)),
    ),
}


class Until:
    """A watch that stops at its n-th call and keeps what it was told."""

    def __init__(self, calls: float) -> None:
        self.calls = calls
        self.seen: list[Progress] = []

    def __call__(self, progress: Progress, /) -> bool:
        self.seen.append(progress)
        return len(self.seen) > self.calls


@pytest.mark.parametrize("seed", range(8))
def test_a_watch_is_told_true_bounds(seed: int) -> None:
    problem = random_problem("coupled", seed)
    watch = Until(float("inf"))
    result = search(problem, watch=watch)
    assert result.status == "optimal" and result.objective_seconds is not None
    for progress in watch.seen:
        assert progress.bound_seconds <= result.objective_seconds * (1 + 1e-12)
        assert progress.best_seconds >= result.objective_seconds * (1 - 1e-12)
        assert 0 <= progress.gap_fraction <= 1
    placements = [progress.placements for progress in watch.seen]
    assert placements == sorted(placements)


@pytest.mark.slow
def test_a_stopped_search_is_feasible_with_a_true_gap() -> None:
    problem = large_problem()
    least = search(problem).objective_seconds
    assert least is not None
    whole = Until(float("inf"))
    search(problem, watch=whole)
    for calls in range(0, len(whole.seen), max(1, len(whole.seen) // 6)):
        result = search(problem, watch=Until(calls))
        assert result.objective_seconds is not None and result.bound_seconds is not None
        assert result.bound_seconds <= least <= result.objective_seconds
        assert certify(problem, result, tie_fraction=0.005).valid


def stopped(monkeypatch: pytest.MonkeyPatch, scenario: Scenario, watch: Any) -> Plan:
    for name in ("FIRST_FAMILIES", "FIRST_KINDS"):
        monkeypatch.setattr(searching, name, 8)
    monkeypatch.setattr(searching, "REPORTED_ROWS", 64)
    return api.plan(scenario, 2, watch=watch)


@pytest.mark.slow
@pytest.mark.parametrize("name", SCENARIOS)
def test_a_plan_stopped_anywhere_is_the_best_so_far(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    scenario = SCENARIOS[name]
    whole = Until(float("inf"))
    proven = stopped(monkeypatch, scenario, whole)
    assert proven.status == "optimal" and proven.objective_seconds is not None
    assert proven == stopped_again(monkeypatch, scenario, proven)
    num = len(whole.seen)
    assert num > 20
    objectives = []
    for calls in {*range(0, num, max(1, num // 8)), num - 2, num - 1}:
        found = stopped(monkeypatch, scenario, Until(calls))
        assert found.status in ("optimal", "feasible", "unknown")
        assert found.bound_seconds is None or (
            found.bound_seconds <= proven.objective_seconds * (1 + 1e-9)
        )
        if found.objective_seconds is not None:
            objectives.append((calls, found.objective_seconds))
            assert found.objective_seconds >= proven.objective_seconds * (1 - 1e-9)
            assert found.layout is not None and found.gap_fraction is not None
        if found.status == "optimal":
            assert found.objective_seconds == pytest.approx(proven.objective_seconds)
    steps = [step for _, step in sorted(objectives)]
    assert steps == sorted(steps, reverse=True)  # what was found is never lost


def stopped_again(monkeypatch: pytest.MonkeyPatch, scenario: Scenario, proven: Plan) -> Plan:
    """The same search unwatched, with its time spent taken from the first."""
    from dataclasses import replace

    again = stopped(monkeypatch, scenario, Until(float("inf")))
    return replace(again, search=proven.search)
