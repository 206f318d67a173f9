"""Two runs of a stack never seen, tuned to, and the stack's other runs predicted.

    python benchmarks/own_runs.py

For every source of the published runs' fitting half with LEAST rows of one profile: the profile is
fitted to the other sources' rows, as for a user whose stack nobody published; `calibrate_own` tunes
it to two runs of the source, the first two different ones by the SHA-256 of their ids; the others
are predicted before and after. Prints the table of docs/calibrate.md.
"""

from __future__ import annotations

import hashlib
from collections import defaultdict
from collections.abc import Mapping, Sequence

from planner.errors import InputError
from planner.evidence.fits.left_out import coefficients_without
from planner.evidence.fits.software import COEFFICIENTS, step_seconds, with_coefficients
from planner.evidence.metrics import TimeErrors
from planner.evidence.own_runs_fit import OwnRun, calibrate_own
from planner.evidence.published_runs import PUBLISHED_RUNS, read_runs
from planner.evidence.validate_runs import Prediction, chosen, is_timed, predict_runs
from planner.problem.software import Software

LEAST = 6
MIN_MFU = 0.15


def order(row: Prediction) -> str:
    """Where a row stands, by nothing that was measured."""
    return hashlib.sha256(row.run.id.encode()).hexdigest()


def own(row: Prediction, software: Software) -> OwnRun:
    """The row as a user's own on a profile."""
    scenario = row.scenario.model_copy(update={"software": software})
    seconds = step_seconds(row, software)
    assert row.measured_seconds is not None
    return OwnRun(
        row.name, scenario, row.layout, row.splits, seconds, row.measured_seconds, row.source
    )


def errors(rows: Sequence[OwnRun], values: Mapping[str, float]) -> TimeErrors:
    """Of the rows with the numbers of a profile."""
    seconds = [
        step_seconds(row, with_coefficients(row.scenario.software, values, "tuned")) for row in rows
    ]
    return TimeErrors.of(
        [s / row.measured_seconds - 1 for s, row in zip(seconds, rows, strict=True)]
    )


def first_two(rows: Sequence[OwnRun]) -> list[OwnRun]:
    """The first row and the first of its software that differs from it."""
    first = rows[0]
    alike = [row for row in rows if row.scenario.software == first.scenario.software]
    other = next(r for r in alike if (r.scenario, r.layout) != (first.scenario, first.layout))
    return [first, other]


def main() -> None:
    """Print the table."""
    predictions, _ = predict_runs(chosen(read_runs(PUBLISHED_RUNS), "AB", "fit", "all"))
    timed = [p for p in predictions if is_timed(p, MIN_MFU)]
    left = coefficients_without(timed)
    groups: dict[tuple[str, str], list[Prediction]] = defaultdict(list)
    for row in timed:
        groups[row.source, row.scenario.software.name].append(row)
    print("| source | profile | others | before | bias | after | bias | moved most |")
    print("|---|---|---|---|---|---|---|---|")
    for (source, profile), members in sorted(groups.items()):
        if len(members) < LEAST:
            continue
        values = left[source][profile].coefficients
        rows = [
            own(row, with_coefficients(row.scenario.software, values, "without the source"))
            for row in sorted(members, key=order)
        ]
        two = first_two(rows)
        others = [row for row in rows if row not in two]
        before, moved = errors(others, values), "refused: no better"
        after = before
        try:
            found = calibrate_own(two)
            after = errors(others, found.fitted.coefficients)
            moved = most_moved(found.fitted.moved)
        except InputError as error:
            moved = moved if "better" in error.message else error.message
        cells = [f"{100 * (e or 0.0):.1f} %" for e in (before.mape_fraction, after.mape_fraction)]
        biases = [f"{100 * (e or 0.0):+.1f} %" for e in (before.bias_fraction, after.bias_fraction)]
        print(f"| {source} | {profile} | {len(others)} | {cells[0]} | {biases[0]} | "
              f"{cells[1]} | {biases[1]} | {moved} |")  # fmt: skip


def most_moved(moved: Mapping[str, tuple[float, float]]) -> str:
    """The number that moved most by its scale."""
    scale = {c.name: c.scale for c in COEFFICIENTS}
    name = max(moved, key=lambda n: abs(moved[n][1] - moved[n][0]) / scale[n])
    return f"{name} {moved[name][0]:.4g} → {moved[name][1]:.4g}"


if __name__ == "__main__":
    main()
