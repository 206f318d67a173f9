"""Roofs and intensities against figures worked out by hand and published ones."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from planner.cost.roofline import (
    NORM_FLOPS,
    SOFTMAX_FLOPS,
    attainable,
    attention_flops,
    chain_intensity,
    decode_attention_intensity,
    flash_attention_bytes,
    flash_attention_intensity,
    gemm_intensity,
    gemv_intensity,
    latency_knee,
    naive_attention_bytes,
    naive_attention_intensity,
    ridge,
    streaming_intensity,
)
from planner.inputs.values import load
from planner.problem.hardware import Accelerator

BF16, FP8, FP32 = 2, 1, 4
PEAK, BANDWIDTH = 1000.0, 4.0

positive = st.floats(1e-3, 1e6)


# ---------------------------------------------------------------- roofs


def test_the_lower_of_two_roofs_bounds() -> None:
    assert attainable(100, PEAK, BANDWIDTH) == 400
    assert attainable(1000, PEAK, BANDWIDTH) == PEAK


def test_roofs_cross_at_the_ridge() -> None:
    at = ridge(PEAK, BANDWIDTH)
    assert at == 250
    assert attainable(at, PEAK, BANDWIDTH) == PEAK == at * BANDWIDTH
    assert attainable(0.99 * at, PEAK, BANDWIDTH) < PEAK


def test_latency_is_a_third_roof() -> None:
    """Messages of 10 bytes that start up in 5 s pass 2 bytes a second, whatever the link."""
    assert attainable(100, PEAK, BANDWIDTH, message_bytes=10, latency_seconds=5) == 200
    assert attainable(100, PEAK, BANDWIDTH, message_bytes=1e6, latency_seconds=5) == 400
    assert attainable(1e9, PEAK, BANDWIDTH, message_bytes=10, latency_seconds=5) == PEAK


def test_for_fixed_work_the_latency_roof_is_level() -> None:
    """F FLOPs beside a call of L seconds: P <= F/L, however few bytes it has."""
    work, latency = 50.0, 0.5
    few = np.array([1e-3, 1e-2, 1e-1])
    found = attainable(work / few, PEAK, BANDWIDTH, message_bytes=few, latency_seconds=latency)
    assert found == pytest.approx([work / latency] * 3)


def test_knee_is_where_bytes_take_as_long_as_start_up() -> None:
    assert latency_knee(10e-6, 1 / 50e9) == pytest.approx(500e3)


@given(positive, positive, positive, positive, st.floats(0, 1e3))
def test_more_intensity_never_attains_less(
    intensity: float, more: float, peak: float, bandwidth: float, latency: float
) -> None:
    low, high = sorted((intensity, intensity + more))
    lower, higher = (
        attainable(i, peak, bandwidth, message_bytes=8, latency_seconds=latency)
        for i in (low, high)
    )
    assert lower <= higher <= peak


@pytest.mark.parametrize(
    ("part", "precision", "expected"),
    [
        ("h100-sxm-80gb", "bf16", 295),
        ("h100-sxm-80gb", "fp8", 590),
        ("h200-sxm-141gb", "bf16", 206),
        ("b200-sxm-180gb", "bf16", 293),
        ("gb200", "bf16", 312),
    ],
)
def test_ridges_of_shipped_parts(part: str, precision: str, expected: float) -> None:
    accelerator = load(part, "accelerator", Accelerator)
    found = ridge(accelerator.peak_flops[precision], accelerator.hbm_bytes_per_second)  # type: ignore[index]
    assert found == pytest.approx(expected, abs=1)


# ---------------------------------------------------------------- products


@pytest.mark.parametrize("n", [128, 1024, 8192])
@pytest.mark.parametrize("s", [FP8, BF16, FP32])
def test_square_gemm_is_two_thirds_n_over_s(n: int, s: int) -> None:
    assert gemm_intensity(n, n, n, s) == pytest.approx(2 * n / (3 * s), rel=1e-15)


def test_gemm_counts_outputs_in_their_own_bytes() -> None:
    """2·2·3·4 FLOPs over (2·4 + 4·3)·1 + 2·3·2 bytes."""
    assert gemm_intensity(2, 3, 4, 1, 2) == pytest.approx(48 / 32)


def test_decoding_one_token_has_one_flop_a_byte_in_bf16_and_two_in_fp8() -> None:
    assert gemv_intensity(8192, 8192, BF16) == pytest.approx(1, rel=1e-3)
    assert gemv_intensity(8192, 8192, FP8) == pytest.approx(2, rel=1e-3)


def test_batch_raises_intensity_until_the_weights_are_a_gemm() -> None:
    batches = np.array([1, 8, 64, 512, 8192])
    found = gemv_intensity(8192, 8192, BF16, batches)
    assert np.all(np.diff(found) > 0)
    assert found[:3] == pytest.approx(batches[:3], rel=0.02)
    assert found[-1] == pytest.approx(gemm_intensity(8192, 8192, 8192, BF16))


# ---------------------------------------------------------------- streaming and chains


def test_streaming_kernels_have_a_constant_of_their_own() -> None:
    """c / (2s), and less where two tensors are read."""
    assert streaming_intensity(1, BF16) == 0.25
    assert streaming_intensity(NORM_FLOPS, BF16) == 1
    assert streaming_intensity(SOFTMAX_FLOPS, FP32) == 0.625
    assert streaming_intensity(1, BF16, reads=2) == pytest.approx(1 / 6)


def test_fusion_merges_denominators() -> None:
    """k equal kernels in a row: fused, the first read and the last write are left."""
    k, c, s = 5, 3.0, BF16
    flops, moved = [c] * k, [2 * s] * k
    apart = chain_intensity(flops, moved)
    fused = chain_intensity(flops, moved, [s] * (k - 1))
    assert apart == pytest.approx(streaming_intensity(c, s))
    assert fused == pytest.approx(k * apart)
    assert attainable(fused, PEAK, BANDWIDTH) == pytest.approx(
        k * attainable(apart, PEAK, BANDWIDTH)
    )


def test_low_precision_moves_up_and_right() -> None:
    """Half the bytes, twice the peak: both sides of the ridge gain twice, neither alone."""
    for n in (64, 8192):  # bandwidth-bound, compute-bound
        before = attainable(gemm_intensity(n, n, n, BF16), PEAK, BANDWIDTH)
        after = attainable(gemm_intensity(n, n, n, FP8), 2 * PEAK, BANDWIDTH)
        assert after == pytest.approx(2 * before)
    wide = gemm_intensity(8192, 8192, 8192, FP8)
    assert attainable(wide, PEAK, BANDWIDTH) == PEAK  # right alone does not raise the roof


# ---------------------------------------------------------------- attention


def test_naive_attention_has_d_over_s_however_long() -> None:
    assert naive_attention_intensity(1e6, 128, BF16) == pytest.approx(64, rel=1e-3)
    lengths = np.array([8e3, 32e3, 128e3])
    assert naive_attention_intensity(lengths, 128, BF16) == pytest.approx([64] * 3, rel=0.02)
    assert naive_attention_intensity(1e6, 64, FP8) == pytest.approx(64, rel=1e-3)


def test_naive_bytes_grow_with_the_square() -> None:
    ratio = naive_attention_bytes(64e3, 128, BF16) / naive_attention_bytes(32e3, 128, BF16)
    assert ratio == pytest.approx(4, rel=0.01)


@pytest.mark.parametrize(("n", "d", "m", "s"), [(1024, 64, 98304, 2), (8192, 128, 116736, 1)])
def test_flash_bytes(n: int, d: int, m: int, s: int) -> None:
    expected = (n**2 * d**2 / m + 4 * n * d) * s
    assert flash_attention_bytes(n, d, m, s) == pytest.approx(expected, rel=1e-15)


def test_flash_intensity_is_bound_by_sram_and_by_the_tensors_themselves() -> None:
    """Long sequences 4M/(d·s), Θ(M/(d·s)); short ones N/s."""
    m, d = 116736, 128
    assert flash_attention_intensity(1e8, d, m, BF16) == pytest.approx(4 * m / (d * BF16), rel=1e-3)
    assert flash_attention_intensity(16, d, m, BF16) == pytest.approx(16 / BF16, rel=1e-2)
    doubled = flash_attention_intensity(1e8, d, 2 * m, BF16)
    assert doubled == pytest.approx(2 * flash_attention_intensity(1e8, d, m, BF16), rel=1e-3)


@pytest.mark.parametrize("sram_bytes", [100 * 1024, 192 * 1024])
def test_flash_moves_7_to_15_times_fewer_bytes_on_gpt2(sram_bytes: int) -> None:
    """Heads of 64, 1,024 tokens on A100; the paper measured 9.2 with the
    backward pass (arXiv 2205.14135, figure 2)."""
    n, d, m = 1024, 64, sram_bytes / BF16
    naive, flash = naive_attention_bytes(n, d, BF16), flash_attention_bytes(n, d, m, BF16)
    assert 7 <= naive / flash <= 15


def test_flash_crosses_the_ridge_that_naive_attention_does_not_reach() -> None:
    h100 = load("h100-sxm-80gb", "accelerator", Accelerator)
    assert h100.shared_memory_bytes is not None
    at = ridge(h100.peak_flops["bf16"], h100.hbm_bytes_per_second)
    assert naive_attention_intensity(8192, 128, BF16) < at / 4
    assert flash_attention_intensity(8192, 128, h100.shared_memory_bytes / BF16, BF16) > at


def test_attention_flops() -> None:
    assert attention_flops(10, 3) == 4 * 100 * 3


# ---------------------------------------------------------------- decoding


def test_cache_reads_hold_decoding_at_two_over_s() -> None:
    assert decode_attention_intensity(8192, 128, BF16) == pytest.approx(1, rel=1e-3)
    assert decode_attention_intensity(8192, 128, FP8) == pytest.approx(2, rel=1e-3)


def test_shared_key_heads_raise_intensity_and_batch_does_not() -> None:
    groups = np.array([1, 4, 8, 32])
    found = decode_attention_intensity(65536, 128, BF16, groups)
    assert found == pytest.approx(groups, rel=1e-3)
    one = decode_attention_intensity(8192, 128, BF16, 8)
    assert decode_attention_intensity(8192, 128, BF16, 8, batch=64) == one


# ---------------------------------------------------------------- numbers and arrays


def test_arrays_say_what_numbers_say() -> None:
    n = np.array([512.0, 4096.0, 32768.0])
    for formula, rest in (
        (lambda x: gemm_intensity(x, 4096, x, BF16), ()),
        (lambda x: naive_attention_bytes(x, 128, BF16), ()),
        (lambda x: flash_attention_bytes(x, 128, 1e5, BF16), ()),
        (lambda x: attainable(x, PEAK, BANDWIDTH, message_bytes=x, latency_seconds=2.0), ()),
    ):
        assert formula(n, *rest) == pytest.approx([formula(x, *rest) for x in n], rel=1e-12)
