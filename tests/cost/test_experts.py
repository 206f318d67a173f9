"""Seconds of a layer's experts: by hand on ideal parts, and what each loss adds."""

from __future__ import annotations

import itertools
import math
from operator import attrgetter
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from planner.cost.collectives import dispatch_busy
from planner.cost.compute import RankShare, layer_times, on_unique
from planner.cost.context import CostContext
from planner.cost.experts import (
    ExpertShare,
    ExpertTimes,
    expert_kernels,
    expert_times,
    imbalance,
    own_tokens,
)
from planner.layouts.keys import DISPATCHERS
from planner.layouts.layout import Layout
from planner.problem.blocks import DENSE, SPARSE, MoE
from tests.expert_scenarios import (
    EVEN,
    experts,
    shipped_context,
    sparse_context,
    sparse_model,
    sparse_software,
)
from tests.scenarios import (
    LOSSY,
    NO_LIMIT,
    PEAK,
    accelerator,
    gemm,
    model,
    topology,
    training,
)

ALLTOALL, FLEX = DISPATCHERS.index("alltoall"), DISPATCHERS.index("flex")
HBM = 1e9
H, F, TOKENS = 32, 64, 64  # hidden, an expert's feed-forward size, tokens of a micro-batch
WEIGHTS = 2 * H * F


def times(
    ctx: CostContext, tokens: float = TOKENS, ep: int = 1, etp: int = 1, kind: int = ALLTOALL
) -> ExpertTimes:
    assert ctx.model.moe is not None
    mbs = tokens / ctx.training.sequence_length
    return expert_times(ctx, ctx.model.moe, ExpertShare(mbs, 1, 1, ep, etp, kind))


def on_part(moe: MoE | None = None, train: Any = None, **changes: Any) -> CostContext:
    return sparse_context(
        moe,
        topology=topology(accelerator=accelerator(**changes)),
        training=training(**(EVEN | (train or {}))),
    )


# ---------------------------------------------------------------- matmuls


def test_every_copy_of_a_token_passes_two_matmuls() -> None:
    """Two FLOPs a weight and copy, twice that backwards, however many experts share them."""
    found = times(sparse_context())
    assert found.gemm.forward == pytest.approx(2 * WEIGHTS * 2 * TOKENS / PEAK, rel=1e-12)
    assert found.gemm.backward == pytest.approx(2 * found.gemm.forward, rel=1e-12)
    three = times(sparse_context(experts(top_k=3, num_experts=16)))
    assert three.gemm.forward == pytest.approx(1.5 * found.gemm.forward, rel=1e-12)
    gated = times(sparse_context(toy=sparse_model(gated_mlp=True)))
    assert gated.gemm.forward == pytest.approx(1.5 * found.gemm.forward, rel=1e-12)


@pytest.mark.parametrize(("ep", "etp"), [(2, 1), (8, 1), (1, 4), (4, 2)])
def test_ranks_that_share_experts_have_as_much_work(ep: int, etp: int) -> None:
    """What leaves comes in; an etp group has its ranks' tokens together, each a share of widths."""
    alone, shared = times(sparse_context()), times(sparse_context(), ep=ep, etp=etp)
    assert shared.gemm.forward == pytest.approx(alone.gemm.forward, rel=1e-12)
    assert shared.gemm.backward == pytest.approx(alone.gemm.backward, rel=1e-12)


@pytest.mark.parametrize("ep", [1, 2, 4, 8])
def test_the_fullest_rank_counts(ep: int) -> None:
    even, uneven = (on_part(train={"expert_load_variation": c}) for c in (0.0, 0.3))
    assert even.model.moe is not None and imbalance(even, even.model.moe, ep) == 1.0
    factor = float(imbalance(uneven, even.model.moe, ep))
    # the load of 8/ep experts varies by 0.3/√(8/ep)
    assert factor == pytest.approx(1 + 0.3 * math.sqrt(ep / 8) * math.sqrt(2 * math.log(ep)))
    for name in ("forward", "backward"):
        whole, more = (float(getattr(times(c, 64e3, ep).gemm, name)) for c in (even, uneven))
        assert more == pytest.approx(factor * whole, rel=1e-3)  # rows are whole numbers


@pytest.mark.parametrize(("num_experts", "ep"), [(8, 8), (64, 8), (128, 16), (256, 64)])
def test_fullest_rank_of_drawn_loads(num_experts: int, ep: int) -> None:
    """√(2·ln n) is what the greatest of n normal draws tends to, from below."""
    ctx = sparse_context(
        experts(num_experts=num_experts), training=training(expert_load_variation=0.2)
    )
    assert ctx.model.moe is not None
    loads = np.random.default_rng(1).normal(1.0, 0.2, size=(4000, ep, num_experts // ep))
    drawn = loads.mean(axis=2).max(axis=1).mean() - 1.0
    assert 0.65 < drawn / (float(imbalance(ctx, ctx.model.moe, ep)) - 1.0) < 1.0


@pytest.mark.parametrize("grouped", [False, True])
@pytest.mark.parametrize("backend", ["flash", "naive"])
@pytest.mark.parametrize("gated", [False, True])
def test_one_expert_of_one_is_a_dense_mlp(gated: bool, backend: str, grouped: bool) -> None:
    """Of its size: what a dense layer has beyond one whose MLP is all routed."""
    lossy = LOSSY[backend, "bf16"]
    alone = sparse_context(
        experts(num_experts=1, top_k=1, expert_ffn_hidden_size=128),
        sparse_model(gated_mlp=gated, num_key_value_heads=2),
        topology=lossy.topology,
        training=training(attention=backend, **EVEN),
        software=sparse_software(groups_matmuls=grouped),
    )
    found = times(alone, 3 * TOKENS)
    dense, around = (layer_times(alone, kind, RankShare(1, 1, 3, 0, 1)) for kind in (DENSE, SPARSE))
    for name in ("forward", "backward"):
        whole = float(getattr(dense.gemm, name)) - float(getattr(around.gemm, name))
        assert getattr(found.gemm, name) == pytest.approx(whole, rel=1e-9)


@pytest.mark.parametrize(("ep", "groups"), [(1, 8), (4, 2), (8, 1)])
def test_launches_of_each_expert_or_one_for_all(ep: int, groups: int) -> None:
    """Two matmuls forward and four back, once for every expert of the rank or once in all."""
    start = 1e-3
    late = topology(accelerator=accelerator(gemm={"bf16": gemm(overhead_seconds=start)}))
    ideal = times(sparse_context(), ep=ep)
    for grouped, launches in ((False, groups), (True, 1)):
        ctx = sparse_context(topology=late, software=sparse_software(groups_matmuls=grouped))
        found = times(ctx, ep=ep)
        added = found.gemm.forward - ideal.gemm.forward, found.gemm.backward - ideal.gemm.backward
        assert added == pytest.approx((2 * launches * start, 4 * launches * start))


def test_experts_read_their_own_weights() -> None:
    """With few rows each, operands in elements of 2 bytes: the weights of every expert once."""
    part = {"hbm_bytes_per_second": HBM, "peak_flops": {"bf16": NO_LIMIT}}
    few = times(on_part(experts(num_experts=64), **part)).gemm.forward
    rows = 2 * TOKENS / 64
    by_hand = 64 * 2 * sum(rows * k + k * n + rows * n for n, k in ((F, H), (H, F)))
    assert few == pytest.approx(by_hand / HBM, rel=1e-12)
    assert few > 3 * times(on_part(experts(num_experts=8), **part)).gemm.forward


# ---------------------------------------------------------------- memory-bound kernels


def test_flex_does_not_sort_copies() -> None:
    """Two passes of two copies a token less, each way."""
    ctx = on_part(hbm_bytes_per_second=HBM)
    sorted_, straight = (times(ctx, kind=kind) for kind in (ALLTOALL, FLEX))
    saved = 2 * 2 * TOKENS * H * 2 / HBM
    assert sorted_.memory_bound.forward - straight.memory_bound.forward == pytest.approx(saved)
    assert sorted_.memory_bound.backward - straight.memory_bound.backward == pytest.approx(saved)


def test_copies_pass_hbm_several_times() -> None:
    """Permuted, sent and received, and back: at least in and out of two copies at two places."""
    ctx = on_part(hbm_bytes_per_second=HBM)
    found = times(ctx, kind=FLEX).memory_bound.forward
    least = 4 * 2 * TOKENS * H * 2 / HBM
    assert least < found < 4 * least
    assert times(ctx, 3 * TOKENS).memory_bound.forward == pytest.approx(
        3 * times(ctx).memory_bound.forward, rel=1e-12
    )
    assert times(ctx).memory_bound.backward > times(ctx).memory_bound.forward


def test_low_precision_is_paid_for_in_conversions() -> None:
    """An expert's input and its activation, read in two bytes and written twice in one."""
    wide, narrow = (on_part(train={"precision": p}, hbm_bytes_per_second=HBM) for p in PRECISIONS)
    added = times(narrow).memory_bound.forward - times(wide).memory_bound.forward
    assert added == pytest.approx((2 + 2 * 1) * 2 * TOKENS * (H + F) / HBM)
    fast, slow = times(narrow), times(wide)
    assert fast.memory_bound.backward - slow.memory_bound.backward == pytest.approx(added)


PRECISIONS = ("bf16", "fp8")


# ---------------------------------------------------------------- tokens and kernels


def test_a_rank_routes_its_shard() -> None:
    ctx = sparse_context()
    assert own_tokens(ctx, Layout(mbs=3)) == 3 * 64
    assert own_tokens(ctx, Layout(mbs=3, cp=2, tp=4, sp=True)) == 3 * 64 / 8
    assert own_tokens(ctx, Layout(mbs=3, cp=2, tp=4)) == 3 * 64 / 2


@pytest.mark.parametrize("ep", [1, 2, 8])
def test_host_starts_kernels_for_every_expert_unless_they_are_grouped(ep: int) -> None:
    """One expert more adds as many starts whatever their number; grouped there is one."""

    def starts(num_experts: int, grouped: bool) -> tuple[float, float]:
        ctx = sparse_context(
            experts(num_experts=num_experts), software=sparse_software(groups_matmuls=grouped)
        )
        assert ctx.model.moe is not None
        kernels = expert_kernels(ctx, ctx.model.moe, Layout(ep=ep))
        return float(kernels.forward), float(kernels.backward)

    few, some, many = (np.array(starts(n * ep, grouped=False)) for n in (2, 3, 5))
    assert ((many - few) == 3 * (some - few)).all() and (some > few).all()
    assert starts(2 * ep, grouped=True) == starts(5 * ep, grouped=True)
    # at least the two matmuls of each, and backwards twice as many
    assert (some - few >= np.array([2, 4])).all()


# ---------------------------------------------------------------- tables

keys = st.tuples(
    st.integers(1, 4), st.sampled_from([1, 64]), st.sampled_from([1, 8]),
    st.sampled_from([1, 2, 4, 8, 64]), st.sampled_from([1, 2, 8]),
    st.integers(0, len(DISPATCHERS) - 1),
)  # fmt: skip


@pytest.mark.parametrize("name", ["deepseek-v3", "qwen3-30b-a3b"])
@settings(max_examples=25, deadline=None)
@given(rows=st.lists(keys, min_size=1, max_size=8))
def test_table_equals_numbers(name: str, rows: list[tuple[int, ...]]) -> None:
    ctx = shipped_context(name)
    moe = ctx.model.moe
    assert moe is not None
    columns = [np.array(column) for column in zip(*rows, strict=True)]
    table = on_unique(lambda *unique: expert_times(ctx, moe, ExpertShare(*unique)), *columns)
    for i, row in enumerate(rows):
        one = expert_times(ctx, moe, ExpertShare(*row))
        assert not ctx.software.only_1f1b  # so that gradients of weights are told apart
        for name in ("gemm.forward", "gemm.backward", "memory_bound.forward",
                     "memory_bound.backward", "weight_gradients"):  # fmt: skip
            column = attrgetter(name)(table)
            assert column.shape == (len(rows),)
            assert column[i] == pytest.approx(float(attrgetter(name)(one)), rel=1e-12), name


# ---------------------------------------------------------------- dispatch


def distinct_places(split: tuple[int, ...], k: int) -> list[float]:
    """Mean over every choice of k ranks of what one token sends: copies to other ranks, and, tier
    by tier, to innermost domains outside its own domain there."""
    size = int(np.prod(split))
    inside = [int(np.prod(split[: tier + 1])) for tier in range(len(split))]
    totals = np.zeros(len(split))
    choices = list(itertools.product(range(size), repeat=k))
    for chosen in choices:
        totals[0] += len(set(chosen) - {0})
        domains = {rank // split[0] for rank in chosen}
        for tier in range(1, len(split)):
            # rank 0's own domain of the tier below holds so many innermost domains
            own = inside[tier - 1] // split[0]
            totals[tier] += sum(domain >= own for domain in domains)
    return [float(total) / len(choices) for total in totals]


@pytest.mark.parametrize("k", [1, 2, 3, 4])
@pytest.mark.parametrize("split", [(4, 1), (2, 3), (1, 4), (4, 2), (2, 2, 2), (1, 2, 3), (1, 1)])
def test_dispatch_sends_one_copy_to_a_place(split: tuple[int, ...], k: int) -> None:
    """Against all choices of k ranks, with replacement, by a token of rank 0."""
    rates = [8.0, 2.0, 1.0][: len(split)]
    expected = distinct_places(split, k)
    if split[0] == 1:
        expected[0] = 0.0  # no link inside a domain of one
    found = [float(busy) for busy in dispatch_busy(split, rates, k)]
    assert found == pytest.approx(np.array(expected) / rates)


def test_dispatch_of_one_expert_is_an_all_to_all() -> None:
    """One copy a token: it leaves the rank with 1 − 1/n and the node with 1 − 1/nodes."""
    assert [float(b) for b in dispatch_busy((8, 4), (1.0, 1.0), 1)] == pytest.approx(
        [31 / 32, 3 / 4]
    )
    many = [float(b) for b in dispatch_busy((8, 4), (1.0, 1.0), 10**6)]
    assert many == pytest.approx([31, 3])


def test_a_dense_model_has_no_experts() -> None:
    assert [kind.has_experts for kind in sparse_context(toy=model(moe=experts())).layer_kinds] == [
        True
    ]
    assert not any(kind.has_experts for kind in LOSSY["flash", "bf16"].layer_kinds)


def test_a_rank_cannot_have_more_than_all_tokens() -> None:
    ctx = on_part(train={"expert_load_variation": 16.0})
    assert ctx.model.moe is not None
    assert imbalance(ctx, ctx.model.moe, 2) == 2.0
    assert imbalance(ctx, ctx.model.moe, 1) == 1.0
