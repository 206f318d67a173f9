"""A plan with made-up but consistent figures: 405B on 16 384 accelerators."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from planner.layouts.layout import Layout
from planner.planning.plan import (
    GroupReport,
    MemoryReport,
    MfuDenominator,
    Plan,
    RunnerUp,
    SearchReport,
    Swap,
)
from planner.problem.scenario import inputs_sha256, load_scenario, scenario_to_document

SCENARIO = "llama3-405b-h100x16384"

LAYOUT = Layout(
    tp=8, pp=16, dp_shard=128, vp=2, mbs=1, num_microbatches=16, sp=True, overlap="tp+dp+pp"
)

RUNNERS_UP = ((4, "none", 0.0004), (1, "none", 0.031), (1, "selective", 0.092))

TIME = {
    "compute_gemm": 3.2, "compute_attention": 0.31, "compute_memory_bound": 0.4,
    "recompute": 0.0, "loss": 0.011, "tp": 0.45, "cp": 0.0, "ep": 0.0, "pp": 0.02, "dp": 0.1,
    "optimizer": 0.012, "host": 0.02, "stage_imbalance": 0.05, "bubble": 1.3, "straggler": 0.33,
}  # fmt: skip

TERMS = {
    "parameters": 6.4e9, "gradients": 12.8e9, "optimizer": 0.3e9, "activations": 43e9,
    "logits": 1.3e9, "buffers": 0.3e9, "runtime": 1.6e9, "allocator": 3.2e9,
}  # fmt: skip

MEMORY = MemoryReport(
    terms=TERMS,
    peak_bytes=68.9e9,
    capacity_bytes=85.52e9,
    verdict="fits",
    worst_stage=0,
    by_stage=tuple(
        {"stage": i, "layers": 8, "peak_bytes": (68.9 - i) * 1e9}
        | TERMS
        | {"activations": (43 - i) * 1e9}
        for i in range(16)
    ),
)


def group(
    members: int, split: dict[str, float], size: float, busy: float, **more: Any
) -> GroupReport:
    """A group that moves `size` bytes over the outermost tier it crosses."""
    tier = [name for name, factor in split.items() if factor > 1][-1]
    ridge = {"nvlink": 2200.0, "leaf": 19790.0, "spine": 19790.0}[tier]
    values: dict[str, Any] = {
        "members": members, "bytes": size, "flops": 2.6e15, "intensity": 2.6e15 / size,
        "exposed_intensity": None, "busy_seconds": busy, "exposed_seconds": 0.1 * busy,
        "latency_seconds": 1e-3, "split": split, "wall": "bandwidth", "busbw": size / busy,
        "tiers": {tier: {"bytes": size, "busy_seconds": busy, "ridge": ridge}},
    }  # fmt: skip
    return GroupReport(**values | more)


def fabricated_plan() -> Plan:
    """The plan; a document of it has every part a report can show."""
    document = scenario_to_document(load_scenario(SCENARIO))
    step = sum(TIME.values())
    tokens = 2048 * 8192
    return Plan(
        inputs=document,
        inputs_sha256=inputs_sha256(document),
        status="optimal",
        attention="flash",
        objective_seconds=step - 0.01,
        bound_seconds=step - 0.01,
        gap_fraction=0.0,
        step_seconds=step,
        mfu=0.412,
        mfu_denominator=MfuDenominator("h100", "bf16", 989.5e12),
        mfu_bf16=0.412,
        hfu=0.437,
        tokens_per_second=tokens / step,
        tokens_per_second_per_accelerator=tokens / step / 16384,
        layout=LAYOUT,
        fill={"nvlink": 8, "leaf": 32, "spine": 64},
        placement={
            "tp": {"nvlink": 8, "leaf": 1, "spine": 1},
            "cp": {"nvlink": 1, "leaf": 1, "spine": 1},
            "dp_shard": {"nvlink": 1, "leaf": 32, "spine": 4},
            "dp_replicate": {"nvlink": 1, "leaf": 1, "spine": 1},
            "pp": {"nvlink": 1, "leaf": 1, "spine": 16},
        },
        rank_order=(("tp", 8), ("cp", 1), ("dp_shard", 128), ("dp_replicate", 1), ("pp", 16)),
        rank_order_name="tp-cp-dp-pp",
        custom_order_gain_fraction=0.0016,
        time=TIME,
        memory=MEMORY,
        groups={
            "tp": group(8, {"nvlink": 8, "leaf": 1, "spine": 1}, 4.1e11, 1.2),
            "cp": replace(group(2, {"nvlink": 2, "leaf": 1, "spine": 1}, 1e9, 1e-3), members=1),
            "shard": group(128, {"nvlink": 1, "leaf": 32, "spine": 4}, 3.8e10, 0.92,
                           exposed_intensity=6.1e5, wall="compute"),
            "pp": group(16, {"nvlink": 1, "leaf": 1, "spine": 16}, 1.3e10, 0.31,
                        exposed_intensity=2.0e6, wall="latency"),
        },
        swaps=(
            Swap(("tp", "dp_shard"), 12.4),
            Swap(("tp", "pp"), 20.1),
            Swap(("dp_shard", "pp"), 0.04),
            Swap(("tp", "cp"), None),
        ),
        search=SearchReport(
            shapes=4530, placements=560, opened=2, seconds=0.081, cpu_seconds=0.09,
            excluded={"tp-divides-heads": 120, "memory": 3011, "microbatches-fill-pipeline": 88},
            rule_texts={
                "tp-divides-heads": "attention heads are a multiple of tp",
                "memory": "it does not fit in memory",
                "microbatches-fill-pipeline": "a pipeline needs at least pp micro-batches",
            },
        ),
        runners_up=tuple(
            RunnerUp(
                layout=replace(LAYOUT, vp=vp, recompute=recompute),
                rank_order=(("tp", 8), ("dp_shard", 128), ("pp", 16)),
                step_seconds=step * (1 + loss),
                loss_fraction=loss,
                terms={"bubble": 0.7 * loss * step, "tp": 0.2 * loss * step, "host": 1e-5,
                       "recompute": 0.1 * loss * step, "compute_memory_bound": -0.02 * loss * step},
            )
            for vp, recompute, loss in RUNNERS_UP
        ),
        warnings=("The spine of this topology is wider than any published machine.",),
    )  # fmt: skip


def infeasible_plan() -> Plan:
    """No layout fits: the nearest miss and what would help."""
    return Plan(
        inputs=fabricated_plan().inputs,
        inputs_sha256="0" * 64,
        status="infeasible",
        attention="flash",
        search=fabricated_plan().search,
        nearest_miss={
            "layout": LAYOUT.to_document(), "over_bytes": 5.7e9, "stage": 0, "term": "activations",
        },
        relaxations=(
            {"change": {"search.recompute": None}, "layouts_that_fit": 12, "peak_bytes": 61e9},
            {"change": {"num_accelerators": 32768}, "layouts_that_fit": 1, "peak_bytes": 80e9},
        ),
    )  # fmt: skip
