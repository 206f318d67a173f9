"""What a step takes beyond kernels and traffic, by hand: waits for others, the host, the rest."""

from __future__ import annotations

from dataclasses import fields, replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from planner.cost.context import CostContext
from planner.cost.overheads import kernel_launches, straggler_seconds, unexplained_seconds
from planner.cost.recompute import recomputed_shares
from planner.cost.step import StepTime, evaluate
from planner.layouts.layout import Layout
from planner.problem.overheads import Overheads
from tests.expert_scenarios import experts, sparse_context, sparse_software
from tests.oracles import innermost_splits
from tests.scenarios import NO_LIMIT, context, fabric, figures, model, software, topology, training

TERMS = [f.name for f in fields(StepTime)]
OVERHEADS = ("straggler", "unexplained")


def overheads(collective: float = 0.0, straggler: float = 0.0) -> Overheads:
    numbers = {"collective_seconds": collective, "straggler_fraction_per_doubling": straggler}
    return Overheads.of(name="toy", description="test", **figures(numbers))


def on_cluster(given: Overheads, widths: tuple[int, ...] = (8, 64), **parts: Any) -> CostContext:
    """Links that nothing waits for, on a cluster with these overheads."""
    links = [fabric(bytes_per_second=NO_LIMIT)] * len(widths)
    return context(topology=topology(links, widths, overheads=given), **parts)


def spent(ctx: CostContext, layout: Layout) -> dict[str, float]:
    found = evaluate(ctx, layout, innermost_splits(layout, len(ctx.ramp)))
    return {name: float(getattr(found, name)) for name in TERMS}


def running(terms: dict[str, float]) -> float:
    return sum(seconds for name, seconds in terms.items() if name not in OVERHEADS)


# ---------------------------------------------------------------- collectives of tensor parallelism


@pytest.mark.parametrize(("tp", "doublings"), [(1, 0), (2, 1), (4, 2), (8, 3)])
def test_ranks_meet_at_every_collective(tp: int, doublings: int) -> None:
    """8 layers, 3 micro-batches, 4 all-reduces in each; a millisecond per doubling."""
    layout = Layout(tp=tp, num_microbatches=3)
    found, quiet = (
        spent(on_cluster(overheads(collective=c), model=model(num_attention_heads=8)), layout)
        for c in (1e-3, 0.0)
    )
    assert found["tp"] - quiet["tp"] == pytest.approx(8 * 3 * 4 * doublings * 1e-3)
    assert sum(found.values()) - sum(quiet.values()) == pytest.approx(found["tp"] - quiet["tp"])


def test_chunks_that_overlap_need_no_meeting() -> None:
    layout = Layout(tp=4, num_microbatches=3)
    late = on_cluster(overheads(collective=1e-3))
    assert spent(late, layout)["tp"] > 0.1
    assert spent(late, replace(layout, overlap="tp"))["tp"] < 1e-9


@pytest.mark.parametrize("layout", [Layout(dp_shard=8), Layout(pp=4, num_microbatches=4)])
def test_other_groups_meet_at_no_collective_of_a_layer(layout: Layout) -> None:
    late, quiet = (on_cluster(overheads(collective=c)) for c in (1e-3, 0.0))
    assert spent(late, layout) == spent(quiet, layout)


# ---------------------------------------------------------------- stragglers


@pytest.mark.parametrize(
    ("layout", "doublings"),
    [
        (Layout(), 0),
        (Layout(tp=8), 0),  # one domain
        (Layout(dp_shard=16), 1),
        (Layout(tp=4, dp_shard=4, dp_replicate=2), 2),
        (Layout(tp=4, cp=2, dp_shard=8), 3),
        (Layout(pp=8), 0),  # a stage is one rank
        (Layout(tp=4, pp=4, dp_shard=4), 1),
    ],
)
def test_stragglers_by_doublings_of_a_stage_s_domains(layout: Layout, doublings: int) -> None:
    ctx = on_cluster(overheads(straggler=0.01))
    assert float(straggler_seconds(ctx, layout, 7.0)) == pytest.approx(0.07 * doublings)


def test_wider_domains_have_fewer_stragglers() -> None:
    layout = Layout(dp_shard=64)
    narrow, wide = (
        on_cluster(overheads(straggler=0.01), (width, 64 // width * 8)) for width in (4, 32)
    )
    assert float(straggler_seconds(narrow, layout, 1.0)) == pytest.approx(0.04)
    assert float(straggler_seconds(wide, layout, 1.0)) == pytest.approx(0.01)


def test_a_step_waits_for_its_stragglers() -> None:
    layout = Layout(tp=2, dp_shard=32, num_microbatches=2)
    found = spent(on_cluster(overheads(straggler=0.01)), layout)
    assert found["straggler"] == pytest.approx(0.03 * running(found))


# ---------------------------------------------------------------- what nothing explains


@pytest.mark.parametrize(("graphs", "constant"), [("none", 3.0), ("partial", 3.0), ("full", 0.0)])
def test_unexplained_share_and_constant(graphs: str, constant: float) -> None:
    """Graphs of the whole step leave the host nothing to do, and no constant part."""
    ctx = context(
        topology=on_cluster(overheads()).topology,
        training=training(cuda_graphs=graphs),
        software=software({"unexplained_fraction": 0.02, "unexplained_seconds": 3.0}),
    )
    assert float(unexplained_seconds(ctx, 50.0)) == pytest.approx(1.0 + constant)
    for m in (1, 10):
        found = spent(ctx, Layout(num_microbatches=m))
        assert found["unexplained"] == pytest.approx(0.02 * running(found) + constant)
        assert found["host"] == 0.0


def test_nothing_is_left_of_ideal_overheads() -> None:
    found = spent(on_cluster(overheads()), Layout(tp=2, dp_shard=32))
    assert {found[name] for name in OVERHEADS} == {0.0}


small = st.floats(0.0, 1e-2)


@given(small, small, small, small)
def test_no_overhead_makes_a_step_faster(
    collective: float, straggler: float, share: float, more: float
) -> None:
    layout = Layout(tp=4, dp_shard=8, num_microbatches=2)

    def total(collective: float, straggler: float, share: float) -> float:
        numbers = {"unexplained_fraction": share, "unexplained_seconds": share}
        given = overheads(collective, straggler)
        return sum(spent(on_cluster(given, software=software(numbers)), layout).values())

    base = total(collective, straggler, share)
    assert total(collective + more, straggler, share) >= base
    assert total(collective, straggler + more, share) >= base
    assert total(collective, straggler, share + more) >= base


# ---------------------------------------------------------------- launches


@pytest.mark.parametrize(
    ("graphs", "alone", "overlapped"),
    [
        # of a layer 8 + 14 and 6 + 10; around the experts 40 + 40; of each of 8 experts 6 + 11
        ("none", 38 + 80 + 8 * 17, 1.6 * (38 + 80 + 8 * 17)),
        ("partial", 80 + 8 * 17, 80 + 8 * 17),  # only the experts are launched
        ("full", 0, 0),
    ],
)
def test_alternating_layers_take_the_host_more_where_it_launches_them(
    graphs: str, alone: float, overlapped: float
) -> None:
    ctx = sparse_context(
        experts(num_experts=8),
        training=training(cuda_graphs=graphs, expert_load_variation=0.0),
        software=sparse_software(groups_matmuls=False),
    )
    for overlap, launches in (("none", alone), ("ep", overlapped)):
        layout = Layout(overlap=overlap)
        found = kernel_launches(ctx, layout, recomputed_shares(ctx, layout))
        assert np.asarray(found) == pytest.approx(launches)
