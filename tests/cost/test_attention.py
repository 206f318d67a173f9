"""Attention kernels: small heads against measured rates, windows against counted scores."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from planner.cost.compute import RankShare, attention_seconds
from planner.cost.context import attention_spans
from planner.inputs.values import load
from planner.problem.blocks import MLA
from planner.problem.hardware import Accelerator
from tests.scenarios import PEAK, accelerator, attention, context, model, topology, training

ONE_RANK = RankShare(tp=1, cp=1, mbs=1, sp=0, ring_members=1)


def seconds(
    part: Accelerator, s: int, share: RankShare = ONE_RANK,
    **of_model: Any,
) -> tuple[float, float]:  # fmt: skip
    ctx = context(
        model=model(**of_model),
        topology=topology(accelerator=part),
        training=training(sequence_length=s),
    )
    found = attention_seconds(ctx, share)
    return float(found.forward), float(found.backward)


def part(sequence_half: float = 0.0, start: float = 0.0, **changes: float) -> Accelerator:
    toy = accelerator(attention={"flash": attention(sequence_half=sequence_half, **changes)})
    gemm = toy.gemm["bf16"]
    late = gemm.replace(overhead_seconds=type(gemm.overhead_seconds)(start, "test", "assumed"))
    return toy.replace(gemm=dict.fromkeys(toy.gemm, late))


# ---------------------------------------------------------------- small heads


@pytest.mark.parametrize(
    ("head", "slower"),
    [
        (128, 1.0),
        (64, 4 / 3),  # 64 / (64 + 64) against 128 / (128 + 64): 1/2 against 2/3
        (32, 2.0),  # 1/3 against 2/3
        (256, 1.0),  # no more than the heads that were measured
    ],
)
def test_scores_of_small_heads_cost_as_much(head: int, slower: float) -> None:
    """As much work in heads of other sizes."""
    heads = {"hidden_size": 512, "num_attention_heads": 512 // head}
    found = seconds(part(head_half=64.0), 1024, **heads)
    flops = 2 * 1024**2 * 512
    assert found == pytest.approx((slower * flops / PEAK, slower * 2.5 * flops / PEAK), rel=1e-9)
    assert seconds(part(), 1024, **heads)[0] == pytest.approx(flops / PEAK, rel=1e-9)


@pytest.mark.parametrize(
    ("name", "measured"),
    # aiconfigurator-core 0.12.0, context attention at 4 k to 16 k tokens: 64 over 128 elements
    [("h100-sxm-80gb", 0.80), ("h200-sxm-141gb", 0.80), ("b200-sxm-180gb", 0.64),
     ("gb200", 0.64), ("gb300", 0.64)],
)  # fmt: skip
def test_shipped_parts_slow_down_as_measured(name: str, measured: float) -> None:
    shipped = load(name, "accelerator", Accelerator)
    wide, narrow = (
        seconds(shipped, 16384, hidden_size=4096, num_attention_heads=number)[0]
        for number in (32, 64)
    )
    assert wide / narrow == pytest.approx(measured, abs=0.01)


def test_latent_attention_has_the_mean_of_keys_and_values() -> None:
    """48 + 16 for keys and 32 for values: heads of 48 in the mean."""
    latent = MLA(
        q_lora_rank=24, kv_lora_rank=16, qk_nope_head_dim=48, qk_rope_head_dim=16, v_head_dim=32
    )
    shape = {"mla": latent, "num_attention_heads": 4}
    slow, fast = (seconds(part(**half), 64, **shape)[0] for half in ({"head_half": 48.0}, {}))
    assert slow / fast == pytest.approx((128 / 176) / (48 / 96))


# ---------------------------------------------------------------- windows

TILE = 128


def scores(s: int, width: int, document: int | None = None) -> float:
    """Scores of a band so wide, counted query by query, each seeing itself by half."""
    return sum(min(query % (document or s) + 0.5, width) for query in range(s))


@pytest.mark.parametrize("window", [1, 64, 128, 300, 2000, 5000])
def test_windows_are_computed_in_whole_tiles(window: int) -> None:
    """FLOPs of keys and values of 4 heads of 8: 2 of each for every score; backwards 2.5 times."""
    s = 2048
    counted = scores(s, min(window + TILE, s))
    forward, backward = seconds(part(), s, sliding_window=window)
    assert forward == pytest.approx(counted * 2 * (32 + 32) / PEAK, rel=1e-9)
    assert backward == pytest.approx(2.5 * forward, rel=1e-9)
    assert forward >= scores(s, window) * 2 * 64 / PEAK * (1 - 1e-9)


@pytest.mark.parametrize("window", [128, 512, 10_000])
def test_band_is_as_short_as_a_sequence_of_its_width(window: int) -> None:
    """A kernel over t tokens reaches t / (t + 256) of its rate, a band's t being its width."""
    s, width = 2048, min(window + TILE, 2048)
    forward, _ = seconds(part(sequence_half=256.0), s, sliding_window=window)
    whole_rate, _ = seconds(part(), s, sliding_window=window)
    assert forward / whole_rate == pytest.approx((width + 256) / width, rel=1e-9)


@pytest.mark.parametrize("windowed", [0, 2, 8])
def test_layers_with_and_without_windows_each_have_their_rate(windowed: int) -> None:
    """The mean layer, of 8; each starts one kernel."""
    s, half, start, window = 1024, 512.0, 1e-3, 128
    given = {"sliding_window": window, "num_windowed_layers": windowed}
    forward, _ = seconds(part(half, start), s, **given)
    band, whole = window + TILE, s
    times = [
        start + scores(s, width) * 2 * 64 / PEAK * (width + half) / width for width in (band, whole)
    ]
    by_hand = (windowed * times[0] + (8 - windowed) * times[1]) / 8
    assert forward == pytest.approx(by_hand, rel=1e-9)


def test_ring_works_through_a_band_in_blocks() -> None:
    """Of 4 ranks, a quarter of the scores each, at the rate of a quarter of the width."""
    share = RankShare(tp=1, cp=4, mbs=1, sp=0, ring_members=4)
    forward, _ = seconds(part(sequence_half=64.0), 2048, share, sliding_window=384)
    by_hand = scores(2048, 512) / 4 * 2 * 64 / PEAK * (128 + 64) / 128
    assert forward == pytest.approx(by_hand, rel=1e-9)


@given(st.integers(1, 600), st.integers(1, 600), st.integers(1, 600), st.integers(0, 8))
def test_spans_hold_the_counted_scores(s: int, document: int, window: int, windowed: int) -> None:
    document = min(document, s)
    toy = model(sliding_window=window, num_windowed_layers=windowed)
    spans = attention_spans(toy, s, document)
    band, whole = scores(s, window + TILE, document), scores(s, s, document)
    counted = (windowed * band + (8 - windowed) * whole) / 8
    causal = scores(s, s)
    assert sum(span.share for span in spans) == pytest.approx(counted / causal, rel=1e-9)
    assert all(0 < span.tokens <= document for span in spans)
