"""Prediction intervals: where measurements lie around predictions, by kind of job.

    errors = shipped()
    interval = step_interval(errors, ctx, layout)     # measured / predicted, 80 % between

The bounds are quantiles of measured / predicted over published runs, by kind; `planner calibrate
errors` writes them (scenarios/published/prediction_intervals.yaml). A kind is what can be known
before a run: see KINDS. It depends on the layout alone, not on where the layout lives.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Annotated

import numpy as np
from pydantic import model_validator

from planner.cost.context import CostContext
from planner.cost.features import Measured, unmeasured
from planner.cost.memory import StageMemory
from planner.errors import InputError
from planner.inputs.files import data_root
from planner.inputs.quantities import CountOrZero, Efficiency, Figure, Sourced
from planner.inputs.values import Strict, parse
from planner.layouts.layout import LayoutLike
from planner.layouts.numeric import Integer, Numeric
from planner.problem.hardware import Accelerator
from planner.problem.precision import Precision
from planner.problem.software import Software

SHIPPED = "scenarios/published/prediction_intervals.yaml"

KINDS = (
    "new-accelerator", "new-software", "unseen-feature", "experts", "low-precision",
    "model-parallel", "data-parallel",
)  # fmt: skip
"""Kinds of jobs, the first that holds: an accelerator type whose clock under load was never fitted
to runs; software whose coefficients were not; a feature (planner.cost.features) that no run has on
the accelerator type; a mixture of experts; main matmuls in fewer than 16 bits; 16 bits with tp, cp
or pp; 16 bits without."""

Below = Annotated[Figure, Sourced(above=0, at_most=1)]
Above = Annotated[Figure, Sourced(at_least=1)]


class MeasuredInterval(Strict):
    """Bounds of measured / predicted, and how many rows and sources they rest on."""

    rows: CountOrZero
    sources: CountOrZero
    low: Below
    high: Above


class PredictionErrors(Strict):
    """Intervals that hold `coverage` of the measurements, by kind, of step time and peak memory.

    features: those that measured runs have → the accelerator types that they have them on.
    """

    coverage: Efficiency
    features: dict[str, tuple[str, ...]]
    step_seconds: dict[str, MeasuredInterval]
    peak_bytes: dict[str, MeasuredInterval]

    @model_validator(mode="after")
    def _every_kind(self) -> PredictionErrors:
        for name in ("step_seconds", "peak_bytes"):
            if set(getattr(self, name)) != set(KINDS):
                raise InputError(
                    "a kind is missing or unknown", key=name, value=sorted(getattr(self, name)),
                    allowed=", ".join(KINDS),
                )  # fmt: skip
        return self


@cache
def shipped() -> PredictionErrors:
    """The intervals that ship, read once."""
    path = data_root() / SHIPPED
    return parse(path.read_text("utf-8"), str(path), PredictionErrors)


# ---------------------------------------------------------------- kinds


def is_fitted(software: Software) -> bool:
    """Whether any of a profile's coefficients was fitted to runs."""
    numbers = (getattr(software.coefficients, n) for n in type(software.coefficients).model_fields)
    return any(isinstance(n, Figure) and n.status == "fitted" for n in numbers)


def is_known(accelerator: Accelerator, precision: Precision) -> bool:
    """Whether the clock that an accelerator type keeps in training with main matmuls in this
    precision was fitted to runs."""
    return accelerator.sustained_fraction[precision].status == "fitted"


def kind_index(ctx: CostContext, layout: LayoutLike, measured: Measured | None = None) -> Integer:
    """Position in KINDS of a layout (or of each row of a table).

    measured: features of runs, those of the shipped intervals by default.
    """
    known = shipped().features if measured is None else measured
    of_scenario = {
        "new-accelerator": not is_known(ctx.accelerator, ctx.training.peak_key),
        "new-software": not is_fitted(ctx.software),
        "unseen-feature": bool(unmeasured(ctx, known)),
        "experts": ctx.model.moe is not None,
        "low-precision": ctx.low_precision,
    }
    first = next((kind for kind, holds in of_scenario.items() if holds), None)
    is_cut = np.asarray(1.0 * layout.tp * layout.cp * layout.pp) > 1
    of_layout = np.where(is_cut, KINDS.index("model-parallel"), KINDS.index("data-parallel"))
    return of_layout if first is None else np.full_like(of_layout, KINDS.index(first))


def reason(errors: PredictionErrors, ctx: CostContext, kind: str) -> str:
    """What is not known of a job of this kind, if anything, and what its interval rests on."""
    accelerator, software = ctx.accelerator.name, ctx.software.name
    unknown = {
        "new-accelerator": f"no clock of {accelerator} in {ctx.training.peak_key} was fitted to "
        "measured runs; ",
        "new-software": f"no coefficient of {software} was fitted to measured runs; ",
        "unseen-feature": f"no measured run has {_listed(unmeasured(ctx, errors.features))} on "
        f"{accelerator}; ",
    }
    interval = errors.step_seconds[kind]
    rests_on = f"{interval.rows} runs of {interval.sources} sources, each left out"
    return unknown.get(kind, "") + rests_on


def _listed(names: Sequence[str]) -> str:
    return " or ".join((", ".join(names[:-1]), names[-1])) if len(names) > 1 else "".join(names)


# ---------------------------------------------------------------- intervals


@dataclass(frozen=True, slots=True)
class Interval:
    """Bounds of a prediction interval, each of the layout's shape."""

    low: Numeric
    high: Numeric


def step_interval(errors: PredictionErrors, ctx: CostContext, layout: LayoutLike) -> Interval:
    """Factors to the bounds of a step's interval.

    low: from the step at the low end of the cluster's overheads; high: from that at the high end
    (`CostContext.at_cluster_end`). How far clusters differ is thus part of the interval, as far as
    the layout depends on it.
    """
    return _factors(errors.step_seconds, ctx, layout)


def peak_interval(
    errors: PredictionErrors, ctx: CostContext, layout: LayoutLike, usage: StageMemory
) -> Interval:
    """Peak bytes at the bounds of the interval, over the stages of `usage`.

    Measured peaks are what the allocator held: the runtime term is taken as it is.
    """
    factors = _factors(errors.peak_bytes, ctx, layout)
    allocated = usage.total - usage.runtime
    return Interval(
        low=np.max(allocated * factors.low + usage.runtime, axis=0),
        high=np.max(allocated * factors.high + usage.runtime, axis=0),
    )


def _factors(
    table: Mapping[str, MeasuredInterval], ctx: CostContext, layout: LayoutLike
) -> Interval:
    kinds = kind_index(ctx, layout)
    low = np.array([float(table[kind].low) for kind in KINDS])
    high = np.array([float(table[kind].high) for kind in KINDS])
    return Interval(low[kinds], high[kinds])
