"""The roofline: what bounds a piece of work, and how much work usual kernels do per byte.

Work of F FLOPs that moves Q bytes over a level (the accelerator's memory, a tier of links) has the
*intensity* I = F/Q. With the peak π (FLOP/s) and the level's bandwidth β (bytes/s) it can attain

    P(I) = min(π, I·β, I·m/L)

the compute roof, the bandwidth roof, and for messages of m bytes that start up in L seconds the
latency roof. Roofs cross at the ridge π/β, and start-up takes as long as the bytes at the knee.

Every function takes numbers or arrays that broadcast, and returns FLOP per byte, bytes or FLOP/s.
`element_bytes` is 4 for FP32, 2 for BF16 and FP16, 1 for FP8. Form after Williams, Waterman and
Patterson, "Roofline" (CACM 2009); attention traffic after Dao et al. (arXiv 2205.14135).
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from planner.layouts.numeric import Numeric

# ---------------------------------------------------------------- roofs


def attainable(
    intensity: Numeric,
    peak_flops: Numeric,
    bytes_per_second: Numeric,
    *,
    message_bytes: Numeric = 1.0,
    latency_seconds: Numeric = 0.0,
) -> Numeric:
    """FLOP/s that work of an intensity can reach: P = min(π, I·β, I·m/L).

    Without latency (L = 0) only the compute and the bandwidth roof stand.
    """
    message = np.asarray(message_bytes, dtype=float)
    with np.errstate(divide="ignore", over="ignore"):
        started = np.divide(message, latency_seconds)  # bytes/s that start-up allows
    flops: Numeric = np.minimum(peak_flops, intensity * np.minimum(bytes_per_second, started))
    return flops


def ridge(peak_flops: Numeric, bytes_per_second: Numeric) -> Numeric:
    """FLOP per byte at which the compute and the bandwidth roof cross: I* = π/β."""
    return peak_flops / bytes_per_second


def latency_knee(latency_seconds: Numeric, seconds_per_byte: Numeric) -> Numeric:
    """Message bytes whose transfer takes as long as their start-up: S = L / (dB/dS).

    Smaller messages are bound by latency, larger ones by bandwidth.
    """
    return latency_seconds / seconds_per_byte


# ---------------------------------------------------------------- matrix products


def gemm_intensity(
    m: Numeric,
    n: Numeric,
    k: Numeric,
    element_bytes: Numeric,
    output_bytes: Numeric | None = None,
) -> Numeric:
    """(m × k)·(k × n): 2mnk / ((mk + kn + mn)·s), every matrix once through memory.

    A square product of side n has 2n/(3s): it grows with the size. `output_bytes` are bytes per
    element of the result where they differ from the inputs'.
    """
    result = element_bytes if output_bytes is None else output_bytes
    moved = (1.0 * m * k + 1.0 * k * n) * element_bytes + 1.0 * m * n * result
    return 2.0 * m * n * k / moved


def gemv_intensity(
    rows: Numeric, columns: Numeric, element_bytes: Numeric, batch: Numeric = 1
) -> Numeric:
    """Weights (rows × columns) applied to a batch of vectors, as in decoding: about 2·batch/s.

    The weights are read once for the whole batch, so intensity grows with it until the vectors
    themselves count: a GEMM.
    """
    return gemm_intensity(rows, batch, columns, element_bytes)


# ---------------------------------------------------------------- streaming kernels

ELEMENTWISE_FLOPS = 1.0  # x + y
NORM_FLOPS = 4.0  # square, sum, scale by the root, scale by the weight
SOFTMAX_FLOPS = 5.0  # maximum, subtract, exponential, sum, divide


def streaming_intensity(
    flops_per_element: Numeric,
    element_bytes: Numeric,
    reads: Numeric = 1,
    writes: Numeric = 1,
) -> Numeric:
    """Elementwise kernels, norms, softmax: c / ((reads + writes)·s), whatever the size.

    One tensor read and one written give c/(2s).
    """
    return flops_per_element / ((reads + writes) * element_bytes)


def chain_intensity(
    flops: Sequence[Numeric],
    moved_bytes: Sequence[Numeric],
    kept_bytes: Sequence[Numeric] = (),
) -> Numeric:
    """Kernels one after another: ΣF / (ΣQ − 2·Σ kept).

    Fusing them keeps intermediates on the chip, each of which saves its write and its read: the
    denominators merge while the FLOPs stay.
    """
    return sum(flops) / (sum(moved_bytes) - 2.0 * sum(kept_bytes))


# ---------------------------------------------------------------- attention, one head


def attention_flops(sequence_length: Numeric, head_dim: Numeric) -> Numeric:
    """Forward FLOPs of one head without mask: QKᵀ and PV, 4N²d."""
    return 4.0 * sequence_length * sequence_length * head_dim


def naive_attention_bytes(
    sequence_length: Numeric, head_dim: Numeric, element_bytes: Numeric
) -> Numeric:
    """HBM bytes of one head that writes its scores, forward: (4N² + 4Nd)·s.

    QKᵀ reads Q, K and writes S; softmax reads S and writes P; PV reads P, V and writes O.
    """
    n, d = 1.0 * sequence_length, 1.0 * head_dim
    return (4.0 * n * n + 4.0 * n * d) * element_bytes


def naive_attention_intensity(
    sequence_length: Numeric, head_dim: Numeric, element_bytes: Numeric
) -> Numeric:
    """4N²d over the bytes: Θ(d/s), and d/s for N ≫ d, however long the sequence."""
    moved = naive_attention_bytes(sequence_length, head_dim, element_bytes)
    return attention_flops(sequence_length, head_dim) / moved


def flash_attention_bytes(
    sequence_length: Numeric,
    head_dim: Numeric,
    sram_elements: Numeric,
    element_bytes: Numeric,
) -> Numeric:
    """HBM bytes of one head in tiles, forward: (N²d²/M + 4Nd)·s with M elements of SRAM.

    Q, K, V and O pass once, and tiles again Θ(N²d²/M) times as K and V meet every tile of Q (the
    constant taken as 1); the scores never leave the chip (FlashAttention, arXiv 2205.14135, §3.2).
    """
    n, d = 1.0 * sequence_length, 1.0 * head_dim
    return (n * n * d * d / sram_elements + 4.0 * n * d) * element_bytes


def flash_attention_intensity(
    sequence_length: Numeric,
    head_dim: Numeric,
    sram_elements: Numeric,
    element_bytes: Numeric,
) -> Numeric:
    """4N²d over the bytes: Θ(M/(d·s)) for long sequences, at most N/s for short ones."""
    moved = flash_attention_bytes(sequence_length, head_dim, sram_elements, element_bytes)
    return attention_flops(sequence_length, head_dim) / moved


# ---------------------------------------------------------------- decoding


def decode_attention_intensity(
    context_length: Numeric,
    head_dim: Numeric,
    element_bytes: Numeric,
    group: Numeric = 1,
    batch: Numeric = 1,
) -> Numeric:
    """One token against a key-value cache of N tokens: about 2·group/s.

    `group` query heads share each key-value head (1 is multi-head attention, all heads is MQA) and
    the cache is read once for them. Every sequence of a batch reads its own cache: the batch
    cancels.
    """
    flops = 4.0 * batch * group * context_length * head_dim
    cache = 2.0 * batch * context_length * head_dim
    queries_and_outputs = 2.0 * batch * group * head_dim
    return flops / ((cache + queries_and_outputs) * element_bytes)
