"""Attention and grouped products of experts of aiconfigurator-core compared with predictions.

Both are full operations of serving frameworks, forward only; the fastest framework of each shape
counts. Nothing here is fitted to the experts: their errors test the form of the prediction.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from planner.cost.context import fastest_attention
from planner.cost.kernels import ElementBytes, GemmDevice, GemmSizes, flash_seconds, gemm_seconds
from planner.evidence.kernel_measurements import (
    DEVICES,
    Columns,
    Floats,
    latency_seconds,
    lowest_of,
    read_columns,
)
from planner.evidence.metrics import TimeErrors
from planner.inputs.values import load
from planner.problem.hardware import Accelerator
from planner.problem.precision import ELEMENT_BYTES, Precision

MIN_TOKENS = 1024
"""Of a sequence."""

MIN_FLOPS = 5e10
"""Of attention, forward: 8 heads of 128 over 5,000 tokens."""

MIN_EXPERT_ROWS = 32
"""Of one expert."""

MIN_EXPERT_WIDTH = 256
"""Of an expert's inner dimension on one rank."""

EXPERT_DTYPES: Mapping[str, tuple[str, Precision]] = {
    "bfloat16": ("bf16", "bf16"),
    "fp8": ("fp8", "fp8"),
    "fp8_block": ("fp8_block", "fp8"),
    "nvfp4": ("nvfp4", "fp4"),
}
"""Type in the package → its name here, and whose coefficients it has."""

OTHER_KERNELS = ("marlin", "mxfp4", "situ")
"""In a kernel's name: weights of fewer bits than the type says."""

UNGATED = "nongated"
"""In a kernel's name: the model has no gate. Only some frameworks say so, of the same models."""

EXPERT_STARTS = 5.0
"""Kernels besides the two products: route, gather rows, activate, quantise, scatter and add."""


@dataclass(frozen=True, slots=True)
class OperatorErrors:
    """Errors of one accelerator type: of attention by head dimension, of experts by dtype.

    name: the head dimension or dtype. forms: name of a formula → its errors; the first is the
    planner's.
    """

    accelerator: str
    name: str
    forms: dict[str, TimeErrors]

    def to_document(self) -> dict[str, Any]:
        """The errors as JSON values."""
        return {form: asdict(errors) for form, errors in self.forms.items()}


# ---------------------------------------------------------------- rows

Keep = Callable[[Columns], NDArray[np.bool_]]
"""Which rows of a file count."""


def _columns(
    paths: Sequence[Path], names: Sequence[str], keep: Keep, absent: Mapping[str, float]
) -> Columns:
    """Rows to keep of several files, one below the other; times in seconds as `seconds`."""
    tables = []
    for path in paths:
        columns = read_columns(path, ("device", *names, "latency"), absent)
        timed = {**columns, "seconds": latency_seconds(columns, path)}
        tables.append(_picked(timed, keep(columns)))
    return {name: np.concatenate([table[name] for table in tables]) for name in tables[0]}


def _picked(columns: Columns, rows: NDArray[Any]) -> Columns:
    return {name: column[rows] for name, column in columns.items()}


def _fastest(columns: Columns, keys: Sequence[str]) -> Columns:
    """The row of the lowest time of each shape."""
    return _picked(columns, lowest_of([columns[key] for key in keys], columns["seconds"]))


def _by_accelerator(columns: Columns) -> Iterator[tuple[Accelerator, Columns]]:
    for device, name in DEVICES.items():
        rows = columns["device"] == device
        if rows.any():
            yield load(name, "accelerator", Accelerator), _picked(columns, rows)


def _by_value(columns: Columns, name: str) -> Iterator[tuple[Any, Columns]]:
    for value in np.unique(columns[name]):
        yield value, _picked(columns, columns[name] == value)


def _errors(predicted: NDArray[Any], measured: NDArray[Any]) -> TimeErrors:
    return TimeErrors.of((predicted / measured - 1.0).tolist())


# ---------------------------------------------------------------- attention

ATTENTION_KEYS = ("batch_size", "isl", "num_heads", "num_key_value_heads", "head_dim")


def attention_errors(paths: Sequence[Path]) -> list[OperatorErrors]:
    """Errors of fused attention by accelerator and head dimension: BF16, causal, full sequences.

    Raises:
        InputError: a file cannot be read.
    """

    def keep(table: Columns) -> NDArray[np.bool_]:
        sixteen_bits = (table["attn_dtype"] == "bfloat16") & (table["kv_cache_dtype"] == "bfloat16")
        # no window, and no tokens of an earlier step to attend to
        full = (table["window_size"] == 0) & (table["step"] == 0)
        large = (table["isl"] >= MIN_TOKENS) & (_causal_flops(table) >= MIN_FLOPS)
        return np.asarray(sixteen_bits & full & large)

    names = (*ATTENTION_KEYS, "attn_dtype", "kv_cache_dtype", "step", "window_size")
    columns = _columns(paths, names, keep, {"window_size": 0})
    return [
        OperatorErrors(accelerator.name, str(head_dim), {"flash": _attention(accelerator, table)})
        for accelerator, rows in _by_accelerator(columns)
        for head_dim, table in _by_value(_fastest(rows, ATTENTION_KEYS), "head_dim")
    ]


def _causal_flops(table: Columns) -> Floats:
    """Forward FLOPs with the causal half: 2 · batch · tokens² · heads · head_dim."""
    tokens = table["isl"].astype(np.float64)
    return np.asarray(
        2.0 * table["batch_size"] * tokens**2 * table["num_heads"] * table["head_dim"]
    )


def _attention(accelerator: Accelerator, table: Columns) -> TimeErrors:
    share = accelerator.attention[fastest_attention(accelerator)]
    predicted = flash_seconds(
        _causal_flops(table),
        table["isl"],
        peak_flops=accelerator.peak_flops["bf16"],
        share=share.forward,
        sequence_half=share.sequence_half,
        overhead_seconds=accelerator.gemm["bf16"].overhead_seconds,
    )
    return _errors(np.asarray(predicted), table["seconds"])


# ---------------------------------------------------------------- experts

EXPERT_KEYS = (
    "moe_dtype",
    "num_tokens",
    "hidden_size",
    "inter_size",
    "topk",
    "num_experts",
    "moe_tp_size",
)


def expert_errors(paths: Sequence[Path]) -> list[OperatorErrors]:
    """Errors of a layer of gated experts by accelerator and dtype: even routing, ep = 1.

    Raises:
        InputError: a file cannot be read.
    """

    def keep(table: Columns) -> NDArray[np.bool_]:
        sources = table["kernel_source"].tolist()  # millions of rows, a few names
        is_own = {name: not any(word in name for word in OTHER_KERNELS) for name in set(sources)}
        kernels = np.array([is_own[name] for name in sources], dtype=bool)
        known = np.isin(table["moe_dtype"].astype(str), list(EXPERT_DTYPES))
        even = (table["distribution"] == "balanced") & (table["moe_ep_size"] == 1)
        width = table["inter_size"] / table["moe_tp_size"]
        large = (_rows_per_expert(table) >= MIN_EXPERT_ROWS) & (width >= MIN_EXPERT_WIDTH)
        return np.asarray(kernels & known & even & large)

    names = (*EXPERT_KEYS, "kernel_source", "moe_ep_size", "distribution")
    columns = _columns(paths, names, keep, {})
    columns = _picked(columns, _gated(columns))
    return [
        OperatorErrors(accelerator.name, name, _experts(accelerator, precision, table))
        for accelerator, rows in _by_accelerator(columns)
        for dtype, table in _by_value(_fastest(rows, EXPERT_KEYS), "moe_dtype")
        for name, precision in [EXPERT_DTYPES[dtype]]
        if precision in accelerator.gemm
    ]


def _gated(columns: Columns) -> NDArray[np.bool_]:
    """Whether no framework calls the row's model ungated, shape (rows,)."""
    keys = ("hidden_size", "inter_size", "topk", "num_experts")
    models = list(zip(*(columns[key].tolist() for key in keys), strict=True))
    named = [UNGATED in kernel for kernel in columns["kernel_source"]]
    ungated = {model for model, is_ungated in zip(models, named, strict=True) if is_ungated}
    return np.array([model not in ungated for model in models], dtype=bool)


def _rows_per_expert(table: Columns) -> Floats:
    return np.asarray(table["num_tokens"] * table["topk"] / table["num_experts"], dtype=np.float64)


def _experts(
    accelerator: Accelerator, precision: Precision, table: Columns
) -> dict[str, TimeErrors]:
    """Errors of one launch for all experts, and of a launch for each.

    Besides the products (gate and up, then down): tokens read, rows written in the product's type,
    the gate and up outputs read, the activation written, outputs read and added to the tokens.
    """
    bytes_per_input = ELEMENT_BYTES[precision]
    hbm = accelerator.hbm_bytes_per_second * accelerator.hbm_efficiency
    device = GemmDevice(
        coefficients=accelerator.gemm[precision],
        peak_flops=accelerator.peak_flops[precision],
        num_multiprocessors=accelerator.num_multiprocessors,
        hbm_bytes_per_second=accelerator.hbm_bytes_per_second,
        hbm_efficiency=accelerator.hbm_efficiency,
    )
    element_bytes = ElementBytes(bytes_per_input, 2.0)
    experts, rows, hidden = table["num_experts"], _rows_per_expert(table), table["hidden_size"]
    inner = table["inter_size"] / table["moe_tp_size"]
    row_bytes = hidden * (2 + bytes_per_input) + inner * (4 + bytes_per_input) + 2 * hidden
    moved = experts * rows * row_bytes
    moved = moved + 4.0 * table["num_tokens"] * hidden
    other_kernels = moved / hbm + EXPERT_STARTS * accelerator.gemm["bf16"].overhead_seconds

    def products(num_groups: Any) -> Any:
        up = gemm_seconds(GemmSizes(rows, 2 * inner, hidden, num_groups), device, element_bytes)
        return up + gemm_seconds(GemmSizes(rows, hidden, inner, num_groups), device, element_bytes)

    measured = table["seconds"]
    return {
        "one launch": _errors(products(experts) + other_kernels, measured),
        "a launch each": _errors(experts * products(1) + other_kernels, measured),
    }
