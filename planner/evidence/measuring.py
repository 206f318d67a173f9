"""Predictions held against measurements, and parameters fitted to them, as one call each."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from planner.evidence import fabric_fit as calibration
from planner.evidence import kernel_fit
from planner.evidence import validate_collectives as collectives
from planner.evidence import validate_kernels as kernels
from planner.evidence.collective_logs import PUBLISHED, read_sweeps
from planner.evidence.fabric_fit import Calibration
from planner.evidence.fits import accuracy as accuracies
from planner.evidence.fits import intervals as error_bars
from planner.evidence.fits import left_out
from planner.evidence.fits import software as fitting
from planner.evidence.fits.accuracy import Accuracy
from planner.evidence.fits.intervals import ErrorCalibration
from planner.evidence.fits.left_out import LeaveOneOut
from planner.evidence.fits.software import RunsCalibration
from planner.evidence.kernel_fit import KernelCalibration
from planner.evidence.kernel_measurements import read_latencies
from planner.evidence.kernel_package import package_files
from planner.evidence.operators import attention_errors, expert_errors
from planner.evidence.published_runs import PUBLISHED_RUNS, PublishedRun, read_runs
from planner.evidence.validate_collectives import CollectivesValidation
from planner.evidence.validate_kernels import KernelsValidation
from planner.evidence.validate_runs import Half, Models
from planner.inputs.values import load
from planner.problem.topology import Topology


def validate_collectives(
    paths: Iterable[str | Path] = (PUBLISHED,), topology: Topology | str | Path | None = None
) -> CollectivesValidation:
    """Measured collectives (nccl-tests text or JSON lines) beside their predictions.

    topology: what they ran on; without it the shipped fabrics that match their configuration.

    Raises:
        InputError: a file cannot be read, or does not fit the topology.
    """
    return collectives.validate_collectives(read_sweeps(paths), _topology(topology))


def calibrate_collectives(
    paths: Iterable[str | Path], topology: Topology | str | Path, name: str | None = None
) -> Calibration:
    """A fabric fitted to nccl-tests logs: that of the outermost tier they cross.

    Raises:
        InputError: a file cannot be read, or the logs do not fit the topology or each other.
    """
    found = _topology(topology)
    assert found is not None
    return calibration.calibrate(read_sweeps(paths), found, name)


def validate_kernels(paths: Iterable[str | Path] = ()) -> KernelsValidation:
    """Measured matrix products (CSV, parquet) beside their predictions.

    Without paths those of the package aiconfigurator-core that no fit has seen, and its attention
    and expert kernels.

    Raises:
        InputError: a file cannot be read or holds nonsense, or the package is not installed.
    """
    files_ = tuple(paths)
    tables = read_latencies(files_)
    if files_:
        return kernels.validate_kernels(tables)
    return kernels.validate_kernels(
        tables,
        attention_errors(package_files("attention")),
        expert_errors(package_files("moe")),
        scored="held_out",
    )


def calibrate_kernels(paths: Iterable[str | Path] = ()) -> KernelCalibration:
    """Matmul coefficients of accelerators fitted to measured products; without paths the package's.

    Raises:
        InputError: as `validate_kernels`, or too few shapes of a part and type.
    """
    return kernel_fit.calibrate(read_latencies(paths))


def validate_left_out(
    paths: Iterable[str | Path] = (PUBLISHED_RUNS,),
    *,
    quality: str = "AB",
    min_mfu: float = 0.0,
    half: Half = "all",
    models: Models = "all",
) -> LeaveOneOut:
    """Measured runs beside predictions by software coefficients that never saw the run's source.

    Raises:
        InputError: a file cannot be read, or an option is none of its values.
    """
    return left_out.validate_left_out(
        _runs(paths), quality=quality, min_mfu=min_mfu, half=half, models=models
    )


def accuracy(
    paths: Iterable[str | Path] = (PUBLISHED_RUNS,),
    *,
    quality: str = "AB",
    min_mfu: float = 0.0,
    models: Models = "all",
    left_out: LeaveOneOut | None = None,
) -> Accuracy:
    """Errors of both halves of measured runs, a point per row, other planners beside.

    left_out: what `validate_left_out` gave for the same rows, to show beside.

    Raises:
        InputError: a file cannot be read, or an option is none of its values.
    """
    return accuracies.accuracy(
        _runs(paths), quality=quality, min_mfu=min_mfu, models=models, left_out=left_out
    )


def calibrate_runs(
    paths: Iterable[str | Path] = (PUBLISHED_RUNS,),
    *,
    quality: str = "AB",
    min_mfu: float = 0.15,
    half: Half = "fit",
    afresh: bool = False,
) -> RunsCalibration:
    """Software coefficients fitted to measured runs, for each profile that they touch.

    afresh: start from what the other shipped profiles have, not from the profile's own numbers.

    Raises:
        InputError: a file cannot be read, an option is none of its values, or the rows are too few
            or absurd.
    """
    return fitting.calibrate_runs(
        _runs(paths), quality=quality, min_mfu=min_mfu, half=half, afresh=afresh
    )


def calibrate_errors(
    paths: Iterable[str | Path] = (PUBLISHED_RUNS,),
    *,
    quality: str = "AB",
    min_mfu: float = 0.15,
) -> ErrorCalibration:
    """Error bars of the fitting half of measured runs, held against the testing half.

    Raises:
        InputError: a file cannot be read, an option is none of its values, or nothing is timed.
    """
    return error_bars.calibrate_errors(_runs(paths), quality=quality, min_mfu=min_mfu)


def _runs(paths: Iterable[str | Path]) -> list[PublishedRun]:
    return [run for path in paths for run in read_runs(path)]


def _topology(given: Topology | str | Path | None) -> Topology | None:
    if given is None or isinstance(given, Topology):
        return given
    return load(given, "topology", Topology)
