"""Rules of how context parallelism cuts sequences, documents and heads, under all software."""

from __future__ import annotations

import numpy as np

from planner.cost.context import CostContext
from planner.frameworks.rule import Rule, divides
from planner.layouts.keys import CP_KINDS
from planner.layouts.layout import LayoutLike
from planner.layouts.numeric import Integer


def _all_to_all_ranks(x: LayoutLike) -> Integer:
    """Context-parallel ranks that trade heads for tokens by all-to-all: all, some, or 1."""
    every_rank = np.asarray(x.cp_kind_index) == CP_KINDS.index("a2a")
    return np.where(every_rank, x.cp, x.cp_a2a)


def a2a_sizes(ctx: CostContext, tp: int, cp: int) -> list[int]:
    """Inner degrees of hierarchical context parallelism that heads and cp allow."""
    heads = ctx.model.num_key_value_heads
    return [a for a in range(2, cp) if cp % a == 0 and heads % (tp * a) == 0]


CONTEXT_RULES = (
    Rule(
        "cp-fits-documents",
        "cutting documents over cp needs 2·cp tokens in each, so that each balances",
        "Transformer Engine pytorch/attention/dot_product_attention/context_parallel.py (THD: "
        "every document is padded to a multiple of 2·cp)",
        ("cp", "cp_kind"),
        lambda ctx, x: (
            (np.asarray(x.cp_kind_index) == CP_KINDS.index("a2a"))
            | (2 * x.cp <= ctx.training.document_length)
        ),
    ),
    Rule(
        "a2a-divides-heads",
        "cp_kind a2a needs the key/value heads of a tp rank to be a multiple of cp, hierarchical "
        "of cp_a2a",
        "DeepSpeed-Ulysses (arXiv 2309.14509); Transformer Engine pytorch/attention/"
        "dot_product_attention/context_parallel.py, which repeats no heads",
        ("cp", "tp", "cp_kind", "cp_a2a"),
        lambda ctx, x: (
            (_all_to_all_ranks(x) == 1)
            | divides(x.tp * _all_to_all_ranks(x), ctx.model.num_key_value_heads)
        ),
    ),
    Rule(
        "cp-a2a-divides-cp",
        "hierarchical context parallelism cuts cp in groups of cp_a2a, several groups of several; "
        "other kinds have no cp_a2a",
        "Megatron-LM core 0.16 parallel_state.py (hierarchical_context_parallel_sizes); "
        "NVIDIA-NeMo/Megatron-Bridge#2665",
        ("cp_a2a", "cp", "cp_kind"),
        lambda ctx, x: np.where(
            np.asarray(x.cp_kind_index) == CP_KINDS.index("hierarchical"),
            (np.asarray(x.cp_a2a) > 1) & (x.cp_a2a < np.asarray(x.cp)) & divides(x.cp_a2a, x.cp),
            np.asarray(x.cp_a2a) == 1,
        ),
    ),
)
