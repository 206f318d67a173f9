"""Budgets and progress: what a search reports, and when it must stop."""

from math import inf

import pytest

from planner.search.interface import Budget, Progress

HALFWAY = Progress(layouts=10, opened=2, placements=30, best_seconds=4.0, bound_seconds=3.0)


def test_a_budget_without_a_limit_lasts_until_the_watch_stops_it() -> None:
    seen: list[Progress] = []

    def watch(progress: Progress, /) -> bool:
        seen.append(progress)
        return len(seen) > 1

    budget = Budget.of(None, watch)
    assert budget.seconds_left is None and not budget.is_out_of_time
    assert not budget.is_spent(HALFWAY)
    assert budget.is_spent(HALFWAY)
    assert seen == [HALFWAY, HALFWAY]


def test_a_budget_is_spent_at_its_deadline_and_still_reports() -> None:
    seen: list[Progress] = []
    budget = Budget.of(0.0, lambda progress: bool(seen.append(progress)))
    assert budget.seconds_left == 0.0 and budget.is_out_of_time
    assert budget.is_spent(HALFWAY) and seen == [HALFWAY]
    left = Budget.of(3600.0).seconds_left
    assert left is not None and 3590.0 < left <= 3600.0


@pytest.mark.parametrize(
    ("best", "bound", "gap"), [(4.0, 3.0, 0.25), (4.0, 5.0, 0.0), (inf, 3.0, 1.0)]
)
def test_the_gap_lies_between_nothing_and_all(best: float, bound: float, gap: float) -> None:
    assert Progress(1, 1, 1, best, bound).gap_fraction == gap
