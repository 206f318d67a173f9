"""Predictions compared with measured kernels: `planner validate kernels`.

    compare_latencies(read_latencies(["gemm.csv"])).to_document()

Scored are products of m, n, k >= MIN_SIZE, as training's are. A fifth of the shapes is held out of
every fit (`planner calibrate kernels`), chosen by a hash of the shape only. Of the measurements
that the shipped coefficients are fitted to, only that fifth counts; of others, all do.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from typing import Any, Literal
from zlib import crc32

import numpy as np
from numpy.typing import NDArray

from planner.cost.kernels import ElementBytes, GemmDevice, GemmParameters, GemmSizes, gemm_seconds
from planner.evidence.kernel_measurements import DTYPES, Floats, Latencies
from planner.evidence.metrics import TimeErrors
from planner.evidence.operators import OperatorErrors
from planner.problem.precision import ELEMENT_BYTES

MIN_SIZE = 512
"""Lowest m, n and k: below it, serving's kernels for few tokens split k or stream weights."""

HELD_OUT_ONE_IN = 5
OUTPUT_BYTES = 2.0
"""Bytes per element of a product: 16 bits, whatever its inputs are."""

Scored = Literal["held_out", "all"]
"""held_out: the coefficients are fitted to the other shapes; all: to none of these."""


def large(latencies: Latencies) -> Latencies:
    """The products of m, n, k >= MIN_SIZE."""
    sizes = (latencies.m, latencies.n, latencies.k)
    return latencies.where(np.minimum.reduce(sizes) >= MIN_SIZE)


def held_out(latencies: Latencies) -> NDArray[np.bool_]:
    """Whether each shape is kept from fits: one in HELD_OUT_ONE_IN, by the CRC-32 of 'm,n,k'.

    By the shape only, so that a shape measured on two machines is held out on both.
    """
    shapes = zip(latencies.m, latencies.n, latencies.k, strict=True)
    codes = [crc32(f"{m:.0f},{n:.0f},{k:.0f}".encode()) for m, n, k in shapes]
    return np.asarray(np.array(codes, dtype=np.int64) % HELD_OUT_ONE_IN == 0)


def predicted(latencies: Latencies, coefficients: GemmParameters) -> Floats:
    """Seconds of each product, with the quantisation of its inputs where that was timed.

    ::

        seconds = gemm_seconds + quantises · (overhead + cast_bytes·m·k / (bandwidth·efficiency))
    """
    accelerator, dtype = latencies.accelerator, DTYPES[latencies.dtype]
    device = GemmDevice(
        coefficients=coefficients,
        peak_flops=accelerator.peak_flops[dtype.precision],
        num_multiprocessors=accelerator.num_multiprocessors,
        hbm_bytes_per_second=accelerator.hbm_bytes_per_second,
        hbm_efficiency=accelerator.hbm_efficiency,
    )
    product = gemm_seconds(
        GemmSizes(latencies.m, latencies.n, latencies.k),
        device,
        ElementBytes(ELEMENT_BYTES[dtype.precision], OUTPUT_BYTES),
    )
    hbm = accelerator.hbm_bytes_per_second * accelerator.hbm_efficiency
    cast = coefficients.overhead_seconds + dtype.cast_bytes * latencies.m * latencies.k / hbm
    return np.asarray(product + latencies.quantises * cast, dtype=np.float64)


def relative_errors(latencies: Latencies, coefficients: GemmParameters) -> Floats:
    """Predicted / measured − 1 of each product."""
    return predicted(latencies, coefficients) / latencies.seconds - 1.0


def errors_of(latencies: Latencies, coefficients: GemmParameters) -> TimeErrors:
    """Relative errors of the predictions, summarised."""
    return TimeErrors.of(relative_errors(latencies, coefficients).tolist())


@dataclass(frozen=True, slots=True)
class GemmErrors:
    """Errors of one accelerator type and dtype, with the coefficients of its file.

    precision: whose coefficients these are; block-scaled FP8 has none of its own.
    errors: predicted / measured − 1 of each shape; held_out: which of them no fit has seen.
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

    skipped: reason → measurements.
    """

    scored: Scored
    gemm: tuple[GemmErrors, ...]
    attention: tuple[OperatorErrors, ...]
    experts: tuple[OperatorErrors, ...]
    skipped: Mapping[str, int]

    @property
    def headline(self) -> TimeErrors:
        """The products scored, all accelerators and dtypes pooled."""
        counted = [
            table.errors[table.held_out] if self.scored == "held_out" else table.errors
            for table in self.gemm
        ]
        return TimeErrors.of([error for errors in counted for error in errors.tolist()])

    def to_document(self) -> dict[str, Any]:
        """The result as JSON values."""
        gemm: dict[str, Any] = {}
        for table in self.gemm:
            gemm.setdefault(table.accelerator, {})[table.dtype] = table.to_document()
        return asdict(self.headline) | {
            "scored": self.scored,
            "gemm": gemm,
            "attention": _by_accelerator(self.attention),
            "experts": _by_accelerator(self.experts),
            "skipped": dict(self.skipped),
        }


def _by_accelerator(tables: Iterable[OperatorErrors]) -> dict[str, Any]:
    document: dict[str, Any] = {}
    for table in tables:
        document.setdefault(table.accelerator, {})[table.name] = table.to_document()
    return document


def compare_latencies(
    tables: Iterable[Latencies],
    attention: Iterable[OperatorErrors] = (),
    experts: Iterable[OperatorErrors] = (),
    scored: Scored = "all",
) -> KernelsValidation:
    """Predict measured products with the coefficients of their accelerators, and summarise."""
    gemm = []
    skipped = Counter[str]()
    for table in tables:
        accelerator, precision = table.accelerator, DTYPES[table.dtype].precision
        if precision not in accelerator.gemm:
            skipped[f"{accelerator.name} has no {precision} coefficients"] += len(table.m)
            continue
        products = large(table)
        if small := len(table.m) - len(products.m):
            skipped[f"m, n or k below {MIN_SIZE}"] += small
        if len(products.m):
            errors = relative_errors(products, accelerator.gemm[precision])
            mask = held_out(products)
            gemm.append(GemmErrors(accelerator.name, table.dtype, precision, errors, mask))
    return KernelsValidation(scored, tuple(gemm), tuple(attention), tuple(experts), dict(skipped))
