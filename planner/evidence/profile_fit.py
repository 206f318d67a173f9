"""The numbers of one software profile fitted to measured step times.

    fit = fit_profile(rows)
    fit.moved["dp_overlap_fraction"]      # (before, after)

The fitted numbers x minimise

    sum over rows  w |ln(predicted / measured) / NOISE|^LOSS_POWER
    + sum over coefficients  ((x - prior) / scale)^2,   w = 1 / sqrt(rows of the row's source)

- Rows of one source share their errors, so a source counts as the square root of its rows.
- The prior is the profile's own numbers, unless another is given. A number that no row depends on
  stays there. A weaker penalty fits the known rows better and unknown sources worse: at a twentieth
  of it the error of sources left out of the fit rises from 6.5 to 9.4 % (docs/accuracy.md).
- Kernel and fabric figures are not touched.

Both audiences use it: `own_runs_fit` for two or three runs of a user's stack, `maintenance` for
the profiles that ship.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from planner.cost import step
from planner.cost.context import CostContext
from planner.cost.traffic import Splits
from planner.errors import InputError
from planner.evidence.descent import Range, descend
from planner.evidence.metrics import TimeErrors
from planner.inputs.quantities import Figure
from planner.layouts.layout import Layout
from planner.problem.scenario import Scenario
from planner.problem.software import Software

Floats = NDArray[np.float64]

Values = Mapping[str, float]
"""Coefficient → value, in SI."""


class TimedRun(Protocol):
    """A measured run as fits read it.

    source: what rows share whose errors are alike. step_seconds: as the run's own profile predicts.
    """

    @property
    def name(self) -> str: ...
    @property
    def source(self) -> str: ...
    @property
    def scenario(self) -> Scenario: ...
    @property
    def layout(self) -> Layout: ...
    @property
    def splits(self) -> Splits: ...
    @property
    def step_seconds(self) -> float: ...
    @property
    def measured_seconds(self) -> float | None: ...


NOISE = 0.05
"""Relative error at which a row begins to weigh: reruns and releases differ by about as much."""

LOSS_POWER = 1.5
"""Between the mean, which ignores large errors too readily, and the square, which obeys them."""

SCALE_STEPS = (1.0, 0.5, 0.25, 0.1, 0.04)
"""Steps of the search, as fractions of a coefficient's scale."""

MIN_PUBLISHED_ROWS = 4
"""Timed published rows of a profile below which nothing is fitted. Two of a user's own runs are
enough, since they are of the very stack to be predicted."""

PROBE_SCALES, MIN_EFFECT = 0.5, 0.001
"""A coefficient is determined if moving it by so many scales moves some prediction by this much,
relatively."""

ABSURD_RATIO = 20.0
"""Measured over predicted (or the reverse) beyond which a row is no evidence of coefficients."""


@dataclass(frozen=True, slots=True)
class Coefficient:
    """A number of `SoftwareCoefficients` that step times determine, and what values it may take.

    scale: a large change of it; the fit pays as much for it as for a row that is one NOISE off.
    """

    name: str
    lowest: float
    highest: float
    scale: float

    @property
    def range(self) -> Range:
        """The values as the search takes them."""
        return Range(self.lowest, self.highest, self.scale)


COEFFICIENTS = (
    Coefficient("tp_overlap_fraction", 0.0, 1.0, scale=0.25),
    Coefficient("dp_overlap_fraction", 0.0, 1.0, scale=0.25),
    Coefficient("pp_overlap_fraction", 0.0, 1.0, scale=0.25),
    Coefficient("memory_bound_multiplier", 0.5, 3.0, scale=0.4),
    Coefficient("host_seconds_per_kernel", 1e-6, 50e-6, scale=4e-6),
    Coefficient("contention_fraction", 0.0, 1.0, scale=0.25),
    Coefficient("unexplained_fraction", 0.0, 0.3, scale=0.02),
    Coefficient("unexplained_seconds", 0.0, 5.0, scale=0.05),
)


# ---------------------------------------------------------------- profiles and their numbers


def coefficients_of(software: Software) -> dict[str, float]:
    """The profile's numbers that a fit can change."""
    return {c.name: float(getattr(software.coefficients, c.name)) for c in COEFFICIENTS}


def with_coefficients(
    software: Software, values: Values, source: str, changed: Iterable[str] | None = None
) -> Software:
    """The profile with other numbers, marked as fitted and from `source`.

    changed: which of the values to set; all of them by default.
    """
    changes: dict[str, Any] = {
        name: Figure(values[name], source, "fitted")
        for name in (values if changed is None else changed)
    }
    return software.replace(coefficients=software.coefficients.replace(**changes))


def step_seconds(run: TimedRun, software: Software) -> float:
    """The run's predicted step time under another profile."""
    # model_copy does not validate: a fit does this thousands of times, with profiles that are valid
    scenario = run.scenario.model_copy(update={"software": software})
    return float(step.evaluate(CostContext.of(scenario), run.layout, run.splits).total)


# ---------------------------------------------------------------- the fit


@dataclass(frozen=True, slots=True)
class ProfileFit:
    """A profile's numbers after a fit, and the errors it leaves.

    coefficients: all of them; determined: those that the rows depend on. sources: source → rows.
    """

    software: Software
    coefficients: Values
    determined: tuple[str, ...]
    sources: Mapping[str, int]
    before: TimeErrors
    after: TimeErrors

    @property
    def source(self) -> str:
        """Where the numbers are from, as their files say it."""
        rows = sum(self.sources.values())
        return f"fitted to {rows} measured runs of {', '.join(self.sources)}"

    @property
    def tuned(self) -> Software:
        """The profile with the fitted numbers."""
        return with_coefficients(self.software, self.coefficients, self.source, self.determined)

    @property
    def moved(self) -> Mapping[str, tuple[float, float]]:
        """Determined coefficient → (the profile's number, the fitted one)."""
        before = coefficients_of(self.software)
        return {name: (before[name], self.coefficients[name]) for name in self.determined}

    def to_document(self) -> dict[str, Any]:
        """The fit as JSON values."""
        return {
            "software": self.software.name,
            "sources": dict(self.sources),
            "coefficients": {n: {"before": a, "after": b} for n, (a, b) in self.moved.items()},
            "kept": [c.name for c in COEFFICIENTS if c.name not in self.determined],
            "before": asdict(self.before),
            "after": asdict(self.after),
        }


def fit_profile(
    runs: Sequence[TimedRun], prior: Values | None = None, reach_scales: float | None = None
) -> ProfileFit:
    """The numbers of the one profile (or of kin) that all runs, timed and at least one, used.

    prior: the profile's own numbers by default.
    reach_scales: how many of its scales a number may move away from its prior; any by default.

    Raises:
        InputError: a run is so far off that something else is wrong.
    """
    software = runs[0].scenario.software
    before = coefficients_of(software)
    prior = before if prior is None else prior
    refuse_absurd(runs)
    model = _StepTimes(runs)
    # what no row depends on would follow the noise of the search: it stays at its prior
    near = [reachable(c, prior[c.name], reach_scales) for c in COEFFICIENTS]
    free = [c for c in near if model.effect(c, prior) >= MIN_EFFECT]

    def values_at(point: Sequence[float]) -> dict[str, float]:
        fixed = {c.name: prior[c.name] for c in COEFFICIENTS}
        return fixed | {c.name: value for c, value in zip(free, point, strict=True)}

    def loss(point: Sequence[float]) -> float:
        values = values_at(point)
        return model.loss(values) + _penalty(values, prior)

    start = [prior[c.name] for c in free]
    lowest = descend(loss, start, [c.range for c in free], SCALE_STEPS)
    # rounded to what is written into files, so that errors are those of the written numbers
    fitted = {name: float(f"{value:.4g}") for name, value in values_at(lowest).items()}
    return ProfileFit(
        software=software,
        coefficients=fitted,
        determined=tuple(c.name for c in free),
        sources=dict(sorted(Counter(run.source for run in runs).items())),
        before=TimeErrors.of((model.ratios(before) - 1).tolist()),
        after=TimeErrors.of((model.ratios(fitted) - 1).tolist()),
    )


def reachable(coefficient: Coefficient, prior: float, reach_scales: float | None) -> Coefficient:
    """The coefficient with the range it has within so many scales of its prior."""
    if reach_scales is None:
        return coefficient
    reach = reach_scales * coefficient.scale
    return replace(
        coefficient,
        lowest=max(coefficient.lowest, prior - reach),
        highest=min(coefficient.highest, prior + reach),
    )


def refuse_absurd(runs: Sequence[TimedRun]) -> None:
    """Refuse rows that no number explains.

    Raises:
        InputError: a run is ABSURD_RATIO times off its prediction.
    """
    for run in runs:
        measured = run.measured_seconds
        assert measured is not None
        if not 1 / ABSURD_RATIO <= run.step_seconds / measured <= ABSURD_RATIO:
            raise InputError(
                f"row '{run.name}' was measured at {measured:g} s a step where "
                f"{run.step_seconds:.3g} s are predicted: no coefficient explains that",
                key="step seconds",
                value=measured,
                allowed=f"rows within a factor {ABSURD_RATIO:g} of their prediction",
            )


class _StepTimes:
    """Step times of runs as a function of their profile's numbers, or of its kin's too."""

    def __init__(self, runs: Sequence[TimedRun]) -> None:
        self.runs = runs
        self.measured = np.array([run.measured_seconds for run in runs], dtype=float)
        rows_of = Counter(run.source for run in runs)
        self.weight = np.array([rows_of[run.source] ** -0.5 for run in runs])

    def seconds(self, values: Values) -> Floats:
        """Predicted seconds of every run, shape (runs,)."""
        # runs of one profile can differ in what it has besides coefficients, such as eager norms
        profiles = {id(run.scenario.software): run.scenario.software for run in self.runs}
        changed = {
            key: with_coefficients(software, values, "being fitted")
            for key, software in profiles.items()
        }
        return np.array(
            [step_seconds(run, changed[id(run.scenario.software)]) for run in self.runs]
        )

    def ratios(self, values: Values) -> Floats:
        """Predicted over measured, shape (runs,)."""
        ratios: Floats = self.seconds(values) / self.measured
        return ratios

    def loss(self, values: Values) -> float:
        """The first sum of the module's docstring."""
        off = np.abs(np.log(self.ratios(values))) / NOISE
        return float(np.sum(self.weight * off**LOSS_POWER))

    def effect(self, coefficient: Coefficient, values: Values) -> float:
        """The largest relative change that a probe of one coefficient makes to a prediction."""
        value, change = values[coefficient.name], PROBE_SCALES * coefficient.scale
        probe = value + change if value + change <= coefficient.highest else value - change
        moved = self.seconds({**values, coefficient.name: probe}) / self.seconds(values)
        return float(np.max(np.abs(np.log(moved))))


def _penalty(values: Values, prior: Values) -> float:
    """The second sum of the module's docstring."""
    return sum(((values[c.name] - prior[c.name]) / c.scale) ** 2 for c in COEFFICIENTS)
