"""Error bars: where measurements lie around predictions, by kind of job.

    errors = shipped()
    low, high = step_ends(errors, ctx, layout)        # measured / predicted, 80 % between

The ends are quantiles of measured / predicted over published runs, by kind; `planner calibrate
errors` writes them (scenarios/published/prediction_intervals.yaml). A kind is what can be known
before a run: see KINDS. It depends on the layout alone, not on where the layout lives.
"""

from collections.abc import Mapping
from functools import cache
from typing import Annotated

import numpy as np
from pydantic import model_validator

from planner.cost.context import CostContext
from planner.cost.memory import StageMemory
from planner.errors import InputError
from planner.inputs.files import Strict, data_root, parse
from planner.inputs.quantities import CountOrZero, Efficiency, Figure, Sourced
from planner.layouts.layout import LayoutLike, Numeric
from planner.problem.hardware import Accelerator
from planner.problem.software import Software

SHIPPED = "scenarios/published/prediction_intervals.yaml"

KINDS = (
    "new-part", "new-software", "experts", "low-precision", "model-parallel", "data-parallel",
)  # fmt: skip
"""Kinds of jobs, the first that holds: a part whose clock under load was never fitted to runs;
software whose numbers were not; a mixture of experts; main matmuls in fewer than 16 bits; 16 bits
with tp, cp or pp; 16 bits without."""

Below = Annotated[Figure, Sourced(above=0, at_most=1)]
Above = Annotated[Figure, Sourced(at_least=1)]


class Ends(Strict):
    """Ends of a bar as measured / predicted, and how many rows and sources they rest on."""

    rows: CountOrZero
    sources: CountOrZero
    low: Below
    high: Above


class PredictionErrors(Strict):
    """Bars that hold `coverage` of the measurements, by kind, of step time and of peak memory."""

    coverage: Efficiency
    step_seconds: dict[str, Ends]
    peak_bytes: dict[str, Ends]

    @model_validator(mode="after")
    def _every_kind(self) -> "PredictionErrors":
        for name in ("step_seconds", "peak_bytes"):
            if set(getattr(self, name)) != set(KINDS):
                raise InputError(
                    "a kind is missing or unknown", key=name, value=sorted(getattr(self, name)),
                    allowed=", ".join(KINDS),
                )  # fmt: skip
        return self


@cache
def shipped() -> PredictionErrors:
    """The bars that ship, read once."""
    path = data_root() / SHIPPED
    return parse(path.read_text("utf-8"), str(path), PredictionErrors)


# ---------------------------------------------------------------- kinds


def is_fitted(software: Software) -> bool:
    """Whether any of a profile's coefficients was fitted to runs."""
    numbers = (getattr(software.coefficients, n) for n in type(software.coefficients).model_fields)
    return any(isinstance(n, Figure) and n.status == "fitted" for n in numbers)


def is_known(accelerator: Accelerator) -> bool:
    """Whether the clock that a part keeps in training was fitted to runs."""
    return accelerator.sustained_fraction.status == "fitted"


def kind_index(ctx: CostContext, layout: LayoutLike) -> Numeric:
    """Position in KINDS of a layout (or of each row of a table)."""
    ruling = (
        not is_known(ctx.accelerator),
        not is_fitted(ctx.software),
        ctx.model.moe is not None,
        ctx.low_precision,
    )
    whole = next((i for i, holds in enumerate(ruling) if holds), None)
    cut = np.asarray(1.0 * layout.tp * layout.cp * layout.pp) > 1
    parallel = np.where(cut, KINDS.index("model-parallel"), KINDS.index("data-parallel"))
    return parallel if whole is None else np.full_like(parallel, whole)


def _ends(
    table: Mapping[str, Ends], ctx: CostContext, layout: LayoutLike
) -> tuple[Numeric, Numeric]:
    kinds = kind_index(ctx, layout)
    low, high = (
        np.array([float(getattr(table[k], end)) for k in KINDS]) for end in ("low", "high")
    )
    return low[kinds], high[kinds]


# ---------------------------------------------------------------- ends


def step_ends(
    errors: PredictionErrors, ctx: CostContext, layout: LayoutLike
) -> tuple[Numeric, Numeric]:
    """Factors from a predicted step to the ends of its bar, each of the layout's shape."""
    return _ends(errors.step_seconds, ctx, layout)


def peak_ends(
    errors: PredictionErrors, ctx: CostContext, layout: LayoutLike, usage: StageMemory
) -> tuple[Numeric, Numeric]:
    """Peak bytes at the ends of the bar, over the stages of `usage`.

    Measured peaks are what the allocator held: the runtime term is taken as it is.
    """
    low, high = _ends(errors.peak_bytes, ctx, layout)
    held = usage.total - usage.runtime
    return (
        np.max(held * low + usage.runtime, axis=0),
        np.max(held * high + usage.runtime, axis=0),
    )
