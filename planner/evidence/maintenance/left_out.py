"""Rows predicted as if their source had never been seen: `planner validate runs --leave-one-out`.

Rows are grouped into folds by a function, `fold_of`: by source unless another is given. A fold is
predicted with software coefficients fitted, afresh, to the fitted half of the other folds' rows. A
profile that no other fold has enough rows of takes the medians of the other profiles' numbers.

Kernel, clock and fabric figures stay as shipped: they come from measurements of operators, except
the sustained clock and some attention rates.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from planner.evidence.maintenance.profiles import by_profile, coefficients_of_others
from planner.evidence.profile_fit import (
    MIN_PUBLISHED_ROWS,
    Values,
    fit_profile,
    step_seconds,
    with_coefficients,
)
from planner.evidence.published_runs import PublishedRun
from planner.evidence.row_predictions import (
    Prediction,
    Selection,
    in_half,
    is_timed,
    predict_rows,
)
from planner.evidence.validate_runs import Validation, summarise
from planner.problem.software import Software

FoldOf = Callable[[Prediction], str]
"""A row → the fold that it is left out with."""


def source_of(row: Prediction) -> str:
    """Folds by source: rows of one publication share a machine, a stack and an author."""
    return row.source


@dataclass(frozen=True, slots=True)
class FoldFit:
    """The numbers that one profile's rows of a fold are predicted with.

    rows_fitted: how many rows of other folds they were fitted to; 0 for medians of other profiles.
    """

    rows_fitted: int
    coefficients: Values


FoldFits = Mapping[str, Mapping[str, FoldFit]]
"""Fold → profile → its numbers."""


@dataclass(frozen=True, slots=True)
class LeaveOneOut:
    """Errors of predictions by coefficients that never saw the row's fold."""

    validation: Validation
    fold_fits: FoldFits

    def to_document(self) -> dict[str, Any]:
        """As of `Validation`, and what each fold was predicted with."""
        folds = {
            fold: {
                profile: {"rows_fitted": fit.rows_fitted, "coefficients": dict(fit.coefficients)}
                for profile, fit in fits.items()
            }
            for fold, fits in self.fold_fits.items()
        }
        return {**self.validation.to_document(), "leave_one_out": folds}


def predict_left_out(
    runs: Iterable[PublishedRun], selection: Selection, fold_of: FoldOf = source_of
) -> LeaveOneOut:
    """Predict every fold without its rows, and summarise the errors of the selected rows."""
    rows = list(runs)
    # the selected half only says which errors are shown: fits are the same for either
    every, _ = predict_rows(replace(selection, half="all").rows(rows))
    timed = [row for row in every if is_timed(row, selection.min_mfu)]
    fold_fits = fits_without(timed, fold_of)
    selected, skipped = predict_rows(selection.rows(rows))
    predictions = [
        replace(row, step_seconds=step_seconds(row, _software(row, fold_fits, fold_of)))
        for row in selected
    ]
    return LeaveOneOut(summarise(predictions, skipped, selection.min_mfu), fold_fits)


def fits_without(timed: Sequence[Prediction], fold_of: FoldOf = source_of) -> FoldFits:
    """For each fold and profile of the rows: numbers fitted to the other folds' rows."""
    fold_fits: dict[str, dict[str, FoldFit]] = {}
    for name, rows in by_profile(timed).items():
        software = rows[0].scenario.software
        prior = coefficients_of_others(software)
        # profiles of one framework, run in different ways, share their numbers
        kin = (row for row in timed if row.scenario.software.family == software.family)
        fittable = [row for row in kin if in_half(row.run, "fit")]
        # folds without a fittable row of this framework all leave the same rows to fit to
        fits: dict[tuple[str, ...], Values] = {}
        for fold in sorted({fold_of(row) for row in rows}):
            others = [row for row in fittable if fold_of(row) != fold]
            if len(others) < MIN_PUBLISHED_ROWS:
                fold_fits.setdefault(fold, {})[name] = FoldFit(0, prior)
                continue
            key = tuple(sorted({fold_of(row) for row in others}))
            if key not in fits:
                fits[key] = fit_profile(others, prior).coefficients
            fold_fits.setdefault(fold, {})[name] = FoldFit(len(others), fits[key])
    return fold_fits


def _software(row: Prediction, fold_fits: FoldFits, fold_of: FoldOf) -> Software:
    software = row.scenario.software
    fit = fold_fits.get(fold_of(row), {}).get(software.name)
    if fit is None:  # a fold without a timed row had no part in any fit
        return software
    return with_coefficients(software, fit.coefficients, "fitted without this source")
