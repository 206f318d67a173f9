"""Attention and grouped products of experts in the package's measurements against predictions.

Both are whole operations of serving frameworks, forward only; the fastest framework of each shape
counts. Nothing here is fitted to the experts; what is said of them is a test of the form.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from planner.cost.context import attention_backend
from planner.cost.kernels import (
    ElementBytes,
    GemmDevice,
    GemmSizes,
    flash_seconds,
    gemm_seconds,
)
from planner.evidence import kernel_package as package
from planner.evidence.metrics import TimeErrors
from planner.inputs.values import load
from planner.problem.hardware import Accelerator
from planner.problem.precision import ELEMENT_BYTES, Precision

LEAST_TOKENS = 1024  # of a sequence
LEAST_FLOPS = 5e10  # of attention, forward: 8 heads of 128 over 5,000 tokens
LEAST_ROWS = 32  # of one expert
LEAST_WIDTH = 256  # of an expert's inner dimension on one rank

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
"""Kernels beside the two products: route, gather rows, activate, quantise, scatter and add."""


@dataclass(frozen=True, slots=True)
class OperatorErrors:
    """Errors of one part: of attention by head dimension, of experts by type.

    forms: name of a formula → its errors; the first is the planner's.
    """

    accelerator: str
    name: str
    forms: dict[str, TimeErrors]

    def to_document(self) -> dict[str, Any]:
        """The errors as JSON values."""
        return {form: asdict(errors) for form, errors in self.forms.items()}


Columns = dict[str, NDArray[Any]]


def _columns(
    paths: Sequence[Path],
    names: Sequence[str],
    keep: Callable[[Columns], NDArray[np.bool_]],
    absent: Mapping[str, float] | None = None,
) -> Columns:
    """Rows to keep of several files, one below the other; times in seconds as `seconds`."""
    tables = []
    for path in paths:
        columns = dict(package.read_columns(path, ("device", *names, "latency"), absent))
        columns["seconds"] = package.seconds(columns, path)
        tables.append(_picked(columns, keep(columns)))
    return {name: np.concatenate([table[name] for table in tables]) for name in tables[0]}


def _picked(columns: Columns, rows: NDArray[Any]) -> Columns:
    return {name: column[rows] for name, column in columns.items()}


def _best(columns: Columns, keys: Sequence[str]) -> Columns:
    return _picked(columns, package.least_of([columns[k] for k in keys], columns["seconds"]))


def _parts(columns: Columns) -> Iterator[tuple[Accelerator, Columns]]:
    for device, part in package.PARTS.items():
        rows = columns["device"] == device
        if rows.any():
            yield load(part, "accelerator", Accelerator), _picked(columns, rows)


def _groups(columns: Columns, name: str) -> Iterator[tuple[Any, Columns]]:
    for value in np.unique(columns[name]):
        yield value, _picked(columns, columns[name] == value)


def _errors(predicted: NDArray[Any], measured: NDArray[Any]) -> TimeErrors:
    return TimeErrors.of((predicted / measured - 1.0).tolist())


# ---------------------------------------------------------------- attention

ATTENTION_KEYS = ("batch_size", "isl", "num_heads", "num_key_value_heads", "head_dim")


def attention_errors(paths: Sequence[Path]) -> list[OperatorErrors]:
    """Errors of fused attention by part and head dimension: BF16, causal, the whole sequence.

    Raises:
        InputError: a file cannot be read.
    """

    def keep(table: Columns) -> NDArray[np.bool_]:
        sixteen = (table["attn_dtype"] == "bfloat16") & (table["kv_cache_dtype"] == "bfloat16")
        whole = (table["window_size"] == 0) & (table["step"] == 0)
        return np.asarray(
            sixteen & whole & (table["isl"] >= LEAST_TOKENS) & (_causal_flops(table) >= LEAST_FLOPS)
        )

    names = (*ATTENTION_KEYS, "attn_dtype", "kv_cache_dtype", "step", "window_size")
    columns = _columns(paths, names, keep, {"window_size": 0})
    return [
        OperatorErrors(part.name, str(head_dim), {"flash": _attention_of(part, table)})
        for part, rows in _parts(columns)
        for head_dim, table in _groups(_best(rows, ATTENTION_KEYS), "head_dim")
    ]


def _causal_flops(table: Columns) -> NDArray[np.float64]:
    tokens = table["isl"].astype(np.float64)
    return np.asarray(
        2.0 * table["batch_size"] * tokens**2 * table["num_heads"] * table["head_dim"]
    )


def _attention_of(part: Accelerator, table: Columns) -> TimeErrors:
    share = part.attention[attention_backend("auto", part)]
    predicted = flash_seconds(
        _causal_flops(table),
        table["isl"],
        peak_flops=part.peak_flops["bf16"],
        share=share.forward,
        sequence_half=share.sequence_half,
        overhead_seconds=part.gemm["bf16"].overhead_seconds,
    )
    return _errors(np.asarray(predicted), table["seconds"])


# ---------------------------------------------------------------- experts

EXPERT_KEYS = (
    "moe_dtype", "num_tokens", "hidden_size", "inter_size", "topk", "num_experts", "moe_tp_size",
)  # fmt: skip


def expert_errors(paths: Sequence[Path]) -> list[OperatorErrors]:
    """Errors of a layer of gated experts by part and type: even routing, all experts on one rank.

    Raises:
        InputError: a file cannot be read.
    """

    def keep(table: Columns) -> NDArray[np.bool_]:
        sources = table["kernel_source"].tolist()  # millions of rows, a few names
        own = {name: not any(word in name for word in OTHER_KERNELS) for name in set(sources)}
        kernels = np.array([own[name] for name in sources], dtype=bool)
        known = np.isin(table["moe_dtype"].astype(str), list(EXPERT_DTYPES))
        even = (table["distribution"] == "balanced") & (table["moe_ep_size"] == 1)
        width = table["inter_size"] / table["moe_tp_size"]
        sizes = (_rows_of_expert(table) >= LEAST_ROWS) & (width >= LEAST_WIDTH)
        return np.asarray(kernels & known & even & sizes)

    names = (*EXPERT_KEYS, "kernel_source", "moe_ep_size", "distribution")
    columns = _columns(paths, names, keep)
    columns = _picked(columns, _gated(columns))
    return [
        OperatorErrors(part.name, name, _experts_of(part, precision, table))
        for part, rows in _parts(columns)
        for dtype, table in _groups(_best(rows, EXPERT_KEYS), "moe_dtype")
        for name, precision in [EXPERT_DTYPES[dtype]]
        if precision in part.gemm
    ]


def _gated(columns: Columns) -> NDArray[np.bool_]:
    """Whether no framework calls the row's model ungated."""
    keys = ("hidden_size", "inter_size", "topk", "num_experts")
    models = list(zip(*(columns[key].tolist() for key in keys), strict=True))
    named = [UNGATED in kernel for kernel in columns["kernel_source"]]
    ungated = {model for model, says in zip(models, named, strict=True) if says}
    return np.array([model not in ungated for model in models], dtype=bool)


def _rows_of_expert(table: Columns) -> NDArray[np.float64]:
    return np.asarray(table["num_tokens"] * table["topk"] / table["num_experts"], dtype=np.float64)


def _experts_of(part: Accelerator, precision: Precision, table: Columns) -> dict[str, TimeErrors]:
    """Errors of one launch for all experts, and of a launch for each.

    Beside the products (gate and up, then down): tokens read, rows written in the product's type,
    the gate and up outputs read, the activation written, outputs read and added to the tokens.
    """
    bytes_per_input = ELEMENT_BYTES[precision]
    hbm = part.hbm_bytes_per_second * part.hbm_efficiency
    device = GemmDevice(
        coefficients=part.gemm[precision],
        peak_flops=part.peak_flops[precision],
        num_multiprocessors=part.num_multiprocessors,
        hbm_bytes_per_second=part.hbm_bytes_per_second,
        hbm_efficiency=part.hbm_efficiency,
    )
    element_bytes = ElementBytes(bytes_per_input, 2.0)
    experts, rows, h = table["num_experts"], _rows_of_expert(table), table["hidden_size"]
    inner = table["inter_size"] / table["moe_tp_size"]
    moved = experts * rows * (h * (2 + bytes_per_input) + inner * (4 + bytes_per_input) + 2 * h)
    moved = moved + 4.0 * table["num_tokens"] * h
    beside = moved / hbm + EXPERT_STARTS * part.gemm["bf16"].overhead_seconds

    def products(num_groups: Any) -> Any:
        up = gemm_seconds(GemmSizes(rows, 2 * inner, h, num_groups), device, element_bytes)
        return up + gemm_seconds(GemmSizes(rows, h, inner, num_groups), device, element_bytes)

    measured = table["seconds"]
    return {
        "one launch": _errors(products(experts) + beside, measured),
        "a launch each": _errors(experts * products(1) + beside, measured),
    }
