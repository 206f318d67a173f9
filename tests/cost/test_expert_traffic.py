"""Bytes that travel to experts and for their parameters, by hand: links of 1 byte per second."""

from __future__ import annotations

from dataclasses import replace

import pytest

from planner.cost.channels import SPECS, occurrences
from planner.cost.collectives import dispatch_busy
from planner.cost.experts import imbalance
from planner.cost.model_states import Parameters
from planner.cost.recompute import recomputed_shares
from planner.cost.step import layout_costs
from planner.cost.traffic import channel_costs, layout_traffic
from planner.layouts.layout import Layout
from tests.expert_scenarios import EVEN, experts, sparse_context, sparse_model
from tests.oracles import innermost_splits, moved, ring
from tests.scenarios import fabric, topology, training

TOKENS, LAYERS, TOP_K = 64, 8, 2
ACTIVATION = TOKENS * 32 * 2
COPIES = TOP_K * ACTIVATION
EXPERT = 2 * 32 * 64  # parameters


# ---------------------------------------------------------------- tokens


@pytest.mark.parametrize(
    ("recompute", "exchanges"),
    [("none", 4), ("act", 4), ("act_norm", 4), ("moe", 6), ("full", 6), ("alternate", 5)],
)
@pytest.mark.parametrize("ep", [2, 8])
def test_every_copy_leaves_and_comes_back(ep: int, recompute: str, exchanges: int) -> None:
    """There and back forward, there and back backward; all but what stays, 1/ep."""
    layout = Layout(dp_shard=8, ep=ep, pp=2, mbs=3, num_microbatches=5, recompute=recompute)
    by_hand = 5 * LAYERS / 2 * exchanges * 3 * COPIES * ring(ep)
    assert moved(sparse_context(), layout, "ep") == pytest.approx(by_hand)


@pytest.mark.parametrize(
    ("toy", "layers"),
    [
        (sparse_model(moe=experts(num_dense_layers=3)), 5),
        (sparse_model(moe=experts(layer_period=2)), 4),
        (sparse_model(mtp_layers=1), 9),
        (sparse_model(moe=experts(num_dense_layers=3), mtp_layers=2), 7),
    ],
)
def test_layers_with_experts_exchange_alone(toy: object, layers: int) -> None:
    """Prediction layers have experts too."""
    layout = Layout(dp_shard=8, ep=4, num_microbatches=5)
    ctx = sparse_context(toy=toy)  # type: ignore[arg-type]
    assert moved(ctx, layout, "ep") == pytest.approx(5 * layers * 4 * COPIES * ring(4))


def test_shards_of_sequences_have_fewer_tokens() -> None:
    whole = moved(sparse_context(), Layout(dp_shard=8, ep=8), "ep")
    for cut in (Layout(tp=4, sp=True, dp_shard=2, ep=8), Layout(cp=4, dp_shard=2, ep=8)):
        assert moved(sparse_context(), cut, "ep") == pytest.approx(whole / 4)


def test_flex_sends_one_copy_to_a_rank_however_many_experts_it_has() -> None:
    """Of eight ranks a token of two choices meets 1.75 others, copies as in an all-to-all."""
    layout = Layout(dp_shard=8, ep=8, num_microbatches=5, dispatcher="flex")
    (busy, _) = dispatch_busy((8.0, 1.0), (1.0, 1.0), TOP_K)
    assert float(busy) == pytest.approx(7 * (1 - (7 / 8) ** 2))
    by_hand = 5 * LAYERS * 4 * ACTIVATION * float(busy)
    assert moved(sparse_context(), layout, "ep") == pytest.approx(by_hand)
    assert by_hand < moved(sparse_context(), replace(layout, dispatcher="alltoall"), "ep")


def test_allgather_brings_all_tokens_to_all_ranks() -> None:
    layout = Layout(dp_shard=8, ep=8, num_microbatches=5, dispatcher="allgather")
    by_hand = 5 * LAYERS * 4 * 8 * ACTIVATION * ring(8)
    assert moved(sparse_context(), layout, "ep") == pytest.approx(by_hand)


def test_expert_tensor_ranks_gather_each_other_s_copies() -> None:
    """And scatter their sums: two collectives of the whole group's copies in each direction."""
    layout = Layout(tp=4, sp=True, etp=4, num_microbatches=5)
    by_hand = 5 * LAYERS * 4 * (4 * COPIES / 4) * ring(4)
    assert moved(sparse_context(), layout, "etp") == pytest.approx(by_hand)
    assert moved(sparse_context(), layout, "ep") == 0.0


def test_the_fullest_rank_s_rows_travel() -> None:
    layout = Layout(dp_shard=8, ep=4)
    even, uneven = (sparse_context(training=training(expert_load_variation=c)) for c in (0.0, 0.3))
    assert even.model.moe is not None
    factor = float(imbalance(uneven, even.model.moe, 4))
    assert factor > 1.1
    assert moved(uneven, layout, "ep") == pytest.approx(factor * moved(even, layout, "ep"))


def test_every_exchange_starts_once_and_counts_go_before() -> None:
    """NCCL's all-to-all learns sizes first: three calls a direction; one peer is one hop away."""
    hop = fabric(hop_seconds=1.0)
    ctx = sparse_context(topology=topology([hop, hop]))
    for kind, calls in (("alltoall", 6), ("flex", 4), ("allgather", 4)):
        layout = Layout(dp_shard=2, ep=2, num_microbatches=5, dispatcher=kind)
        recomputed = recomputed_shares(ctx, layout)
        traffic = layout_traffic(ctx, layout, Parameters(1e6, 1e6), recomputed)
        costs = channel_costs(ctx, traffic, innermost_splits(layout))
        times = occurrences(ctx, layout)
        latency = sum(
            float(times[name] * costs[name].latency_seconds)
            for name in traffic
            if SPECS[name].group == "ep"
        )
        assert latency == 5 * LAYERS * calls, kind


# ---------------------------------------------------------------- parameters


def counted(layout: Layout) -> float:
    """Experts' parameters of a rank."""
    return LAYERS * 8 * EXPERT / (layout.ep * layout.etp)


@pytest.mark.parametrize(
    ("zero_stage", "per_parameter"),
    # 16-bit parameters once (or twice every micro-batch), FP32 gradients
    [(1, 2 + 4), (2, 2 + 7 * 4), (3, 7 * (2 + 2 + 4)), (0, 2 * 4)],
)
def test_expert_states_move_over_their_own_replicas(zero_stage: int, per_parameter: float) -> None:
    layout = Layout(cp=2, dp_shard=8, ep=4, num_microbatches=7, zero_stage=zero_stage)
    by_hand = ring(4) * per_parameter * counted(layout)
    assert moved(sparse_context(), layout, "edp") == pytest.approx(by_hand)


def test_dense_states_move_over_all_shards_wherever_experts_are() -> None:
    """Attention, norms and router of 8 layers, two tables; experts are the other group's."""
    layer = 4 * 32**2 + 2 * 32 + 32 * 8
    dense = 8 * layer + 2 * 64 * 32 + 32
    for ep in (1, 4, 16):
        layout = Layout(cp=2, dp_shard=8, ep=ep, num_microbatches=7)
        found = moved(sparse_context(), layout, "shard")
        assert found == pytest.approx(ring(16) * 6 * dense)


def test_experts_on_every_rank_have_no_replicas() -> None:
    layout = Layout(dp_shard=8, ep=8)
    assert moved(sparse_context(), layout, "edp") == 0.0


def test_replicas_of_shards_reduce_both_kinds() -> None:
    layout = Layout(dp_shard=4, dp_replicate=3, ep=2)
    ctx = sparse_context()
    dense = float(layout_costs(ctx, layout).parameters.dense)
    by_hand = 2 * ring(3) * 4 * (dense / 4 + counted(layout) / 2)
    assert moved(ctx, layout, "replicate") == pytest.approx(by_hand)


@pytest.mark.parametrize(("shared", "blocks"), [(0, 1), (1, 2)])
def test_tensor_parallelism_reduces_attention_and_shared_experts(shared: int, blocks: int) -> None:
    """Routed experts' sums travel with the tokens: without shared ones, one block a layer."""
    ctx = sparse_context(experts(num_shared_experts=shared), training=training(**EVEN))
    layout = Layout(tp=4, num_microbatches=5)
    by_hand = 5 * LAYERS * blocks * 2 * 2 * ring(4) * ACTIVATION
    assert moved(ctx, layout, "tp") == pytest.approx(by_hand)
