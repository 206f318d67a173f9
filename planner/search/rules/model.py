"""Rules of models with a layer pattern, under all software."""

from __future__ import annotations

import numpy as np

from planner.cost.context import CostContext
from planner.frameworks.rule import MEGATRON, Rule, divides
from planner.layouts.layout import LayoutLike
from planner.layouts.numeric import Boolean, Integer

MEGATRON_SSM = "Megatron-LM core 0.16 megatron/core/ssm/"


def _cuts_state_heads(ctx: CostContext, x: LayoutLike) -> Boolean:
    """Whether tp divides state-space heads and their groups."""
    mamba = ctx.model.mamba
    return mamba is None or divides(x.tp, mamba.num_heads) & divides(x.tp, mamba.num_groups)


def _splits_state_heads(ctx: CostContext, x: LayoutLike) -> Boolean:
    """Whether an all-to-all over cp can give each rank its state-space heads, and groups or a group
    to several."""
    mamba = ctx.model.mamba
    if mamba is None:
        return True
    groups: Integer = np.maximum(mamba.num_groups // x.tp, 1)
    groups_split = divides(x.cp, groups) | divides(groups, x.cp)
    splits: Boolean = (np.asarray(x.cp) == 1) | (
        divides(x.tp * x.cp, mamba.num_heads) & groups_split
    )
    return splits


PATTERN_RULES = (
    Rule(
        "tp-divides-state-heads",
        "state-space heads and their groups are multiples of tp",
        MEGATRON_SSM + "mamba_mixer.py",
        ("tp",),
        _cuts_state_heads,
    ),
    Rule(
        "cp-divides-state-heads",
        "context parallelism splits state-space heads by all-to-all: they are a multiple of tp·cp, "
        "and the groups of a tp rank a multiple or a divisor of cp",
        MEGATRON_SSM + "mamba_context_parallel.py",
        ("cp", "tp"),
        _splits_state_heads,
    ),
    Rule(
        "patterns-exclude-virtual-stages",
        "models with a layer pattern have no virtual stages",
        MEGATRON_SSM + "mamba_block.py",
        ("vp",),
        lambda ctx, x: np.asarray(x.vp) == 1,
    ),
    Rule(
        "pattern-stages-even",
        "the layers of a pattern are a multiple of pp, unless stage_layers says how they are split",
        MEGATRON_SSM + "mamba_block.py",
        ("pp",),
        lambda ctx, x: x.stage_layers is not None or divides(x.pp, ctx.model.num_layers),
    ),
    Rule(
        "ep-overlap-needs-transformer-layers",
        "dispatch and combine run beside another micro-batch's passes in transformer layers alone, "
        "not in those of a layer pattern",
        MEGATRON + "; megatron/core/models/gpt/gpt_model.py build_schedule_plan",
        ("overlap",),
        lambda ctx, x: np.asarray(x.overlap_ep) == 0,
    ),
)
