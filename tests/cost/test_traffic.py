"""Bytes and calls of each group by hand: links of 1 byte per second make busy seconds bytes."""

from __future__ import annotations

from dataclasses import fields, replace

import pytest

from planner.cost import collectives
from planner.cost.channels import SPECS, Channel, occurrences
from planner.cost.collective_costs import UnitCost, unit_cost
from planner.cost.collectives import Collective, CollectiveKind
from planner.cost.context import CostContext, TierArrays
from planner.cost.model_states import Parameters
from planner.cost.recompute import recomputed_shares
from planner.cost.step import StepTime, layout_costs
from planner.cost.traffic import Traffic, Transfers, channel_costs, layout_traffic
from planner.layouts.grids import GROUPS
from planner.layouts.keys import SCHEDULES
from planner.layouts.layout import Layout
from tests.oracles import innermost_splits, moved, ring
from tests.scenarios import context, fabric, model, software, topology, training

TOKENS = 64  # of a micro-batch of one sequence
ACTIVATION = TOKENS * 32 * 2
KEYS_AND_VALUES = 2 * TOKENS * 32 * 2  # of a whole sequence
LAYERS = 8


def traffic_of(ctx: CostContext, layout: Layout, num_parameters: float) -> Traffic:
    """The traffic of a layout whose stages have so many parameters."""
    return layout_traffic(
        ctx, layout, Parameters(num_parameters, 0.0), recomputed_shares(ctx, layout)
    )


def unit(kind: CollectiveKind, split: list[float], tiers: TierArrays) -> UnitCost:
    return unit_cost(Collective(kind), split, tiers)


# ---------------------------------------------------------------- tensor parallelism


@pytest.mark.parametrize(
    ("recompute", "all_reduces", "gathers"),
    [
        # two all-reduces forward, two backward; each a reduce-scatter and an all-gather with
        # sequence parallelism, whose two gathered inputs are gathered again for the weights
        ("none", 4, 10),
        ("selective", 4, 10),
        ("full", 6, 14),
        ("alternate", 5, 12),
    ],
)
def test_tensor_parallel_traffic(recompute: str, all_reduces: int, gathers: int) -> None:
    layout = Layout(tp=4, pp=2, mbs=3, num_microbatches=5, recompute=recompute)
    passes = 5 * LAYERS / 2
    plain = moved(context(), layout, "tp")
    assert plain == pytest.approx(passes * all_reduces * 2 * ring(4) * 3 * ACTIVATION)
    parallel = moved(context(), replace(layout, sp=True), "tp")
    assert parallel == pytest.approx(passes * gathers * ring(4) * 3 * ACTIVATION)


def test_context_parallelism_cuts_tensor_parallel_traffic() -> None:
    whole, half = (moved(context(), Layout(tp=4, cp=cp), "tp") for cp in (1, 2))
    assert half == whole / 2


# ---------------------------------------------------------------- context parallelism


@pytest.mark.parametrize("kind", ["ring", "all_gather"])
def test_every_rank_sees_the_keys_and_values_of_all(kind: str) -> None:
    """cp − 1 blocks forward; backward the same again and as many gradients."""
    layout = Layout(cp=4, num_microbatches=3, cp_kind=kind)
    by_hand = 3 * LAYERS * 3 * (4 - 1) * KEYS_AND_VALUES / 4
    assert moved(context(), layout, "cp") == pytest.approx(by_hand)


def test_tensor_parallelism_and_narrow_keys_cut_the_ring() -> None:
    toy = model(num_key_value_heads=2)
    base = moved(context(), Layout(cp=2), "cp")
    assert moved(context(model=toy), Layout(cp=2), "cp") == base / 2
    assert moved(context(), Layout(cp=2, tp=2), "cp") == base / 2
    # two heads for four ranks: each keeps a copy of one
    assert moved(context(model=toy), Layout(cp=2, tp=4), "cp") == base / 4


def test_recomputed_layers_pass_their_keys_again() -> None:
    kinds = ("none", "selective", "full")
    none, selective, full = (moved(context(), Layout(cp=4, recompute=kind), "cp") for kind in kinds)
    assert full == pytest.approx(none * 4 / 3)
    assert none <= selective <= full


def test_all_to_all_exchanges_heads_for_tokens() -> None:
    """Forward: queries, keys and values out, the output back; all but a rank's own 1/cp."""
    toy = model(num_key_value_heads=2)
    layout = Layout(cp=2, tp=2, cp_kind="a2a")
    costs = channel_costs(
        context(model=toy),
        layout_costs(context(model=toy), layout).traffic,
        innermost_splits(layout),
    )
    elements = (TOKENS / 2) * (32 + 2 * 16 + 32) / 2
    assert costs[Channel.CP_FORWARD].busy_seconds[0] == pytest.approx(elements * 2 * (1 - 1 / 2))
    assert costs[Channel.CP_BACKWARD].busy_seconds[0] >= costs[Channel.CP_FORWARD].busy_seconds[0]


def test_weights_gathered_after_the_cast_travel_in_one_byte() -> None:
    layout = Layout(dp_shard=8, zero_stage=3)
    byte, two = (
        moved(
            context(
                software=software(gathers_weights_as_cast=precisions),
                training=training(precision="fp8"),
            ),
            layout,
            "shard",
        )
        for precisions in (("fp8",), ("fp8-rowwise",))
    )
    count = float(layout_costs(context(), layout).parameters.dense)
    # gathered forward and backward
    assert two - byte == pytest.approx(2 * count * 7 / 8)


def test_a_ring_of_sends_leaves_a_domain_over_one_rank_s_link() -> None:
    """Sixteen ranks in two domains: a gather's rings share the eight links out, sends use one."""
    layout = Layout(cp=16)
    slow = topology([fabric(), fabric()])
    own = TOKENS / 16 * 2 * 32 * 2
    for kind, share in (("ring", 1), ("all_gather", 8)):
        ctx = context(topology=slow)
        traffic = layout_costs(ctx, replace(layout, cp_kind=kind)).traffic
        forward = channel_costs(ctx, traffic, {**innermost_splits(layout), "cp": [8.0, 2.0]})
        inside, outside = forward[Channel.CP_FORWARD].busy_seconds
        assert inside == pytest.approx(15 * own)
        assert outside == pytest.approx(15 * own / share)


def test_hierarchical_exchanges_inside_and_sends_round_outside() -> None:
    """Sixteen ranks, eight of a domain exchanging heads, rings of two across the domains."""
    toy = model(num_attention_heads=8, num_key_value_heads=8, head_dim=4)
    layout = Layout(cp=16, cp_kind="hierarchical", cp_a2a=8)
    ctx = context(model=toy)
    traffic = layout_costs(ctx, layout).traffic
    costs = channel_costs(ctx, traffic, {**innermost_splits(layout), "cp": [8.0, 2.0]})
    own = TOKENS / 16 * 32 * 2  # bytes of a rank's queries; as many keys, values and outputs
    assert costs[Channel.CP_HEADS].busy_seconds == pytest.approx((2 * 4 * own * 7 / 8, 0))
    assert costs[Channel.CP_FORWARD].busy_seconds[1] == pytest.approx(2 * own * 2 / 2)
    assert costs[Channel.CP_BACKWARD].busy_seconds[1] == pytest.approx(
        2 * costs[Channel.CP_FORWARD].busy_seconds[1]
    )
    # the whole group in one domain: nothing leaves it
    inside = channel_costs(ctx, traffic, {**innermost_splits(layout), "cp": [16.0, 1.0]})
    assert inside[Channel.CP_FORWARD].busy_seconds == pytest.approx((2 * own * 2 / 2, 0))


# ---------------------------------------------------------------- pipeline


@pytest.mark.parametrize("vp", [1, 2])
def test_stage_boundaries_pass_activations_and_their_gradients(vp: int) -> None:
    layout = Layout(pp=4, vp=vp, mbs=3, num_microbatches=5)
    assert moved(context(), layout, "pp") == pytest.approx(5 * 2 * vp * 3 * ACTIVATION)
    assert moved(context(), replace(layout, cp=2), "pp") == pytest.approx(
        5 * 2 * vp * 3 * ACTIVATION / 2
    )


def test_sequence_parallelism_sends_a_shard_over_the_boundary() -> None:
    whole = moved(context(), Layout(pp=2, tp=4), "pp")
    assert moved(context(), Layout(pp=2, tp=4, sp=True), "pp") == whole / 4


# ---------------------------------------------------------------- data parallelism


def parameters(ctx: CostContext, layout: Layout) -> float:
    return float(layout_costs(ctx, layout).parameters.dense)


@pytest.mark.parametrize(("zero_stage", "reductions"), [(1, 1), (2, 7)])
def test_sharded_gradients_are_scattered_every_micro_batch(
    zero_stage: int, reductions: int
) -> None:
    layout = Layout(cp=2, dp_shard=4, num_microbatches=7, zero_stage=zero_stage)
    ctx = context()
    per_parameter = 2 + 4 * reductions  # 16-bit parameters once, FP32 gradients
    assert moved(ctx, layout, "shard") == pytest.approx(
        ring(8) * per_parameter * parameters(ctx, layout)
    )
    assert moved(ctx, layout, "replicate") == 0.0


def test_zero_3_gathers_twice_and_scatters_every_micro_batch() -> None:
    layout = Layout(cp=2, dp_shard=4, num_microbatches=7, zero_stage=3)
    ctx = context()
    assert moved(ctx, layout, "shard") == pytest.approx(
        7 * ring(8) * (2 + 2 + 4) * parameters(ctx, layout)
    )


def test_without_zero_gradients_are_reduced_whole() -> None:
    layout = Layout(dp_shard=4, dp_replicate=2, zero_stage=0, num_microbatches=7)
    ctx = context()
    count = parameters(ctx, layout)
    assert moved(ctx, layout, "shard") == pytest.approx(2 * ring(4) * 4 * count)
    assert moved(ctx, layout, "replicate") == pytest.approx(2 * ring(2) * 4 * count)


@pytest.mark.parametrize("zero_stage", [1, 2])
def test_replicas_of_shards_reduce_their_shard(zero_stage: int) -> None:
    layout = Layout(cp=2, dp_shard=4, dp_replicate=3, zero_stage=zero_stage)
    ctx = context()
    by_hand = 2 * ring(3) * 4 * parameters(ctx, layout) / 8
    assert moved(ctx, layout, "replicate") == pytest.approx(by_hand)


def test_gradient_bytes_are_the_software_s() -> None:
    layout = Layout(dp_shard=4)
    ctx = context(software=software(gradient_bytes=2.0))
    assert moved(ctx, layout, "shard") == pytest.approx(ring(4) * 4 * parameters(ctx, layout))


def test_fullest_stage_sets_the_gradients() -> None:
    """10 layers on 4 stages: a middle one has 3, the outer ones 2 and a table of 64·32."""
    ctx = context(model=model(num_layers=10))
    per_layer = 4 * 32**2 + 2 * 32 * 128 + 2 * 32
    expected = max(3 * per_layer, 2 * per_layer + 64 * 32)
    assert parameters(ctx, Layout(pp=4)) == pytest.approx(expected, rel=0.005)


# ---------------------------------------------------------------- calls


def latency(layout: Layout, group: str, num_parameters: float = 1e6) -> float:
    """Seconds of a step's start-ups on links with hops of one second."""
    hop = fabric(hop_seconds=1.0)
    ctx = context(topology=topology([hop, hop]))
    traffic = traffic_of(ctx, layout, num_parameters)
    costs = channel_costs(ctx, traffic, innermost_splits(layout))
    times = occurrences(ctx, layout)
    return sum(
        float(times[name] * costs[name].latency_seconds)
        for name in traffic
        if SPECS[name].group == group
    )


def test_every_collective_starts_once() -> None:
    passes = 5 * LAYERS
    layout = Layout(tp=4, num_microbatches=5)
    assert latency(layout, "tp") == passes * 4 * 2 * (4 - 1)
    assert latency(replace(layout, sp=True), "tp") == passes * 10 * (4 - 1)
    assert latency(Layout(pp=4, vp=2, num_microbatches=5), "pp") == 5 * 2 * 2


def test_gradients_go_in_buckets_of_forty_million() -> None:
    layout = Layout(dp_shard=4, num_microbatches=5)
    assert latency(layout, "shard", 40e6) == 2 * (4 - 1)
    assert latency(layout, "shard", 100e6) == 3 * 2 * (4 - 1)


def test_buckets_of_some_software_grow_with_the_ranks() -> None:
    """A million parameters for each of 64 ranks: two buckets of 100 million, not three."""
    ctx = context(software=software(buckets_grow=True))
    layout = Layout(dp_shard=64, num_microbatches=5)
    for found, buckets in ((ctx, 2), (context(), 3)):
        scattered, *_ = traffic_of(found, layout, 100e6)[Channel.GRADIENTS]
        assert scattered.calls == buckets


def test_weights_are_broadcast_rank_by_rank_where_software_does_so() -> None:
    """Four ranks send a fourth each: four calls for all weights of 2 bytes; ZeRO-3 gathers them."""
    ctx = context(software=software(broadcasts_weights=True))
    broadcast, gathered = CollectiveKind.BROADCAST, CollectiveKind.ALL_GATHER
    for zero_stage, expected in ((1, (broadcast, 4, 200e6)), (3, (gathered, LAYERS, 200e6))):
        layout = Layout(dp_shard=4, num_microbatches=5, zero_stage=zero_stage)
        transfers = traffic_of(ctx, layout, 100e6)[Channel.PARAMETERS_FORWARD]
        (one,) = (transfer for transfer in transfers if transfer.calls)
        assert (one.collective.kind, one.calls, one.num_bytes) == expected


def test_zero_3_goes_layer_by_layer() -> None:
    layout = Layout(dp_shard=4, pp=2, num_microbatches=5, zero_stage=3)
    assert latency(layout, "shard") == 5 * (LAYERS / 2) * 3 * (4 - 1)


# ---------------------------------------------------------------- pricing


def test_channels_cost_their_transfers_one_after_another() -> None:
    """Calls times latency and bytes times busy seconds, each kind at its own achieved rate."""
    shares = {"efficiency": 0.9, "all_reduce_efficiency": 1.2, "all_to_all_efficiency": 0.7,
              "p2p_efficiency": 0.5}  # fmt: skip
    links = [fabric(base_seconds=3.0, hop_seconds=2.0, **shares), fabric(hop_seconds=7.0, **shares)]
    ctx = context(topology=topology(links))
    hop, base = ctx.tiers.hop_seconds, ctx.tiers.base_seconds
    split = [8.0, 4.0]
    ring, tree = (f(split, hop, base) for f in (collectives.ring_latency, collectives.tree_latency))
    ring_switch = 2 * collectives.ring_hops(split, hop, base).inside_seconds + 4 * 11.3e-6
    pairwise = collectives.pairwise_latency(split, hop, base, ctx.tiers.posting_seconds)
    send = collectives.point_to_point_latency(split, hop, base)
    # latency, switch and busy seconds
    units = {
        CollectiveKind.ALL_GATHER: (
            ring, ring_switch, collectives.all_gather_busy(split, [0.9, 0.9]),
        ),
        CollectiveKind.ALL_REDUCE: (
            tree, 5 * tree + ring / 2, collectives.all_reduce_busy(split, [0.9, 0.9], [1.2, 1.2]),
        ),
        CollectiveKind.ALL_TO_ALL: (
            pairwise, 40 * 2.0, collectives.all_to_all_busy(split, [0.7, 0.7]),
        ),
        CollectiveKind.BROADCAST: (
            ring, ring_switch, collectives.broadcast_busy(split, [0.9, 0.9]),
        ),
        CollectiveKind.POINT_TO_POINT: (
            send, 0.7 * send, collectives.point_to_point_busy(split, [0.5, 0.5]),
        ),
    }  # fmt: skip
    all_of_them = tuple(
        Transfers(Collective(kind), 10.0 + i, 100.0 * (i + 1)) for i, kind in enumerate(units)
    )
    traffic = {Channel.TP_FORWARD: all_of_them[:1], Channel.CP_FORWARD: all_of_them}
    found = channel_costs(ctx, traffic, {"tp": split, "cp": split})
    for channel, transfers in traffic.items():
        priced = [(one, units[one.collective.kind]) for one in transfers]
        latency = sum(one.calls * float(unit[0]) for one, unit in priced)
        switch = sum(one.calls * float(unit[1]) for one, unit in priced)
        busy = [sum(one.num_bytes * float(unit[2][t]) for one, unit in priced) for t in range(2)]
        assert float(found[channel].latency_seconds) == pytest.approx(latency)
        assert float(found[channel].switch_seconds) == pytest.approx(switch)
        assert [float(seconds) for seconds in found[channel].busy_seconds] == pytest.approx(busy)


MIB = 2.0**20


@pytest.mark.parametrize(
    ("calls", "num_bytes", "seconds"),
    [
        (1.0, 4 * MIB, 16.0),  # a quarter of the rate
        (1.0, 64 * MIB, 256.0),
        (1.0, 128 * MIB, 256.0),  # no longer than 64 MiB
        (1.0, 512 * MIB, 512.0),  # the full rate is slower now
        (8.0, 64 * MIB, 256.0),  # eight short sends
        (0.0, 0.0, 0.0),
    ],
)
def test_short_sends_use_few_links(calls: float, num_bytes: float, seconds: float) -> None:
    inner = fabric(bytes_per_second=MIB, short_send_bytes_per_second=MIB / 4)
    ctx = context(topology=topology([inner, fabric()]))
    sends = unit(CollectiveKind.POINT_TO_POINT, [2.0, 1.0], ctx.tiers)
    assert sends.cost(calls, num_bytes).busy_seconds[0] == pytest.approx(seconds)
    gathers = unit(CollectiveKind.ALL_GATHER, [2.0, 1.0], ctx.tiers)
    assert gathers.cost(1.0, 4 * MIB).busy_seconds[0] == pytest.approx(2.0)


@pytest.mark.parametrize(("members", "share"), [(2.0, 1 / 7), (4.0, 3 / 7), (8.0, 1.0)])
def test_groups_in_a_mesh_have_their_own_links_alone(members: float, share: float) -> None:
    """Two of eight share one link of seven; a switch gives every group all of its rate."""
    mesh = context(topology=topology([fabric(mesh_members=8.0), fabric()])).tiers
    switch = context().tiers
    for kind in (
        CollectiveKind.ALL_GATHER, CollectiveKind.ALL_REDUCE, CollectiveKind.ALL_TO_ALL,
        CollectiveKind.BROADCAST,
    ):  # fmt: skip
        meshed, switched = (unit(kind, [members, 2.0], tiers) for tiers in (mesh, switch))
        assert meshed.busy_seconds[0] * share == pytest.approx(switched.busy_seconds[0])
        assert meshed.busy_seconds[1] == switched.busy_seconds[1]
    sends = (unit(CollectiveKind.POINT_TO_POINT, [members, 1.0], t) for t in (mesh, switch))
    assert next(sends) == next(sends)


def test_gathers_after_the_cast_move_the_cast() -> None:
    """Of a block's gathers and scatters, forward and back: three of five move one byte, not two."""
    layout = Layout(tp=2, sp=True)
    low, profile = training(precision="fp8"), software(gathers_as_cast=("fp8",))
    plain = moved(context(training=low), layout, "tp")
    cast = moved(context(training=low, software=profile), layout, "tp")
    assert cast / plain == pytest.approx((3 * 0.5 + 2) / 5)
    sixteen = context(software=profile)
    assert moved(sixteen, layout, "tp") == moved(context(), layout, "tp")


def test_software_that_gathers_logits_moves_the_whole_vocabulary() -> None:
    """64 tokens, 64 words, 2 bytes, all but the rank's own half; once a micro-batch."""
    layout = Layout(tp=2, num_microbatches=3)
    with_them = context(software=software(gathers_logits=True))
    more = moved(with_them, layout, "tp") - moved(context(), layout, "tp")
    assert more == pytest.approx(3 * 64 * with_them.model.vocab_size * 2 / 2)
    assert Channel.TP_LOGITS not in layout_costs(context(), layout).traffic


# ---------------------------------------------------------------- dualpipe


@pytest.mark.parametrize(("zero_stage", "share"), [(0, 4.0), (1, (4 + 2) / 2 / 4)])
def test_ranks_that_hold_the_same_stages_exchange_gradients(zero_stage: int, share: float) -> None:
    """Gradients of 4 bytes; sharded over 4 ranks, half of a shard's, and weights of 2 back."""
    ctx = context(software=software(schedules=SCHEDULES))
    layout = Layout(
        pp=4, dp_shard=4, num_microbatches=8, zero_stage=zero_stage, schedule="dualpipe"
    )
    parameters = float(layout_costs(ctx, layout).parameters.dense)
    plain = moved(context(), replace(layout, schedule="1f1b"), "pp")
    assert moved(ctx, layout, "pp") - plain == pytest.approx(share * parameters)
    assert moved(ctx, replace(layout, schedule="1f1b"), "pp") == pytest.approx(plain)


def test_dualpipe_reduces_gradients_of_two_stages() -> None:
    ctx = context(software=software(schedules=SCHEDULES), model=model(vocab_size=1))
    layout = Layout(pp=4, dp_shard=4, num_microbatches=8, zero_stage=1, schedule="dualpipe")
    both = moved(ctx, layout, "shard")
    assert both == pytest.approx(
        2 * moved(ctx, replace(layout, schedule="1f1b"), "shard"), rel=0.01
    )


def test_chunks_of_a_v_send_as_interleaved_ones_do() -> None:
    ctx = context(software=software(schedules=SCHEDULES))
    layout = Layout(pp=4, vp=2, num_microbatches=8, schedule="dualpipev")
    assert moved(ctx, layout, "pp") == moved(ctx, replace(layout, schedule="1f1b"), "pp")


# ---------------------------------------------------------------- channels


def test_every_channel_has_a_spec() -> None:
    assert set(SPECS) == set(Channel)
    assert {spec.group for spec in SPECS.values()} == set(GROUPS)
    assert {spec.time_term for spec in SPECS.values()} <= {f.name for f in fields(StepTime)}
