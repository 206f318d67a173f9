"""What a step waits for: its seconds by cause, and the regime that follows.

The ledger begins with the model's FLOPs at the dense peak. Each further entry is what would be
saved if only its cause went away: HBM time is what unlimited memory bandwidth saves, a kernel's
loss what is left above its FLOPs at the sustained peak. Entries sum to the step.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from planner.advise.baseline import Baseline, hypothetical, with_hbm_faster
from planner.cost import flops, step
from planner.cost.context import CostContext

REGIMES: Mapping[str, tuple[str, ...]] = {
    "compute": ("model_flops", "extra_flops", "clocks"),
    "kernel": ("kernels",),
    "memory": ("hbm",),
    "communication": ("tp", "cp", "ep", "pp", "dp"),
    "bubble": ("bubble", "stage_imbalance"),
    "host": ("host",),
    "straggler": ("straggler",),
    "unexplained": ("unexplained",),
}
"""Entries of the ledger by what the step waits for."""

METRICS: Mapping[str, str] = {
    "compute": "mfu",
    "kernel": "kernel_efficiency",
    "memory": "hbm_utilisation",
    "communication": "busbw",
    "bubble": "bubble_fraction",
    "host": "host_fraction",
    "straggler": "straggler_fraction",
    "unexplained": "unexplained_fraction",
}
"""The metric that tells how well a step of each regime runs."""

KERNEL_TERMS = (
    "compute_gemm", "compute_attention", "compute_memory_bound", "recompute", "loss", "optimizer",
    "offload",
)  # fmt: skip
"""Terms of time in which kernels compute or stream."""

NO_LIMIT = 1e30
"""A rate that nothing waits for."""


@dataclass(frozen=True, slots=True)
class Regime:
    """What the step waits for.

    ledger: seconds of the step by cause. shares: fractions of the step by regime; `name` has the
    largest, `share`. group: the one with the most exposed traffic. metric: the one that tells how
    well such a step runs; metrics: predictions of all.
    """

    name: str
    share: float
    group: str | None
    shares: Mapping[str, float]
    ledger: Mapping[str, float]
    metric: str
    metrics: Mapping[str, float | None]


def regime(base: Baseline) -> Regime:
    """The ledger of a plan's step, what it waits for most, and the metric for that."""
    entries, total = ledger(base), base.step_seconds
    shares = {
        name: sum(entries[cause] for cause in causes) / total for name, causes in REGIMES.items()
    }
    name = max(shares, key=lambda regime: shares[regime])
    groups = base.plan.groups
    group = max(groups, key=lambda g: groups[g].exposed_seconds, default=None)
    at_peak = entries["model_flops"] + entries["extra_flops"]
    kernels = at_peak + entries["clocks"] + entries["kernels"]
    metrics = {
        "mfu": base.plan.mfu,
        "hfu": base.plan.hfu,
        "kernel_efficiency": at_peak / kernels,
        "hbm_utilisation": hbm_utilisation(base),
        "busbw": None if group is None else groups[group].busbw,
        "bubble_fraction": shares["bubble"],
        "host_fraction": shares["host"],
        "straggler_fraction": shares["straggler"],
        "unexplained_fraction": shares["unexplained"],
    }
    return Regime(name, shares[name], group, shares, entries, METRICS[name], metrics)


def ledger(base: Baseline) -> dict[str, float]:
    """Seconds of the step by cause; they sum to the step.

    model_flops: the model's FLOPs at the dense peak, MFU's share.
    extra_flops: recompute, what flash attention repeats, and what runs in 16 bits under a faster
        precision.
    clocks: the share of the peak that clocks under load do not keep.
    kernels: tiles, waves, ramps and starts.
    hbm: kernels that wait for memory.
    tp … dp: exposed communication. The others are those of the plan's time.
    """
    ctx, layout = base.ctx, base.layout
    terms = _terms(ctx, base)
    streaming = kernel_seconds(ctx, base)
    working = kernel_seconds(with_hbm_faster(ctx, NO_LIMIT), base)
    layers = flops.forward_flops_per_token(ctx).layers
    # a backward pass has twice the matmuls of a forward pass
    passes = 3.0 + float(flops.recomputed_matmuls(ctx, layout))
    main = flops.tokens_per_step(ctx) * layers * passes
    sixteen = float(flops.executed_flops(ctx, layout)) - main
    n = ctx.num_accelerators
    at_peak = (main / ctx.peak_flops + sixteen / ctx.peak_16_flops) / n
    model = flops.model_flops(ctx) / (n * ctx.peak_flops)
    sustained = at_peak * ctx.peak_flops / ctx.sustained_flops
    return {
        "model_flops": model,
        "extra_flops": at_peak - model,
        "clocks": sustained - at_peak,
        "kernels": working - sustained,
        "hbm": streaming - working,
        **{name: terms[name] for name in REGIMES["communication"]},
        **{name: terms[name] for name in ("bubble", "stage_imbalance", "host")},
        **{name: terms[name] for name in ("straggler", "unexplained")},
    }


def hbm_utilisation(base: Baseline) -> float:
    """Share of HBM's bandwidth that a step uses, but for flash attention's own small traffic."""
    ctx = base.ctx
    unlimited = replace(
        ctx,
        sustained_flops=NO_LIMIT,
        sustained_16_flops=NO_LIMIT,
        gemm=ctx.gemm.replace(overhead_seconds=hypothetical(0.0)),
        gemm_16=ctx.gemm_16.replace(overhead_seconds=hypothetical(0.0)),
    )
    moved = kernel_seconds(unlimited, base) * ctx.hbm_bytes_per_second
    return moved / (base.step_seconds * float(ctx.accelerator.hbm_bytes_per_second))


def kernel_seconds(ctx: CostContext, base: Baseline) -> float:
    """Seconds of a step in which kernels compute or stream, without traffic between ranks."""
    terms = _terms(ctx, base)
    return sum(terms[name] for name in KERNEL_TERMS)


def _terms(ctx: CostContext, base: Baseline) -> dict[str, float]:
    """Seconds of the step by term of time."""
    terms = step.evaluate(ctx, base.layout, base.splits)
    return {name: float(getattr(terms, name)) for name in terms.__dataclass_fields__}
