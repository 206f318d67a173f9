"""What collectives cost a group: rendezvous, and switches that reduce, by hand."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from planner.cost import collectives
from planner.cost.collective_costs import FORMULAS, UnitCost, unit_cost
from planner.cost.collectives import Collective, CollectiveKind, GroupCost, Half, Subgroup
from planner.cost.context import CostContext, TierArrays
from tests.expert_scenarios import shipped_scenario
from tests.scenarios import context, fabric, topology

KINDS = (
    CollectiveKind.ALL_GATHER, CollectiveKind.BROADCAST, CollectiveKind.ALL_REDUCE,
    CollectiveKind.ALL_TO_ALL, CollectiveKind.POINT_TO_POINT,
)  # fmt: skip


def unit(kind: CollectiveKind, split: Sequence[Any], tiers: TierArrays) -> UnitCost:
    return unit_cost(Collective(kind), split, tiers)


# ---------------------------------------------------------------- kinds and subgroups


def test_every_kind_has_a_formula() -> None:
    assert set(FORMULAS) == set(CollectiveKind)


def test_halves_of_a_group_cost_what_groups_of_their_splits_do() -> None:
    """Of 8 in each of 4 nodes, groups of 16 take two nodes each; across them lie two."""
    tiers = context(topology=topology([fabric(hop_seconds=1.0), fabric(hop_seconds=3.0)])).tiers
    for half, split in ((Half.INNER, [8.0, 2.0]), (Half.OUTER, [1.0, 2.0])):
        assert collectives.subgroup_split([8.0, 4.0], Subgroup(half, 16)) == split
        for kind in (CollectiveKind.ALL_TO_ALL, CollectiveKind.RING_SENDS):
            part = unit_cost(Collective(kind, subgroup=Subgroup(half, 16)), [8.0, 4.0], tiers)
            assert part == unit(kind, split, tiers)


def test_a_dispatch_depends_on_the_experts_of_a_token() -> None:
    tiers = context().tiers
    few, many = (
        unit_cost(Collective(CollectiveKind.DISPATCH, num_experts_per_token=k), [8.0, 4.0], tiers)
        for k in (1, 8)
    )
    for some, more in zip(few.busy_seconds, many.busy_seconds, strict=True):
        assert some < more < 8 * some


def test_a_dispatch_goes_at_the_rate_of_its_kernels() -> None:
    """Of 10 bytes a second an all-to-all gets 8, and a dispatch 4 where the fabric says so."""
    of_links = {"bytes_per_second": 10.0, "all_to_all_efficiency": 0.8}
    usual, own = (
        context(topology=topology([fabric(**of_links | changes), fabric(**of_links)])).tiers
        for changes in ({}, {"dispatch_efficiency": 0.4})
    )
    dispatch = Collective(CollectiveKind.DISPATCH, num_experts_per_token=2)
    slow, fast = (unit_cost(dispatch, [8.0, 4.0], tiers).busy_seconds for tiers in (own, usual))
    # and two copies of a rank's own tokens
    assert float(slow[0]) == pytest.approx(2 * float(fast[0]) + 2 / 4)
    assert float(slow[1]) == pytest.approx(float(fast[1]))
    to_all = CollectiveKind.ALL_TO_ALL
    assert unit(to_all, [8.0, 4.0], own) == unit(to_all, [8.0, 4.0], usual)


@pytest.mark.parametrize(
    ("cluster", "top_k", "hidden_size", "flex_seconds", "nccl_seconds"),
    [("dgx-h100", 2, 4096, 1.118e-3, 0.745e-3), ("dgx-h100", 4, 6144, 2.068e-3, 2.236e-3),
     ("dgx-h100", 8, 7168, 3.565e-3, 5.216e-3), ("dgx-b200", 2, 4096, 1.091e-3, 0.417e-3),
     ("dgx-b200", 4, 6144, 1.811e-3, 1.251e-3), ("dgx-b200", 8, 7168, 2.634e-3, 2.920e-3)],
)  # fmt: skip
def test_dispatchers_inside_a_node_differ_as_measured(
    cluster: str, top_k: int, hidden_size: int, flex_seconds: float, nccl_seconds: float
) -> None:
    """16,384 tokens in BF16 among 8 GPUs: DeepEP's combine against NCCL's all-to-all of all copies
    (aiconfigurator-core 0.12.0, sglang 0.5.12 wideep_deepep_normal_perf; nccl 2.29.2, times of
    512 MiB scaled to the copies)."""
    tiers = CostContext.of(shipped_scenario("qwen3-30b-a3b", cluster, 8)).tiers
    tokens = 16384 * hidden_size * 2.0
    split = [8.0] + [1.0] * (len(tiers.hop_seconds) - 1)
    dispatch = Collective(CollectiveKind.DISPATCH, num_experts_per_token=top_k)
    flex = unit_cost(dispatch, split, tiers).cost(1.0, tokens)
    nccl = unit(CollectiveKind.ALL_TO_ALL, split, tiers).cost(1.0, top_k * tokens)
    assert seconds_of(flex) == pytest.approx(flex_seconds, rel=0.2)
    assert seconds_of(nccl) == pytest.approx(nccl_seconds, rel=0.15)
    if abs(flex_seconds / nccl_seconds - 1) > 0.1:
        assert (seconds_of(flex) < seconds_of(nccl)) == (flex_seconds < nccl_seconds)


def seconds_of(cost: GroupCost) -> float:
    """Seconds of a collective that nothing else delays."""
    return float(cost.latency_seconds) + max(float(busy) for busy in cost.busy_seconds)


# ---------------------------------------------------------------- rendezvous


def test_long_messages_wait_for_the_other_end() -> None:
    """A tree over 4 nodes: two levels both ways, 5 s each and the second a tenth farther, above
    16 bytes; half of it at 12, nothing at 8."""
    late = fabric(rendezvous_seconds=5.0, eager_bytes=16.0)
    tiers = context(topology=topology([fabric(), late])).tiers
    one = unit(CollectiveKind.ALL_REDUCE, [8.0, 4.0], tiers)
    extra = [float(one.cost(1.0, size).latency_seconds) for size in (1.0, 8.0, 12.0, 16.0, 1e9)]
    assert extra == pytest.approx([0.0, 0.0, 10.5, 21.0, 21.0])
    # two calls of 16 bytes each, of 12 bytes each
    assert one.cost(2.0, 32.0).latency_seconds == pytest.approx(42.0)
    assert one.cost(2.0, 24.0).latency_seconds == pytest.approx(21.0)


def test_an_all_gather_sends_a_rank_s_share_at_a_time() -> None:
    """Of 64 bytes over 4 nodes of one, 16 a hop: three hops of 0.75 · 5 s."""
    late = fabric(rendezvous_seconds=5.0, eager_bytes=16.0)
    tiers = context(topology=topology([fabric(), late])).tiers
    for kind in (CollectiveKind.ALL_GATHER, CollectiveKind.ALL_TO_ALL):
        one = unit(kind, [1.0, 4.0], tiers)
        assert one.cost(1.0, 32.0).latency_seconds == 0.0
        seconds = one.cost(1.0, 64.0).latency_seconds
        assert seconds == pytest.approx(
            3 * 0.75 * 5.0 if kind is CollectiveKind.ALL_GATHER else 5.0
        )
    assert unit(CollectiveKind.POINT_TO_POINT, [1.0, 4.0], tiers).cost(
        1.0, 16.0
    ).latency_seconds == pytest.approx(5.0)


@given(st.floats(0, 1e3), st.floats(0, 1e3), st.integers(1, 20))
def test_more_bytes_never_cost_less(num_bytes: float, more: float, calls: int) -> None:
    late = fabric(
        hop_seconds=2.0, base_seconds=1.0, ramp=0.5, rendezvous_seconds=5.0, eager_bytes=16.0,
        sharp_efficiency=0.8, sharp_seconds=3.0,
    )  # fmt: skip
    tiers = context(topology=topology([fabric(), late])).tiers
    for kind in KINDS:
        one = unit(kind, [8.0, 4.0], tiers)
        before, after = (
            collectives.duration(one.cost(calls, size), (0.3, 0.5))
            for size in (num_bytes, num_bytes + more)
        )
        assert after >= before * (1 - 1e-12)


# ---------------------------------------------------------------- reducing switches


def test_reducing_switches_start_by_one_pass() -> None:
    """Base 3, chain of 8 both ways, one pass of 30 instead of levels over 512 nodes; large messages
    wait five times the chain's share more."""
    inner = fabric(base_seconds=3.0, hop_seconds=1.0)
    network = {"hop_seconds": 10.0}
    tree, switched = (
        unit(
            CollectiveKind.ALL_REDUCE,
            [8.0, 512.0],
            context(topology=topology([inner, outer])).tiers,
        )
        for outer in (
            fabric(**network),
            fabric(**network, sharp_efficiency=0.8, sharp_seconds=30.0),
        )
    )
    assert switched.latency_seconds == pytest.approx(3.0 + 14.0 + 30.0)
    assert switched.switch_seconds == pytest.approx(5 * (3.0 + 14.0))
    # 1 byte per second: S/8 once at 0.8 of the rate, against 2 · 4095/4096 of it by rings
    assert switched.busy_seconds[1] == pytest.approx(1 / (8 * 0.8))
    assert tree.busy_seconds[1] == pytest.approx(2 * 4095 / 4096 / 8)
    assert switched.busy_seconds[0] == tree.busy_seconds[0]


@given(
    st.sampled_from([1.0, 4.0, 8.0]),
    st.sampled_from([1.0, 2.0, 32.0]),
    st.floats(0.05, 1.0),
    st.floats(0.0, 1e3),
    st.floats(0.0, 1e4),
)
def test_reducing_switches_never_cost_more_and_serve_all_reduce_alone(
    inner: float, outer: float, share: float, seconds: float, num_bytes: float
) -> None:
    plain = fabric(hop_seconds=2.0, base_seconds=1.0, ramp=0.5)
    sharp = fabric(
        hop_seconds=2.0, base_seconds=1.0, ramp=0.5, sharp_efficiency=share, sharp_seconds=seconds
    )
    tiers = [context(topology=topology([fabric(), f])).tiers for f in (plain, sharp)]
    for kind in set(KINDS) - {CollectiveKind.ALL_REDUCE}:
        assert unit(kind, [inner, outer], tiers[0]) == unit(kind, [inner, outer], tiers[1])
    without, with_them = (
        collectives.duration(
            unit(CollectiveKind.ALL_REDUCE, [inner, outer], t).cost(1.0, num_bytes), (0.0, 0.5)
        )
        for t in tiers
    )
    assert with_them <= without * (1 + 1e-12)


def test_costs_of_arrays_equal_those_of_numbers() -> None:
    late = fabric(
        hop_seconds=2.0, base_seconds=1.0, rendezvous_seconds=5.0, eager_bytes=16.0,
        sharp_efficiency=0.8, sharp_seconds=3.0,
    )  # fmt: skip
    tiers = context(topology=topology([fabric(hop_seconds=1.0), late])).tiers
    rows = [(1.0, 1.0), (1.0, 6.0), (8.0, 1.0), (8.0, 2.0), (6.0, 5.0)]
    sizes, calls = np.array([3.0, 12.0, 1e3, 40.0, 90.0]), np.array([1.0, 0.0, 7.0, 2.0, 5.0])
    for kind in KINDS:
        table = unit(kind, list(np.array(rows).T), tiers).cost(calls, sizes)
        for i, row in enumerate(rows):
            alone = unit(kind, row, tiers).cost(float(calls[i]), float(sizes[i]))
            latency = np.broadcast_to(table.latency_seconds, len(rows))[i]
            switch = np.broadcast_to(table.switch_seconds, len(rows))[i]
            assert latency == pytest.approx(alone.latency_seconds, rel=1e-12)
            assert switch == pytest.approx(alone.switch_seconds, rel=1e-12)
            for column, seconds in zip(table.busy_seconds, alone.busy_seconds, strict=True):
                assert column[i] == pytest.approx(seconds, rel=1e-12)
