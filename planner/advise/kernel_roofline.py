"""Kernels as points under the roof of an accelerator's memory, and what moves them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

from pydantic import computed_field

from planner.cost import roofline as roof
from planner.cost.statespace import scan_intensity
from planner.layouts.layout import Layout
from planner.planning.plan import Plan
from planner.problem.hardware import ELEMENT_BYTES, Accelerator, Precision
from planner.problem.pattern import Mamba
from planner.problem.scenario import Scenario

ACTIVATION_BYTES = 2.0
"""Bytes per element of activations and of matmul outputs, whatever the matmul's precision."""

DECODED_BATCH = 32
"""Sequences decoded together in the batched example."""


Wall = Literal["compute", "bandwidth", "latency"]


@dataclass(frozen=True, slots=True)
class Operator:
    """A class of kernels on HBM's roof: its unit's ridge, and what it can attain.

    `sizes` says which example was taken; nothing where any size gives the same.
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
class Sizes:
    """Sizes of the kernels that are placed as examples; tokens are those of one micro-batch."""

    tokens: int
    sequence_length: int
    hidden: int
    columns: int  # of the MLP's first product, on one rank
    head_dim: int
    group: int  # query heads per key-value head
    expert: tuple[int, int, int] | None = None  # an expert's first product: rows, inner, columns
    mamba: Mamba | None = None


REFERENCE = Sizes(8192, 8192, 8192, 8192, 128, 8)
"""Where no scenario says: a square product of 8192 and the heads of a 70B model."""


def sizes_of(scenario: Scenario, found: Plan) -> Sizes:
    """Sizes of a scenario's kernels under its plan; where none fits, on one rank."""
    model = scenario.model
    layout = found.layout or Layout()
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
        expert = (rows, model.expert_hidden_size, max(1, width))
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


def operators(part: Accelerator, precision: Precision, sizes: Sizes) -> Iterator[Operator]:
    """Kernels of training and decoding, from compute-bound to bandwidth-bound."""
    s, a = ELEMENT_BYTES[precision], ACTIVATION_BYTES
    sixteen = _sixteen(part)
    n, d = sizes.sequence_length, sizes.head_dim

    def placed(
        name: str, detail: str, intensity: float, peak: float, unit: str = "tensor"
    ) -> Operator:
        ridge = float(roof.ridge(peak, part.hbm_bytes_per_second))
        return Operator(
            name=name,
            sizes=detail,
            unit="vector" if unit == "vector" else "tensor",
            intensity=float(intensity),
            ridge=ridge,
            attainable_flops=float(roof.attainable(intensity, peak, part.hbm_bytes_per_second)),
            wall="compute" if intensity >= ridge else "bandwidth",
        )

    peak, vector = float(part.peak_flops[precision]), float(part.vector_flops)
    m, k, columns = sizes.tokens, sizes.hidden, sizes.columns
    yield placed(
        "GEMM", f"{m:,} × {k:,} × {columns:,}", roof.gemm_intensity(m, columns, k, s, a), peak
    )
    if sizes.expert is not None:
        rows, inner, width = sizes.expert
        intensity = roof.gemm_intensity(rows, width, inner, s, a)
        detail = f"{rows:,} × {inner:,} × {width:,}, each expert"
        yield placed("expert GEMM", detail, intensity, peak)
    if part.shared_memory_bytes is not None:
        sram = float(part.shared_memory_bytes) / a
        yield placed(
            "flash attention",
            f"{n:,} tokens, heads of {d}, {part.shared_memory_bytes / 1024:,.0f} KiB of SRAM",
            roof.flash_attention_intensity(n, d, sram, a),
            sixteen,
        )
    yield placed(
        "naive attention", f"{n:,} tokens, heads of {d}", roof.naive_attention_intensity(n, d, a),
        sixteen,
    )  # fmt: skip
    if sizes.mamba is not None:
        yield placed(
            "state-space scan",
            f"{sizes.mamba.num_heads} heads of {sizes.mamba.head_dim} × {sizes.mamba.state_size}, "
            f"chunks of {sizes.mamba.chunk_size}",
            scan_intensity(sizes.mamba, a),
            sixteen,
        )
    yield placed(
        f"decode, batch {DECODED_BATCH}",
        f"{k:,} × {columns:,} weights",
        roof.gemv_intensity(columns, k, s, DECODED_BATCH),
        peak,
    )
    yield placed(
        "KV-cache attention",
        f"{n:,} tokens, {sizes.group} query heads per key head",
        roof.decode_attention_intensity(n, d, a, sizes.group),
        sixteen,
    )
    yield placed(
        "decode, batch 1", f"{k:,} × {columns:,} weights", roof.gemv_intensity(columns, k, s), peak
    )
    for name, flops, reads in (
        ("softmax", roof.SOFTMAX_FLOPS, 1),
        ("norm", roof.NORM_FLOPS, 1),
        ("residual add", roof.ELEMENTWISE_FLOPS, 2),
    ):
        yield placed(name, "", roof.streaming_intensity(flops, a, reads), vector, "vector")


def _sixteen(part: Accelerator) -> float:
    """The 16-bit peak, or the first there is."""
    peaks = part.peak_flops
    return float(peaks.get("bf16") or peaks.get("fp16") or next(iter(peaks.values())))


def moves(part: Accelerator, precision: Precision, sizes: Sizes) -> Iterator[Move]:
    """The ways the same work gets to a better place: precision, fusion, tiles, batch, heads."""
    beta, a, s = float(part.hbm_bytes_per_second), ACTIVATION_BYTES, ELEMENT_BYTES[precision]
    m, k, columns = sizes.tokens, sizes.hidden, sizes.columns
    n, d = sizes.sequence_length, sizes.head_dim
    sixteen, vector = _sixteen(part), float(part.vector_flops)
    peak = float(part.peak_flops[precision])

    def move(name: str, before: float, after: float, first: float, second: float) -> Move:
        return Move(
            name,
            float(before),
            float(after),
            float(roof.attainable(before, first, beta)),
            float(roof.attainable(after, second, beta)),
        )

    lower: tuple[Precision, ...] = ("fp8", "fp4")
    for other in lower:
        if other not in part.peak_flops or ELEMENT_BYTES[other] >= s:
            continue
        names, to = f"{precision.upper()} → {other.upper()}", float(part.peak_flops[other])
        b = ELEMENT_BYTES[other]
        yield move(
            f"decode, batch 1: {names}",
            roof.gemv_intensity(columns, k, s), roof.gemv_intensity(columns, k, b), peak, to,
        )  # fmt: skip
        yield move(
            f"GEMM: {names}",
            roof.gemm_intensity(m, columns, k, s, a), roof.gemm_intensity(m, columns, k, b, a),
            peak, to,
        )  # fmt: skip
    flops = (roof.ELEMENTWISE_FLOPS, roof.NORM_FLOPS, roof.ELEMENTWISE_FLOPS)
    moved = (3 * a, 2 * a, 2 * a)  # residual add reads two tensors
    yield move(
        "add, norm, scale: three kernels → one",
        roof.chain_intensity(flops, moved), roof.chain_intensity(flops, moved, (a, a)),
        vector, vector,
    )  # fmt: skip
    if part.shared_memory_bytes is not None:
        sram = float(part.shared_memory_bytes) / a
        yield move(
            "attention: naive → flash",
            roof.naive_attention_intensity(n, d, a),
            roof.flash_attention_intensity(n, d, sram, a),
            sixteen, sixteen,
        )  # fmt: skip
    yield move(
        f"decode: batch 1 → {DECODED_BATCH}",
        roof.gemv_intensity(columns, k, s), roof.gemv_intensity(columns, k, s, DECODED_BATCH),
        peak, peak,
    )  # fmt: skip
    if sizes.group > 1:
        yield move(
            f"KV-cache attention: a key head for 1 → {sizes.group} query heads",
            roof.decode_attention_intensity(n, d, a),
            roof.decode_attention_intensity(n, d, a, sizes.group),
            sixteen, sixteen,
        )  # fmt: skip
