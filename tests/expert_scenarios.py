"""Problems with experts: the toy's layers with some, and shipped models on shipped clusters."""

from __future__ import annotations

from functools import cache
from typing import Any

from planner.cost.context import CostContext
from planner.inputs.values import load
from planner.layouts.keys import SCHEDULES
from planner.problem.blocks import MLA, MoE
from planner.problem.model import Model
from planner.problem.scenario import Scenario
from planner.problem.software import Software
from planner.problem.topology import Topology
from tests.scenarios import context, model, software, training

EVEN = {"expert_load_variation": 0.0}
"""Training whose routers leave no rank with more rows than another."""

LATENT = MLA(q_lora_rank=24, kv_lora_rank=16, qk_nope_head_dim=8, qk_rope_head_dim=4, v_head_dim=6)


def experts(**changes: Any) -> MoE:
    """8 experts of 64, of which a token visits 2."""
    return MoE(**({"num_experts": 8, "top_k": 2, "expert_ffn_hidden_size": 64} | changes))


def sparse_model(**changes: Any) -> Model:
    """The toy with experts in every layer."""
    return model(**({"moe": experts()} | changes))


def sparse_software(coefficients: Any = None, **changes: Any) -> Software:
    """The toy's framework with every dispatcher."""
    able = {"dispatchers": ("alltoall", "flex", "allgather")}
    return software(coefficients, **(able | changes))


def sparse_context(moe: MoE | None = None, toy: Model | None = None, **parts: Any) -> CostContext:
    """The ideal job of the toy with experts, evenly routed unless `training` is given."""
    given = toy or sparse_model()
    usual: dict[str, Any] = {
        "model": given.replace(moe=moe) if moe else given,
        "training": training(**EVEN),
        "software": sparse_software(),
    }
    return context(**(usual | parts))


@cache
def staged_context(
    num_layers: int, reserved: tuple[int, int] = (0, 0), leading: int = 0, only_1f1b: bool = False
) -> CostContext:
    """The ideal job of so many layers, of which the first are dense and the others have experts
    where `leading` is given; what the ends hold besides counts as `reserved` layers."""
    leading = min(leading, num_layers - 1)
    toy = model(num_layers=num_layers)
    if leading:
        toy = toy.replace(moe=experts(num_dense_layers=leading))
    schedules = ("1f1b", "interleaved") if only_1f1b else SCHEDULES
    return context(model=toy, software=software(schedules=schedules, layers_at_ends=reserved))


def shipped_scenario(
    name: str, topology: str, num_accelerators: int, software_name: str = "megatron-core",
    **changes: Any,
) -> Scenario:  # fmt: skip
    """A shipped model on a shipped cluster: sequences of 4096 tokens, 1024 a step, in BF16."""
    given = {"sequence_length": 4096, "global_batch_size": 1024, "attention": "auto"}
    return Scenario(
        model=load(name, "model", Model),
        topology=load(topology, "topology", Topology),
        num_accelerators=num_accelerators,
        training=training(**(given | changes)),
        software=load(software_name, "software", Software),
    )


@cache
def shipped_context(name: str) -> CostContext:
    """Two shipped models of other make: with and without latent attention and shared experts.

    Under Megatron-Core as it would be with every pipeline schedule.
    """
    clusters = {"deepseek-v3": ("gb300-nvl72", 256), "qwen3-30b-a3b": ("dgx-h100", 16)}
    scenario = shipped_scenario(name, *clusters[name])
    software = scenario.software.replace(schedules=SCHEDULES)
    return CostContext.of(scenario.replace(software=software))


SHIPPED = ("deepseek-v3", "qwen3-30b-a3b")
