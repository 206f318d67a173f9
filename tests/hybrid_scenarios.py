"""Problems with state-space layers: the toy's blocks one a layer, and a shipped hybrid."""

from __future__ import annotations

from functools import cache
from typing import Any

from planner.cost.context import CostContext
from planner.problem.blocks import Mamba
from planner.problem.model import Model
from tests.expert_scenarios import EVEN, experts, shipped_scenario, sparse_software
from tests.scenarios import context, model, small_model, training

PATTERN = "M-M*E-ME"
"""Three state-space layers, one that attends, two MLPs, two layers of experts."""


def mamba(**changes: Any) -> Mamba:
    """8 heads of 8 in 2 groups with a state of 4: 64 elements in, 152 projected, chunks of 16."""
    sizes = {"state_size": 4, "num_heads": 8, "head_dim": 8, "num_groups": 2, "chunk_size": 16}
    return Mamba(**(sizes | changes))


def hybrid_model(pattern: str = PATTERN, **changes: Any) -> Model:
    """The toy with one block a layer, as the pattern says."""
    blocks: dict[str, Any] = {"num_layers": len(pattern), "layer_pattern": pattern}
    if "M" in pattern:
        blocks["mamba"] = mamba()
    if "E" in pattern:
        blocks["moe"] = experts()
    return model(**(blocks | changes))


def hybrid_context(pattern: str = PATTERN, toy: Model | None = None, **parts: Any) -> CostContext:
    """The ideal job of a hybrid, evenly routed unless `training` is given."""
    usual: dict[str, Any] = {
        "model": toy or hybrid_model(pattern),
        "training": training(**EVEN),
        "software": sparse_software(),
    }
    return context(**(usual | parts))


def small_hybrid(pattern: str = "MEM*ME-E", **changes: Any) -> Model:
    """A hybrid that leaves a search something to choose: 8 state-space heads in 4 groups."""
    scans = mamba(state_size=64, head_dim=256, num_groups=4, chunk_size=64)
    usual: dict[str, Any] = {
        "num_layers": len(pattern), "layer_pattern": pattern, "mamba": scans,
        "moe": experts(expert_ffn_hidden_size=512),
    }  # fmt: skip
    return small_model(**(usual | changes))


@cache
def shipped_hybrid(name: str = "nemotron-3-super") -> CostContext:
    """A shipped hybrid on 16 nodes of H100s."""
    return CostContext.of(shipped_scenario(name, "dgx-h100", 128))
