"""Collectives over tiers against arithmetic by hand and nccl-tests' marks."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from planner.cost.collectives import (
    FARTHER_PER_LEVEL,
    RING_HOP,
    SIMPLE_BASE,
    SWITCH_ALL_TO_ALL_HOPS,
    GroupCost,
    all_gather_busy,
    all_reduce_busy,
    all_to_all_busy,
    broadcast_busy,
    duration,
    mesh_share,
    own_share_busy,
    pairwise_latency,
    pairwise_switch,
    point_to_point_busy,
    point_to_point_latency,
    ring_hops,
    ring_latency,
    sharp_busy,
    tree_latency,
)

NVLINK, NIC = 400e9, 50e9
RATES = (NVLINK, NIC)


def all_reduce(split: Sequence[Any], rate: Sequence[float]) -> Any:
    """All-reduce where the switches do not reduce."""
    return all_reduce_busy(split, rate, rate)


BUSY: dict[str, Callable[..., Any]] = {
    "all-gather": all_gather_busy,
    "all_reduce": all_reduce,
    "all_to_all": all_to_all_busy,
    "point-to-point": point_to_point_busy,
    "broadcast": broadcast_busy,
}
LATENCY = {
    "ring": ring_latency,
    "tree": tree_latency,
    "pairwise": lambda split, hop, base: pairwise_latency(split, hop, base, base),
    "point-to-point": point_to_point_latency,
}

members = st.sampled_from([1.0, 1.5, 2.0, 3.0, 4.0, 5.0, 6.0, 8.0])
splits = st.lists(members, min_size=3, max_size=3)
rates = st.lists(st.floats(1e9, 1e12), min_size=3, max_size=3)
delays = st.lists(st.floats(0, 1e-3), min_size=3, max_size=3)


def busbw(seconds_per_byte: Sequence[float], ranks: int) -> float:
    """nccl-tests' bus bandwidth of an all-reduce whose slowest tier sets the pace."""
    return 2 * (ranks - 1) / ranks / max(seconds_per_byte)


# ---------------------------------------------------------------- bytes


def test_all_gather_on_one_tier() -> None:
    """S·(n − 1)/n/β."""
    assert all_gather_busy([8.0], [NVLINK]) == pytest.approx((7 / 8 / NVLINK,), rel=1e-15)


def test_all_reduce_on_one_tier_is_reduce_scatter_and_all_gather() -> None:
    assert all_reduce([4.0], [NVLINK]) == pytest.approx((2 * 3 / 4 / NVLINK,), rel=1e-15)


def test_ring_over_nodes_uses_the_nics_of_all_its_members() -> None:
    """4 nodes of 8: 8 rings side by side, each link out carries an eighth."""
    inside, outside = all_gather_busy([8.0, 4.0], RATES)
    assert inside == pytest.approx(31 / 32 / NVLINK, rel=1e-15)
    assert outside == pytest.approx(31 / 32 / (8 * NIC), rel=1e-15)
    (_, one_nic) = all_gather_busy([1.0, 32.0], RATES)
    assert one_nic == pytest.approx(8 * outside, rel=1e-15)
    (_, all_reduced) = all_reduce([8.0, 4.0], RATES)
    assert all_reduced == pytest.approx(2 * 31 / 32 / (8 * NIC), rel=1e-15)


def test_three_tiers_by_hand() -> None:
    """2 per node, 3 nodes a leaf, 4 leaves: each tier carries what its members share."""
    ring = 23 / 24
    assert all_gather_busy([2.0, 3.0, 4.0], [8.0, 4.0, 2.0]) == pytest.approx(
        (ring / 8, ring / (2 * 4), ring / (6 * 2)), rel=1e-15
    )


@pytest.mark.parametrize("kind", BUSY)
def test_one_member_moves_nothing(kind: str) -> None:
    assert [float(busy) for busy in BUSY[kind]([1.0, 1.0], RATES)] == [0.0, 0.0]


@pytest.mark.parametrize("kind", BUSY)
def test_one_member_a_node_leaves_the_node_s_links_alone(kind: str) -> None:
    inside, outside = BUSY[kind]([1.0, 4.0], RATES)
    assert inside == 0.0
    assert outside > 0.0


@pytest.mark.parametrize("kind", BUSY)
def test_group_inside_a_node_leaves_the_network_alone(kind: str) -> None:
    inside, outside = BUSY[kind]([4.0, 1.0], RATES)
    assert inside > 0.0
    assert outside == 0.0


@pytest.mark.parametrize("kind", BUSY)
def test_what_reaches_the_spine_passes_the_leaf(kind: str) -> None:
    """Nodes on different leaves: the leaf's links carry what the spine's do, at their rate."""
    _, leaf, spine = BUSY[kind]([8.0, 1.0, 4.0], [NVLINK, NIC, NIC / 7])
    assert spine == pytest.approx(7 * leaf, rel=1e-15)


def test_two_nodes_all_reduce_at_the_rate_inside() -> None:
    """nccl-tests, 8 GPUs a node: two nodes reach NVLink's rate, three fall to the NICs' sum."""
    inside, outside = all_reduce([8.0, 2.0], RATES)
    assert outside == pytest.approx(1 / (8 * NIC), rel=1e-15)
    assert busbw((inside, outside), 16) == pytest.approx(NVLINK, rel=1e-15)
    slower_nics = [all_reduce([8.0, nodes], (2 * NVLINK, NIC)) for nodes in (2.0, 3.0, 4.0)]
    found = [busbw(busy, ranks) for busy, ranks in zip(slower_nics, (16, 24, 32), strict=True)]
    assert found == pytest.approx([8 * NIC * 15 / 8, 8 * NIC, 8 * NIC], rel=1e-15)


def test_two_nodes_are_special_on_any_tier_and_to_all_reduce_alone() -> None:
    _, leaf, spine = all_reduce([8.0, 1.0, 2.0], [NVLINK, NIC, NIC])
    assert (leaf, spine) == pytest.approx((1 / (8 * NIC),) * 2, rel=1e-15)
    _, outside = all_gather_busy([8.0, 2.0], RATES)
    assert outside == pytest.approx(15 / 16 / (8 * NIC), rel=1e-15)


@pytest.mark.parametrize(("size", "lift"), [(2, 1.0), (5, 1.0), (6, 1.3), (8, 1.3)])
def test_switches_reduce_for_six_members_or_more(size: int, lift: float) -> None:
    (seconds,) = all_reduce_busy([float(size)], [NVLINK], [1.3 * NVLINK])
    assert busbw((seconds,), size) == pytest.approx(lift * NVLINK, rel=1e-14)
    (gathered,) = all_gather_busy([float(size)], [NVLINK])
    assert gathered == pytest.approx((size - 1) / size / NVLINK, rel=1e-15)


def test_lift_counts_members_under_one_switch() -> None:
    """3 in each of 4 nodes are 12, but no node's switch sees six."""
    inside, _ = all_reduce_busy([3.0, 4.0], RATES, (1.3 * NVLINK, NIC))
    assert inside == pytest.approx(2 * 11 / 12 / NVLINK, rel=1e-14)


@pytest.mark.parametrize("size", [4.0, 8.0])
def test_slower_reduction_slows_a_group_of_any_size(size: float) -> None:
    (seconds,) = all_reduce_busy([size], [NVLINK], [0.5 * NVLINK])
    assert seconds == pytest.approx(2 * (size - 1) / size / (0.5 * NVLINK), rel=1e-14)


def test_all_to_all_is_bound_by_each_rank_s_own_nic() -> None:
    """Of 16 ranks in two nodes half of a rank's bytes leave the node, over one NIC."""
    inside, outside = all_to_all_busy([8.0, 2.0], RATES)
    assert inside == pytest.approx(15 / 16 / NVLINK, rel=1e-15)
    assert outside == pytest.approx(8 / 16 / NIC, rel=1e-15)
    _, _, spine = all_to_all_busy([8.0, 2.0, 4.0], [NVLINK, NIC, NIC])
    assert spine == pytest.approx(48 / 64 / NIC, rel=1e-15)


def test_worst_neighbour_is_as_far_as_the_group_reaches() -> None:
    assert point_to_point_busy([2.0, 1.0], RATES) == (1 / NVLINK, 0.0)
    assert point_to_point_busy([2.0, 4.0], RATES) == (1 / NVLINK, 1 / NIC)
    assert point_to_point_busy([1.0, 4.0], RATES) == (0.0, 1 / NIC)


def test_broadcast_sends_everything_over_every_link() -> None:
    """nccl-tests' bus bandwidth of a broadcast is its algorithm bandwidth."""
    assert broadcast_busy([8.0], [NVLINK]) == (1 / NVLINK,)
    inside, outside = broadcast_busy([8.0, 4.0], RATES)
    assert (inside, outside) == pytest.approx((1 / NVLINK, 1 / (8 * NIC)), rel=1e-15)


def test_switches_of_the_network_take_each_byte_once() -> None:
    """32 nodes of 8: S/8 up and S/8 down at 0.9 · 50 GB/s, where rings carry 2 · 255/256 of S/8."""
    split, ring = [8.0, 32.0], all_reduce([8.0, 32.0], RATES)
    inside, outside = sharp_busy(split, ring, (0.0, 0.9 * NIC))
    assert inside == ring[0]
    assert outside == pytest.approx(1 / (8 * 0.9 * NIC), rel=1e-15)
    assert ring[1] / outside == pytest.approx(0.9 * 2 * 255 / 256, rel=1e-15)


def test_switches_that_are_slower_than_rings_are_left_alone() -> None:
    ring = all_reduce([8.0, 32.0, 2.0], (NVLINK, NIC, NIC))
    found = sharp_busy([8.0, 32.0, 2.0], ring, (0.0, 0.4 * NIC, 0.9 * NIC))
    assert found[:2] == ring[:2]
    assert found[2] == pytest.approx(1 / (256 * 0.9 * NIC), rel=1e-15)
    assert sharp_busy([8.0, 1.0, 1.0], all_reduce([8.0, 1.0, 1.0], (1.0,) * 3), (0.0, 1.0, 1.0))[
        1:
    ] == (0.0, 0.0)


@pytest.mark.parametrize(("members", "share"), [(1, 1 / 7), (2, 1 / 7), (4, 3 / 7), (8, 1.0)])
def test_a_mesh_has_a_link_per_other_member(members: int, share: float) -> None:
    assert mesh_share(float(members), 8.0) == pytest.approx(share, rel=1e-15)


def test_own_part_shrinks_with_the_group() -> None:
    """0.4 of a part's time: a pair's bus bandwidth is 1/1.4 of the links', that of eight 7/7.4."""
    for size in (2, 4, 8):
        (ring,) = all_gather_busy([float(size)], [NVLINK])
        seconds = ring + own_share_busy([float(size)], 0.4, NVLINK)
        reached = (size - 1) / size / seconds
        assert reached == pytest.approx((size - 1) / (size - 0.6) * NVLINK, rel=1e-14)
    assert own_share_busy([1.0, 8.0], 0.4, NVLINK) == 0.0
    assert own_share_busy([4.0, 2.0], 0.4, NVLINK) == pytest.approx(0.05 / NVLINK, rel=1e-14)


# ---------------------------------------------------------------- latency


def test_ring_passes_every_member_once() -> None:
    assert ring_latency([8.0], [2.0], [3.0]) == 3.0 + 7 * 2.0


@pytest.mark.parametrize(
    ("split", "inside", "between"),
    [
        ([8.0, 1.0, 1.0], 7, 0),
        ([8.0, 2.0, 1.0], 13, 2),  # the slowest of 15 hops: both between the nodes
        ([8.0, 4.0, 1.0], 27, 4),
        ([1.0, 10.0, 1.0], 0, 9),  # one member a node: no hop inside to be spared
        ([1.0, 1.0, 1.0], 0, 0),
    ],
)
def test_slowest_message_of_a_ring_is_spared_a_hop_inside(
    split: list[float], inside: int, between: int
) -> None:
    """Every hop once against the ring walked link by link, the best link of each start left out."""
    found = ring_hops(split, [1.0, 100.0, 100.0], [0.0] * 3)
    assert found.inside_seconds == pytest.approx(inside)
    assert found.between_seconds == pytest.approx(RING_HOP * 100 * between)
    assert found.crossings == pytest.approx(between)
    ring = ([1.0] * int(split[0] - 1) + [100.0 * RING_HOP]) * int(split[1] * split[2])
    spared = min(ring) if len(ring) > 1 else sum(ring)
    walked = sum(ring) - spared if split[1] * split[2] > 1 else split[0] - 1
    assert found.latency_seconds == pytest.approx(walked)


def test_ring_over_three_tiers_closes_over_the_slowest() -> None:
    """2 a node, 3 nodes a leaf, 4 leaves: 12 links inside, 8 of leaves, 3 + 1 of the spine."""
    found = ring_hops([2.0, 3.0, 4.0], [1.0, 10.0, 100.0], [5.0, 3.0, 4.0])
    assert found.inside_seconds == 5.0 + 12 - 1
    assert found.between_seconds == pytest.approx(RING_HOP * (8 * 10.0 + 4 * 100.0))
    assert found.crossings == 12


def test_tree_goes_up_and_down() -> None:
    """A chain of 8 inside each node, two levels over 4 nodes, both ways; the slower start."""
    found = tree_latency([8.0, 4.0], [1.0, 10.0], [3.0, 5.0])
    assert found == pytest.approx(5.0 + 2 * (7 * 1.0 + (1 + 1 + FARTHER_PER_LEVEL) * 10.0))


def test_levels_of_a_tree_lie_farther_apart() -> None:
    """Level by level over 8 leaves of 4 nodes: five levels, counted through both tiers."""
    found = tree_latency([1.0, 4.0, 8.0], [1.0, 10.0, 100.0], [0.0] * 3)
    levels = [10.0, 10.0, 100.0, 100.0, 100.0]
    summed = sum(hop * (1 + FARTHER_PER_LEVEL * level) for level, hop in enumerate(levels))
    assert found == pytest.approx(2 * summed)


def test_neighbour_is_one_hop_away() -> None:
    """Sends start as protocol Simple does: 8.4 us where LL takes 6.6."""
    hop, base = [1.0, 10.0], [3.0, 5.0]
    assert point_to_point_latency([8.0, 1.0], hop, base) == pytest.approx(1 + 3 * SIMPLE_BASE)
    assert point_to_point_latency([8.0, 2.0], hop, base) == pytest.approx(10 + 5 * SIMPLE_BASE)
    assert point_to_point_latency([1.0, 2.0], hop, base) == pytest.approx(10 + 5 * SIMPLE_BASE)


def test_an_exchange_posts_its_messages_in_turn() -> None:
    """Seven to peers inside the node, eight across the network, each at the price of its tier."""
    hop, base, posting = [1.0, 10.0], [3.0, 5.0], [0.5, 2.0]
    assert pairwise_latency([8.0, 1.0], hop, base, posting) == 3 + 1 + 7 * 0.5
    assert pairwise_latency([8.0, 2.0], hop, base, posting) == 5 + 10 + 7 * 0.5 + 8 * 2
    assert pairwise_latency([1.0, 2.0], hop, base, posting) == 5 + 10 + 2


def test_large_exchanges_start_later_by_hops_inside_a_node_however_many_peers() -> None:
    later = SWITCH_ALL_TO_ALL_HOPS * 1.5
    for split in ([2.0, 1.0], [8.0, 1.0], [8.0, 4.0]):
        assert pairwise_switch(split, [1.5, 10.0]) == later
    assert pairwise_switch([1.0, 4.0], [1.5, 10.0]) == 0.0


@pytest.mark.parametrize("kind", LATENCY)
def test_one_member_waits_for_nobody(kind: str) -> None:
    assert LATENCY[kind]([1.0, 1.0], [1.0, 10.0], [3.0, 5.0]) == 0.0


# ---------------------------------------------------------------- duration


def test_without_ramp_the_slowest_tier_follows_the_start() -> None:
    assert duration(GroupCost(2.0, (3.0, 5.0)), (0.0, 0.0)) == 7.0


def test_without_a_switch_there_is_no_ramp() -> None:
    assert duration(GroupCost(4.0, (9.0, 16.0)), (2.0, 1.0)) == 20.0


@pytest.mark.parametrize(
    ("busy", "extra"),
    [
        (0.0, 0.0),  # small messages: start-up alone
        (1.0, 4.0),  # 2·½·√(16·1)
        (4.0, 8.0),
        (16.0, 16.0),  # large ones start the whole switch later
        (1e6, 16.0),
    ],
)
def test_messages_climb_from_one_start_to_the_other(busy: float, extra: float) -> None:
    """L + B + min(W, 2·ramp·√(W·B)) with L = 2, W = 16, ramp = ½."""
    assert duration(GroupCost(2.0, (busy, 0.0), 16.0), (0.5, 0.5)) == pytest.approx(
        2 + busy + extra
    )


def test_each_tier_has_its_own_ramp() -> None:
    cost = GroupCost(4.0, (9.0, 16.0), 100.0)
    assert duration(cost, (1.0, 0.0)) == 4.0 + 9.0 + 2 * 30.0
    assert duration(cost, (0.0, 0.5)) == 4.0 + 16.0 + 40.0


@given(
    st.floats(0, 10),
    st.lists(st.floats(0, 10), min_size=3, max_size=3),
    st.lists(st.floats(0, 2), min_size=3, max_size=3),
    st.floats(0, 10),
    st.integers(0, 4),
    st.floats(0, 10),
)
def test_duration_never_falls(
    latency: float,
    busy: list[float],
    ramp: list[float],
    switch: float,
    component: int,
    push: float,
) -> None:
    costs = [latency, switch, *busy]
    before = duration(GroupCost(costs[0], tuple(costs[2:]), costs[1]), ramp)
    assert before >= max(latency, *busy)
    costs[component] += push
    after = duration(GroupCost(costs[0], tuple(costs[2:]), costs[1]), ramp)
    assert after >= before * (1 - 1e-15)


# ---------------------------------------------------------------- properties


@pytest.mark.parametrize("kind", BUSY)
@given(splits, rates, st.integers(0, 2), st.floats(1.0, 10.0))
def test_faster_links_are_never_busier(
    kind: str, split: list[float], rate: list[float], tier: int, factor: float
) -> None:
    faster = [r * factor if t == tier else r for t, r in enumerate(rate)]
    for before, after in zip(BUSY[kind](split, rate), BUSY[kind](split, faster), strict=True):
        assert after <= before


@given(splits, rates, st.floats(1.0, 2.0), st.floats(1.0, 2.0))
def test_better_reduction_is_never_busier(
    split: list[float], rate: list[float], lift: float, more: float
) -> None:
    reduce_rate = [r * lift for r in rate]
    before = all_reduce_busy(split, rate, reduce_rate)
    after = all_reduce_busy(split, rate, [r * more for r in reduce_rate])
    for slow, fast in zip(before, after, strict=True):
        assert fast <= slow * (1 + 1e-15)


@pytest.mark.parametrize("kind", LATENCY)
@given(splits, delays, delays, st.integers(0, 2), st.floats(0, 1e-3))
def test_longer_hops_are_never_faster(
    kind: str, split: list[float], hop: list[float], base: list[float], tier: int, more: float
) -> None:
    before = LATENCY[kind](split, hop, base)
    assert before >= 0.0
    longer = [seconds + more * (t == tier) for t, seconds in enumerate(hop)]
    assert LATENCY[kind](split, longer, base) >= before
    later = [seconds + more * (t == tier) for t, seconds in enumerate(base)]
    assert LATENCY[kind](split, hop, later) >= before


@given(st.lists(splits, min_size=1, max_size=5), rates)
def test_arrays_equal_numbers(rows: list[list[float]], rate: list[float]) -> None:
    columns = list(np.array(rows).T)
    for function in BUSY.values():
        table = np.stack(np.broadcast_arrays(*function(columns, rate)))
        assert table.dtype == np.float64
        for i, row in enumerate(rows):
            np.testing.assert_allclose(table[:, i], function(row, rate), rtol=1e-12)
    for latency in LATENCY.values():
        table = latency(columns, rate, rate)
        for i, row in enumerate(rows):
            np.testing.assert_allclose(table[i], latency(row, rate, rate), rtol=1e-12)
