"""Predicted kernels held against measured ones: `planner validate kernels`.

    validate_kernels(read_latencies(["gemm.csv"])).to_document()

Scored are products of m, n, k >= LEAST_SIZE, as training's are. A fifth of the shapes is held out
of every fit (`planner calibrate kernels`), chosen by a hash of the shape alone, so the errors on it
are those of shapes that no coefficient has seen, whichever part or type they are of.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from typing import Any
from zlib import crc32

import numpy as np
from numpy.typing import NDArray

from planner.cost.kernels import GemmParameters, gemm_seconds
from planner.evidence.latencies import DTYPES, Floats, Latencies
from planner.evidence.metrics import TimeErrors
from planner.evidence.operators import OperatorErrors
from planner.problem.hardware import ELEMENT_BYTES

LEAST_SIZE = 512
"""Least m, n and k: below it, serving's kernels for few tokens split k or stream weights."""

HELD_OUT_ONE_IN = 5
OUTPUT_BYTES = 2.0  # bytes per element of the product: 16 bits


def large(latencies: Latencies) -> Latencies:
    """The products of m, n, k >= LEAST_SIZE."""
    sizes = (latencies.m, latencies.n, latencies.k)
    return latencies.where(np.minimum.reduce(sizes) >= LEAST_SIZE)


def held_out(latencies: Latencies) -> NDArray[np.bool_]:
    """Whether each shape is kept from fits: one in HELD_OUT_ONE_IN, by the CRC-32 of 'm,n,k'."""
    shapes = zip(latencies.m, latencies.n, latencies.k, strict=True)
    codes = [crc32(f"{m:.0f},{n:.0f},{k:.0f}".encode()) for m, n, k in shapes]
    return np.asarray(np.array(codes, dtype=np.int64) % HELD_OUT_ONE_IN == 0)


def predicted(latencies: Latencies, coefficients: GemmParameters) -> Floats:
    """Seconds of each product, with the quantisation of its inputs where that was timed.

    ::

        seconds = gemm_seconds + quantises · (overhead + cast_bytes·m·k / (bandwidth·efficiency))
    """
    part, dtype = latencies.part, DTYPES[latencies.dtype]
    product = gemm_seconds(
        latencies.m, latencies.n, latencies.k,
        peak_flops=part.peak_flops[dtype.precision],
        coefficients=coefficients,
        num_multiprocessors=part.num_multiprocessors,
        hbm_bytes_per_second=part.hbm_bytes_per_second,
        hbm_efficiency=part.hbm_efficiency,
        input_bytes=ELEMENT_BYTES[dtype.precision],
        output_bytes=OUTPUT_BYTES,
    )  # fmt: skip
    hbm = part.hbm_bytes_per_second * part.hbm_efficiency
    cast = coefficients.overhead_seconds + dtype.cast_bytes * latencies.m * latencies.k / hbm
    return np.asarray(product + latencies.quantises * cast, dtype=np.float64)


def errors_of(latencies: Latencies, coefficients: GemmParameters) -> TimeErrors:
    """Relative errors of the predictions."""
    return TimeErrors.of((predicted(latencies, coefficients) / latencies.seconds - 1.0).tolist())


@dataclass(frozen=True, slots=True)
class GemmErrors:
    """Errors of one part and type, with the coefficients of its file.

    precision: whose coefficients these are; block-scaled FP8 has none of its own.
    """

    accelerator: str
    dtype: str
    precision: str
    all: TimeErrors
    held_out: TimeErrors
    errors: Floats  # signed, of the shapes held out

    def to_document(self) -> dict[str, Any]:
        """The errors as JSON values."""
        return {
            "coefficients": self.precision,
            "all": asdict(self.all),
            "held_out": asdict(self.held_out),
        }


@dataclass(frozen=True, slots=True)
class KernelsValidation:
    """Errors of predicted kernels, as `planner validate kernels --json` prints them."""

    gemm: tuple[GemmErrors, ...]
    attention: tuple[OperatorErrors, ...]
    experts: tuple[OperatorErrors, ...]
    skipped: Mapping[str, int]  # reason → measurements

    @property
    def headline(self) -> TimeErrors:
        """Products held out, all parts and types pooled."""
        pooled = [error for part in self.gemm for error in part.errors.tolist()]
        return TimeErrors.of(pooled)

    def to_document(self) -> dict[str, Any]:
        """The result as JSON values."""
        gemm: dict[str, Any] = {}
        for errors in self.gemm:
            gemm.setdefault(errors.accelerator, {})[errors.dtype] = errors.to_document()
        return asdict(self.headline) | {
            "gemm": gemm,
            "attention": _by_part(self.attention),
            "experts": _by_part(self.experts),
            "skipped": dict(self.skipped),
        }


def _by_part(found: Iterable[OperatorErrors]) -> dict[str, Any]:
    document: dict[str, Any] = {}
    for errors in found:
        document.setdefault(errors.accelerator, {})[errors.name] = errors.to_document()
    return document


def validate_kernels(
    tables: Iterable[Latencies],
    attention: Iterable[OperatorErrors] = (),
    experts: Iterable[OperatorErrors] = (),
) -> KernelsValidation:
    """Predict measured products with the coefficients of their accelerators, and summarise."""
    gemm = []
    skipped: dict[str, int] = {}

    def skip(reason: str, count: int) -> None:
        if count:
            skipped[reason] = skipped.get(reason, 0) + count

    for table in tables:
        precision = DTYPES[table.dtype].precision
        if precision not in table.part.gemm:
            skip(f"{table.part.name} has no {precision} coefficients", len(table.m))
            continue
        scored = large(table)
        skip(f"m, n or k below {LEAST_SIZE}", len(table.m) - len(scored.m))
        if not len(scored.m):
            continue
        mask, coefficients = held_out(scored), table.part.gemm[precision]
        errors = predicted(scored, coefficients) / scored.seconds - 1.0
        gemm.append(
            GemmErrors(
                table.part.name,
                table.dtype,
                precision,
                TimeErrors.of(errors.tolist()),
                TimeErrors.of(errors[mask].tolist()),
                errors[mask],
            )
        )
    return KernelsValidation(tuple(gemm), tuple(attention), tuple(experts), skipped)
