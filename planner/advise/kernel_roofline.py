"""The roofline of kernels: points under the roof of an accelerator's HBM, and what moves them.

Intensities are FLOPs per byte of HBM; attainable rates are FLOP/s, min(π, I·β). Examples of kernels
are those of a scenario's plan, or of `REFERENCE` sizes. The formulas are `planner.cost.roofline`;
the roofs of links are `planner.advise.cluster_roofline`.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

from pydantic import computed_field

from planner.cost import roofline as roof
from planner.cost.statespace import scan_intensity
from planner.layouts.layout import Layout
from planner.layouts.numeric import Numeric
from planner.planning.plan import Plan
from planner.problem.blocks import Mamba
from planner.problem.hardware import Accelerator
from planner.problem.precision import ELEMENT_BYTES, Precision
from planner.problem.scenario import Scenario

ACTIVATION_BYTES = 2.0
"""Bytes per element of activations and of matmul outputs, whatever the matmul's precision."""

DECODED_BATCH = 32
"""Sequences decoded together in the batched example."""

Wall = Literal["compute", "bandwidth", "latency"]


@dataclass(frozen=True, slots=True)
class Operator:
    """A class of kernels on HBM's roof: its unit's ridge, and what it can attain.

    sizes: which example was taken; nothing where any size gives the same. unit: of the
    accelerator, whose peak it runs against. wall: compute from the ridge on, else bandwidth.
    """

    name: str
    sizes: str
    unit: Literal["tensor", "vector"]
    intensity: float
    ridge: float
    attainable_flops: float
    wall: Wall


@dataclass(frozen=True, slots=True)
class Move:
    """The same work moved under the roofs: intensity and FLOP/s before and after."""

    name: str
    intensity_before: float
    intensity_after: float
    attainable_before: float
    attainable_after: float

    @computed_field  # type: ignore[prop-decorator]
    @property
    def gain(self) -> float:
        """How many times more FLOP/s it can attain."""
        return self.attainable_after / self.attainable_before


@dataclass(frozen=True, slots=True)
class ProductSizes:
    """Sizes of a matrix product, rows × inner × columns."""

    rows: int
    inner: int
    columns: int


@dataclass(frozen=True, slots=True)
class Sizes:
    """Sizes of the kernels that are placed as examples; tokens are those of one micro-batch."""

    tokens: int
    sequence_length: int
    hidden: int
    columns: int  # of the MLP's first product, on one rank
    head_dim: int
    group: int  # query heads per key-value head
    expert: ProductSizes | None = None  # an expert's first product
    mamba: Mamba | None = None


REFERENCE = Sizes(8192, 8192, 8192, 8192, 128, 8)
"""Where no scenario says: a square product of 8192 and the heads of a 70B model."""


def sizes_of(scenario: Scenario, plan: Plan) -> Sizes:
    """Sizes of a scenario's kernels under its plan; where none fits, on one rank."""
    model = scenario.model
    layout = plan.layout or Layout()
    sequence = scenario.training.sequence_length
    tokens = max(1, layout.mbs * sequence // layout.cp)
    up, expert = 1 + model.gated_mlp, None
    # the MLP's first product; of a layer with experts the shared ones', or the output projection
    columns = up * model.ffn_hidden_size
    if model.moe is not None:
        columns = up * model.shared_ffn_hidden_size or model.hidden_size
        copies = tokens // layout.tp * model.moe.top_k * layout.ep * layout.etp
        width = up * model.moe.expert_ffn_hidden_size // layout.etp
        rows = max(1, copies // model.moe.num_experts)
        expert = ProductSizes(rows, model.expert_hidden_size, max(1, width))
    return Sizes(
        tokens=tokens,
        sequence_length=sequence,
        hidden=model.hidden_size,
        columns=max(1, columns // layout.tp),
        head_dim=model.qk_head_dim,
        group=model.num_attention_heads // model.num_key_value_heads,
        expert=expert,
        mamba=model.mamba,
    )


# ---------------------------------------------------------------- intensities


@dataclass(frozen=True, slots=True)
class _Kernels:
    """Kernels of given sizes on an accelerator: intensities, and the peaks they run against."""

    accelerator: Accelerator
    precision: Precision
    sizes: Sizes

    @property
    def matmul_peak(self) -> float:
        """FLOP/s of the precision's matmuls."""
        return self.peak(self.precision)

    @property
    def attention_peak(self) -> float:
        """FLOP/s of 16-bit matmuls, or of the first precision there is."""
        peaks = self.accelerator.peak_flops
        return float(peaks.get("bf16") or peaks.get("fp16") or next(iter(peaks.values())))

    @property
    def vector_peak(self) -> float:
        """FLOP/s of the vector unit."""
        return float(self.accelerator.vector_flops)

    def peak(self, precision: Precision) -> float:
        """FLOP/s of a precision's matmuls."""
        return float(self.accelerator.peak_flops[precision])

    def attainable(self, intensity: Numeric, peak: float) -> float:
        """FLOP/s under HBM's roof."""
        return float(roof.attainable(intensity, peak, float(self.accelerator.hbm_bytes_per_second)))

    def gemm(self, precision: Precision) -> float:
        """The MLP's first product."""
        sizes = self.sizes
        return float(
            roof.gemm_intensity(
                sizes.tokens, sizes.columns, sizes.hidden, ELEMENT_BYTES[precision],
                ACTIVATION_BYTES,
            )
        )  # fmt: skip

    def decode(self, precision: Precision, batch: int = 1) -> float:
        """The same product with one token of each sequence."""
        sizes = self.sizes
        return float(
            roof.gemv_intensity(sizes.columns, sizes.hidden, ELEMENT_BYTES[precision], batch)
        )

    def flash_attention(self) -> float | None:
        """None where the size of the accelerator's shared memory is not known."""
        sizes, shared = self.sizes, self.accelerator.shared_memory_bytes
        if shared is None:
            return None
        elements = float(shared) / ACTIVATION_BYTES
        return float(
            roof.flash_attention_intensity(
                sizes.sequence_length, sizes.head_dim, elements, ACTIVATION_BYTES
            )
        )

    def naive_attention(self) -> float:
        """Attention that writes its scores to memory."""
        sizes = self.sizes
        return float(
            roof.naive_attention_intensity(sizes.sequence_length, sizes.head_dim, ACTIVATION_BYTES)
        )

    def cached_attention(self, group: int = 1) -> float:
        """One token's attention to a cache of keys and values, a key head for `group` queries."""
        sizes = self.sizes
        return float(
            roof.decode_attention_intensity(
                sizes.sequence_length, sizes.head_dim, ACTIVATION_BYTES, group
            )
        )


# ---------------------------------------------------------------- points


def operators(accelerator: Accelerator, precision: Precision, sizes: Sizes) -> Iterator[Operator]:
    """Kernels of training and decoding, from compute-bound to bandwidth-bound."""
    kernels = _Kernels(accelerator, precision, sizes)
    yield from _training_operators(kernels)
    yield from _decoding_operators(kernels)
    for name, flops, reads in (
        ("softmax", roof.SOFTMAX_FLOPS, 1),
        ("norm", roof.NORM_FLOPS, 1),
        ("residual add", roof.ELEMENTWISE_FLOPS, 2),
    ):
        intensity = roof.streaming_intensity(flops, ACTIVATION_BYTES, reads)
        yield _operator(kernels, name, "", intensity, kernels.vector_peak, "vector")


def _operator(
    kernels: _Kernels, name: str, example: str, intensity: Numeric, peak: float,
    unit: Literal["tensor", "vector"] = "tensor",
) -> Operator:  # fmt: skip
    ridge = float(roof.ridge(peak, kernels.accelerator.hbm_bytes_per_second))
    return Operator(
        name=name,
        sizes=example,
        unit=unit,
        intensity=float(intensity),
        ridge=ridge,
        attainable_flops=kernels.attainable(intensity, peak),
        wall="compute" if intensity >= ridge else "bandwidth",
    )


def _training_operators(kernels: _Kernels) -> Iterator[Operator]:
    sizes, precision = kernels.sizes, kernels.precision
    peak, attention_peak = kernels.matmul_peak, kernels.attention_peak
    product = f"{sizes.tokens:,} × {sizes.hidden:,} × {sizes.columns:,}"
    yield _operator(kernels, "GEMM", product, kernels.gemm(precision), peak)
    if (expert := sizes.expert) is not None:
        intensity = roof.gemm_intensity(
            expert.rows, expert.columns, expert.inner, ELEMENT_BYTES[precision], ACTIVATION_BYTES
        )
        product = f"{expert.rows:,} × {expert.inner:,} × {expert.columns:,}, each expert"
        yield _operator(kernels, "expert GEMM", product, intensity, peak)
    heads = f"{sizes.sequence_length:,} tokens, heads of {sizes.head_dim}"
    shared, flash = kernels.accelerator.shared_memory_bytes, kernels.flash_attention()
    if shared is not None and flash is not None:
        with_memory = f"{heads}, {shared / 1024:,.0f} KiB of SRAM"
        yield _operator(kernels, "flash attention", with_memory, flash, attention_peak)
    yield _operator(kernels, "naive attention", heads, kernels.naive_attention(), attention_peak)
    if (mamba := sizes.mamba) is not None:
        state = (
            f"{mamba.num_heads} heads of {mamba.head_dim} × {mamba.state_size}, "
            f"chunks of {mamba.chunk_size}"
        )
        intensity = scan_intensity(mamba, ACTIVATION_BYTES)
        yield _operator(kernels, "state-space scan", state, intensity, attention_peak)


def _decoding_operators(kernels: _Kernels) -> Iterator[Operator]:
    sizes, precision, peak = kernels.sizes, kernels.precision, kernels.matmul_peak
    weights = f"{sizes.hidden:,} × {sizes.columns:,} weights"
    batched = kernels.decode(precision, DECODED_BATCH)
    yield _operator(kernels, f"decode, batch {DECODED_BATCH}", weights, batched, peak)
    yield _operator(
        kernels,
        "KV-cache attention",
        f"{sizes.sequence_length:,} tokens, {sizes.group} query heads per key head",
        kernels.cached_attention(sizes.group),
        kernels.attention_peak,
    )
    yield _operator(kernels, "decode, batch 1", weights, kernels.decode(precision), peak)


# ---------------------------------------------------------------- moves


def moves(accelerator: Accelerator, precision: Precision, sizes: Sizes) -> Iterator[Move]:
    """How the same work gets to a better point: precision, fusion, tiles, batch, heads."""
    kernels = _Kernels(accelerator, precision, sizes)
    yield from _precision_moves(kernels)
    # a residual add reads two tensors, a norm and a scale one; each writes one
    flops = (roof.ELEMENTWISE_FLOPS, roof.NORM_FLOPS, roof.ELEMENTWISE_FLOPS)
    moved = (3 * ACTIVATION_BYTES, 2 * ACTIVATION_BYTES, 2 * ACTIVATION_BYTES)
    saved = (ACTIVATION_BYTES, ACTIVATION_BYTES)
    yield _move(
        kernels, "add, norm, scale: three kernels → one",
        (roof.chain_intensity(flops, moved), roof.chain_intensity(flops, moved, saved)),
        (kernels.vector_peak, kernels.vector_peak),
    )  # fmt: skip
    attention_peaks = (kernels.attention_peak, kernels.attention_peak)
    if (flash := kernels.flash_attention()) is not None:
        intensities = (kernels.naive_attention(), flash)
        yield _move(kernels, "attention: naive → flash", intensities, attention_peaks)
    yield _move(
        kernels, f"decode: batch 1 → {DECODED_BATCH}",
        (kernels.decode(precision), kernels.decode(precision, DECODED_BATCH)),
        (kernels.matmul_peak, kernels.matmul_peak),
    )  # fmt: skip
    if sizes.group > 1:
        yield _move(
            kernels, f"KV-cache attention: a key head for 1 → {sizes.group} query heads",
            (kernels.cached_attention(), kernels.cached_attention(sizes.group)), attention_peaks,
        )  # fmt: skip


def _move(
    kernels: _Kernels, name: str, intensities: tuple[Numeric, Numeric], peaks: tuple[float, float]
) -> Move:
    """Intensities and peaks before and after."""
    before, after = (float(intensity) for intensity in intensities)
    return Move(
        name, before, after, kernels.attainable(before, peaks[0]),
        kernels.attainable(after, peaks[1]),
    )  # fmt: skip


def _precision_moves(kernels: _Kernels) -> Iterator[Move]:
    """Matmuls in fewer bits, where the accelerator has them."""
    now = kernels.precision
    lower: tuple[Precision, ...] = ("fp8", "fp4")
    for precision in lower:
        fewer_bytes = ELEMENT_BYTES[precision] < ELEMENT_BYTES[now]
        if precision not in kernels.accelerator.peak_flops or not fewer_bytes:
            continue
        names = f"{now.upper()} → {precision.upper()}"
        peaks = (kernels.matmul_peak, kernels.peak(precision))
        decode = (kernels.decode(now), kernels.decode(precision))
        yield _move(kernels, f"decode, batch 1: {names}", decode, peaks)
        gemm = (kernels.gemm(now), kernels.gemm(precision))
        yield _move(kernels, f"GEMM: {names}", gemm, peaks)
