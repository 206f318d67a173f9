"""Counts of layers run again: the fewest that fit is as good as all of them searched."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from planner import api
from planner.cost.context import CostContext
from planner.layouts.keys import RECOMPUTE
from planner.layouts.layout import LayoutTable
from planner.problem.scenario import Scenario, Search
from planner.problem.software import Software
from planner.search.space.enumerate import layouts
from planner.search.space.limits import fits_in_memory
from planner.search.space.recompute import with_counts
from tests.expert_scenarios import experts
from tests.scenarios import (
    small_accelerator,
    small_model,
    small_scenario,
    small_software,
    small_topology,
    small_training,
)

FULL = RECOMPUTE.index("full")


def able(**changes: Any) -> Software:
    """Software that can count."""
    usual: dict[str, Any] = {"recompute_counts": True, "recompute": ("none", "full")}
    return small_software(**(usual | changes))


def counting(gigabytes: float, num: int = 8, **changes: Any) -> Scenario:
    """A small job under software that can count."""
    part = small_accelerator(hbm_bytes=1e9 * gigabytes)
    usual: dict[str, Any] = {
        "topology": small_topology((2, 4), accelerator=part),
        "model": small_model(num_layers=6),
        "training": small_training(sequence_length=1920, global_batch_size=16),
        "software": able(),
    }
    return small_scenario(num, **(usual | changes))


MODELS = {
    "dense": small_model(num_layers=6),
    "uneven": small_model(num_layers=7),
    "experts": small_model(num_layers=6, moe=experts(expert_ffn_hidden_size=512)),
}


@pytest.mark.slow
@given(st.sampled_from(sorted(MODELS)), st.floats(0.8, 8.0), st.booleans())
@settings(max_examples=12, deadline=None, derandomize=True)
def test_the_fewest_that_fit_are_as_good_as_every_count(
    name: str, gigabytes: float, both: bool
) -> None:
    kinds = ("none", "selective", "full") if both else ("none", "full")
    dispatchers = ("alltoall",) if name == "experts" else ()
    profile = able(recompute=kinds, dispatchers=dispatchers)
    job = counting(gigabytes, model=MODELS[name], software=profile)
    chosen = api.plan(job, top_k=1)
    every = api.plan(job.replace(search=Search(recompute_layers=tuple(range(8)))), top_k=1)
    assert chosen.status == every.status
    assert chosen.objective_seconds == every.objective_seconds


@pytest.mark.parametrize("gigabytes", [2.0, 3.0, 4.5])
def test_one_fewer_does_not_fit_and_none_counts_that_need_not(gigabytes: float) -> None:
    job = counting(gigabytes)
    ctx, asked = CostContext.of(job), job.search
    table, _ = layouts(ctx, asked)
    at = np.flatnonzero(table.recompute_layers)
    assert len(at)
    counted = table.take(at)
    assert fits_in_memory(ctx, asked, counted).all()
    assert not fits_in_memory(
        ctx, asked, changed(counted, recompute_index=0, recompute_layers=0)
    ).any()
    more = counted.take(counted.recompute_layers > 1)
    fewer = changed(more, recompute_layers=more.recompute_layers - 1)
    assert len(more) and not fits_in_memory(ctx, asked, fewer).any()


def changed(table: LayoutTable, **columns: Any) -> LayoutTable:
    values = {name: np.full(len(table), value) for name, value in columns.items()}
    return LayoutTable(
        **{name: values.get(name, getattr(table, name)) for name in LayoutTable.__slots__}
    )


def test_a_count_wins_where_all_layers_need_not_run_again() -> None:
    job = counting(3.0)
    whole = api.plan(job.replace(search=Search(recompute_layers=(0,))), top_k=1)
    found = api.plan(job, top_k=1)
    assert found.objective_seconds is not None and whole.objective_seconds is not None
    assert found.objective_seconds < whole.objective_seconds
    assert found.layout is not None and found.layout.recompute_layers > 0


@pytest.mark.parametrize(
    "changes",
    [
        {"software": able(recompute_counts=False)},
        {"search": Search(recompute_layers=(0,))},
        {"search": Search(objective="least_memory")},
        {"model": small_model(num_layers=6, moe=experts(num_dense_layers=1)),
         "software": able(dispatchers=("alltoall",))},
    ],
    ids=["software", "asked", "least memory", "kinds of layers"],
)  # fmt: skip
def test_where_nothing_is_counted(changes: dict[str, Any]) -> None:
    job = counting(2.0, **changes)
    table, _ = layouts(CostContext.of(job), job.search)
    assert len(table) and not table.recompute_layers.any()


def test_counts_asked_for_are_all_there_are() -> None:
    job = counting(4.0, search=Search(recompute_layers=(2,)))
    table, excluded = layouts(CostContext.of(job), job.search)
    assert len(table) and (table.recompute_layers == 2).all()
    assert (table.recompute_index == FULL).all()
    assert (table.pp * table.vp <= 3).all() and excluded["recompute-layers-in-chunks"]


def test_nothing_is_added_to_an_empty_table() -> None:
    job = counting(2.0)
    table, _ = layouts(CostContext.of(job), job.search)
    assert len(with_counts(CostContext.of(job), job.search, table.take(slice(0)))) == 0
