"""Coefficients of matrix products fitted to measured ones: `planner calibrate kernels`.

    calibration = fit_kernels(read_latencies(["gemm.csv"]))
    calibration.fits[0].coefficients

Fitted are the five numbers of an accelerator type and dtype, to four fifths of the shapes; the
others say how far the fit is off. The loss is

    mean over shapes  |ln(predicted / measured)|

so that every shape weighs the same, and a kernel that a library chose badly does not pull the fit.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from planner.errors import InputError
from planner.evidence.descent import Range, descend
from planner.evidence.fitted_files import accelerator_yaml
from planner.evidence.kernel_measurements import DTYPES, Latencies
from planner.evidence.metrics import TimeErrors
from planner.evidence.validate_kernels import (
    HELD_OUT_ONE_IN,
    MIN_SIZE,
    errors_of,
    held_out,
    large,
    predicted,
)
from planner.inputs.quantities import Figure
from planner.problem.hardware import Accelerator, GemmCoefficients
from planner.problem.precision import Precision

TILES_M, TILES_N = (64.0, 128.0), (64.0, 128.0, 192.0, 256.0)
"""Rows and columns of tiles to try. Libraries have kernels of 128 rows and fewer, so the rows of an
expert are not rounded up to more, though a few types of large products fit a little better so.
"""

RANGES = (Range(0.01, 1.0), Range(1.0, 1e5), Range(1e-8, 1e-3))
"""Of efficiency, k_half and overhead in seconds."""

START = (0.75, 200.0, 3e-6)

MIN_SHAPES = 60
MIN_DIFFERENT = 3
"""Distinct values of m, of n and of k: with fewer, k_half and the tile are not determined."""

COARSE_SHAPES = 1500
REFINED_TILES = 3
"""Tiles are tried on so many shapes, and the best of them on all: the order of the others does not
matter, and a pass over all shapes takes seconds."""


@dataclass(frozen=True, slots=True)
class KernelFit:
    """Coefficients of one accelerator type and dtype, and how far they are off.

    file: the accelerator's. before: errors held out with the coefficients that it has; null
    without them.
    """

    accelerator: Accelerator
    file: Path
    dtype: str
    coefficients: GemmCoefficients
    fitted: TimeErrors
    held_out: TimeErrors
    before: TimeErrors | None

    def to_document(self) -> dict[str, Any]:
        """The fit as JSON values."""
        names = GemmCoefficients.model_fields
        return {
            "coefficients": {name: float(getattr(self.coefficients, name)) for name in names},
            "fitted": asdict(self.fitted),
            "held_out": asdict(self.held_out),
            "held_out_before": None if self.before is None else asdict(self.before),
        }


@dataclass(frozen=True, slots=True)
class KernelCalibration:
    """Fits of all accelerator types and dtypes, as `planner calibrate kernels --json` prints them.

    skipped: reason → measurements.
    """

    fits: tuple[KernelFit, ...]
    skipped: Mapping[str, int]

    @property
    def accelerators(self) -> dict[str, tuple[Accelerator, Path]]:
        """Name of each accelerator type → it and its file."""
        return {fit.accelerator.name: (fit.accelerator, fit.file) for fit in self.fits}

    def to_yaml(self, name: str) -> str:
        """The file of an accelerator type with the fitted coefficients."""
        _, file = self.accelerators[name]
        return accelerator_yaml(file, self.coefficients(name))

    def coefficients(self, name: str) -> dict[Precision, GemmCoefficients]:
        """What the file of an accelerator type takes from the fits, by precision.

        Block-scaled FP8 stands in for FP8 where that was not measured, and BF16 for FP16: their
        matrix units run at one rate.
        """
        accelerator, _ = self.accelerators[name]
        fitted = {f.dtype: f.coefficients for f in self.fits if f.accelerator.name == name}
        of_precision: dict[Precision, GemmCoefficients] = {}
        for dtype, coefficients in fitted.items():
            of_precision.setdefault(DTYPES[dtype].precision, coefficients)
        if "bf16" in fitted and "fp16" in accelerator.peak_flops:
            of_precision.setdefault("fp16", _noted(fitted["bf16"], " (BF16)"))
        return of_precision

    def to_document(self) -> dict[str, Any]:
        """The result as JSON values."""
        document: dict[str, Any] = {}
        for fit in self.fits:
            document.setdefault(fit.accelerator.name, {})[fit.dtype] = fit.to_document()
        return {"fits": document, "skipped": dict(self.skipped)}


def fit_kernels(tables: Iterable[Latencies]) -> KernelCalibration:
    """Fit the coefficients of every accelerator type and dtype that was measured.

    Raises:
        InputError: too few shapes of one of them to determine the coefficients.
    """
    order = list(DTYPES)
    ordered = sorted(tables, key=lambda t: (t.accelerator.name, order.index(t.dtype)))
    small = sum(len(table.m) - len(large(table).m) for table in ordered)
    skipped = {f"m, n or k below {MIN_SIZE}": small} if small else {}
    return KernelCalibration(tuple(_fit(large(table)) for table in ordered), skipped)


def _fit(latencies: Latencies) -> KernelFit:
    _require_enough(latencies)
    mask = held_out(latencies)
    fittable, kept = latencies.where(~mask), latencies.where(mask)
    values = _lowest(fittable)
    coefficients = _coefficients(values, "fitted")
    held_out_errors = errors_of(kept, coefficients)
    before = latencies.accelerator.gemm.get(DTYPES[latencies.dtype].precision)
    return KernelFit(
        accelerator=latencies.accelerator,
        file=latencies.file,
        dtype=latencies.dtype,
        coefficients=_coefficients(values, _source(latencies, held_out_errors)),
        fitted=errors_of(fittable, coefficients),
        held_out=held_out_errors,
        before=None if before is None else errors_of(kept, before),
    )


def _require_enough(latencies: Latencies) -> None:
    """Refuse to fit what the shapes cannot determine."""
    what = f"{latencies.dtype} products of {latencies.accelerator.name}"
    allowed = (
        f"at least {MIN_SHAPES} shapes of m, n, k >= {MIN_SIZE}, with {MIN_DIFFERENT} "
        "values or more of each"
    )
    path = ", ".join(latencies.sources)
    if len(latencies.m) < MIN_SHAPES:
        raise InputError(
            f"{len(latencies.m)} {what} of m, n, k >= {MIN_SIZE} are too few to fit",
            path=path, key="dtype", value=latencies.dtype, allowed=allowed,
        )  # fmt: skip
    for key in ("m", "n", "k"):
        values = len(np.unique(getattr(latencies, key)))
        if values < MIN_DIFFERENT:
            raise InputError(
                f"{values} values of {key} among the {what} are too few to fit",
                path=path, key=key, value=values, allowed=allowed,
            )  # fmt: skip


# ---------------------------------------------------------------- the search


@dataclass(frozen=True, slots=True)
class _Values:
    """Coefficients as plain numbers: no validation at each step of the search."""

    efficiency: float
    k_half: float
    tile_m: float
    tile_n: float
    overhead_seconds: float


def _lowest(latencies: Latencies) -> _Values:
    """The values of lowest loss."""
    # a tile is a choice among the kernels of a library, not a number: all are tried
    stride = max(1, len(latencies.m) // COARSE_SHAPES)
    coarse = latencies.where(np.arange(len(latencies.m)) % stride == 0)
    tiles = [(m, n) for m in TILES_M for n in TILES_N]
    tried = [_of_tile(coarse, tile, START) for tile in tiles]
    tried.sort(key=lambda values: _loss(coarse, values))
    refined = [
        _of_tile(latencies, (v.tile_m, v.tile_n), (v.efficiency, v.k_half, v.overhead_seconds))
        for v in tried[:REFINED_TILES]
    ]
    return min(refined, key=lambda values: _loss(latencies, values))


def _of_tile(latencies: Latencies, tile: tuple[float, float], start: Sequence[float]) -> _Values:
    """The values of lowest loss with one size of tiles.

    start: of efficiency, k_half and overhead, as RANGES.
    """

    def with_tile(point: Sequence[float]) -> _Values:
        efficiency, k_half, overhead_seconds = point
        return _Values(efficiency, k_half, *tile, overhead_seconds)

    return with_tile(descend(lambda point: _loss(latencies, with_tile(point)), start, RANGES))


def _loss(latencies: Latencies, values: _Values) -> float:
    """That of the module's docstring."""
    times = predicted(latencies, values)
    return float(np.mean(np.abs(np.log(times / latencies.seconds))))


# ---------------------------------------------------------------- the answer


def _coefficients(values: _Values, source: str) -> GemmCoefficients:
    """The values rounded as they are written: four digits, the overhead three."""

    def figure(value: float, digits: int = 4) -> Figure:
        return Figure(float(f"{value:.{digits}g}"), source, "fitted")

    return GemmCoefficients(
        efficiency=figure(values.efficiency),
        k_half=figure(values.k_half),
        tile_m=figure(values.tile_m),
        tile_n=figure(values.tile_n),
        overhead_seconds=figure(values.overhead_seconds, digits=3),
    )


def _source(latencies: Latencies, held_out_errors: TimeErrors) -> str:
    """What the figures rest on, as sources in files say it."""
    share = 100 // HELD_OUT_ONE_IN
    median = 100 * (held_out_errors.median_fraction or 0.0)
    text = (
        f"fitted to measured GEMM latencies of {', '.join(latencies.sources)}, {share} % of "
        f"shapes held out, median error {median:.1f} %"
    )
    if latencies.quantises.any():
        text += "; quantisation of the inputs, in those timings, is priced apart"
    return text


def _noted(coefficients: GemmCoefficients, note: str) -> GemmCoefficients:
    figures = {
        name: Figure(float(figure), figure.source + note, figure.status)
        for name in GemmCoefficients.model_fields
        if isinstance(figure := getattr(coefficients, name), Figure)
    }
    return coefficients.replace(**figures)
