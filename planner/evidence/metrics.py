"""How far predictions are from measurements: pure functions of numbers, whatever their order.

Errors are relative, predicted / measured − 1, unless a docstring says otherwise.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from itertools import combinations
from typing import Any

import numpy as np

SAME_FRACTION = 0.02
"""Measurements this near each other, relatively, are not ranked: repeats differ as much."""


@dataclass(frozen=True, slots=True)
class TimeErrors:
    """Relative errors of step time; null without rows.

    mape (the mean), median and p95 are of the absolute error, bias is the mean of the signed one.
    """

    rows: int
    mape_fraction: float | None
    median_fraction: float | None
    bias_fraction: float | None
    p95_fraction: float | None

    @classmethod
    def of(cls, errors: Sequence[float]) -> TimeErrors:
        """Summarise signed relative errors."""
        if not errors:
            return cls(0, None, None, None, None)
        signed = np.sort(np.asarray(errors, dtype=float))
        size = np.sort(np.abs(signed))
        return cls(
            rows=len(errors),
            mape_fraction=float(np.mean(size)),
            median_fraction=float(np.median(size)),
            bias_fraction=float(np.mean(signed)),
            p95_fraction=float(np.quantile(size, 0.95)),
        )


@dataclass(frozen=True, slots=True)
class Candidate:
    """One row of a ranking group.

    predicted, measured: cost in accelerator-seconds per token; measured is null for a run that ran
    out of memory. fits: the planner's own verdict. repeat_key: what repeats of one configuration
    share.
    """

    id: str
    repeat_key: str
    predicted: float
    measured: float | None
    fits: bool


def pair_scores(candidates: Sequence[Candidate]) -> list[float]:
    """1 for each pair of timed rows that is predicted in the measured order, else 0; a tie is ½.

    Left out: repeats of one configuration, and pairs measured within SAME_FRACTION.
    """
    scores = []
    for a, b in combinations(candidates, 2):
        if a.measured is None or b.measured is None or a.repeat_key == b.repeat_key:
            continue
        if abs(a.measured - b.measured) <= SAME_FRACTION * min(a.measured, b.measured):
            continue
        agreement = np.sign(a.predicted - b.predicted) * np.sign(a.measured - b.measured)
        scores.append(float((1 + agreement) / 2))
    return scores


def pick(candidates: Sequence[Candidate]) -> Candidate | None:
    """The row predicted fastest (the first by id among equals); None of no rows."""
    return min(candidates, key=lambda row: (row.predicted, row.id), default=None)


def regret(candidates: Sequence[Candidate]) -> float | None:
    """Measured cost of our pick among timed rows over the lowest, minus 1; None without timed rows.

    Repeats of a configuration count as their median: the lowest of many repeats is luck.
    """
    repeats: dict[str, list[float]] = {}
    for row in candidates:
        if row.measured is not None:
            repeats.setdefault(row.repeat_key, []).append(row.measured)
    picked = pick([row for row in candidates if row.measured is not None])
    if picked is None:
        return None
    measured = {key: float(np.median(costs)) for key, costs in repeats.items()}
    return measured[picked.repeat_key] / min(measured.values()) - 1


@dataclass(frozen=True, slots=True)
class Ranking:
    """How well the layouts of one job are ordered, over the groups of such layouts.

    pairwise: the mean of `pair_scores`. picks: groups in which we pick a row that fits by our own
    verdict; picks_oom: those of them that ran out of memory.
    """

    groups: int
    pairwise_fraction: float | None
    regret_median_fraction: float | None
    regret_max_fraction: float | None
    picks: int
    picks_oom: int

    @classmethod
    def of(cls, groups: Sequence[Sequence[Candidate]]) -> Ranking:
        """Judge groups that each have timed rows of several layouts, and any that ran out."""
        scores = [score for group in groups for score in pair_scores(group)]
        regrets = [loss for group in groups if (loss := regret(group)) is not None]
        picked = [
            row for group in groups if (row := pick([r for r in group if r.fits])) is not None
        ]
        return cls(
            groups=len(groups),
            pairwise_fraction=mean(scores),
            regret_median_fraction=float(np.median(regrets)) if regrets else None,
            regret_max_fraction=max(regrets, default=None),
            picks=len(picked),
            picks_oom=sum(row.measured is None for row in picked),
        )


@dataclass(frozen=True, slots=True)
class Fits:
    """Verdicts on runs that ran (fit) or ran out of memory (oom), true or false.

    fragile_fit and fragile_oom are those of true_fit and false_fit that were judged fragile.
    """

    true_fit: int
    false_fit: int
    true_oom: int
    false_oom: int
    fragile_fit: int
    fragile_oom: int

    @classmethod
    def of(cls, verdicts: Sequence[tuple[str, bool]]) -> Fits:
        """Count (verdict: fits | fragile | no, whether the run ran out of memory)."""

        def count(oom: bool, *kinds: str) -> int:
            return sum(verdict in kinds and ran_out == oom for verdict, ran_out in verdicts)

        return cls(
            true_fit=count(False, "fits", "fragile"),
            false_fit=count(True, "fits", "fragile"),
            true_oom=count(True, "no"),
            false_oom=count(False, "no"),
            fragile_fit=count(False, "fragile"),
            fragile_oom=count(True, "fragile"),
        )

    @property
    def balanced_accuracy(self) -> float | None:
        """Mean of the fractions of either sort of row judged right; null without both sorts.

        Balanced, since four of five rows ran: to say that all fit would be right for those.
        """
        ran, ran_out = self.true_fit + self.false_oom, self.true_oom + self.false_fit
        if not ran or not ran_out:
            return None
        return (self.true_fit / ran + self.true_oom / ran_out) / 2

    def to_document(self) -> dict[str, Any]:
        """The counts and the balanced accuracy."""
        return asdict(self) | {"balanced_accuracy": self.balanced_accuracy}


@dataclass(frozen=True, slots=True)
class MemoryErrors:
    """Relative errors of peak memory: the median absolute one, the largest below and above.

    Both largest ones are positive: an underestimate is a run that dies, an overestimate one lost.
    """

    rows: int
    median_fraction: float | None
    max_under_fraction: float | None
    max_over_fraction: float | None

    @classmethod
    def of(cls, errors: Sequence[float]) -> MemoryErrors:
        """Summarise signed relative errors."""
        if not errors:
            return cls(0, None, None, None)
        return cls(
            rows=len(errors),
            median_fraction=float(np.median(np.abs(errors))),
            max_under_fraction=max(0.0, -min(errors)),
            max_over_fraction=max(0.0, *errors),
        )


@dataclass(frozen=True, slots=True)
class Coverage:
    """The fraction of measurements inside their prediction intervals, ends included."""

    rows: int
    inside_fraction: float | None
    below_fraction: float | None
    above_fraction: float | None

    @classmethod
    def of(cls, ratios: Sequence[tuple[float, float, float]]) -> Coverage:
        """Count (measured / predicted, low end, high end)."""
        if not ratios:
            return cls(0, None, None, None)
        below = mean([ratio < low for ratio, low, _ in ratios])
        above = mean([ratio > high for ratio, _, high in ratios])
        inside = mean([low <= ratio <= high for ratio, low, high in ratios])
        return cls(len(ratios), inside, below, above)


def mean(values: Sequence[float]) -> float | None:
    """The mean; null of no values."""
    # sorted, so that rows in any order give the same bits
    return float(np.mean(np.sort(values))) if len(values) else None
