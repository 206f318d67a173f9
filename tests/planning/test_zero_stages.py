"""ZeRO where no states are shared, and searches that a restriction must never improve."""

from __future__ import annotations

from typing import Any

import pytest

import planner
from planner import api
from planner.planning.plan import Plan

JOB: dict[str, Any] = {
    "model": "llama3-8b",
    "topology": "dgx-h100",
    "num_accelerators": 8,
    "software": "torchtitan",
    "training": {
        "sequence_length": 8192, "global_batch_size": 16, "precision": "bf16", "optimizer": "adam",
    },
    "search": {"tie_fraction": 0, "mbs": [1, 2]},
}  # fmt: skip


def test_nothing_is_gathered_where_no_states_are_shared() -> None:
    """torchtitan applies no FSDP to a mesh of one rank: both stages are the same job."""
    second, third = (api.evaluate(JOB, f"tp=8,mbs=1,zero_stage={stage}") for stage in (2, 3))
    assert second.memory is not None and third.memory is not None
    assert third.memory.terms == second.memory.terms
    assert third.time == second.time


def value(plan: Plan, objective: str) -> float:
    if plan.layout is None:
        return float("inf")
    assert plan.memory is not None and plan.step_seconds is not None
    return plan.memory.peak_bytes if objective == "least_memory" else plan.step_seconds


@pytest.mark.slow
@pytest.mark.parametrize("objective", ["time", "least_memory"])
@pytest.mark.parametrize("model", ["llama3-8b", "qwen3-30b-a3b"])
def test_a_restricted_stage_is_never_better_than_all(model: str, objective: str) -> None:
    """With experts, tensor-parallel ranks may share experts' states and no others."""
    base = api.load_scenario(JOB, {
        "model": model, "search.objective": objective, "training.sequence_length": 4096,
        "search.tp": [4, 8],
    })  # fmt: skip
    free = value(planner.plan(base, top_k=1), objective)
    for stage in (2, 3):
        only = planner.plan(api.load_scenario(base, {"search.zero_stage": stage}), top_k=1)
        assert value(only, objective) >= free * (1 - 1e-12)
