"""What a state-space block does between its projections: FLOPs, traffic and bytes kept, per token.

Mamba-2 (Dao & Gu 2024, arXiv 2405.21060): a causal convolution over the inputs x, B and C, then the
recurrence hₜ = aₜ·hₜ₋₁ + Bₜ xₜ, yₜ = Cₜ hₜ of every head, in chunks of Q tokens (§6): within a
chunk the quadratic form (C Bᵀ ∘ L) x, between chunks the states, then a gated norm. Per token, with
d = heads · head_dim, N = state_size and g groups, a chunk's matmuls take

    C Bᵀ  2·Q·N·g     (C Bᵀ ∘ L) x  Q·d, the causal half     states  2·N·d     their outputs  2·N·d

Under context parallelism the block works on the whole sequence of some of its heads, after an
all-to-all (megatron/core/ssm/mamba_context_parallel.py); groups of which a rank has less than one
are copied. Formulas count a rank's work per token of its sequence shard, so cp leaves them alone
but for those copies.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from planner.cost.passes import ForwardBackward
from planner.layouts.numeric import Numeric
from planner.problem.blocks import Mamba

SCAN_FLOPS = 7.0
"""Model FLOPs of the recurrence per token, inner element and state element, as Megatron-LM and NeMo
AutoModel count them for MFU whatever the kernels do (num_floating_point_operations: "scan")."""

SCAN_FLOPS_PER_SECOND = 35e12
"""FLOP/s that the chunks' kernels (Triton, mamba_ssm) reach at most, on any accelerator type.

They wait for their own instructions, not for HBM or tensor cores. Assumed: no measurement of these
kernels is at hand. The rate is set so that what lies between the projections of Nemotron 3 models
takes about 73 ps per token and inner element in both passes on recent types: 6 to 8 ps are the
convolution's, and the chunks have 2,240 to 2,430 FLOPs. That it is the same on all types is seen on
other kernels. The chunked ones of the gated delta rule behave alike: forward, they take 15.2 ps
on H100, 13.7 on H200, 11.8 on B200 and GB200, 11.0 on B300 and 11.4 on GB300, where the HBM of the
last four is 2.4 times as fast as the H100's (aiconfigurator-core 0.12.0, gdn_perf,
chunk_gated_delta_rule, medians of 32,768 tokens and more)."""

CONVOLUTION_ELEMENTS_PER_SECOND = 1.85e12
"""Elements that causal_conv1d reads and writes a second at most, whatever the HBM. Fitted to 952
measured times of six accelerator types, sequences of 1,024 tokens and more (aiconfigurator-core
0.12.0, mamba2_perf, causal_conv1d_fn); 1.80 to 1.90 with any type left out."""

SCAN_KERNELS = ForwardBackward(7.0, 17.0)
"""Kernels of mamba_ssm's mamba_split_conv1d_scan_combined and of the norm after it."""

ALL_TO_ALLS = 6.0
"""Of one block and pass under context parallelism: z, x, B, C and the steps there, y back."""


@dataclass(frozen=True, slots=True)
class ScanWidths:
    """A rank's elements per token: of heads (d), of B or C (k), of states and of C Bᵀ, heads."""

    inner: Numeric
    inputs: Numeric
    states: Numeric
    scores: Numeric
    heads: Numeric


def scan_widths(mamba: Mamba, tp: Numeric, cp: Numeric) -> ScanWidths:
    """Widths on one of tp·cp ranks, per token of its sequence shard."""
    inner = mamba.inner_size / tp
    groups = np.maximum(mamba.num_groups / tp, cp)
    return ScanWidths(
        inner=inner,
        inputs=groups * mamba.state_size,
        states=inner * mamba.state_size / mamba.chunk_size,
        scores=groups * mamba.chunk_size,
        heads=mamba.num_heads / tp,
    )


def scan_flops(mamba: Mamba, widths: ScanWidths) -> ForwardBackward:
    """FLOPs of the chunks' matmuls per token.

    On the backward pass each of them gives two gradients, after states and C Bᵀ, which are not
    kept, are computed again.
    """
    scores = 2.0 * mamba.chunk_size * widths.inputs
    states = 2.0 * mamba.state_size * widths.inner
    forward = scores + mamba.chunk_size * widths.inner + 2.0 * states
    return ForwardBackward(forward, 2.0 * forward + scores + states)


def convolution_elements(widths: ScanWidths) -> ForwardBackward:
    """Elements per token that the convolution of x, B and C reads and writes.

    Forward in and out; backward the same again, and its gradient: in and out, and in once more.
    """
    channels = widths.inner + 2 * widths.inputs
    return ForwardBackward(2.0 * channels, 5.0 * channels)


def chunk_bytes(widths: ScanWidths, element_bytes: float) -> ForwardBackward:
    """Bytes of HBM traffic per token of the scan in chunks and of the gated norm.

    Forward: states of chunks in x, B, out in FP32; passed on, in and out; C Bᵀ in, out in FP32; the
    scan in x, z, C, C Bᵀ, states, out y with and without its gate; the norm in and out; steps and
    decays of heads. Backward: states and C Bᵀ recomputed; norm 3·d, gate 5·d; gradients of states
    (in C, dy), passed back, of x (in x, dy, B, C Bᵀ), of B (in x), of C (in dy), of C Bᵀ (in x and
    dy), whose matmul's adds them up.
    """
    d, k, states, scores = widths.inner, widths.inputs, widths.states, widths.scores
    steps = widths.heads * (element_bytes + 4 * 4.0)
    forward = element_bytes * (7 * d + 4 * k) + 4 * (4 * states + 2 * scores) + steps
    recomputed = element_bytes * (d + 3 * k) + 4 * (3 * states + scores) + steps
    gradients = element_bytes * (16 * d + 6 * k) + 4 * (7 * states + 4 * scores + 4 * k)
    return ForwardBackward(forward, recomputed + gradients + steps)


def scan_bytes(widths: ScanWidths, element_bytes: float) -> ForwardBackward:
    """Bytes of HBM traffic per token: of the convolution, the scan in chunks and the norm."""
    convolution = convolution_elements(widths).times(element_bytes)
    return convolution + chunk_bytes(widths, element_bytes)


def scan_intensity(mamba: Mamba, element_bytes: float) -> float:
    """FLOP per byte of a block's forward pass between its projections, on one rank."""
    widths = scan_widths(mamba, 1, 1)
    return float(scan_flops(mamba, widths).forward / scan_bytes(widths, element_bytes).forward)


@dataclass(frozen=True, slots=True)
class ScanActivations:
    """Bytes per token of a scan: kept for its backward pass, and what that needs besides."""

    kept: Numeric
    working: Numeric


def scan_activations(widths: ScanWidths, element_bytes: float) -> ScanActivations:
    """Activations of one block's scan on a rank.

    Kept: its output before the gate and the norm's input (what the norm gives the output projection
    and the input projection's output are counted with the matmuls). Working: the convolution's
    output recomputed and its gradient, the projection's gradient, states and their gradients in
    FP32.
    """
    conv = widths.inner + 2 * widths.inputs
    projected = widths.inner + conv + widths.heads
    working = element_bytes * (2 * conv + projected) + 2 * 4 * widths.states
    return ScanActivations(element_bytes * 2 * widths.inner, working)


def all_to_all_elements(mamba: Mamba, tp: Numeric, cp: Numeric) -> Numeric:
    """Elements per token of a sequence shard in one pass's all-to-alls, there and back.

    The projection's output goes out, B and C copied for every rank of their group; y comes back.
    """
    widths = scan_widths(mamba, tp, cp)
    return 3 * widths.inner + 2 * widths.inputs + widths.heads
