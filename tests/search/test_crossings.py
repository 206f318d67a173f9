"""Choices that trade time against memory, or may not pay: against all of them in full."""

from __future__ import annotations

import numpy as np
import pytest

from planner import api
from planner.cost.context import CostContext
from planner.search.layout_problem import LayoutProblem
from planner.search.one_layout import best_placement
from planner.search.space.enumerate import layouts
from planner.search.space.limits import fits_in_memory
from tests.expert_scenarios import experts
from tests.planning.test_objectives import scenario, seconds
from tests.scenarios import (
    small_accelerator,
    small_model,
    small_software,
    small_topology,
    small_training,
)


def test_overlaps_are_chosen_among_those_listed() -> None:
    sets = ("none", "tp", "tp+dp+pp")
    plan = api.plan(scenario({"overlap": sets}), top_k=1)
    alone = [seconds(api.plan(scenario({"overlap": (one_,)}), top_k=1)) for one_ in sets]
    assert seconds(plan) == min(alone) == alone[2] < alone[0]
    assert plan.layout is not None and plan.layout.overlap in sets


def test_overlaps_of_axes_with_one_rank_are_one_layout() -> None:
    base = scenario({"overlap": ("tp+dp", "dp", "none"), "tp": (1,), "pp": (1,), "cp": (1,)})
    table, _ = layouts(CostContext.of(base), base.search)
    found = {(row.overlap, row.dp) for row in (table.row(i) for i in range(len(table)))}
    assert found == {("tp+dp", 16), ("none", 16)}


def test_exchanges_overlap_where_listed_and_able() -> None:
    model = small_model(moe=experts(expert_ffn_hidden_size=512))
    software = small_software(dispatchers=("alltoall",), overlap=("tp", "dp", "pp"))
    for sets, allowed in (
        (("tp+dp+pp+ep",), {0, 1}),
        (("tp+dp+pp", "tp+dp+pp+ep"), {0, 1}),
        (("tp+dp+pp",), {0}),
    ):
        base = scenario({"overlap": sets}, model=model, software=software)
        table, _ = layouts(CostContext.of(base), base.search)
        assert set(np.unique(table.overlap_ep).tolist()) == allowed


@pytest.mark.slow
@pytest.mark.parametrize("gigabytes", [2.0, 3.0, 5.0, 30.0])
def test_what_is_left_out_of_time_against_memory_never_wins(gigabytes: float) -> None:
    """Recompute kinds, offload and overlapped exchanges in full, each costed in every place."""
    base = scenario(
        {
            "tp": (1, 2), "cp": (1,), "pp": (1, 2), "vp": (1, 2), "mbs": (1, 2), "etp": (1,),
            "zero_stage": (1,), "sp": (False,), "dp_replicate": (1,), "tie_fraction": 0.0,
        },
        topology=small_topology(
            (2, 4), accelerator=small_accelerator(hbm_bytes=1e9 * gigabytes)
        ),
        model=small_model(moe=experts(expert_ffn_hidden_size=512)),
        training=small_training(sequence_length=1920, global_batch_size=16),
        software=small_software(
            dispatchers=("alltoall",), overlap=("tp", "dp", "pp", "ep"),
            recompute=("none", "act", "moe", "full"),
        ),
        num_accelerators=8,
    )  # fmt: skip
    ctx = CostContext.of(base)
    # the search for the least memory leaves no recompute kind out
    full, _ = layouts(ctx, base.search.replace(objective="least_memory"), prune=False)
    pruned, _ = layouts(ctx, base.search)
    problem = LayoutProblem(ctx, full.take(fits_in_memory(ctx, base.search, full)))
    placed = [best_placement(problem, i) for i in range(problem.num_layouts)]
    plan = api.plan(base, top_k=1)
    if not placed:
        assert plan.layout is None
        return
    assert len(pruned) <= len(full)
    assert seconds(plan) == pytest.approx(min(found[1] for found in placed if found), rel=1e-12)
