"""Conflicts of infeasible scenarios: together they leave nothing, without any one something fits.

The certificate is checked by layouts enumerated without rules, judged one by one.
"""

from __future__ import annotations

from functools import cache
from itertools import chain, combinations
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from planner import api
from planner.cost.context import CostContext
from planner.layouts.layout import Layout
from planner.planning.assess import memory_report
from planner.problem.fills import fills
from planner.problem.scenario import Scenario, Search
from planner.search.infeasible.conflict import conflict, minimal, smallest_hitting_set
from planner.search.infeasible.relaxation import MAX_MULTIPLE
from planner.search.rules.catalog import rules_for
from planner.search.space.enumerate import layouts
from tests.scenarios import (
    small_accelerator,
    small_scenario,
    small_software,
    small_topology,
    small_training,
)


def scenario(num: int, gigabytes: float, search: Search, batch: int = 8) -> Scenario:
    part = small_accelerator(hbm_bytes=1e9 * gigabytes)
    return small_scenario(
        num,
        topology=small_topology((4, 4), accelerator=part),
        search=search,
        software=small_software(
            recompute=("none", "full"), rules=("interleaved-microbatches",), zero_stages=(0, 1)
        ),
        training=small_training(global_batch_size=batch),
    )


@cache
def every_layout(num: int) -> list[tuple[Layout, frozenset[str], float]]:
    """Every layout on so many, whatever it breaks: with the rules it breaks and its peak; over the
    zero stages that nothing distinguishes too."""
    here = scenario(num, 80.0, Search())
    ctx = CostContext.of(here)
    found: set[Layout] = set()
    for zero in here.software.zero_stages:
        table, _ = layouts(ctx, Search(zero_stage=(zero,), mbs=(1,)), prune=False, ruled=False)
        found |= {table.row(i) for i in range(len(table))}
    return [
        (
            row,
            frozenset(rule.id for rule in rules_for(ctx) if not rule.holds(ctx, row)),
            memory_report(ctx, row).peak_bytes,
        )
        for row in sorted(found, key=str)
    ]


def left(one: Scenario, kept: set[str], all_rules: bool) -> bool:
    """Whether a layout keeps the named members (and, where asked, every rule), by plain tests."""
    counts = [one.num_accelerators]
    if "num_accelerators" not in kept:
        most = one.topology.num_accelerators // one.num_accelerators
        counts = [one.num_accelerators * k for k in range(1, min(most, MAX_MULTIPLE) + 1)]
    limit = CostContext.of(one).limit_bytes["fits"]
    asked = {name.removeprefix("search.") for name in kept if name.startswith("search.")}
    return any(
        all(getattr(row, key) in getattr(one.search, key) for key in asked)
        and not (broken if all_rules else broken & kept)
        and ("memory" not in kept or peak <= limit)
        for count in counts
        if fills(one.topology.widths, count)
        for row, broken, peak in every_layout(count)
    )


SEARCHES = st.fixed_dictionaries(
    {"mbs": st.just((1,))},
    optional={
        "tp": st.sampled_from([(1,), (2,), (3,), (8,), (16,)]),
        "pp": st.sampled_from([(1,), (4,), (3,), (8,)]),
        "vp": st.sampled_from([(1,), (2,)]),
        "recompute": st.sampled_from([("none",), ("full",)]),
        "zero_stage": st.sampled_from([(0,), (1,)]),
        "dp": st.sampled_from([(1,), (2,)]),
    },
)


@settings(
    max_examples=25, deadline=None, derandomize=True, database=None,
    suppress_health_check=list(HealthCheck),
)  # fmt: skip
@given(SEARCHES, st.sampled_from([1, 2, 4]), st.sampled_from([0.5, 2.0, 2.6, 80.0]))
def test_a_certificate_is_infeasible_and_smallest(
    search: dict[str, Any], num: int, gigabytes: float
) -> None:
    one = scenario(num, gigabytes, Search(**search))
    every = {f"search.{key}" for key in search} | {"memory", "num_accelerators"}
    found = {reason["id"] for reason in conflict(one)}
    assert bool(found) != left(one, every, True) or not left(one, set(), True)
    if not found:
        return
    rules = {rule.id for rule in rules_for(CostContext.of(one))}
    here = found | {"num_accelerators"}
    assert not left(one, here, not found & rules)
    for member in found:
        assert left(one, found - {member}, not found & rules), member


def test_a_rule_and_a_restriction_are_named_together() -> None:
    """tp=16 of 8 heads: the restriction and the rule, neither alone."""
    one = small_scenario(16, search=Search(tp=(16,)))
    ids = [reason["id"] for reason in conflict(one)]
    assert ids[0] == "search.tp" and "tp-divides-heads" in ids and len(ids) == 2
    plan = api.plan(one)
    assert [reason["id"] for reason in plan.reasons] == ids
    assert all(reason["text"] and reason["source"] for reason in plan.reasons)


def test_memory_and_the_count_are_named() -> None:
    one = scenario(1, 0.5, Search())
    assert {reason["id"] for reason in conflict(one)} >= {"memory"}
    assert {reason["kind"] for reason in conflict(one)} >= {"memory"}


def test_what_fits_has_no_reasons() -> None:
    assert conflict(small_scenario(8)) == ()


@pytest.mark.parametrize("offloads", [(), ("optimizer",)])
def test_relaxations_are_planned_and_cheapest_first(offloads: tuple[Any, ...]) -> None:
    one = scenario(2, 3.0, Search(recompute=("none",), tp=(1,), pp=(1,)))
    plan = api.plan(one.replace(software=one.software.replace(offloads=offloads)))
    assert plan.status == "infeasible" and plan.relaxations
    costs = [(r["num_accelerators"], r["step_seconds"]) for r in plan.relaxations]
    assert costs == sorted(costs)
    for relaxation in plan.relaxations:
        assert relaxation["layout"]["tp"] >= 1 and relaxation["step_seconds"] > 0


# --- smallest hitting sets, against trying every subset -------------------------------------------

NAMES = "abcdefg"


@given(st.lists(st.frozensets(st.sampled_from(NAMES), min_size=1), max_size=12))
@settings(max_examples=300, deadline=None)
def test_smallest_is_that_of_all_subsets(sets: list[frozenset[str]]) -> None:
    found = smallest_hitting_set(sets, NAMES)
    subsets = chain.from_iterable(combinations(NAMES, size) for size in range(len(NAMES) + 1))
    assert found == next(s for s in subsets if all(one & set(s) for one in sets))


def test_what_nothing_meets() -> None:
    assert smallest_hitting_set([frozenset()], NAMES) is None
    assert smallest_hitting_set([], NAMES) == ()


@given(st.lists(st.frozensets(st.sampled_from(NAMES)), max_size=12))
@settings(max_examples=100, deadline=None)
def test_minimal_sets_contain_no_other_and_none_is_lost(sets: list[frozenset[str]]) -> None:
    kept = minimal(sets)
    assert all(any(one <= other for one in kept) for other in sets)
    assert not any(a < b for a in kept for b in kept)
