"""What a rule is: an id, a sentence, a source, the layout keys it reads, and whether it holds."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from planner.cost.context import CostContext
from planner.layouts.layout import LayoutLike
from planner.layouts.numeric import Boolean, Integer, Numeric

Predicate = Callable[[CostContext, LayoutLike], Boolean]


@dataclass(frozen=True, slots=True)
class Rule:
    """One rule: `keys` are the layout keys it reads, the first is the one to change."""

    id: str
    sentence: str
    source: str
    keys: tuple[str, ...]
    holds: Predicate


def divides(divisor: Integer, number: Integer) -> Boolean:
    """Whether a number is a multiple of a divisor."""
    return number % divisor == 0


def most_chunks(ctx: CostContext, vp: Numeric) -> Integer:
    """Chunks that a pipeline may have: a layer each but, where software lets them be, its ends."""
    return ctx.model.num_layers + 2 * (ctx.software.empty_end_chunks & (np.asarray(vp) > 2))


MEGATRON = "Megatron-LM megatron/training/arguments.py (core 0.16 and later)"
TITAN = "torchtitan 0.3 parallel_dims.py and pytorch/torchtitan#775"
TORCH = "torch.distributed.pipelining 2.11, schedules.py"
DUALPIPE = "github.com/deepseek-ai/DualPipe, dualpipe.py and dualpipev.py"
