"""Small scenarios built in code, with figures that make arithmetic by hand easy.

By default everything is ideal: efficiencies 1, no latency, no overhead, nothing overlaps, nothing
but the model's states and activations takes memory. A test spells out what it departs in.
`worldly` has losses everywhere, for properties that must hold however the figures are.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from math import prod
from typing import Any

import numpy as np
from hypothesis import strategies as st

from planner.cost.context import CostContext
from planner.layout import ATOMS, CP_KINDS, GROUPS, RECOMPUTE, Layout
from planner.problem.hardware import (
    Accelerator,
    AttentionCoefficients,
    GemmCoefficients,
)
from planner.problem.model import Model
from planner.problem.quantities import Figure
from planner.problem.scenario import Scenario
from planner.problem.software import Software, SoftwareCoefficients
from planner.problem.topology import Fabric, Tier, Topology
from planner.problem.training import Training

PEAK = 1e12
"""Dense 16-bit FLOP/s of the part; FP8 runs at twice that."""

BACKENDS = ("flash", "fused-softmax", "naive")
"""Attention that keeps no scores, that writes them once, that writes them in FP32 too."""

NO_LIMIT = 1e30
"""A rate that nothing waits for."""


def figure(value: float) -> Figure:
    """A number of the tests' own."""
    return Figure(value, "test", "assumed")


def figures(values: Mapping[str, float]) -> dict[str, Figure]:
    return {name: figure(value) for name, value in values.items()}


def model(**changes: Any) -> Model:
    """8 layers, 4 heads of 8, a plain MLP of 4·hidden, RMSNorm, untied, no biases."""
    sizes: dict[str, Any] = {
        "name": "toy",
        "source": "test",
        "num_layers": 8,
        "hidden_size": 32,
        "ffn_hidden_size": 128,
        "num_attention_heads": 4,
        "vocab_size": 64,
        "gated_mlp": False,
        "tied_embeddings": False,
        "norm": "rmsnorm",
    }
    return Model(**(sizes | changes))


def gemm(**changes: float) -> GemmCoefficients:
    """Matmuls at the peak: tiles of one element on one multiprocessor never stick out."""
    ideal = {
        "efficiency": 1.0,
        "k_half": 0.0,
        "tile_m": 1.0,
        "tile_n": 1.0,
        "overhead_seconds": 0.0,
    }
    return GemmCoefficients(**figures(ideal | changes))


def attention(**changes: float) -> AttentionCoefficients:
    """Attention at the peak from the first token on."""
    ideal = {"forward": 1.0, "backward": 1.0, "sequence_half": 0.0}
    return AttentionCoefficients(**figures(ideal | changes))


def accelerator(**changes: Any) -> Accelerator:
    """A part of PEAK FLOP/s whose HBM never limits; numbers become figures."""
    peaks = changes.pop("peak_flops", {"bf16": PEAK, "fp8": 2 * PEAK})
    ideal: dict[str, Any] = {
        "name": "toy-part",
        "peak_flops": figures(peaks),
        "vector_flops": 1e11,
        "hbm_bytes_per_second": NO_LIMIT,
        "hbm_bytes": 1e11,
        "num_multiprocessors": 1.0,
        "l2_bytes": 1e6,
        "hbm_efficiency": 1.0,
        "sustained_fraction": 1.0,
        "gemm": {precision: gemm() for precision in peaks},
        "attention": {name: attention() for name in BACKENDS},
    }
    return Accelerator(**_with_figures(ideal | changes))


def fabric(**changes: Any) -> Fabric:
    """A link of 1 byte per second and no latency, so that busy seconds are bytes."""
    ideal: dict[str, Any] = {
        "name": "toy-link",
        "kind": "scale-up",
        "bytes_per_second": 1.0,
        "base_seconds": 0.0,
        "hop_seconds": 0.0,
        "ramp": 0.0,
        "efficiency": 1.0,
        "all_reduce_efficiency": 1.0,
        "all_to_all_efficiency": 1.0,
        "p2p_efficiency": 1.0,
    }
    return Fabric(**_with_figures(ideal | changes))


def topology(
    fabrics: Sequence[Fabric] = (), widths: Sequence[int] = (8, 64), part: Accelerator | None = None
) -> Topology:
    """Tiers of the given fabrics (by default of `fabric()`), inner to outer."""
    fabrics = fabrics or [fabric()] * len(widths)
    tiers = tuple(
        Tier(name=f"tier{t}", width=width, fabric=link)
        for t, (width, link) in enumerate(zip(widths, fabrics, strict=True))
    )
    return Topology(
        name="toy-cluster",
        description="test",
        source="test",
        accelerator=part or accelerator(),
        tiers=tiers,
    )


def software(coefficients: Mapping[str, float] | None = None, **changes: Any) -> Software:
    """A framework that allows everything, hides nothing and costs nothing."""
    ideal_coefficients: dict[str, float] = {
        "tp_overlap_fraction": 0.0,
        "dp_overlap_fraction": 0.0,
        "pp_overlap_fraction": 0.0,
        "memory_bound_multiplier": 1.0,
        "host_seconds_per_kernel": 0.0,
        "straggler_fraction_per_doubling": 0.0,
        "step_overhead_seconds": 0.0,
        "allocator_fraction": 0.0,
        **(coefficients or {}),
    }
    ideal: dict[str, Any] = {
        "name": "toy-software",
        "description": "test",
        "rules": (),
        "orders": {"tp-cp-dp-pp": ("tp", "cp", "dp", "pp")},
        "schedules": ("1f1b", "interleaved"),
        "zero_stages": (0, 1, 2, 3),
        "shard_groups": "any",
        "recompute": ("none", "selective", "full"),
        "sequence_parallel": "optional",
        "overlap": (),
        "cp_kind": "ring",
        "gradient_bytes": 4.0,
        "logits_bytes": 10.0,
        "runtime_bytes": 1.0,
        "communicator_bytes": 1.0,
        "fragile_fraction": 0.0,
        "coefficients": SoftwareCoefficients(**figures(ideal_coefficients)),
    }
    return Software(**_with_figures(ideal | changes))


def training(**changes: Any) -> Training:
    """Sequences of 64 tokens, 8 of them a step, in BF16."""
    usual: dict[str, Any] = {
        "sequence_length": 64,
        "global_batch_size": 8,
        "precision": "bf16",
        "optimizer": "adam",
        "attention": "flash",
    }
    return Training(**(usual | changes))


def scenario(**parts: Any) -> Scenario:
    """A scenario of the parts given by name, the rest ideal."""
    cluster = parts.get("topology") or topology()
    usual: dict[str, Any] = {
        "model": model(),
        "topology": cluster,
        "num_accelerators": cluster.num_accelerators,
        "training": training(),
        "software": software(),
    }
    return Scenario(**(usual | parts))


def context(**parts: Any) -> CostContext:
    """The cost context of `scenario(**parts)`."""
    return CostContext.of(scenario(**parts))


def worldly(attention_backend: str = "flash", precision: str = "bf16") -> CostContext:
    """A context with a loss of every kind: tiles, ramps, latencies, overlap, host, stragglers."""
    losses = {
        "efficiency": 0.8,
        "k_half": 16.0,
        "tile_m": 8.0,
        "tile_n": 8.0,
        "overhead_seconds": 1e-7,
    }
    part = accelerator(
        hbm_bytes_per_second=1e11,
        hbm_bytes=2e6,
        hbm_efficiency=0.9,
        num_multiprocessors=4.0,
        sustained_fraction=0.9,
        gemm={"bf16": gemm(**losses), "fp8": gemm(**losses)},
        attention={
            name: attention(forward=0.6, backward=0.5, sequence_half=100.0) for name in BACKENDS
        },
    )
    shares = {
        "efficiency": 0.8,
        "all_reduce_efficiency": 1.1,
        "all_to_all_efficiency": 0.7,
        "p2p_efficiency": 0.6,
        "ramp": 0.2,
    }
    inner = fabric(bytes_per_second=4e10, base_seconds=1e-6, hop_seconds=2e-7, **shares)
    outer = fabric(bytes_per_second=5e9, base_seconds=2e-6, hop_seconds=1e-6, **shares)
    return context(
        model=model(num_layers=11, num_key_value_heads=2, gated_mlp=True, dropout=True),
        topology=topology([inner, outer, outer], (8, 8, 64), part),
        training=training(attention=attention_backend, precision=precision),
        software=software(
            {
                "tp_overlap_fraction": 0.3,
                "dp_overlap_fraction": 0.5,
                "pp_overlap_fraction": 0.4,
                "memory_bound_multiplier": 1.2,
                "host_seconds_per_kernel": 2e-7,
                "straggler_fraction_per_doubling": 0.01,
                "step_overhead_seconds": 1e-5,
                "allocator_fraction": 0.05,
            },
            logits_bytes=10.0,
            runtime_bytes=1e5,
            communicator_bytes=1e4,
            fragile_fraction=0.2,
        ),
    )


def of_job(ctx: CostContext, layout: Layout) -> CostContext:
    """The context with as many accelerators and sequences as the layout has."""
    sequences = layout.mbs * layout.num_microbatches * layout.dp
    return replace(
        ctx,
        num_accelerators=layout.num_ranks,
        training=ctx.training.replace(global_batch_size=sequences),
    )


def inside(layout: Layout, num_tiers: int = 2) -> dict[str, list[float]]:
    """Splits of a layout that lives in the innermost tier alone."""
    sizes = {name: prod(getattr(layout, a) for a in atoms) for name, atoms in GROUPS.items()}
    return {name: [float(size), *[1.0] * (num_tiers - 1)] for name, size in sizes.items()}


# ---------------------------------------------------------------- hypothesis

DEGREES = st.sampled_from([1, 1, 2, 3, 4, 8])


@st.composite
def layouts(draw: st.DrawFn, num_layers: int = 11) -> Layout:
    """Any layout whose every chunk has a layer; frameworks may forbid it."""
    tp, pp = draw(DEGREES), draw(DEGREES)
    vp = draw(st.integers(1, num_layers // pp)) if pp > 1 else 1
    return Layout(
        tp=tp,
        cp=draw(DEGREES),
        pp=pp,
        dp_shard=draw(DEGREES),
        dp_replicate=draw(DEGREES),
        vp=vp,
        mbs=draw(st.integers(1, 4)),
        num_microbatches=draw(st.integers(1, 40)),
        zero_stage=draw(st.integers(0, 3)),
        sp=draw(st.booleans()) and tp > 1,
        recompute=draw(st.sampled_from(RECOMPUTE)),
        cp_kind=draw(st.sampled_from(CP_KINDS)),
        overlap=draw(st.sampled_from(["none", "tp", "dp", "pp", "tp+dp", "dp+pp", "tp+dp+pp"])),
    )


@st.composite
def placed(draw: st.DrawFn, num_tiers: int = 3) -> tuple[Layout, dict[str, list[float]]]:
    """A layout and the splits of its groups when every prime of a degree takes any tier."""
    layout = draw(layouts())
    factors = {atom: [1.0] * num_tiers for atom in ATOMS}
    for atom in ATOMS:
        for prime in _primes(getattr(layout, atom)):
            factors[atom][draw(st.integers(0, num_tiers - 1))] *= prime
    return layout, {
        name: np.prod([factors[atom] for atom in atoms], axis=0).tolist()
        for name, atoms in GROUPS.items()
    }


def _primes(number: int) -> list[int]:
    for prime in range(2, number + 1):
        if number % prime == 0:
            return [prime, *_primes(number // prime)]
    return []


def _with_figures(values: dict[str, Any]) -> dict[str, Any]:
    return {
        name: figure(value) if isinstance(value, float) else value for name, value in values.items()
    }
