"""Matrix-multiply time against hand-computed values and its own invariants."""

from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from planner.cost.kernels import (
    ElementBytes,
    GemmDevice,
    GemmSizes,
    flash_seconds,
    gemm_seconds,
)

COEFFICIENTS = SimpleNamespace(
    efficiency=0.8, k_half=100.0, tile_m=128, tile_n=64, overhead_seconds=3e-6
)
HARDWARE = {
    "peak_flops": 1e15,
    "num_multiprocessors": 100,
    "hbm_bytes_per_second": 3e12,
    "hbm_efficiency": 0.8,
    "input_bytes": 2,
    "output_bytes": 2,
}
PLAIN = {"efficiency": 1.0, "k_half": 0.0, "tile_m": 1, "tile_n": 1, "overhead_seconds": 0.0}
NO_HBM = {"hbm_bytes_per_second": 1e18}
sizes = st.integers(1, 200_000)
rates = st.floats(1e9, 1e17)


def seconds(m, n, k, num_groups=1, **changes):
    given = {"coefficients": COEFFICIENTS, **HARDWARE, **changes}
    element_bytes = ElementBytes(given.pop("input_bytes"), given.pop("output_bytes"))
    return gemm_seconds(GemmSizes(m, n, k, num_groups), GemmDevice(**given), element_bytes)


def grouped(num_groups, m, n, k, **changes):
    return seconds(m, n, k, num_groups=num_groups, **changes)


def test_compute_bound_by_hand():
    # 8 x 20 = 160 tiles in two waves of 100: wave = sqrt(0.8); 900/(900 + 100): ramp = 0.9.
    flops = 2 * 1024 * 1280 * 900
    expected = 3e-6 + flops / (1e15 * 0.8 * 0.9 * 0.8**0.5)
    assert seconds(1024, 1280, 900, **NO_HBM) == pytest.approx(expected, rel=1e-12)


def test_tiles_that_stick_out_are_paid_for():
    # 9 x 20 = 180 tiles; 1025 of their 1152 rows are used.
    flops = 2 * 1025 * 1280 * 900
    expected = 3e-6 + flops / (1e15 * 0.8 * 0.9 * (1025 / 1152) * 0.9**0.5)
    assert seconds(1025, 1280, 900, **NO_HBM) == pytest.approx(expected, rel=1e-12)


def test_hbm_bound_by_hand():
    # One row: 2·(10 000 + 10 000·20 000) + 2·20 000 = 400 060 000 bytes at 2.4e12 bytes/second.
    assert seconds(1, 20_000, 10_000, peak_flops=1e30) == pytest.approx(
        3e-6 + 400_060_000 / 2.4e12, rel=1e-12
    )


def test_bytes_per_element_count_on_both_sides():
    # 1·(10 000 + 10 000·20 000) + 4·20 000 bytes.
    time = seconds(1, 20_000, 10_000, input_bytes=1, output_bytes=4, peak_flops=1e30)
    assert time == pytest.approx(3e-6 + 200_090_000 / 2.4e12, rel=1e-12)


def test_compute_and_memory_hide_each_other_but_in_part():
    """At the ridge both take 1 s, and together the cube root of 2; far from it, the longer."""
    one = {
        "hbm_efficiency": 1.0,
        "num_multiprocessors": 1,
        "coefficients": SimpleNamespace(**PLAIN),
    }
    compute = 2 * 1024 * 1024 * 1024 / 1e15
    moved = 2 * 3 * 1024 * 1024
    ridge = seconds(1024, 1024, 1024, hbm_bytes_per_second=moved / compute, **one)
    assert ridge == pytest.approx(compute * 2 ** (1 / 3), rel=1e-12)
    far = seconds(1024, 1024, 1024, hbm_bytes_per_second=10 * moved / compute, **one)
    assert compute < far == pytest.approx(compute * 1.001 ** (1 / 3), rel=1e-12)


def test_large_product_reaches_the_efficiency():
    m, n, k = 128 * 10_000, 64 * 10_000, 10_000_000
    assert 2.0 * m * n * k / seconds(m, n, k) / 1e15 == pytest.approx(0.8, rel=1e-4)


def test_half_of_the_efficiency_at_k_half():
    m, n = 128 * 1000, 64 * 1000  # whole tiles, whole waves
    time = seconds(m, n, 100, hbm_bytes_per_second=1e18) - 3e-6
    assert 2 * m * n * 100 / time / 1e15 == pytest.approx(0.4, rel=1e-9)


def test_small_product_costs_the_overhead():
    assert seconds(1, 1, 1) == pytest.approx(3e-6, rel=1e-2)


def test_scalars_equal_arrays():
    m = np.array([1, 512, 1000, 8192, 32768])[:, None, None]
    n = np.array([1, 777, 4096, 53248])[None, :, None]
    k = np.array([1, 100, 16384])[None, None, :]
    table = seconds(m, n, k)
    assert table.shape == (5, 4, 3)
    assert table.dtype == np.float64
    for index in np.ndindex(table.shape):
        one = seconds(m[index[0], 0, 0].item(), n[0, index[1], 0].item(), k[0, 0, index[2]].item())
        assert table[index] == pytest.approx(one, rel=1e-12)


def test_hardware_and_coefficients_broadcast():
    peaks = np.array([1e14, 1e15, 1e16])
    many = SimpleNamespace(**{**vars(COEFFICIENTS), "efficiency": np.array([0.5, 0.6, 0.7])})
    table = seconds(4096, 4096, 4096, peak_flops=peaks, coefficients=many)
    for index, efficiency in enumerate(many.efficiency):
        one = SimpleNamespace(**{**vars(COEFFICIENTS), "efficiency": efficiency})
        expected = seconds(4096, 4096, 4096, peak_flops=peaks[index], coefficients=one)
        assert table[index] == pytest.approx(expected, rel=1e-12)


def test_integer_arrays_do_not_overflow():
    m, n, k = (np.array([size], dtype=np.int32) for size in (6_000_000, 400_000, 53_248))
    assert seconds(m, n, k)[0] == pytest.approx(seconds(6e6, 4e5, 53_248.0), rel=1e-12)


@given(m=sizes, n=sizes, k=sizes, rate=rates, factor=st.floats(1.0, 1e4))
def test_never_slower_with_a_higher_peak_or_bandwidth(m, n, k, rate, factor):
    for name in ("peak_flops", "hbm_bytes_per_second"):
        slow, fast = (seconds(m, n, k, **{name: value}) for value in (rate, rate * factor))
        assert fast <= slow


@given(m=sizes, n=sizes, k=sizes, more=st.integers(1, 5000))
def test_never_faster_with_a_larger_product(m, n, k, more):
    least = seconds(m, n, k) * (1 - 1e-12)
    assert seconds(m + more, n, k) >= least
    assert seconds(m, n + more, k) >= least
    assert seconds(m, n, k + more) >= least


@given(m=sizes, n=sizes, k=sizes)
def test_never_above_the_roof(m, n, k):
    useful_seconds = 2.0 * m * n * k / (1e15 * COEFFICIENTS.efficiency)
    assert seconds(m, n, k) >= COEFFICIENTS.overhead_seconds + useful_seconds * (1 - 1e-12)


# ---------------------------------------------------------------- groups


def test_groups_share_the_waves_by_hand():
    # Four groups of 2 x 10 tiles: 80 tiles in one wave of 100, where each alone would idle 80.
    flops = 4 * 2 * 256 * 640 * 900
    expected = 3e-6 + flops / (1e15 * 0.8 * 0.9 * 0.8**0.5)
    assert grouped(4, 256, 640, 900, **NO_HBM) == pytest.approx(expected, rel=1e-12)


def test_every_group_reads_its_own_weights_by_hand():
    # Eight groups of one row: 8·(2·(10 000 + 10 000·20 000) + 2·20 000) bytes at 2.4e12 a second.
    expected = 3e-6 + 8 * 400_060_000 / 2.4e12
    assert grouped(8, 1, 20_000, 10_000, peak_flops=1e30) == pytest.approx(expected, rel=1e-12)


def test_groups_of_whole_tiles_and_waves_cost_what_one_product_does():
    # 100 groups of one row of 10 tiles, or one product of 100 rows of tiles: the same 1 000 tiles.
    whole = seconds(12_800, 640, 900, **NO_HBM)
    assert grouped(100, 128, 640, 900, **NO_HBM) == pytest.approx(whole, rel=1e-12)


@given(groups=st.integers(1, 256), m=sizes, n=sizes, k=sizes)
def test_one_launch_is_never_slower_than_one_for_each_group(groups, m, n, k):
    assert grouped(1, m, n, k) == seconds(m, n, k)
    assert grouped(groups, m, n, k) <= groups * seconds(m, n, k) * (1 + 1e-12)


@given(groups=st.integers(1, 256), m=sizes, n=sizes, k=sizes, more=st.integers(1, 5000))
def test_groups_are_never_faster_with_more_work(groups, m, n, k, more):
    least = grouped(groups, m, n, k) * (1 - 1e-12)
    assert grouped(groups + more, m, n, k) >= least
    assert grouped(groups, m + more, n, k) >= least
    assert grouped(groups, m, n + more, k) >= least
    assert grouped(groups, m, n, k + more) >= least


@given(groups=st.integers(2, 256), m=sizes, n=sizes, k=sizes)
def test_one_product_of_all_rows_is_a_lower_bound(groups, m, n, k):
    """Splitting rows among groups only adds tiles and weights."""
    assert grouped(groups, m, n, k) >= seconds(groups * m, n, k) * (1 - 1e-12)


def test_groups_as_scalars_equal_arrays():
    groups = np.array([1, 8, 64])[:, None, None]
    m = np.array([1, 200, 4096])[None, :, None]
    k = np.array([1, 7168])[None, None, :]
    table = grouped(groups, m, 2048, k)
    assert table.shape == (3, 3, 2)
    assert table.dtype == np.float64
    for i, j, h in np.ndindex(table.shape):
        one = grouped(groups[i, 0, 0].item(), m[0, j, 0].item(), 2048, k[0, 0, h].item())
        assert table[i, j, h] == pytest.approx(one, rel=1e-12)


# ---------------------------------------------------------------- attention


def test_attention_by_hand():
    # 1e12 FLOP at 0.6 of 1e15, of which 4 096 tokens reach 4096/(4096 + 1024) = 0.8.
    found = flash_seconds(
        1e12, 4096, peak_flops=1e15, share=0.6, sequence_half=1024, overhead_seconds=3e-6
    )
    assert found == pytest.approx(1e12 / 0.48e15 + 3e-6, rel=1e-12)


# ---------------------------------------------------------------- measured


# The form against measured latencies:
# H100 SXM, BF16, best framework of aiconfigurator-core 0.12.0 (Apache-2.0).
@pytest.mark.parametrize(
    ("m", "n", "k", "measured_seconds"),
    [
        (4096, 512, 512, 6.2e-6),
        (4096, 4096, 512, 31.7e-6),
        (4096, 512, 4096, 24.5e-6),
        (4096, 4096, 4096, 166.0e-6),
        (4096, 8192, 8192, 672.8e-6),
        (16384, 8192, 8192, 2817.6e-6),
    ],
)
def test_h100_measurements(m, n, k, measured_seconds):
    h100 = SimpleNamespace(
        efficiency=0.8576, k_half=164.3, tile_m=64, tile_n=64, overhead_seconds=2.88e-6
    )
    time = seconds(
        m, n, k,
        coefficients=h100,
        peak_flops=989.5e12,
        num_multiprocessors=132,
        hbm_bytes_per_second=3.35e12,
        hbm_efficiency=0.85,
    )  # fmt: skip
    assert time == pytest.approx(measured_seconds, rel=0.15)
