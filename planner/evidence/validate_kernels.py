"""Predicted kernels held against measured ones: `planner validate kernels`.

    validate_kernels(read_latencies(["gemm.csv"])).to_document()

Scored are products of m, n, k >= LEAST_SIZE, as training's are. A fifth of the shapes is held out
of every fit (`planner calibrate kernels`), chosen by a hash of the shape alone. Of the measurements
that the shipped coefficients are fitted to, only that fifth counts; of others, all do.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from typing import Any, Literal
from zlib import crc32

import numpy as np
from numpy.typing import NDArray

from planner.cost.kernels import (
    ElementBytes,
    GemmDevice,
    GemmParameters,
    GemmSizes,
    gemm_seconds,
)
from planner.evidence.kernel_measurements import DTYPES, Floats, Latencies
from planner.evidence.metrics import TimeErrors
from planner.evidence.operators import OperatorErrors
from planner.problem.precision import ELEMENT_BYTES

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
    device = GemmDevice(
        coefficients=coefficients,
        peak_flops=part.peak_flops[dtype.precision],
        num_multiprocessors=part.num_multiprocessors,
        hbm_bytes_per_second=part.hbm_bytes_per_second,
        hbm_efficiency=part.hbm_efficiency,
    )
    product = gemm_seconds(
        GemmSizes(latencies.m, latencies.n, latencies.k),
        device,
        ElementBytes(ELEMENT_BYTES[dtype.precision], OUTPUT_BYTES),
    )
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
    errors: signed, of each shape; held_out: which of them no fit has seen.
    """

    accelerator: str
    dtype: str
    precision: str
    errors: Floats
    held_out: NDArray[np.bool_]

    def to_document(self) -> dict[str, Any]:
        """The errors as JSON values."""
        return {
            "coefficients": self.precision,
            "all": asdict(TimeErrors.of(self.errors.tolist())),
            "held_out": asdict(TimeErrors.of(self.errors[self.held_out].tolist())),
        }


@dataclass(frozen=True, slots=True)
class KernelsValidation:
    """Errors of predicted kernels, as `planner validate kernels --json` prints them.

    scored: "held_out" if coefficients are fitted to the other shapes, "all" if to none.
    """

    scored: Literal["held_out", "all"]
    gemm: tuple[GemmErrors, ...]
    attention: tuple[OperatorErrors, ...]
    experts: tuple[OperatorErrors, ...]
    skipped: Mapping[str, int]  # reason → measurements

    @property
    def headline(self) -> TimeErrors:
        """The products scored, all parts and types pooled."""
        counted = [
            part.errors[part.held_out] if self.scored == "held_out" else part.errors
            for part in self.gemm
        ]
        return TimeErrors.of([error for errors in counted for error in errors.tolist()])

    def to_document(self) -> dict[str, Any]:
        """The result as JSON values."""
        gemm: dict[str, Any] = {}
        for errors in self.gemm:
            gemm.setdefault(errors.accelerator, {})[errors.dtype] = errors.to_document()
        return asdict(self.headline) | {
            "scored": self.scored,
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
    scored: Literal["held_out", "all"] = "all",
) -> KernelsValidation:
    """Predict measured products with the coefficients of their accelerators, and summarise.

    scored: as in the result.
    """
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
        products = large(table)
        skip(f"m, n or k below {LEAST_SIZE}", len(table.m) - len(products.m))
        if len(products.m):
            errors = predicted(products, table.part.gemm[precision]) / products.seconds - 1.0
            mask = held_out(products)
            gemm.append(GemmErrors(table.part.name, table.dtype, precision, errors, mask))
    return KernelsValidation(scored, tuple(gemm), tuple(attention), tuple(experts), skipped)
