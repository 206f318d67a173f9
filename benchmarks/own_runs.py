"""A profile tuned to two runs of an unknown stack, and the stack's other runs predicted.

    python benchmarks/own_runs.py

For every source of the published runs with MIN_ROWS rows of one profile: profile, clocks and
cluster are fitted to the other sources' rows, as for a user whose stack nobody published;
`tune_profile` tunes the profile to two runs of the source, the first two different ones by the
SHA-256 of their ids; the source's other rows are predicted before and after. Prints the table of
docs/calibrate.md.
"""

from __future__ import annotations

import hashlib
from collections import defaultdict
from collections.abc import Mapping, Sequence

from planner.errors import InputError
from planner.evidence.maintenance.joint_fit import Numbers, seconds_with, with_numbers
from planner.evidence.maintenance.left_out import fits_without
from planner.evidence.metrics import TimeErrors
from planner.evidence.own_runs_fit import OwnRun, tune_profile
from planner.evidence.profile_fit import COEFFICIENTS, step_seconds, with_coefficients
from planner.evidence.published_runs import PUBLISHED_RUNS, read_runs
from planner.evidence.row_predictions import Prediction, Selection, is_timed, predict_rows
from planner.problem.overheads import ENDS, NUMBERS

MIN_ROWS = 6
SELECTION = Selection(min_mfu=0.15, half="all")


def by_hash(row: Prediction) -> str:
    """An order of rows by nothing that was measured."""
    return hashlib.sha256(row.name.encode()).hexdigest()


def as_users(row: Prediction, numbers: Numbers) -> OwnRun:
    """The row as a user's run of a stack, on accelerators and a cluster with these numbers."""
    assert row.measured_seconds is not None
    # what fits change is not validated, and is compared as text here
    topology = with_numbers(row.scenario, numbers).topology
    clocks = topology.accelerator.sustained_fraction
    waits = {name: getattr(topology.overheads, name) for name in NUMBERS}
    topology = row.scenario.topology.replace(
        accelerator=row.scenario.topology.accelerator.replace(sustained_fraction=clocks),
        overheads=row.scenario.topology.overheads.replace(
            **waits, **{f"{name}_{end}": waits[name] for name in NUMBERS for end in ENDS}
        ),
    )
    scenario = row.scenario.model_copy(update={"topology": topology})
    values = {n.name: v for n, v in numbers.items() if n.owner == row.scenario.software.name}
    software = with_coefficients(row.scenario.software, values, "without the source")
    return OwnRun(
        name=row.name,
        scenario=scenario.model_copy(update={"software": software}),
        layout=row.layout,
        splits=row.splits,
        step_seconds=seconds_with(row, numbers),
        measured_seconds=row.measured_seconds,
        path=row.source,
    )


def errors(runs: Sequence[OwnRun], values: Mapping[str, float]) -> TimeErrors:
    """Errors of the runs with these numbers of their profile."""
    return TimeErrors.of(
        [
            step_seconds(run, with_coefficients(run.scenario.software, values, "tuned"))
            / run.measured_seconds
            - 1
            for run in runs
        ]
    )


def first_two(runs: Sequence[OwnRun]) -> list[OwnRun]:
    """The first run and the first of its software that differs from it."""
    first = runs[0]
    same_software = [run for run in runs if run.scenario.software == first.scenario.software]
    other = next(
        run for run in same_software if (run.scenario, run.layout) != (first.scenario, first.layout)
    )
    return [first, other]


def largest_move(moved: Mapping[str, tuple[float, float]]) -> str:
    """The number that moved most by its scale."""
    scale = {c.name: c.scale for c in COEFFICIENTS}
    name = max(moved, key=lambda n: abs(moved[n][1] - moved[n][0]) / scale[n])
    return f"{name} {moved[name][0]:.4g} → {moved[name][1]:.4g}"


def table_row(
    source: str, profile: str, runs: Sequence[OwnRun], values: Mapping[str, float]
) -> str:
    """A source's row: its other runs before and after tuning to two.

    values: the profile's numbers, fitted without the source.
    """
    two = first_two(runs)
    others = [run for run in runs if run not in two]
    before = after = errors(others, values)
    try:
        fit = tune_profile(two).fit
        after = errors(others, fit.coefficients)
        moved = largest_move(fit.moved)
    except InputError as error:
        moved = "refused: no better" if "better" in error.message else error.message
    cells = [f"| {source} | {profile} | {len(others)}"]
    for summary in (before, after):
        cells.append(f"{100 * (summary.mape_fraction or 0.0):.1f} %")
        cells.append(f"{100 * (summary.bias_fraction or 0.0):+.1f} %")
    return " | ".join([*cells, f"{moved} |"])


def main() -> None:
    """Print the table."""
    predictions = predict_rows(SELECTION.rows(read_runs(PUBLISHED_RUNS))).rows
    timed = [row for row in predictions if is_timed(row, SELECTION.min_mfu)]
    fold_fits = fits_without(timed)
    groups: dict[tuple[str, str], list[Prediction]] = defaultdict(list)
    for row in timed:
        groups[row.source, row.scenario.software.name].append(row)
    print("| source | profile | others | before | bias | after | bias | moved most |")
    print("|---|---|---|---|---|---|---|---|")
    for (source, profile), rows in sorted(groups.items()):
        if len(rows) < MIN_ROWS:
            continue
        numbers = fold_fits[source].numbers
        values = {n.name: v for n, v in numbers.items() if n.owner == profile}
        runs = [as_users(row, numbers) for row in sorted(rows, key=by_hash)]
        print(table_row(source, profile, runs, values))


if __name__ == "__main__":
    main()
