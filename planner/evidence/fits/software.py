"""Software coefficients fitted to measured runs: `planner calibrate runs`.

    found = calibrate_runs(runs)
    found.profiles["megatron-core"].moved

A profile's numbers are those of least

    sum over rows  w |ln(predicted / measured) / NOISE|^LOSS_POWER
    + sum over coefficients  ((x - prior) / scale)^2,   w = 1 / sqrt(rows of the row's source)

Rows of one source share their errors, so a source counts as the square root of its rows. The prior
is the profile's own numbers; afresh, the medians of the other shipped profiles. A coefficient that
no row depends on stays at its prior. Kernel and fabric figures are not touched.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from statistics import median
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from planner.cost import step
from planner.cost.context import CostContext
from planner.cost.prediction_intervals import is_fitted
from planner.cost.traffic import Splits
from planner.errors import InputError
from planner.evidence.descent import Range, descend
from planner.evidence.metrics import TimeErrors
from planner.evidence.published_runs import PublishedRun
from planner.evidence.validate_runs import Half, Prediction, check, chosen, is_timed, predict_runs
from planner.inputs.files import load, names
from planner.inputs.quantities import Figure
from planner.layouts.layout import Layout
from planner.problem.scenario import Scenario
from planner.problem.software import Software

Floats = NDArray[np.float64]
Values = Mapping[str, float]


class Timed(Protocol):
    """A measured run as fits read it; `source` is what rows share whose errors are alike."""

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


Rows = Sequence[Timed]

NOISE = 0.05
"""Relative error at which a row begins to weigh: reruns and releases differ by about as much."""

LOSS_POWER = 1.5
STEPS = (1.0, 0.5, 0.25, 0.1, 0.04)
"""The search moves one coefficient at a time by a step of its scale."""

LEAST_ROWS = 4
"""Timed rows of a profile below which nothing is fitted."""

PROBE, LEAST_EFFECT = 0.5, 0.001
"""A coefficient is determined if so many scales move some prediction by this share at least."""

ABSURD_RATIO = 20.0
"""Measured over predicted (or the reverse) beyond which a row is no evidence of coefficients."""


@dataclass(frozen=True, slots=True)
class Coefficient:
    """A number of `SoftwareCoefficients` that step times determine: its range, and what is much."""

    name: str
    least: float
    most: float
    scale: float


COEFFICIENTS = (
    Coefficient("tp_overlap_fraction", 0.0, 1.0, 0.25),
    Coefficient("dp_overlap_fraction", 0.0, 1.0, 0.25),
    Coefficient("pp_overlap_fraction", 0.0, 1.0, 0.25),
    Coefficient("memory_bound_multiplier", 0.5, 3.0, 0.4),
    Coefficient("host_seconds_per_kernel", 1e-6, 50e-6, 4e-6),
    Coefficient("straggler_fraction_per_doubling", 0.0, 0.02, 0.004),
    Coefficient("step_overhead_seconds", 0.0, 5.0, 0.05),
)


@dataclass(frozen=True, slots=True)
class Fitted:
    """A profile's numbers after a fit, which of them it determined, and the errors it leaves."""

    software: Software
    coefficients: Values
    determined: tuple[str, ...]
    sources: Mapping[str, int]  # publication → rows fitted
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
        """Coefficient → (the profile's number, the fitted one), of those determined."""
        own = self.software.coefficients
        return {n: (float(getattr(own, n)), self.coefficients[n]) for n in self.determined}

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


def with_coefficients(
    software: Software, values: Values, source: str, changed: Iterable[str] | None = None
) -> Software:
    """The profile with other coefficients, those `changed` (default: all given), as fitted."""
    changes: dict[str, Any] = {
        name: Figure(values[name], source, "fitted")
        for name in (values if changed is None else changed)
    }
    return software.replace(coefficients=software.coefficients.replace(**changes))


def own_values(software: Software) -> dict[str, float]:
    """The profile's numbers."""
    return {c.name: float(getattr(software.coefficients, c.name)) for c in COEFFICIENTS}


def values_of_others(software: Software) -> dict[str, float]:
    """Medians of the numbers of the other shipped profiles, but for its kin's and for profiles
    that no run was fitted to and that have their kin's."""
    shipped = (load(name, "software", Software) for name in names("software"))
    others = [
        own_values(found)
        for found in shipped
        if found.family != software.family and (found.kin is None or is_fitted(found))
    ]
    return {c.name: float(median(values[c.name] for values in others)) for c in COEFFICIENTS}


@dataclass(frozen=True, slots=True)
class RunsCalibration:
    """Every profile that the rows touch, fitted, and why rows did not count."""

    profiles: Mapping[str, Fitted]
    too_few: Mapping[str, int]  # profile -> timed rows, fewer than LEAST_ROWS
    skipped: Mapping[str, int]  # reason -> rows

    def to_document(self) -> dict[str, Any]:
        """The calibration as JSON values."""
        return {
            "profiles": {name: found.to_document() for name, found in self.profiles.items()},
            "too_few": dict(self.too_few),
            "rows_skipped": dict(sorted(self.skipped.items())),
        }


def calibrate_runs(
    runs: Iterable[PublishedRun],
    *,
    quality: str = "AB",
    min_mfu: float = 0.15,
    half: Half = "fit",
    afresh: bool = False,
) -> RunsCalibration:
    """Fit the profiles that timed rows of a half touch.

    afresh: the prior is what the other shipped profiles have, not the profile's own numbers.

    Raises:
        InputError: an option is none of its values, no profile has LEAST_ROWS timed rows, or a row
            is so far off that something else is wrong.
    """
    check(quality, min_mfu, half)
    predictions, skipped = predict_runs(chosen(runs, quality, half))
    profiles, too_few = {}, {}
    for name, rows in by_profile([p for p in predictions if is_timed(p, min_mfu)]).items():
        if len(rows) < LEAST_ROWS:
            too_few[name] = len(rows)
            continue
        software = rows[0].job.scenario.software
        profiles[name] = fit_profile(rows, values_of_others(software) if afresh else None)
    if not profiles:
        raise InputError(
            f"no software profile has {LEAST_ROWS} timed rows that can be predicted",
            allowed="rows such as those of scenarios/published/measured_runs.jsonl; see --half, "
            "--quality and --min-mfu",
        )  # fmt: skip
    return RunsCalibration(profiles, too_few, skipped)


# ---------------------------------------------------------------- the fit


def by_profile(timed: Iterable[Prediction]) -> dict[str, list[Prediction]]:
    """Timed rows by the name of their software profile."""
    found: dict[str, list[Prediction]] = defaultdict(list)
    for row in timed:
        found[row.job.scenario.software.name].append(row)
    return dict(sorted(found.items()))


def fit_profile(
    rows: Rows, prior: Values | None = None, reach_scales: float | None = None
) -> Fitted:
    """The numbers of the one profile (or of kin) that all rows, timed and at least one, ran on.

    reach_scales: how many of its scales a number may move away from its prior.

    Raises:
        InputError: a row is so far off that something else is wrong.
    """
    software = rows[0].scenario.software
    prior = own_values(software) if prior is None else prior
    _refuse_absurd(rows)
    model = _Model(rows)
    near = [reachable(c, prior[c.name], reach_scales) for c in COEFFICIENTS]
    free = [c for c in near if model.effect(c, prior) >= LEAST_EFFECT]
    start = [prior[c.name] for c in free]

    def loss(point: Sequence[float]) -> float:
        values = _with_free(prior, free, point)
        return model.loss(values) + _penalty(values, prior)

    ranges = [Range(c.least, c.most, c.scale) for c in free]
    values = _with_free(prior, free, descend(loss, start, ranges, STEPS))
    fitted = {name: float(f"{value:.4g}") for name, value in values.items()}
    return Fitted(
        software=software,
        coefficients=fitted,
        determined=tuple(c.name for c in free),
        sources=dict(sorted(Counter(row.source for row in rows).items())),
        before=TimeErrors.of((model.ratios(own_values(software)) - 1).tolist()),
        after=TimeErrors.of((model.ratios(fitted) - 1).tolist()),
    )


def reachable(coefficient: Coefficient, prior: float, scales: float | None) -> Coefficient:
    """The coefficient with the range it has within so many scales of its prior."""
    if scales is None:
        return coefficient
    reach = scales * coefficient.scale
    return replace(
        coefficient,
        least=max(coefficient.least, prior - reach),
        most=min(coefficient.most, prior + reach),
    )


def _refuse_absurd(rows: Rows) -> None:
    for row in rows:
        measured = row.measured_seconds
        assert measured is not None
        if not 1 / ABSURD_RATIO <= row.step_seconds / measured <= ABSURD_RATIO:
            raise InputError(
                f"row '{row.name}' was measured at {measured:g} s a step where "
                f"{row.step_seconds:.3g} s are predicted: no coefficient explains that",
                key="step seconds",
                value=measured,
                allowed=f"rows within a factor {ABSURD_RATIO:g} of their prediction",
            )


class _Model:
    """Step times of rows as a function of their profile's coefficients, or of its kin's too."""

    def __init__(self, rows: Rows) -> None:
        self.rows = rows
        self.splits = [row.splits for row in rows]
        self.measured = np.array([row.measured_seconds for row in rows], dtype=float)
        of_source = Counter(row.source for row in rows)
        self.weight = np.array([of_source[row.source] ** -0.5 for row in rows])

    def seconds(self, values: Values) -> Floats:
        """Predicted seconds of every row."""
        # rows of one profile can differ in what it holds beside coefficients, such as eager norms
        profiles = {id(row.scenario.software): row.scenario.software for row in self.rows}
        changed = {
            key: with_coefficients(software, values, "being fitted")
            for key, software in profiles.items()
        }
        return np.array(
            [step_seconds(row, changed[id(row.scenario.software)]) for row in self.rows]
        )

    def ratios(self, values: Values) -> Floats:
        """Predicted over measured."""
        ratios: Floats = self.seconds(values) / self.measured
        return ratios

    def loss(self, values: Values) -> float:
        off = np.abs(np.log(self.ratios(values))) / NOISE
        return float(np.sum(self.weight * off**LOSS_POWER))

    def effect(self, coefficient: Coefficient, values: Values) -> float:
        """Largest share by which a probe of one coefficient moves a prediction."""
        c, at = coefficient, values[coefficient.name]
        up = at + PROBE * c.scale
        probe = up if up <= c.most else at - PROBE * c.scale
        moved = self.seconds({**values, c.name: probe}) / self.seconds(values)
        return float(np.max(np.abs(np.log(moved))))


def step_seconds(row: Timed, software: Software) -> float:
    """A row's step time under another profile (validated, as `Software` is)."""
    scenario = row.scenario.model_copy(update={"software": software})
    return float(step.evaluate(CostContext.of(scenario), row.layout, row.splits).total)


def _with_free(
    prior: Values, free: Sequence[Coefficient], point: Sequence[float]
) -> dict[str, float]:
    """Every coefficient's value: the free ones from a point of the search, others as before."""
    fixed = {c.name: prior[c.name] for c in COEFFICIENTS}
    return fixed | {c.name: value for c, value in zip(free, point, strict=True)}


def _penalty(point: Values, prior: Values) -> float:
    return sum(((point[c.name] - prior[c.name]) / c.scale) ** 2 for c in COEFFICIENTS)
