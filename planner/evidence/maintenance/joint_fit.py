"""The fitted numbers of all profiles, accelerators and clusters at once, from published step times.

    start = shipped_numbers(rows)
    numbers = fit_jointly(rows, start, prior=start)

Software, clocks and clusters share rows: a fit of one with the others fixed hides the others'
errors in its own numbers. The numbers x minimise

    sum over rows     w |ln(predicted / measured) / NOISE|^LOSS_POWER
    + sum over numbers  ((x - prior) / (PRIOR_SCALES scale))^2

with w = 1 / sqrt(rows of the row's source),

one step after the other with ln(predicted) linear around the point reached, each solved by
`scipy.optimize.least_squares`. Derivatives are one-sided differences of whole step times.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import least_squares

from planner.cost import step
from planner.cost.context import CostContext
from planner.evidence.profile_fit import (
    COEFFICIENTS,
    LOSS_POWER,
    MIN_EFFECT,
    NOISE,
)
from planner.evidence.row_predictions import Prediction
from planner.inputs.quantities import Figure
from planner.problem.overheads import NUMBERS
from planner.problem.scenario import Scenario

Floats = NDArray[np.float64]

Holder = Literal["software", "cluster", "clock"]


class Number(NamedTuple):
    """A fitted number: of a software profile, of the usual cluster, or a clock under load.

    owner: the profile; the overheads; accelerators that share the clock, the first one's name.
    name: the coefficient; the overhead; the precision.
    """

    holder: Holder
    owner: str
    name: str


class Span(NamedTuple):
    """Values a number may take, and what a large change of it is."""

    lowest: float
    highest: float
    scale: float


Numbers = Mapping[Number, float]

SPANS: Mapping[tuple[Holder, str], Span] = {
    **{("software", c.name): Span(c.lowest, c.highest, c.scale) for c in COEFFICIENTS},
    ("cluster", "collective_seconds"): Span(0.0, 1e-3, 3e-5),
    ("cluster", "straggler_fraction_per_doubling"): Span(0.0, 0.03, 3e-3),
}

CLOCK = Span(0.4, 1.0, 0.3)
"""Of every clock, as a fraction of the peak."""

PRIOR_SCALES = 1.5
"""Scales away from its prior at which a number costs 1. Of 0.25 to 5, sources left out err least
here, model families left out within 0.4 points of their least (at 5)."""

SHARED_CLOCKS: Mapping[tuple[str, str], str] = {
    ("b200-sxm-180gb", "bf16"): "blackwell",
    ("b300", "bf16"): "blackwell",
    ("gb200", "bf16"): "blackwell",
    ("gb300", "bf16"): "blackwell",
    ("h200-sxm-141gb", "bf16"): "h100-sxm-80gb",
    ("h200-sxm-141gb", "fp8"): "h100-sxm-80gb",
    ("h100-sxm-94gb", "bf16"): "h100-sxm-96gb",
    ("h100-sxm-94gb", "fp8"): "h100-sxm-96gb",
    ("a100-sxm-40gb", "bf16"): "a100-sxm-80gb",
    ("a100-sxm-40gb", "fp16"): "a100-sxm-80gb",
}
"""Accelerator and precision → whose clock they share: the same die at about the same power. Dies of
one generation differ in the power that low precisions leave them."""

ONE_CLOCK: Mapping[str, str] = {
    "fp16": "bf16",
    "fp8-rowwise": "fp8",
    "mxfp8": "fp8",
    "nvfp4": "fp8",
    "fp4": "fp8",
}
"""Precision → the one whose clock it shares, for want of rows that tell them apart."""

STEP_SHARE = 0.5
"""Of a number's scale, the step of its difference quotient."""


def clock_of(scenario: Scenario) -> Number:
    """The clock that the job's matmuls ran at."""
    name, precision = scenario.topology.accelerator.name, scenario.training.peak_key
    shared = ONE_CLOCK.get(precision, precision)
    return Number("clock", SHARED_CLOCKS.get((name, shared), name), shared)


def numbers_of(scenario: Scenario) -> dict[Number, float]:
    """Every fitted number that a job's step time can depend on, as the scenario has it."""
    software, overheads = scenario.software, scenario.topology.overheads
    clocks = scenario.topology.accelerator.sustained_fraction
    return {
        **{
            Number("software", software.name, c.name): float(getattr(software.coefficients, c.name))
            for c in COEFFICIENTS
        },
        **{Number("cluster", overheads.name, n): float(getattr(overheads, n)) for n in NUMBERS},
        clock_of(scenario): float(clocks[scenario.training.peak_key]),
    }


def shipped_numbers(rows: Iterable[Prediction]) -> dict[Number, float]:
    """The numbers of all rows as they ship."""
    return {number: v for row in rows for number, v in numbers_of(row.scenario).items()}


def span_of(number: Number) -> Span:
    """Of any number."""
    return SPANS.get((number.holder, number.name), CLOCK)


def with_numbers(scenario: Scenario, numbers: Numbers) -> Scenario:
    """The scenario with those of its fitted numbers that are given."""
    own = {n: numbers[n] for n in numbers_of(scenario) if n in numbers}

    def of(holder: Holder) -> dict[str, Any]:
        return {
            number.name: Figure(value, "being fitted", "fitted")
            for number, value in own.items()
            if number.holder == holder
        }

    # model_copy does not validate: a fit does this thousands of times, with values that are valid
    software, topology = scenario.software, scenario.topology
    changed: dict[str, Any] = {}
    if coefficients := of("software"):
        new = software.coefficients.model_copy(update=coefficients)
        changed["software"] = software.model_copy(update={"coefficients": new})
    if overheads := of("cluster"):
        new_overheads = topology.overheads.model_copy(update=overheads)
        topology = topology.model_copy(update={"overheads": new_overheads})
    for clock in of("clock").values():
        accelerator = topology.accelerator
        clocks = {**accelerator.sustained_fraction, scenario.training.peak_key: clock}
        accelerator = accelerator.model_copy(update={"sustained_fraction": clocks})
        topology = topology.model_copy(update={"accelerator": accelerator})
    return scenario.model_copy(update={**changed, "topology": topology})


def seconds_with(row: Prediction, numbers: Numbers) -> float:
    """The row's step time under other numbers."""
    ctx = CostContext.of(with_numbers(row.scenario, numbers))
    return float(step.evaluate(ctx, row.layout, row.splits).total)


# ---------------------------------------------------------------- the linear model


@dataclass(frozen=True, slots=True)
class Linearised:
    """ln(predicted / measured) of rows near one point.

    at: the point. columns: the numbers that vary. off: at the point, shape (rows,). slopes: its
    derivatives, shape (rows, columns).
    """

    rows: Sequence[Prediction]
    at: Numbers
    columns: Sequence[Number]
    off: Floats
    slopes: Floats

    def only(self, kept: Sequence[bool], columns: Sequence[Number]) -> Linearised:
        """Of some rows, and as a function of some of the numbers."""
        chosen = np.flatnonzero(np.asarray(kept, dtype=bool))
        places = np.array([self.columns.index(column) for column in columns], dtype=int)
        return Linearised(
            [row for row, keep in zip(self.rows, kept, strict=True) if keep],
            self.at,
            columns,
            self.off[chosen],
            self.slopes[np.ix_(chosen, places)],
        )


def errors_at(rows: Sequence[Prediction], numbers: Numbers) -> Floats:
    """ln(predicted / measured), shape (rows,)."""
    return np.array([np.log(seconds_with(row, numbers) / _measured(row)) for row in rows])


def linearise(
    rows: Sequence[Prediction], numbers: Numbers, columns: Sequence[Number]
) -> Linearised:
    """The rows' errors and their derivatives by `columns` at a point."""
    off = errors_at(rows, numbers)
    place = {number: i for i, number in enumerate(columns)}
    slopes = np.zeros((len(rows), len(columns)))
    for i, row in enumerate(rows):
        for number in numbers_of(row.scenario):
            if number in place:
                change = _probe(number, numbers[number])
                moved = seconds_with(row, {**numbers, number: numbers[number] + change})
                slopes[i, place[number]] = (np.log(moved / _measured(row)) - off[i]) / change
    return Linearised(rows, numbers, columns, off, slopes)


def _probe(number: Number, value: float) -> float:
    """A step of the number that stays among its values."""
    span = span_of(number)
    change = STEP_SHARE * span.scale
    return change if value + change <= span.highest else -change


def _measured(row: Prediction) -> float:
    assert row.measured_seconds is not None
    return row.measured_seconds


# ---------------------------------------------------------------- fits


def solve(
    model: Linearised,
    prior: Numbers,
    reach_scales: float = np.inf,
    prior_scales: float = PRIOR_SCALES,
) -> dict[Number, float]:
    """The numbers `model.columns` at the minimum of the module's sum, errors taken as linear.

    reach_scales: how many of its scales a number may move from the model's point. prior_scales: how
    many of its scales away from its prior a number costs 1.
    """
    spans = [span_of(number) for number in model.columns]
    scale = np.array([span.scale for span in spans])
    at, aim = (np.array([v[n] for n in model.columns]) / scale for v in (model.at, prior))
    lowest = np.maximum(np.array([span.lowest for span in spans]) / scale, at - reach_scales)
    highest = np.minimum(np.array([span.highest for span in spans]) / scale, at + reach_scales)
    # the loss takes squares, to the power of LOSS_POWER / 2
    weight = weights_of(model.rows) ** (1 / LOSS_POWER) / NOISE
    slopes = weight[:, None] * model.slopes * scale
    jacobian = np.vstack([slopes, np.eye(len(scale)) / prior_scales])

    def residuals(x: Floats) -> Floats:
        off = weight * model.off + slopes @ (x - at)
        return np.concatenate([off, (x - aim) / prior_scales])

    found = least_squares(
        residuals,
        np.clip(at, lowest + EDGE, highest - EDGE),
        jac=lambda _: jacobian,
        bounds=(lowest, highest),
        loss=_loss_of(len(model.rows)),
    )
    return dict(zip(model.columns, (found.x * scale).tolist(), strict=True))


EDGE = 1e-9
"""Scales that the solver must start inside its bounds."""

SMOOTH = 1e-4
"""Squared residual added to each row's: the second derivative of the loss is infinite at 0."""


def _loss_of(num_rows: int) -> Callable[[Floats], Floats]:
    """As `least_squares` takes it, of squares z: z^(LOSS_POWER/2) of rows, z of priors.

    Returns its value and first two derivatives, shape (3, len(z)).
    """
    power = LOSS_POWER / 2

    def loss(z: Floats) -> Floats:
        rho = np.array([z, np.ones_like(z), np.zeros_like(z)])
        rows = z[:num_rows] + SMOOTH
        rho[:, :num_rows] = (
            rows**power,
            power * rows ** (power - 1),
            power * (power - 1) * rows ** (power - 2),
        )
        return rho

    return loss


def weights_of(rows: Sequence[Prediction]) -> Floats:
    """w of the module's docstring, shape (rows,)."""
    rows_of = Counter(row.source for row in rows)
    return np.array([rows_of[row.source] ** -0.5 for row in rows])


def loss_at(rows: Sequence[Prediction], numbers: Numbers, prior: Numbers) -> float:
    """The sum of the module's docstring, exact."""
    off = np.abs(errors_at(rows, numbers)) / NOISE
    far = [(numbers[n] - prior[n]) / (PRIOR_SCALES * span_of(n).scale) for n in prior]
    return float(np.sum(weights_of(rows) * off**LOSS_POWER) + np.sum(np.square(far)))


MAX_STEPS, FIRST_REACH, LAST_REACH = 8, 1.0, 0.2


def fit_jointly(rows: Sequence[Prediction], start: Numbers, prior: Numbers) -> dict[Number, float]:
    """The numbers in `prior` that fit the rows; all other numbers of `start` stay.

    Each step solves with the errors linear around the point reached, within a reach that halves
    where the sum itself did not fall.
    """
    numbers, columns, reach = dict(start), list(prior), FIRST_REACH
    best = loss_at(rows, numbers, prior)
    model = linearise(rows, numbers, columns)
    for _ in range(MAX_STEPS):
        found = {**numbers, **solve(model, prior, reach)}
        loss = loss_at(rows, found, prior)
        if loss < best:
            gained, best, numbers = best - loss, loss, found
            if gained < 1e-3 * best:
                break
            model = linearise(rows, numbers, columns)
        else:
            reach /= 2
            if reach < LAST_REACH:
                break
    return numbers


def rounded(value: float) -> float:
    """As files have it: four digits, and 0 for what the search left beside 0."""
    return 0.0 if abs(value) < 1e-9 else float(f"{value:.4g}")


def moves(rows: Sequence[Prediction], numbers: Numbers, name: str) -> bool:
    """Whether some row depends on its software's coefficient `name`."""
    column = Number("software", rows[0].scenario.software.name, name)
    probe = _probe(column, numbers[column])
    changed = {**numbers, column: numbers[column] + probe}
    off = errors_at(rows, changed) - errors_at(rows, numbers)
    return bool(np.max(np.abs(off)) >= MIN_EFFECT)


# ---------------------------------------------------------------- how clusters differ


@dataclass(frozen=True, slots=True)
class ClusterRange:
    """A number of the usual cluster, and the range that holds 80 % of the rows' clusters.

    clusters: sources whose rows depend on it; each is taken for a cluster.
    """

    value: float
    low: float
    high: float
    clusters: int


LOOSE_SCALES = 10.0
"""Scales of a number of a cluster where a single source says what it is."""

MIN_CLUSTER_ROWS, MIN_CLUSTER_EFFECT = 8, 0.005
"""What a source must have to say something of its cluster: rows, and a row that one scale of the
number moves so far, relatively."""


def cluster_ranges(rows: Sequence[Prediction], numbers: Numbers) -> dict[str, ClusterRange]:
    """Each number of the usual cluster, with what the sources say of theirs, all else fitted."""
    columns = [number for number in numbers if number.holder == "cluster"]
    model = linearise(rows, numbers, columns)
    found: dict[Number, list[float]] = {column: [] for column in columns}
    for source, count in sorted(Counter(row.source for row in rows).items()):
        own = model.only([row.source == source for row in rows], columns)
        if count < MIN_CLUSTER_ROWS:
            continue
        values = solve(own, numbers, prior_scales=LOOSE_SCALES)
        effects = np.max(np.abs(own.slopes), axis=0)
        for column, effect in zip(columns, effects, strict=True):
            if effect * span_of(column).scale >= MIN_CLUSTER_EFFECT:
                found[column].append(values[column])
    return {
        column.name: _range_of(rounded(numbers[column]), values) for column, values in found.items()
    }


def _range_of(value: float, of_clusters: Sequence[float]) -> ClusterRange:
    low, high = np.quantile([*of_clusters, value], (0.1, 0.9)).tolist()
    low, high = min(rounded(low), value), max(rounded(high), value)
    return ClusterRange(value, low, high, len(of_clusters))
