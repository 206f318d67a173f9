"""What a rule is, and the conditions that rules of several frameworks share.

Rules differ by what they judge. A `Rule` judges layouts: the search leaves out what breaks it, and
`check` and `--why-not` cite it. A `SettingsRule` judges the settings of a launch script, of which
some never become keys of a layout. A `Refusal` (in `planner.frameworks.job`) judges a job that is
to be launched: `export` and `check` cite it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from planner.cost.context import CostContext
from planner.errors import IllegalLayoutError
from planner.layouts.keys import SCHEDULES
from planner.layouts.layout import LayoutLike
from planner.layouts.numeric import Boolean, Integer, Mask

MEGATRON = "Megatron-LM megatron/training/arguments.py (core 0.16 and later)"
TORCHTITAN = "torchtitan 0.3 parallel_dims.py and pytorch/torchtitan#775"
TORCH = "torch.distributed.pipelining 2.11, schedules.py"
DUALPIPE = "github.com/deepseek-ai/DualPipe, dualpipe.py and dualpipev.py"

Predicate = Callable[[CostContext, LayoutLike], Boolean]
"""Of a layout a truth value, of a table an array of them, one a row."""


@dataclass(frozen=True, slots=True)
class Rule:
    """A condition on layouts: `keys` are the layout keys it reads, the first is the one to change.

    holds: takes one layout or a table, so that one rule judges both.
    """

    id: str
    sentence: str
    source: str
    keys: tuple[str, ...]
    holds: Predicate


@dataclass(frozen=True, slots=True)
class SettingsRule:
    """A condition that a framework puts on its own settings.

    sentence and source may have `{names}` of numbers that the reader of the settings fills in.
    """

    id: str
    sentence: str
    source: str

    def broken_by(
        self, value: str, nearest: Sequence[str] = (), **numbers: object
    ) -> IllegalLayoutError:
        """The rule as broken by settings of this value; `nearest` are settings that keep it."""
        return IllegalLayoutError(
            self.id,
            self.source.format(**numbers),
            value,
            self.sentence.format(**numbers),
            tuple(nearest),
        )


def divides(divisor: Integer, number: Integer) -> Boolean:
    """Whether a number is a multiple of a divisor."""
    return number % divisor == 0


def runs(layout: LayoutLike, *schedules: str) -> Mask:
    """Whether the layout's schedule is one of these."""
    is_one: Mask = np.isin(SCHEDULES, schedules)[layout.schedule_index]
    return is_one
