"""Seconds of one matrix-multiply (GEMM) or attention kernel, from plain numbers.

**Why the GEMM has this form.** `wave` in `gemm_seconds` holds two losses: tiles that stick out of
the product, and multiprocessors idle in the last wave. A library bound to one tile would lose all
of tiles/slots; one that chooses among tiles and splits k loses less. The square root fits best:
mean held-out error over seven accelerator types, BF16 / FP8 / NVFP4, 5.9 / 6.8 / 6.6 %, against
6.2 / 7.2 / 6.6 % with all of tiles/slots and 6.1 / 7.4 / 7.5 % with none of it. The fitted tile is
therefore a granularity, not the tile of one kernel.

Compute and HBM traffic hide each other only in part where both take long. With their plain maximum,
and coefficients fitted to it, the held-out error is 6.5 % instead of 6.4 % (mean of MAPE over
accelerator types and precisions); that of experts of 128 to 512 rows is 11 / 16 / 17 / 15 % instead
of 5 / 8 / 13 / 10 % (median, BF16 on H100 / H200 / B200 / GB200, the same coefficients).

Nothing is fitted to experts: whole layers of them, forward, even routing, are predicted with a
median error of 5 to 11 % (BF16, FP8, H100 to GB300), against 24 to 121 % with a launch for each
expert (docs/kernels.md).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import numpy as np

from planner.layouts.numeric import Numeric

__all__ = [
    "ElementBytes",
    "GemmDevice",
    "GemmParameters",
    "GemmSizes",
    "flash_seconds",
    "gemm_seconds",
]  # fmt: skip


class GemmParameters(Protocol):
    """Fitted coefficients of one accelerator's matmuls at one precision.

    `efficiency` is the share of the dense peak reached by a large product, `k_half` the depth k
    at which half of it is reached, `tile_m` × `tile_n` the output tile of one multiprocessor, and
    `overhead_seconds` the launch and drain time of one kernel.
    """

    @property
    def efficiency(self) -> float: ...
    @property
    def k_half(self) -> float: ...
    @property
    def tile_m(self) -> float: ...
    @property
    def tile_n(self) -> float: ...
    @property
    def overhead_seconds(self) -> float: ...


@dataclass(frozen=True, slots=True)
class GemmSizes:
    """One launch of `num_groups` products (m × k)·(k × n), each with weights of its own.

    Numbers or arrays that broadcast, each >= 1; m is the rows of one group, such as the tokens of
    one expert.
    """

    m: Numeric
    n: Numeric
    k: Numeric
    num_groups: Numeric = 1


@dataclass(frozen=True, slots=True)
class GemmDevice:
    """What an accelerator offers a matmul; the peak is the dense one of the inputs' type."""

    coefficients: GemmParameters
    peak_flops: Numeric
    num_multiprocessors: float
    hbm_bytes_per_second: Numeric
    hbm_efficiency: float  # share of the bandwidth that streaming kernels reach


@dataclass(frozen=True, slots=True)
class ElementBytes:
    """Bytes per element of a matmul's inputs and output, scales included.

    FP4 with a scale for each 16 elements has 0.5625. The time to quantise inputs is counted apart.
    """

    inputs: Numeric
    output: Numeric


def gemm_seconds(sizes: GemmSizes, device: GemmDevice, element_bytes: ElementBytes) -> Numeric:
    """Seconds of one launch of grouped products; the shape of what `sizes` broadcasts to.

    The tiles of all groups share the waves, and the launch is paid once::

        seconds = overhead + (compute³ + hbm³)^⅓
        compute = num_groups·2·m·n·k / (peak · efficiency · ramp · wave)
        ramp    = k / (k + k_half)
        wave    = num_groups·m·n / (tiles·tile_m·tile_n) · sqrt(tiles / slots)
        tiles   = num_groups · ceil(m/tile_m) · ceil(n/tile_n)
        slots   = num_multiprocessors · ceil(tiles / num_multiprocessors)
        hbm     = num_groups · (input_bytes·(m·k + k·n) + output_bytes·m·n)
                  / (bandwidth · hbm_efficiency)

    Many groups of few rows are slow because they stick out of their tiles and because each reads
    weights of its own, not because of their launches. Seconds never fall with num_groups, m, n or
    k, nor rise with the peak or the bandwidth.

    Source: form after NVIDIA, "Matrix Multiplication Background User's Guide" (tile and wave
    quantisation); k ramp, square root and all coefficients fitted to the measured GEMM latencies
    of aiconfigurator-core 0.12.0 (Apache-2.0), forward kernels with m, n, k >= 512. Groups: one
    persistent launch over all experts as in CUTLASS's grouped GEMM (NVIDIA CUTLASS, example 24)
    and MegaBlocks (arXiv 2211.15841).
    """
    groups, rows, columns, depth = (
        np.asarray(size, dtype=np.float64) for size in (sizes.num_groups, sizes.m, sizes.n, sizes.k)
    )
    coefficients = device.coefficients
    multiprocessors = np.asarray(device.num_multiprocessors, dtype=np.float64)

    # -(-a // b) is ceil(a / b), of numbers and of arrays
    tile_area = coefficients.tile_m * coefficients.tile_n
    tiles = groups * -(-rows // coefficients.tile_m) * -(-columns // coefficients.tile_n)
    slots = multiprocessors * -(-tiles // multiprocessors)
    wave = groups * rows * columns / (tiles * tile_area) * np.sqrt(tiles / slots)
    ramp = depth / (depth + coefficients.k_half)
    attainable_flops = np.asarray(device.peak_flops) * coefficients.efficiency * ramp * wave
    compute_seconds = 2.0 * groups * rows * columns * depth / attainable_flops

    moved_bytes = groups * (
        np.asarray(element_bytes.inputs) * (rows + columns) * depth
        + np.asarray(element_bytes.output) * rows * columns
    )
    hbm_seconds = moved_bytes / (
        np.asarray(device.hbm_bytes_per_second) * np.asarray(device.hbm_efficiency)
    )
    # products and not powers, which numpy takes through logarithms
    cubes = compute_seconds * compute_seconds * compute_seconds
    cubes = cubes + hbm_seconds * hbm_seconds * hbm_seconds
    seconds: Numeric = coefficients.overhead_seconds + np.cbrt(cubes)
    return seconds


def flash_seconds(
    flops: Numeric,
    tokens: Numeric,
    *,
    peak_flops: float,
    share: float,
    sequence_half: float,
    overhead_seconds: float,
) -> Numeric:
    """Seconds of one fused attention kernel (FlashAttention); `flops` and `tokens` broadcast.

    ::

        seconds = overhead + flops / (peak · share · tokens / (tokens + sequence_half))

    tokens is the length of a sequence (or of a block of it that one kernel works through) and
    flops the work on it, the causal half counted once. share is what a long sequence reaches of
    the dense peak. Scores stay on chip, so HBM never binds.

    Source: Dao, FlashAttention-2 (arXiv 2307.08691); the ramp with the sequence is fitted, see
    `sequence_half` in topologies/accelerators.
    """
    reached = np.asarray(peak_flops) * np.asarray(tokens) / (tokens + np.asarray(sequence_half))
    seconds: Numeric = flops / (reached * np.asarray(share)) + overhead_seconds
    return seconds
