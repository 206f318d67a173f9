"""Entry points: one function for each command that compares with measurements.

Users:

    planner validate runs [FILE...]           validate_runs
    planner validate collectives [FILE...]    validate_collectives
    planner validate kernels [FILE...]        validate_kernels
    planner calibrate runs FILE               calibrate_own_runs, where is_own(FILE)
    planner calibrate collectives LOG...      calibrate_collectives
    planner calibrate kernels FILE...         calibrate_kernels

Maintainers, see `evidence.maintenance`:

    planner calibrate runs                    calibrate_runs
    planner calibrate errors                  calibrate_errors
    planner validate runs --leave-one-out     validate_left_out (by source or by model family)
    planner validate runs --report DIR        accuracy

Options of rows (quality, min_mfu, half, models) are those of `row_predictions.Selection`.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from planner.evidence.collective_logs import PUBLISHED_COLLECTIVES, read_sweeps
from planner.evidence.fabric_fit import FabricCalibration, fit_fabric
from planner.evidence.fitted_files import profile_yaml
from planner.evidence.kernel_fit import KernelCalibration, fit_kernels
from planner.evidence.kernel_measurements import package_files, read_latencies
from planner.evidence.maintenance.accuracy import Accuracy, measure_accuracy
from planner.evidence.maintenance.intervals import IntervalCalibration, fit_intervals
from planner.evidence.maintenance.left_out import LeaveOneOut, LeaveOut, predict_left_out
from planner.evidence.maintenance.profiles import RunsCalibration, fit_profiles
from planner.evidence.operators import attention_errors, expert_errors
from planner.evidence.own_runs import is_own, read_own_runs
from planner.evidence.own_runs_fit import OwnCalibration, tune_profile
from planner.evidence.published_runs import PUBLISHED_RUNS, PublishedRun, read_runs
from planner.evidence.row_predictions import Half, Models, Selection
from planner.evidence.validate_collectives import CollectivesValidation, compare_sweeps
from planner.evidence.validate_kernels import KernelsValidation, compare_latencies
from planner.evidence.validate_runs import Validation, validate_runs
from planner.inputs.values import load
from planner.problem.topology import Topology

Paths = Iterable[str | Path]

# ---------------------------------------------------------------- what users run


def calibrate_own_runs(paths: Paths) -> OwnCalibration:
    """A software profile tuned to a user's two or three runs.

    Raises:
        InputError: a file cannot be read, a run cannot be costed, or the runs determine nothing.
    """
    return tune_profile([run for path in paths for run in read_own_runs(path)])


def validate_collectives(
    paths: Paths = (PUBLISHED_COLLECTIVES,), topology: Topology | str | Path | None = None
) -> CollectivesValidation:
    """Predictions of measured collectives (nccl-tests text or JSON lines), and their errors.

    topology: what they ran on; without it the shipped fabrics that match their configuration.

    Raises:
        InputError: a file cannot be read, or does not fit the topology.
    """
    on = None if topology is None else _topology(topology)
    return compare_sweeps(read_sweeps(paths), on)


def validate_kernels(paths: Paths = ()) -> KernelsValidation:
    """Predictions of measured matrix products (CSV, parquet), and their errors.

    Without paths: the products of the package aiconfigurator-core that no fit has seen, and its
    attention and expert kernels.

    Raises:
        InputError: a file cannot be read or holds nonsense, or the package is not installed.
    """
    given = tuple(paths)
    tables = read_latencies(given)
    if given:
        return compare_latencies(tables)
    return compare_latencies(
        tables,
        attention_errors(package_files("attention")),
        expert_errors(package_files("moe")),
        scored="held_out",
    )


def calibrate_collectives(
    paths: Paths, topology: Topology | str | Path, name: str | None = None
) -> FabricCalibration:
    """A fabric fitted to nccl-tests logs: that of the outermost tier they cross.

    Raises:
        InputError: a file cannot be read, or the logs do not fit the topology or each other.
    """
    return fit_fabric(read_sweeps(paths), _topology(topology), name)


def calibrate_kernels(paths: Paths = ()) -> KernelCalibration:
    """Matmul coefficients of accelerators fitted to measured products; without paths the package's.

    Raises:
        InputError: as `validate_kernels`, or too few shapes of an accelerator and type.
    """
    return fit_kernels(read_latencies(paths))


# ---------------------------------------------------------------- what maintainers run


def calibrate_runs(
    paths: Paths = (PUBLISHED_RUNS,),
    *,
    quality: str = "AB",
    min_mfu: float = 0.15,
    half: Half = "all",
    afresh: bool = False,
) -> RunsCalibration:
    """Software coefficients fitted to published runs, for each profile that they touch.

    afresh: start from what the other shipped profiles have, not from the profile's own numbers.

    Raises:
        InputError: a file cannot be read, an option is none of its values, or the rows are too few
            or absurd.
    """
    return fit_profiles(_rows(paths), Selection(quality, min_mfu, half), afresh=afresh)


def calibrate_errors(
    paths: Paths = (PUBLISHED_RUNS,), *, quality: str = "AB", min_mfu: float = 0.15
) -> IntervalCalibration:
    """Prediction intervals of published runs, each left out of its prediction, and their coverage.

    Raises:
        InputError: a file cannot be read, an option is none of its values, or nothing is timed.
    """
    return fit_intervals(_rows(paths), Selection(quality, min_mfu))


def validate_left_out(
    paths: Paths = (PUBLISHED_RUNS,),
    *,
    quality: str = "AB",
    min_mfu: float = 0.0,
    half: Half = "all",
    models: Models = "all",
    by: LeaveOut = "source",
) -> LeaveOneOut:
    """Predictions of published runs by software coefficients that never saw the run's source.

    by: what is left out at a time: a source, or a family of models.

    Raises:
        InputError: a file cannot be read, or an option is none of its values.
    """
    return predict_left_out(_rows(paths), Selection(quality, min_mfu, half, models), by)


def accuracy(
    paths: Paths = (PUBLISHED_RUNS,),
    *,
    quality: str = "AB",
    min_mfu: float = 0.0,
    models: Models = "all",
    left_out: LeaveOneOut | None = None,
) -> Accuracy:
    """Errors of both halves of published runs, a point per row, and those of other planners.

    left_out: what `validate_left_out` gave for the same rows, to show as well.

    Raises:
        InputError: a file cannot be read, or an option is none of its values.
    """
    return measure_accuracy(_rows(paths), Selection(quality, min_mfu, models=models), left_out)


# ---------------------------------------------------------------- files


def _rows(paths: Paths) -> list[PublishedRun]:
    return [run for path in paths for run in read_runs(path)]


def _topology(given: Topology | str | Path) -> Topology:
    return given if isinstance(given, Topology) else load(given, "topology", Topology)


__all__ = [
    "PUBLISHED_COLLECTIVES",
    "PUBLISHED_RUNS",
    "Accuracy",
    "CollectivesValidation",
    "FabricCalibration",
    "IntervalCalibration",
    "KernelCalibration",
    "KernelsValidation",
    "LeaveOneOut",
    "OwnCalibration",
    "RunsCalibration",
    "Validation",
    "accuracy",
    "calibrate_collectives",
    "calibrate_errors",
    "calibrate_kernels",
    "calibrate_own_runs",
    "calibrate_runs",
    "is_own",
    "profile_yaml",
    "read_runs",
    "validate_collectives",
    "validate_kernels",
    "validate_left_out",
    "validate_runs",
]
