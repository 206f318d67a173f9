"""Problems built in code: every builder takes keyword overrides, and its floats become figures.

`model`, `accelerator`, … are ideal, for arithmetic by hand: efficiencies 1, no latency, no
overhead, nothing overlaps, nothing but the model's states and activations takes memory. A test
spells out what it departs in. `small_model`, `small_accelerator`, … have losses everywhere and
sizes that leave a search something to choose. `lossy_context` has a loss of every kind at the
sizes of the ideal ones, for properties that must hold however the figures are. All figures are
made up.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import cache
from typing import Any

from planner import api
from planner.cost.context import CostContext
from planner.inputs.quantities import Figure
from planner.inputs.values import load
from planner.layouts.keys import SCHEDULES
from planner.layouts.layout import Layout
from planner.planning.plan import Plan
from planner.problem.hardware import Accelerator, AttentionCoefficients, GemmCoefficients, Host
from planner.problem.model import Model
from planner.problem.overheads import NUMBERS, Overheads
from planner.problem.scenario import Scenario
from planner.problem.software import AttentionKernels, Software, SoftwareCoefficients
from planner.problem.topology import Fabric, Tier, Topology
from planner.problem.training import Training

PEAK = 1e12
"""Dense 16-bit FLOP/s of the ideal accelerator; FP8 runs at twice that."""

BACKENDS = ("flash", "fused-softmax", "naive")
"""Attention that keeps no scores, that writes them once, that writes them in FP32 too."""

NO_LIMIT = 1e30
"""A rate that nothing waits for."""

SHIPPED_4D = ("llama3-70b-4d-h100x1024", "llama3-405b-4d-h100x16384")
"""Shipped scenarios whose plans use all of TP, CP, PP and DP."""


def figure(value: float) -> Figure:
    """A number of the tests' own."""
    return Figure(value, "test", "assumed")


def figures(values: Mapping[str, Any]) -> dict[str, Any]:
    """The values with every float as a figure."""
    return {
        name: figure(value) if isinstance(value, float) else value for name, value in values.items()
    }


# ---------------------------------------------------------------- ideal


def model(**changes: Any) -> Model:
    """8 layers, 4 heads of 8, a plain MLP of 4·hidden, RMSNorm, untied, no biases."""
    sizes: dict[str, Any] = {
        "name": "toy-model",
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
        "efficiency": 1.0, "k_half": 0.0, "tile_m": 1.0, "tile_n": 1.0, "overhead_seconds": 0.0,
    }  # fmt: skip
    return GemmCoefficients(**figures(ideal | changes))


def attention(**changes: float) -> AttentionCoefficients:
    """Attention at the peak from the first token on."""
    ideal = {"forward": 1.0, "backward": 1.0, "sequence_half": 0.0}
    return AttentionCoefficients(**figures(ideal | changes))


def accelerator(**changes: Any) -> Accelerator:
    """An accelerator of PEAK FLOP/s whose HBM never limits."""
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
    return Accelerator(**figures(ideal | changes))


def host(**changes: float) -> Host:
    """A host whose link and memory never limit."""
    ideal = {
        "link_bytes_per_second": NO_LIMIT, "link_efficiency": 1.0, "memory_bytes": NO_LIMIT,
        "memory_bytes_per_second": NO_LIMIT, "memory_efficiency": 1.0,
    }  # fmt: skip
    return Host(**figures(ideal | changes))


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
    return Fabric(**figures(ideal | changes))


def topology(
    fabrics: Sequence[Fabric] = (), widths: Sequence[int] = (8, 64), **changes: Any
) -> Topology:
    """Tiers of the given fabrics (by default of `fabric()`), inner to outer."""
    fabrics = fabrics or [fabric()] * len(widths)
    ideal: dict[str, Any] = {
        "name": "toy-cluster",
        "description": "test",
        "source": "test",
        "accelerator": accelerator(),
        "overheads": overheads(),
        "tiers": tuple(
            Tier(name=f"tier{t}", width=width, fabric=link)
            for t, (width, link) in enumerate(zip(widths, fabrics, strict=True))
        ),
    }
    return Topology(**(ideal | changes))


def overheads(**changes: float) -> Overheads:
    """A cluster whose ranks never wait for each other."""
    ideal: dict[str, Any] = dict.fromkeys(NUMBERS, 0.0)
    return Overheads(**figures({"name": "toy", "description": "test"} | ideal | changes))


def uniform_topology(**changes: Any) -> Topology:
    """Two tiers of one and the same fabric, ideal but for the changes."""
    return topology([fabric(**changes)] * 2)


def unlimited_topology() -> Topology:
    """Links that nothing waits for."""
    return uniform_topology(bytes_per_second=NO_LIMIT)


def software(coefficients: Mapping[str, float] | None = None, **changes: Any) -> Software:
    """A framework that allows everything, hides nothing and costs nothing."""
    ideal_coefficients = dict.fromkeys(SoftwareCoefficients.model_fields, 0.0)
    ideal_coefficients["memory_bound_multiplier"] = 1.0
    ideal_coefficients.update(coefficients or {})
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
        "cp_kinds": ("ring", "all_gather", "a2a", "hierarchical"),
        "offloads": ("optimizer", "activations", "optimizer+activations"),
        "gradient_bytes": 4.0,
        "logits_bytes": 10.0,
        "runtime_bytes": 1.0,
        "communicator_bytes": 1.0,
        "fragile_fraction": 0.0,
        "coefficients": SoftwareCoefficients(**figures(ideal_coefficients)),
    }
    return Software(**figures(ideal | changes))


def kernels(*names: str) -> AttentionKernels:
    """What a framework computes attention by."""
    return AttentionKernels.of(kernels=names, source="test", status="assumed")


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


def scenario(**changes: Any) -> Scenario:
    """The ideal job on all of its cluster."""
    cluster = changes.get("topology") or topology()
    ideal: dict[str, Any] = {
        "model": model(),
        "topology": cluster,
        "num_accelerators": cluster.num_accelerators,
        "training": training(),
        "software": software(),
    }
    return Scenario(**(ideal | changes))


def context(**changes: Any) -> CostContext:
    """The cost context of `scenario(**changes)`."""
    return CostContext.of(scenario(**changes))


def sized_for(ctx: CostContext, layout: Layout) -> CostContext:
    """The context with as many accelerators and sequences as the layout has."""
    sequences = layout.mbs * layout.num_microbatches * layout.dp
    return replace(
        ctx,
        num_accelerators=layout.num_ranks,
        training=ctx.training.replace(global_batch_size=sequences),
    )


# ---------------------------------------------------------------- lossy


def lossy_context(attention_backend: str = "flash", precision: str = "bf16") -> CostContext:
    """A context with a loss of every kind: tiles, ramps, latencies, overlap, host, stragglers; and
    every pipeline schedule."""
    matmuls = gemm(efficiency=0.8, k_half=16.0, tile_m=8.0, tile_n=8.0, overhead_seconds=1e-7)
    cores = attention(forward=0.6, backward=0.5, sequence_half=100.0)
    part = accelerator(
        hbm_bytes_per_second=1e11,
        hbm_bytes=2e6,
        hbm_efficiency=0.9,
        num_multiprocessors=4.0,
        sustained_fraction=0.9,
        gemm={"bf16": matmuls, "fp8": matmuls},
        attention=dict.fromkeys(BACKENDS, cores),
    )
    shares = {
        "efficiency": 0.8, "all_reduce_efficiency": 1.1, "all_to_all_efficiency": 0.7,
        "p2p_efficiency": 0.6, "ramp": 0.2,
    }  # fmt: skip
    waits = overheads(collective_seconds=1e-7, straggler_fraction_per_doubling=0.01)
    inner = fabric(
        bytes_per_second=4e10, base_seconds=1e-6, hop_seconds=2e-7, posting_seconds=2.5e-7, **shares
    )
    outer = fabric(
        bytes_per_second=5e9, base_seconds=2e-6, hop_seconds=1e-6, posting_seconds=5e-7, **shares
    )
    return context(
        model=model(num_layers=11, num_key_value_heads=2, gated_mlp=True, dropout=True),
        topology=topology([inner, outer, outer], (8, 8, 64), accelerator=part, overheads=waits),
        training=training(attention=attention_backend, precision=precision),
        software=software(
            {
                "tp_overlap_fraction": 0.3,
                "dp_overlap_fraction": 0.5,
                "pp_overlap_fraction": 0.4,
                "memory_bound_multiplier": 1.2,
                "host_seconds_per_kernel": 2e-7,
                "contention_fraction": 0.1,
                "unexplained_fraction": 0.01,
                "unexplained_seconds": 1e-5,
                "allocator_fraction": 0.05,
            },
            schedules=SCHEDULES,
            runtime_bytes=1e5,
            communicator_bytes=1e4,
            fragile_fraction=0.2,
        ),
    )


LOSSY = {(b, p): lossy_context(b, p) for b in BACKENDS for p in ("bf16", "fp8")}
"""Lossy contexts by attention backend and precision."""


# ---------------------------------------------------------------- small


def small_model(**changes: Any) -> Model:
    """4 layers of 1024, 8 heads on 4 key/value heads, a gated MLP."""
    sizes: dict[str, Any] = {
        "num_layers": 4,
        "hidden_size": 1024,
        "ffn_hidden_size": 4096,
        "num_attention_heads": 8,
        "num_key_value_heads": 4,
        "vocab_size": 32000,
        "gated_mlp": True,
    }
    return model(**(sizes | changes))


def small_accelerator(**changes: Any) -> Accelerator:
    """100 TFLOP/s and 32 GB."""
    matmuls = gemm(efficiency=0.8, k_half=64.0, tile_m=64.0, tile_n=64.0, overhead_seconds=2e-6)
    lossy: dict[str, Any] = {
        "peak_flops": {"bf16": 100e12},
        "vector_flops": 10e12,
        "hbm_bytes_per_second": 2e12,
        "hbm_bytes": 32e9,
        "num_multiprocessors": 100.0,
        "l2_bytes": 40e6,
        "hbm_efficiency": 0.9,
        "sustained_fraction": 0.95,
        "gemm": {"bf16": matmuls},
        "attention": {"flash": attention(forward=0.6, backward=0.5, sequence_half=256.0)},
    }
    return accelerator(**(lossy | changes))


def small_fabric(tier: int, **changes: Any) -> Fabric:
    """The fabric of a tier, counted from the inside; each is a fifth as fast as the last."""
    lossy: dict[str, Any] = {
        "name": f"link-{tier}",
        "kind": "network" if tier else "scale-up",
        "bytes_per_second": 200e9 / 5**tier,
        "base_seconds": 8e-6,
        "hop_seconds": 2e-6,
        "ramp": 0.3,
        "efficiency": 0.8,
        "all_reduce_efficiency": 0.8 if tier else 1.0,
        "all_to_all_efficiency": 0.7,
        "p2p_efficiency": 0.75,
    }
    return fabric(**(lossy | changes))


def small_topology(widths: Sequence[int] = (4, 4), **changes: Any) -> Topology:
    """Tiers of these widths, each with its `small_fabric`."""
    fabrics = [small_fabric(tier) for tier in range(len(widths))]
    lossy: dict[str, Any] = {
        "accelerator": small_accelerator(),
        "overheads": overheads(collective_seconds=3e-6, straggler_fraction_per_doubling=0.004),
    }
    return topology(fabrics, widths, **(lossy | changes))


def small_software(coefficients: Mapping[str, float] | None = None, **changes: Any) -> Software:
    """A framework that allows nearly everything, overlaps on."""
    lossy_coefficients = {
        "tp_overlap_fraction": 0.3,
        "dp_overlap_fraction": 0.5,
        "pp_overlap_fraction": 0.4,
        "memory_bound_multiplier": 1.1,
        "host_seconds_per_kernel": 2e-6,
        "contention_fraction": 0.05,
        "unexplained_seconds": 1e-3,
        "allocator_fraction": 0.05,
        **(coefficients or {}),
    }
    lossy: dict[str, Any] = {
        "recompute": ("none",),
        "cp_kinds": ("ring",),
        "overlap": ("tp", "dp", "pp"),
        "runtime_bytes": 1e9,
        "communicator_bytes": 1e8,
        "fragile_fraction": 0.08,
    }
    return software(lossy_coefficients, **(lossy | changes))


def small_training(**changes: Any) -> Training:
    """Sequences of 2048 tokens, 16 of them a step."""
    usual = {"sequence_length": 2048, "global_batch_size": 16, "attention": "auto"}
    return training(**(usual | changes))


def small_scenario(num_accelerators: int = 16, **changes: Any) -> Scenario:
    """The small model on the small cluster."""
    usual: dict[str, Any] = {
        "num_accelerators": num_accelerators,
        "model": small_model(),
        "topology": small_topology(),
        "training": small_training(),
        "software": small_software(),
    }
    return scenario(**(usual | changes))


def with_accelerator(scenario: Scenario, **changes: float) -> Scenario:
    """The scenario with some figures of its accelerator changed."""
    part = scenario.topology.accelerator.replace(**figures(changes))
    return scenario.replace(topology=scenario.topology.replace(accelerator=part))


# ---------------------------------------------------------------- shipped, planned


@cache
def shipped_software(name: str) -> Software:
    return load(name, "software", Software)


@cache
def shipped_plan(name: str) -> Plan:
    """The plan of a shipped scenario."""
    return api.plan(api.load_scenario(name))


def objective(scenario: Scenario) -> float:
    """Step seconds of the best layout and placement."""
    plan = api.plan(scenario, top_k=1)
    assert plan.objective_seconds is not None
    return plan.objective_seconds
