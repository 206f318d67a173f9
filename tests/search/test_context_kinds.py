"""Kinds of context parallelism are all searched: the usual one first, others where they may win."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest

from planner import api
from planner.cost.context import CostContext
from planner.problem.scenario import Scenario, Search, load_scenario
from planner.search.family_bounds import any_kind_bounds
from planner.search.layout_problem import LayoutProblem
from planner.search.space.enumerate import layouts
from planner.search.space.given import given_layout
from tests.scenarios import (
    small_fabric,
    small_model,
    small_scenario,
    small_software,
    small_topology,
    small_training,
)

KINDS = ("ring", "all_gather", "a2a", "hierarchical")


def scenario(tokens: int, slow: float, **changes: object) -> Scenario:
    """One long sequence on sixteen accelerators in domains of four, over a network slowed so."""
    links = [small_fabric(0), small_fabric(1, bytes_per_second=40e9 / slow)]
    topology = small_topology()
    tiers = (
        topology.tiers[0],
        topology.tiers[1].replace(fabric=links[1]),
    )
    return small_scenario(
        16,
        topology=topology.replace(tiers=tiers),
        model=small_model(num_layers=2, num_key_value_heads=8),
        training=small_training(sequence_length=tokens, global_batch_size=1, **changes),
        software=small_software(cp_kinds=KINDS, recompute=("full",)),
        search=Search(tp=(1, 2), pp=(1,)),
    )


@pytest.mark.parametrize(("tokens", "slow"), list(product([4096, 65536], [1.0, 30.0])))
def test_searching_the_usual_kind_first_finds_the_best_of_all(tokens: int, slow: float) -> None:
    job = scenario(tokens, slow)
    every = api.plan(job.replace(search=job.search.replace(cp_kind=KINDS)))
    found = api.plan(job)
    assert found.status == every.status == "optimal"
    assert found.objective_seconds == pytest.approx(every.objective_seconds, rel=1e-12)
    assert [r.step_seconds for r in found.runners_up] == pytest.approx(
        [r.step_seconds for r in every.runners_up], rel=1e-12
    )
    assert found.bound_seconds == found.objective_seconds


def test_other_kinds_win_somewhere() -> None:
    """Else the test above shows nothing."""
    kinds = {
        found.layout.cp_kind
        for tokens, slow in product([4096, 65536], [1.0, 30.0])
        if (found := api.plan(scenario(tokens, slow))).layout and found.layout.cp > 1
    }
    assert kinds - {"ring"}


def test_bounds_of_any_kind_are_below_every_kind_s() -> None:
    job = scenario(16384, 10.0)
    ctx = CostContext.of(job)
    table, _ = layouts(ctx, Search(cp_kind=KINDS, cp=(2, 4, 8, 16)))
    assert {table.row(i).cp_kind for i in range(len(table))} == set(KINDS)
    bounds = LayoutProblem(ctx, table).lower_bounds()
    assert np.all(any_kind_bounds(ctx, table) <= bounds * (1 + 1e-12))


def test_exchanges_of_heads_need_no_ring_first() -> None:
    """Documents too short to be cut can be exchanged."""
    packed = CostContext.of(scenario(4096, 1.0, mean_document_length=8))
    table, _ = layouts(packed, Search(cp=(8,)))
    assert {table.row(i).cp_kind for i in range(len(table))} == {"a2a"}


def test_inner_degree_is_chosen_searched_and_given() -> None:
    ctx = CostContext.of(scenario(4096, 1.0))
    keys = {"cp": 16, "cp_kind": "hierarchical"}
    assert given_layout(ctx, keys).cp_a2a == 8
    assert given_layout(ctx, keys | {"cp_a2a": 4}).cp_a2a == 4
    search = Search(cp=(16,), cp_kind=("hierarchical",), cp_a2a=(2, 4))
    table, _ = layouts(ctx, search)
    assert {table.row(i).cp_a2a for i in range(len(table))} == {2, 4}


def test_a_million_tokens_are_planned() -> None:
    """8B on 256 H100s: attention is most of the work, shared by many ranks."""
    found = api.plan(load_scenario("llama3-8b-1m-h100x256"))
    assert found.status == "optimal" and found.layout is not None
    assert found.memory is not None and found.memory.verdict == "fits"
    assert found.layout.cp * found.layout.tp >= 32
    assert found.time is not None and found.time["compute_attention"] > found.time["compute_gemm"]
