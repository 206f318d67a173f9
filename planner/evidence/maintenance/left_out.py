"""Rows predicted as if their source had never been seen: `planner validate runs --leave-one-out`.

Rows are grouped into folds by a function, `fold_of`: see FOLDS. A fold is predicted with software
coefficients, clocks and cluster numbers fitted, afresh, to the rows of all other folds. A profile
with too few rows there takes what they say of its kin; if that has too few too, the medians of the
other profiles' numbers. A clock without a row there takes the median of the others'. Fits take
errors as linear in the numbers around the shipped ones (`joint_fit`); predictions do not.

Kernel and fabric figures stay as shipped: they come from measurements of operators, except some
attention rates.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from statistics import median
from typing import Any, Literal

from planner.cost import prediction_intervals as intervals
from planner.cost.context import CostContext
from planner.cost.features import FEATURES, Measured, features_of
from planner.errors import InputError, nearest_of
from planner.evidence.maintenance.joint_fit import (
    Linearised,
    Number,
    Numbers,
    clock_of,
    linearise,
    seconds_with,
    shipped_numbers,
    solve,
)
from planner.evidence.maintenance.profiles import by_profile, coefficients_of_others
from planner.evidence.metrics import TimeErrors, mean
from planner.evidence.profile_fit import COEFFICIENTS, MIN_PUBLISHED_ROWS
from planner.evidence.published_runs import PublishedRun
from planner.evidence.row_models import family_of
from planner.evidence.row_predictions import (
    Models,
    Prediction,
    Selection,
    in_half,
    is_timed,
    predict_rows,
)
from planner.evidence.validate_runs import Validation, coverage, errors_of, summarise
from planner.problem.software import Software

NEW_ACCELERATOR, NEW_SOFTWARE = intervals.KINDS[:2]

FoldOf = Callable[[Prediction], str]
"""A row → the fold that it is left out with."""


def source_of(row: Prediction) -> str:
    """Folds by source: rows of one publication share a machine, a stack and an author."""
    return row.source


LeaveOut = Literal["source", "family", "half"]

FOLDS: Mapping[LeaveOut, FoldOf] = {
    "source": source_of,
    "family": lambda row: family_of(row.run),
    "half": lambda row: "test" if in_half(row.run, "test") else "fit",
}
"""What is left out at a time: one source, one family of models, or one half of all rows."""


@dataclass(frozen=True, slots=True)
class FoldFit:
    """The numbers that a fold is predicted with.

    numbers: of every profile, clock and cluster. rows_fitted: profile of the fold → its rows in
    other folds, if enough to be fitted to, else 0. kin: profile of the fold with 0 → the profile
    whose numbers it takes; null: the medians of the others. known_clocks, features: those that rows
    of other folds have.
    """

    numbers: Numbers
    rows_fitted: Mapping[str, int]
    kin: Mapping[str, str | None]
    known_clocks: frozenset[Number]
    features: Measured

    def to_document(self) -> dict[str, Any]:
        """As JSON values."""
        values: dict[str, dict[str, dict[str, float]]] = {
            "software": {},
            "cluster": {},
            "clock": {},
        }
        for number, value in self.numbers.items():
            if number.holder != "software" or number.owner in self.rows_fitted:
                values[number.holder].setdefault(number.owner, {})[number.name] = value
        return {"rows_fitted": dict(self.rows_fitted), "kin": dict(self.kin), **values}

    def predicted(self, row: Prediction) -> Prediction:
        """A row of the fold by these numbers, of the kind that it is without its fold."""
        ctx = CostContext.of(row.scenario)
        kind = intervals.KINDS[int(intervals.kind_index(ctx, row.layout, self.features))]
        if clock_of(row.scenario) not in self.known_clocks:
            kind = NEW_ACCELERATOR
        elif not self.rows_fitted.get(row.scenario.software.name, 0) and kind != NEW_ACCELERATOR:
            kind = NEW_SOFTWARE
        return replace(row, step_seconds=seconds_with(row, self.numbers), interval_kind=kind)


FoldFits = Mapping[str, FoldFit]
"""Fold → its numbers."""


@dataclass(frozen=True, slots=True)
class FoldErrors:
    """Errors of timed rows, and the fraction of them inside their prediction intervals."""

    time: TimeErrors
    inside_fraction: float | None

    @classmethod
    def of(cls, timed: Sequence[Prediction]) -> FoldErrors:
        """Of these rows, against the intervals that ship."""
        covered = coverage(timed, [], intervals.shipped())["step_seconds"]["all"]
        return cls(errors_of(timed), covered.inside_fraction)


@dataclass(frozen=True, slots=True)
class FoldsErrors:
    """Errors of every fold and of all rows; macro_: the mean over folds, each counted once."""

    total: FoldErrors
    macro_mape_fraction: float | None
    by_fold: Mapping[str, FoldErrors]

    @classmethod
    def of(cls, timed: Sequence[Prediction], fold_of: FoldOf) -> FoldsErrors:
        """Of these rows."""
        by_fold = {
            fold: FoldErrors.of([row for row in timed if fold_of(row) == fold])
            for fold in sorted({fold_of(row) for row in timed})
        }
        mapes = [errors.time.mape_fraction for errors in by_fold.values()]
        macro = mean([mape for mape in mapes if mape is not None])
        return cls(FoldErrors.of(timed), macro, by_fold)


@dataclass(frozen=True, slots=True)
class LeaveOneOut:
    """Errors of predictions by coefficients that never saw the row's fold.

    by: what a fold is. timed: the rows as predicted. errors: of dense models and of models with
    experts (moe).
    """

    by: LeaveOut
    timed: Sequence[Prediction]
    validation: Validation
    errors: Mapping[Models, FoldsErrors]
    fold_fits: FoldFits

    def to_document(self) -> dict[str, Any]:
        """As of `Validation`; errors of the folds; what each fold was predicted with."""
        return {
            **self.validation.to_document(),
            "left_out_by": self.by,
            "left_out": {models: asdict(errors) for models, errors in self.errors.items()},
            "leave_one_out": {fold: fit.to_document() for fold, fit in self.fold_fits.items()},
        }


def predict_left_out(
    runs: Iterable[PublishedRun], selection: Selection, by: LeaveOut = "source"
) -> LeaveOneOut:
    """Predict every fold without its rows, and summarise the errors of the selected rows.

    Raises:
        InputError: `by` is none of FOLDS, or a row is so far off that something else is wrong.
    """
    fold_of = _fold_of(by)
    rows = list(runs)
    # the half and the models only say which errors are shown: fits are the same for all
    every = predict_rows(replace(selection, half="all", models="all").rows(rows)).rows
    timed = [row for row in every if is_timed(row, selection.min_mfu)]
    fold_fits = fits_without(timed, fold_of)
    selected = predict_rows(selection.rows(rows))
    predictions = left_out(selected.rows, fold_fits, fold_of)
    shown = [row for row in predictions if is_timed(row, selection.min_mfu)]
    errors: dict[Models, FoldsErrors] = {
        "dense": FoldsErrors.of([r for r in shown if r.scenario.model.moe is None], fold_of),
        "moe": FoldsErrors.of([r for r in shown if r.scenario.model.moe is not None], fold_of),
    }
    validation = summarise(selected._replace(rows=predictions), selection.min_mfu)
    return LeaveOneOut(by, shown, validation, errors, fold_fits)


def _fold_of(by: str) -> FoldOf:
    for known, fold_of in FOLDS.items():
        if known == by:
            return fold_of
    raise InputError(
        f"'{by}' cannot be left out",
        key="by",
        allowed=", ".join(FOLDS),
        nearest=nearest_of(by, FOLDS),
    )


def left_out(rows: Iterable[Prediction], fold_fits: FoldFits, fold_of: FoldOf) -> list[Prediction]:
    """The rows as predicted without their folds; folds without a timed row had no part in fits."""
    return [
        fold_fits[fold_of(row)].predicted(row) if fold_of(row) in fold_fits else row for row in rows
    ]


def fits_without(timed: Sequence[Prediction], fold_of: FoldOf = source_of) -> FoldFits:
    """For each fold of the rows: numbers fitted to the rows of all other folds."""
    numbers = shipped_numbers(timed)
    model = linearise(timed, numbers, list(numbers))
    profiles = {name: rows[0].scenario.software for name, rows in by_profile(timed).items()}
    priors = _strangers(numbers, profiles)
    return {
        fold: _fit_without(model, fold, fold_of, profiles, priors)
        for fold in sorted({fold_of(row) for row in timed})
    }


def _strangers(numbers: Numbers, profiles: Mapping[str, Software]) -> dict[Number, float]:
    """What is known of numbers whose rows were never seen: medians of others' numbers.

    Of clocks: of other accelerator types in the same precision. The usual cluster is that of all.
    """
    others = {name: coefficients_of_others(software) for name, software in profiles.items()}

    def prior(number: Number, value: float) -> float:
        if number.holder == "software":
            return others[number.owner][number.name]
        if number.holder == "clock":
            clocks = [
                known
                for other, known in numbers.items()
                if other.holder == "clock"
                and other.name == number.name
                and other.owner != number.owner
            ]
            return float(median(clocks)) if clocks else value
        return value

    return {number: prior(number, value) for number, value in numbers.items()}


def _fit_without(
    model: Linearised,
    fold: str,
    fold_of: FoldOf,
    profiles: Mapping[str, Software],
    priors: Numbers,
) -> FoldFit:
    """Numbers from the rows of other folds; what these say nothing of stays at its prior.

    A profile with too few rows there takes its kin's numbers, if these have enough.
    """
    kept = [fold_of(row) != fold for row in model.rows]
    others = [row for row in model.rows if fold_of(row) != fold]
    counts = Counter(row.scenario.software.name for row in others)
    enough = {name: counts[name] if counts[name] >= MIN_PUBLISHED_ROWS else 0 for name in profiles}
    # without a row to follow, numbers would follow the point that the errors are linear around
    free = [n for n in model.columns if n.holder != "software" or enough[n.owner]]
    numbers = dict(priors) | (solve(model.only(kept, free), priors) if others else {})
    rows_fitted, kin = {}, {}
    for name in {row.scenario.software.name for row in model.rows if fold_of(row) == fold}:
        rows_fitted[name] = enough[name]
        if not enough[name]:
            relative = profiles[name].kin
            kin[name] = relative if relative is not None and enough.get(relative) else None
            if kin[name] is not None:
                for c in COEFFICIENTS:
                    numbers[Number("software", name, c.name)] = numbers[
                        Number("software", str(kin[name]), c.name)
                    ]
    known = frozenset(clock_of(row.scenario) for row in others)
    return FoldFit(numbers, rows_fitted, kin, known, measured_features(others))


def measured_features(timed: Iterable[Prediction]) -> dict[str, tuple[str, ...]]:
    """Feature → accelerator types with a timed row of it."""
    parts: dict[str, set[str]] = {name: set() for name in FEATURES}
    for row in timed:
        for name in features_of(row.scenario.model):
            parts[name].add(row.scenario.topology.accelerator.name)
    return {name: tuple(sorted(found)) for name, found in parts.items()}
