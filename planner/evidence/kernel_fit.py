"""Coefficients of matrix products fitted to measured ones: `planner calibrate kernels`.

    found = calibrate(read_latencies(["gemm.csv"]))
    found.fits[0].coefficients

Fitted are the five numbers of a part and type on four fifths of the shapes; the others say how far
the fit is off. The loss is mean |log(predicted / measured)|: every shape weighs the same, and a
kernel that a library chose badly does not pull the fit.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from planner.errors import InputError
from planner.evidence.descent import Range, descend
from planner.evidence.kernel_measurements import DTYPES, Latencies
from planner.evidence.metrics import TimeErrors
from planner.evidence.part_file import with_gemm
from planner.evidence.validate_kernels import (
    HELD_OUT_ONE_IN,
    LEAST_SIZE,
    errors_of,
    held_out,
    large,
    predicted,
)
from planner.inputs.quantities import Figure
from planner.problem.hardware import Accelerator, GemmCoefficients, Precision

TILES_M, TILES_N = (64.0, 128.0), (64.0, 128.0, 192.0, 256.0)
"""Rows and columns of tiles to try. Libraries have kernels of 128 rows and fewer, so the rows of an
expert are not rounded up to more, though a few types of large products fit a little better so.
"""

RANGES = (Range(0.01, 1.0), Range(1.0, 1e5), Range(1e-8, 1e-3))
"""Of efficiency, k_half and overhead in seconds."""

START = (0.75, 200.0, 3e-6)

LEAST_SHAPES = 60
LEAST_DIFFERENT = 3
"""Distinct values of m, of n and of k: with fewer, k_half and the tile are not determined."""

COARSE_SHAPES = 1500
REFINED_TILES = 3
"""Tiles are tried on so many shapes, and the best of them on all."""


@dataclass(frozen=True, slots=True)
class Fit:
    """Coefficients of one part and type, and how far they are off.

    before: errors held out with the coefficients that the part's file has; null without them.
    """

    part: Accelerator
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
    """Fits of all parts and types, as `planner calibrate kernels --json` prints them."""

    fits: tuple[Fit, ...]
    skipped: Mapping[str, int]  # reason → measurements

    @property
    def parts(self) -> dict[str, Fit]:
        """A fit of each accelerator, by its name."""
        return {fit.part.name: fit for fit in self.fits}

    def to_yaml(self, part: str) -> str:
        """The accelerator's file with the fitted coefficients."""
        return with_gemm(self.parts[part].file, self.coefficients(part))

    def coefficients(self, part: str) -> dict[Precision, GemmCoefficients]:
        """What a part's file holds of the fits, by precision.

        Block-scaled FP8 stands in for FP8 where that was not measured, and BF16 for FP16: their
        matrix units run at one rate.
        """
        mine = {fit.dtype: fit.coefficients for fit in self.fits if fit.part.name == part}
        found: dict[Precision, GemmCoefficients] = {}
        for dtype, coefficients in mine.items():
            found.setdefault(DTYPES[dtype].precision, coefficients)
        if "bf16" in mine and "fp16" in self.parts[part].part.peak_flops:
            found.setdefault("fp16", _noted(mine["bf16"], " (BF16)"))
        return found

    def to_document(self) -> dict[str, Any]:
        """The result as JSON values."""
        document: dict[str, Any] = {}
        for fit in self.fits:
            document.setdefault(fit.part.name, {})[fit.dtype] = fit.to_document()
        return {"fits": document, "skipped": dict(self.skipped)}


def calibrate(tables: Iterable[Latencies]) -> KernelCalibration:
    """Fit the coefficients of every part and type that was measured.

    Raises:
        InputError: too few shapes of one of them to determine the coefficients.
    """
    order = list(DTYPES)
    found = sorted(tables, key=lambda table: order.index(table.dtype))
    by_part = sorted(found, key=lambda table: table.part.name)
    small = sum(len(table.m) - len(large(table).m) for table in by_part)
    skipped = {f"m, n or k below {LEAST_SIZE}": small} if small else {}
    return KernelCalibration(tuple(_fit(large(table)) for table in by_part), skipped)


def _fit(latencies: Latencies) -> Fit:
    _require_enough(latencies)
    mask = held_out(latencies)
    known, kept = latencies.where(~mask), latencies.where(mask)
    values = _least(known)
    plain = _coefficients(values, "fitted")
    off = errors_of(kept, plain)
    precision = DTYPES[latencies.dtype].precision
    before = latencies.part.gemm.get(precision)
    return Fit(
        part=latencies.part,
        file=latencies.file,
        dtype=latencies.dtype,
        coefficients=_coefficients(values, _source(latencies, off)),
        fitted=errors_of(known, plain),
        held_out=off,
        before=None if before is None else errors_of(kept, before),
    )


def _require_enough(latencies: Latencies) -> None:
    """Refuse to fit what the shapes cannot determine."""
    what = f"{latencies.dtype} products of {latencies.part.name}"
    allowed = (
        f"at least {LEAST_SHAPES} shapes of m, n, k >= {LEAST_SIZE}, with {LEAST_DIFFERENT} "
        "values or more of each"
    )
    path = ", ".join(latencies.sources)
    if len(latencies.m) < LEAST_SHAPES:
        raise InputError(
            f"{len(latencies.m)} {what} of m, n, k >= {LEAST_SIZE} are too few to fit",
            path=path, key="dtype", value=latencies.dtype, allowed=allowed,
        )  # fmt: skip
    for key in ("m", "n", "k"):
        values = len(np.unique(getattr(latencies, key)))
        if values < LEAST_DIFFERENT:
            raise InputError(
                f"{values} values of {key} among the {what} are too few to fit",
                path=path, key=key, value=values, allowed=allowed,
            )  # fmt: skip


# ---------------------------------------------------------------- the search

Values = tuple[float, float, float, float, float]


def _least(latencies: Latencies) -> Values:
    """efficiency, k_half, tile_m, tile_n, overhead of least loss; tiles by trying all."""
    stride = max(1, len(latencies.m) // COARSE_SHAPES)
    coarse = latencies.where(np.arange(len(latencies.m)) % stride == 0)
    tiles = [(m, n) for m in TILES_M for n in TILES_N]
    tried = [_of_tile(coarse, tile, START) for tile in tiles]
    tried.sort(key=lambda values: _loss(coarse, values))
    refined = [
        _of_tile(latencies, (values[2], values[3]), (values[0], values[1], values[4]))
        for values in tried[:REFINED_TILES]
    ]
    return min(refined, key=lambda values: _loss(latencies, values))


def _of_tile(latencies: Latencies, tile: tuple[float, float], start: Sequence[float]) -> Values:
    def full(point: Sequence[float]) -> Values:
        return point[0], point[1], *tile, point[2]

    return full(descend(lambda point: _loss(latencies, full(point)), start, RANGES))


def _loss(latencies: Latencies, values: Values) -> float:
    times = predicted(latencies, _Plain(*values))
    return float(np.mean(np.abs(np.log(times / latencies.seconds))))


@dataclass(frozen=True, slots=True)
class _Plain:
    """Coefficients as bare numbers: no validation at each step of the search."""

    efficiency: float
    k_half: float
    tile_m: float
    tile_n: float
    overhead_seconds: float


# ---------------------------------------------------------------- the answer


def _coefficients(values: Values, source: str) -> GemmCoefficients:
    """Rounded as they are written: four digits, the overhead three."""
    efficiency, k_half, tile_m, tile_n, overhead = (
        Figure(float(f"{value:.{digits}g}"), source, "fitted")
        for value, digits in zip(values, (4, 4, 4, 4, 3), strict=True)
    )
    return GemmCoefficients(
        efficiency=efficiency,
        k_half=k_half,
        tile_m=tile_m,
        tile_n=tile_n,
        overhead_seconds=overhead,
    )


def _source(latencies: Latencies, off: TimeErrors) -> str:
    """What the figures rest on, as sources in files say it."""
    share = 100 // HELD_OUT_ONE_IN
    median = 100 * (off.median_fraction or 0.0)
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
