"""The door from a scenario's values to the numbers that costs read."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from planner.cost.context import TierArrays, attended_share, fastest_attention
from planner.errors import InputError
from planner.inputs.values import load
from planner.problem.blocks import MLA, MoE
from planner.problem.hardware import Accelerator
from planner.problem.software import Software
from tests.scenarios import (
    PEAK,
    accelerator,
    attention,
    context,
    fabric,
    figure,
    gemm,
    kernels,
    model,
    software,
    topology,
    training,
)

EXPERTS = MoE(num_experts=8, top_k=2, expert_ffn_hidden_size=64)


def test_tiers_are_rates_times_achieved_shares() -> None:
    link = fabric(
        bytes_per_second=100.0, efficiency=0.9, all_reduce_efficiency=1.2,
        all_to_all_efficiency=0.5, p2p_efficiency=0.25, hop_seconds=2.0, base_seconds=3.0,
    )  # fmt: skip
    tiers = TierArrays.of(topology([link, fabric(bytes_per_second=8.0)]))
    assert tiers.bytes_per_second.tolist() == [100.0, 8.0]
    assert tiers.all_gather.tolist() == [90.0, 8.0]
    assert tiers.all_reduce.tolist() == [120.0, 8.0]
    assert tiers.all_to_all.tolist() == [50.0, 8.0]
    assert tiers.point_to_point.tolist() == [25.0, 8.0]
    assert tiers.hop_seconds.tolist() == [2.0, 0.0]
    assert tiers.base_seconds.tolist() == [3.0, 0.0]
    assert tiers.all_gather.dtype == np.float64


def test_posting_is_the_fabric_s_figure_or_a_quarter_of_its_base() -> None:
    links = [fabric(base_seconds=8.0), fabric(base_seconds=8.0, posting_seconds=3.0)]
    assert TierArrays.of(topology(links)).posting_seconds.tolist() == [2.0, 3.0]


def test_oversubscribed_and_overridden_tiers() -> None:
    cluster = topology([fabric(), fabric(bytes_per_second=70.0, efficiency=0.5)])
    inner, outer = cluster.tiers
    slow = cluster.replace(tiers=(inner, outer.replace(oversubscription=figure(7.0))))
    assert TierArrays.of(slow).bytes_per_second.tolist() == [1.0, 10.0]
    assert TierArrays.of(slow).all_gather.tolist() == [1.0, 5.0]
    fast = slow.replace(tiers=(inner, slow.tiers[1].replace(bandwidth=figure(140.0))))
    assert TierArrays.of(fast).all_gather.tolist() == [1.0, 10.0]


def test_rendezvous_and_reducing_switches_are_off_by_default() -> None:
    plain = TierArrays.of(topology([fabric(), fabric()]))
    assert plain.rendezvous_seconds is None
    assert plain.sharp is None
    assert plain.sharp_seconds is None


def test_rendezvous_and_reducing_switches_of_some_tiers() -> None:
    """The smaller of two eager limits counts; a share of the rate after oversubscription."""
    leaf = fabric(rendezvous_seconds=2.0, eager_bytes=64.0, sharp_efficiency=0.5, sharp_seconds=3.0)
    spine = fabric(rendezvous_seconds=4.0, eager_bytes=32.0)
    cluster = topology([fabric(), leaf, spine], (8, 4, 2))
    inner, outer, outermost = cluster.tiers
    slow = outer.replace(oversubscription=figure(2.0))
    tiers = TierArrays.of(cluster.replace(tiers=(inner, slow, outermost)))
    assert tiers.rendezvous_seconds is not None
    assert tiers.rendezvous_seconds.tolist() == [0.0, 2.0, 4.0]
    assert tiers.eager_bytes == 32.0
    assert tiers.sharp is not None and tiers.sharp_seconds is not None
    assert tiers.sharp.tolist() == [0.0, 0.25, 0.0]
    assert tiers.sharp_seconds.tolist() == [0.0, 3.0, 0.0]


def test_ramp_is_one_number_a_tier() -> None:
    assert context(topology=topology([fabric(ramp=0.3), fabric()])).ramp == (0.3, 0.0)


@pytest.mark.parametrize(
    ("precision", "peak", "matmul_bytes", "low"),
    [("bf16", PEAK, 2.0, False), ("fp8", 2 * PEAK, 1.0, True), ("mxfp8", 2 * PEAK, 1.0, True)],
)
def test_precision_sets_the_peak_and_the_bytes_of_matmuls(
    precision: str, peak: float, matmul_bytes: float, low: bool
) -> None:
    ctx = context(training=training(precision=precision))
    assert (ctx.peak_flops, ctx.peak_16_flops) == (peak, PEAK)
    assert (ctx.matmul_bytes, ctx.element_bytes, ctx.low_precision) == (matmul_bytes, 2.0, low)


def test_fp4_values_carry_a_scale_for_each_sixteen() -> None:
    part = accelerator(peak_flops={"bf16": PEAK, "fp4": 4 * PEAK})
    ctx = context(topology=topology(accelerator=part), training=training(precision="nvfp4"))
    assert ctx.matmul_bytes == (16 * 0.5 + 1) / 16
    assert ctx.peak_flops == 4 * PEAK


def test_part_without_bf16_runs_its_16_bit_matmuls_in_fp16() -> None:
    part = accelerator(peak_flops={"fp16": PEAK}, gemm={"fp16": gemm(efficiency=0.7)})
    ctx = context(topology=topology(accelerator=part), training=training(precision="fp16"))
    assert ctx.peak_16_flops == PEAK
    assert ctx.gemm_16.efficiency == 0.7


def test_clocks_under_load_lower_the_sustained_rate_alone() -> None:
    part = accelerator(sustained_fraction={"bf16": figure(0.8), "fp8": figure(0.7)})
    ctx = context(topology=topology(accelerator=part), training=training(precision="fp8"))
    assert ctx.peak_flops == 2 * PEAK
    assert ctx.sustained_flops == pytest.approx(0.7 * 2 * PEAK)
    # the power that the main matmuls draw sets the clock of all of a step
    assert ctx.sustained_16_flops == pytest.approx(0.7 * PEAK)


def test_hbm_is_what_streaming_kernels_achieve() -> None:
    part = accelerator(hbm_bytes_per_second=100.0, hbm_efficiency=0.9)
    assert context(topology=topology(accelerator=part)).hbm_bytes_per_second == 90.0


def test_key_value_heads_are_copied_to_ranks_beyond_them() -> None:
    ctx = context(model=model(num_key_value_heads=2))
    # keys and values together
    assert [int(ctx.keys_values_size(tp)) for tp in (1, 2, 4)] == [32, 32, 64]
    assert ctx.keys_values_size(np.array([1, 4])).tolist() == [32, 64]
    assert ctx.query_size == 32


KERNELS = {
    "naive": attention(forward=0.9),
    "flash-v2": attention(forward=0.5),
    "flash-v3": attention(forward=0.7),
}


@pytest.mark.parametrize(
    ("wanted", "usual", "taken"),
    [
        ("auto", None, "flash-v3"),  # a profile that names none: the part's fastest
        ("auto", ("flash-v2",), "flash-v2"),
        ("auto", ("flash-v2", "flash-v3"), "flash-v3"),
        ("auto", ("naive", "flash-v2"), "flash-v2"),  # slower by its figure, but writes no scores
        ("auto", ("naive",), "naive"),
        ("auto", ("flash", "flash-v2"), "flash-v2"),  # no figures for flash
        ("auto", ("flash-v1",), "flash-v3"),  # nor for any of them: the part keeps its own
        ("flash-v3", ("flash-v2",), "flash-v3"),
        ("naive", None, "naive"),
    ],
)
def test_attention_is_what_is_named_or_what_the_software_runs(
    wanted: str, usual: tuple[str, ...] | None, taken: str
) -> None:
    ctx = context(
        topology=topology(accelerator=accelerator(attention=KERNELS)),
        training=training(attention=wanted),
        software=software(attention=usual and kernels(*usual)),
    )
    assert ctx.attention_backend == taken
    assert ctx.attention is ctx.accelerator.attention[taken]


def test_fastest_attention_of_a_part() -> None:
    assert fastest_attention(accelerator(attention=KERNELS)) == "flash-v3"
    assert fastest_attention(accelerator(attention={"naive": attention()})) == "naive"


SHIPPED = [
    # PyTorch: FlashAttention-2, on Hopper and Blackwell too
    ("torchtitan", "a100-sxm-80gb", "flash-v2"),
    ("torchtitan", "h100-sxm-80gb", "flash-v2"),
    ("torchtitan", "b200-sxm-180gb", "flash-v2"),
    ("torchtitan-eager", "h100-sxm-96gb", "flash-v2"),
    ("fsdp-composer", "h100-sxm-80gb", "flash-v2"),
    # Transformer Engine: FlashAttention before Hopper, cuDNN from it on
    ("megatron-core", "a100-sxm-80gb", "flash-v2"),
    ("megatron-core", "h100-sxm-80gb", "flash"),
    ("nemo", "gb300", "flash"),
    ("jax-xla", "h100-sxm-80gb", "flash"),
    # before FlashAttention, on whatever they are planned for
    ("megatron-2021", "a100-sxm-80gb", "fused-softmax"),
    ("oneflow", "h100-sxm-80gb", "fused-softmax"),
    # kernels of their own
    ("jax-xla", "tpu-v5p", "flash"),
    ("torchtitan", "trainium2", "flash"),
    ("torchtitan", "mi300x", "flash-v2"),
    # tensor cores too old for FlashAttention
    ("torchtitan", "v100-sxm2-16gb", "fused-softmax"),
]


@pytest.mark.parametrize(("profile", "part", "taken"), SHIPPED)
def test_attention_of_shipped_software(profile: str, part: str, taken: str) -> None:
    usual = load(profile, "software", Software).attention
    assert usual is not None
    assert fastest_attention(load(part, "accelerator", Accelerator), usual.kernels) == taken


def test_attention_the_part_lacks() -> None:
    with pytest.raises(InputError, match="flash-v3") as caught:
        context(training=training(attention="flash-v3"))
    assert caught.value.key == "training.attention"
    assert "flash" in (caught.value.allowed or "")


def test_latent_attention_has_heads_of_its_own_sizes() -> None:
    """4 heads: queries and keys of 8 + 4, values and outputs of 6; no heads to replicate."""
    latent = MLA(kv_lora_rank=16, qk_nope_head_dim=8, qk_rope_head_dim=4, v_head_dim=6)
    ctx = context(model=model(mla=latent))
    assert (ctx.query_size, ctx.output_size) == (4 * 12, 4 * 6)
    assert [int(ctx.keys_values_size(tp)) for tp in (1, 4)] == [4 * (12 + 6)] * 2


@pytest.mark.parametrize(
    ("changes", "kinds"),
    [
        ({}, [(False, 1.0)]),
        ({"moe": EXPERTS}, [(True, 1.0)]),
        ({"moe": EXPERTS.replace(num_dense_layers=2)}, [(False, 2 / 8), (True, 6 / 8)]),
        # of six layers after two, every third one
        (
            {"moe": EXPERTS.replace(num_dense_layers=2, layer_period=3)},
            [(False, 6 / 8), (True, 2 / 8)],
        ),
        # prediction layers are like the last ones
        (
            {"moe": EXPERTS.replace(num_dense_layers=2), "mtp_layers": 2},
            [(False, 0.2), (True, 0.8)],
        ),
        ({"mtp_layers": 2}, [(False, 1.0)]),
    ],
)
def test_kinds_of_layers(changes: dict[str, Any], kinds: list[tuple[bool, float]]) -> None:
    found = context(model=model(**changes)).layer_kinds
    assert [(kind.has_experts, kind.share) for kind in found] == [
        (experts, pytest.approx(share)) for experts, share in kinds
    ]


@pytest.mark.parametrize("windowed", [None, 0, 3, 8])
@pytest.mark.parametrize("window", [1, 2, 16, 64, 1000])
def test_attended_share_counts_scores_under_the_window(window: int, windowed: int | None) -> None:
    """Counted query by query, each seeing itself by half."""
    toy = model(sliding_window=window, num_windowed_layers=windowed)
    seen = sum(min(query + 0.5, window) for query in range(64))
    causal = sum(query + 0.5 for query in range(64))
    layers = 8 if windowed is None else windowed
    expected = (layers * seen + (8 - layers) * causal) / (8 * causal)
    assert attended_share(toy, 64, 64) == pytest.approx(expected, rel=1e-12)
    assert attended_share(model(), 64, 64) == 1.0


@pytest.mark.parametrize("window", [None, 4, 20])
@pytest.mark.parametrize("document", [1, 7, 16, 33, 63, 64])
def test_attended_share_counts_scores_inside_documents(document: int, window: int | None) -> None:
    """Counted query by query in a sequence of 64; the last document is cut at its end."""
    toy = model(sliding_window=window)
    limit = window or 64
    seen = sum(min(query % document + 0.5, limit) for query in range(64))
    causal = sum(query + 0.5 for query in range(64))
    assert attended_share(toy, 64, document) == pytest.approx(seen / causal, rel=1e-12)
