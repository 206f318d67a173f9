"""Families of layouts: their bounds hold, and searching some of them is as good as all."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from planner import api
from planner.cost import memory
from planner.cost import prediction_intervals as intervals
from planner.cost.context import CostContext
from planner.layouts.layout import Layout, LayoutTable
from planner.planning.plan import Plan
from planner.problem.scenario import Scenario, Search
from planner.search import families as searching
from planner.search.families import BOUND_RULE
from planner.search.family_bounds import (
    family_bounds,
    kind_bounds,
    lowest_peak_bound,
    lowest_step_bound,
)
from planner.search.layout_problem import LayoutProblem
from planner.search.space.enumerate import KIND_KEYS, MEMBER_KEYS, families, kinds, layouts, members
from tests.expert_scenarios import experts
from tests.scenarios import (
    small_accelerator,
    small_model,
    small_scenario,
    small_software,
    small_topology,
    small_training,
)


def dense(gigabytes: float = 80.0, **changes: Any) -> Scenario:
    topology = small_topology(accelerator=small_accelerator(hbm_bytes=1e9 * gigabytes))
    return small_scenario(16, **({"topology": topology} | changes))


def sparse(gigabytes: float = 32.0, **changes: Any) -> Scenario:
    part = small_accelerator(hbm_bytes=1e9 * gigabytes)
    usual: dict[str, Any] = {
        "topology": small_topology((2, 4), accelerator=part),
        "model": small_model(moe=experts(expert_ffn_hidden_size=512)),
        "training": small_training(sequence_length=1920, global_batch_size=16),
        "software": small_software(
            dispatchers=("flex", "alltoall"), overlap=("tp", "dp", "pp", "ep"),
            recompute=("none", "full", "moe", "act"),
        ),
    }  # fmt: skip
    return small_scenario(8, **(usual | changes))


CASES = {
    "dense": dense(),
    "dense, memory is short": dense(6.0),
    "recompute is restricted": dense(search=Search(recompute=("full", "selective"))),
    "framework orders alone": dense(search=Search(orders="framework")),
    "experts": sparse(),
    "experts, memory is short": sparse(2.5),
    "by the upper end": dense(search=Search(robust=True)),
    "kinds of context parallelism": dense(
        software=small_software(cp_kinds=("ring", "all_gather", "a2a", "hierarchical")),
        search=Search(tp=(1, 2), cp=(1, 2, 4), vp=(1,)),
    ),
}


def keys_of(table: LayoutTable, besides: frozenset[str]) -> np.ndarray:
    """All that a row says but these keys."""
    shared = [
        name
        for name in LayoutTable.__dataclass_fields__
        if name != "stage_layers" and name.removesuffix("_index") not in besides
    ]
    return np.stack([getattr(table, name) for name in shared], axis=1)


@pytest.mark.parametrize("name", CASES)
def test_a_family_s_bound_lies_below_all_its_layouts_bounds(name: str) -> None:
    scenario = CASES[name]
    ctx, asked = CostContext.of(scenario), scenario.search
    shared, _ = families(ctx, asked)
    of_kinds, _ = kinds(ctx, asked, shared)
    table, _ = members(ctx, asked, of_kinds)
    own = LayoutProblem(ctx, table).lower_bounds()
    if asked.robust:
        own = own * intervals.step_interval(intervals.shipped(), ctx, table).high
    for part, bounds, besides in (
        (shared, family_bounds(ctx, asked, shared), KIND_KEYS | MEMBER_KEYS),
        (of_kinds, kind_bounds(ctx, asked, of_kinds), MEMBER_KEYS),
    ):
        lower = dict(zip(map(tuple, keys_of(part, besides)), bounds, strict=True))
        assert len(lower) == len(part)
        for key, bound in zip(map(tuple, keys_of(table, besides)), own, strict=True):
            assert 0 < lower[key] <= bound * (1 + 1e-12)


@pytest.mark.parametrize("name", CASES)
def test_one_number_bounds_all_layouts_of_a_scenario(name: str) -> None:
    scenario = CASES[name]
    ctx, asked = CostContext.of(scenario), scenario.search
    table, _ = layouts(ctx, asked)
    objective = api.plan(scenario).objective_seconds
    peak = memory.worst_stage(ctx, table)[1].min() if len(table) else np.inf
    assert 0 < lowest_step_bound(ctx, asked) <= (objective or np.inf)
    assert 0 < lowest_peak_bound(ctx, asked) <= peak


def test_without_a_legal_layout_the_bound_is_infinite() -> None:
    scenario = dense(search=Search(tp=(5,)))
    ctx = CostContext.of(scenario)
    assert lowest_step_bound(ctx, scenario.search) == np.inf
    assert lowest_peak_bound(ctx, scenario.search) == np.inf


@pytest.mark.parametrize("name", CASES)
def test_families_and_their_members_are_all_layouts(name: str) -> None:
    """In parts or at once; nothing is run again and nothing overlaps in a family."""
    scenario = CASES[name]
    ctx, asked = CostContext.of(scenario), scenario.search
    shared, _ = families(ctx, asked)
    assert not shared.recompute_index.any() and not shared.overlap_ep.any()
    assert not shared.cp_kind_index.any() and (shared.cp_a2a == 1).all()
    half = len(shared) // 2
    found: set[Layout] = set()
    for part in (slice(half), slice(half, None)):
        rows, _ = members(ctx, asked, kinds(ctx, asked, shared.take(part))[0])
        found |= {rows.row(i) for i in range(len(rows))}
    table, _ = layouts(ctx, asked)
    assert found == {table.row(i) for i in range(len(table))}


def planned(
    monkeypatch: pytest.MonkeyPatch, scenario: Scenario, first: int, **options: Any
) -> Plan:
    monkeypatch.setattr(searching, "FIRST_FAMILIES", first)
    monkeypatch.setattr(searching, "FIRST_KINDS", first)
    return api.plan(scenario, **options)


@pytest.mark.slow
@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("top_k", [1, 4])
def test_some_families_give_the_answer_of_all(
    monkeypatch: pytest.MonkeyPatch, name: str, top_k: int
) -> None:
    few = planned(monkeypatch, CASES[name], 2, top_k=top_k)
    every = planned(monkeypatch, CASES[name], 1 << 20, top_k=top_k)
    assert few.search is not None and every.search is not None
    assert few.search.shapes <= every.search.shapes
    spent = {"search": None}
    assert replace(few, **spent) == replace(every, **spent)


def test_most_families_stay_unwritten(monkeypatch: pytest.MonkeyPatch) -> None:
    few = planned(monkeypatch, CASES["dense"], 8, top_k=1)
    every = planned(monkeypatch, CASES["dense"], 1 << 20, top_k=1)
    assert few.search is not None and every.search is not None
    assert few.search.excluded[BOUND_RULE] > 0
    assert few.search.shapes < every.search.shapes / 2
    assert BOUND_RULE in few.search.rule_texts


def test_where_nothing_fits_every_family_is_tried(monkeypatch: pytest.MonkeyPatch) -> None:
    found = planned(monkeypatch, dense(0.5), 2)
    assert found.status == "infeasible" and found.search is not None
    assert BOUND_RULE not in found.search.excluded
    assert found.nearest_miss is not None


def test_out_of_time_the_bound_is_that_of_what_is_left(monkeypatch: pytest.MonkeyPatch) -> None:
    """No time at all: whatever was seen is no proof, and the bound is a family's."""
    proven = planned(monkeypatch, CASES["dense"], 1 << 20)
    found = planned(monkeypatch, CASES["dense"], 2, time_limit_seconds=0.0)
    assert found.status in ("feasible", "unknown")
    assert found.bound_seconds is not None and proven.objective_seconds is not None
    assert found.bound_seconds <= proven.objective_seconds
