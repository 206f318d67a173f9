"""Attention and experts against made measurements, whose times are worked out by hand."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from planner.evidence.operators import attention_errors, expert_errors
from planner.inputs.values import load
from planner.problem.hardware import Accelerator

pyarrow = pytest.importorskip("pyarrow", reason="parquet files need pyarrow")
parquet = pytest.importorskip("pyarrow.parquet")

H100 = "NVIDIA H100 80GB HBM3"


def write(path: Path, rows: list[dict[str, Any]]) -> Path:
    parquet.write_table(pyarrow.Table.from_pylist(rows), path)
    return path


@pytest.fixture
def part() -> Accelerator:
    return load("h100-sxm-80gb", "accelerator", Accelerator)


ATTENTION = {
    "device": H100, "batch_size": 1, "isl": 8192, "num_heads": 32, "num_key_value_heads": 8,
    "head_dim": 128, "attn_dtype": "bfloat16", "kv_cache_dtype": "bfloat16", "step": 0,
    "window_size": 0,
}  # fmt: skip


def test_attention_by_hand(part: Accelerator, tmp_path: Path) -> None:
    # 2·8192²·32·128 = 5.5e11 FLOP at 0.64 of the peak, of which 8192/(8192 + 700)
    flops = 2 * 8192**2 * 32 * 128
    seconds = flops / (989.5e12 * 0.64 * 8192 / 8892) + part.gemm["bf16"].overhead_seconds
    rows = [
        ATTENTION | {"latency": seconds * 1e3 * 1.25},
        ATTENTION | {"latency": seconds * 1e3 * 2},  # a slower framework
        ATTENTION | {"latency": 1.0, "window_size": 128},
        ATTENTION | {"latency": 1.0, "attn_dtype": "fp8"},
        ATTENTION | {"latency": 1.0, "step": 64},
        ATTENTION | {"latency": 1.0, "isl": 512, "batch_size": 256},
        ATTENTION | {"latency": 1.0, "isl": 1024},  # too little work
    ]
    (found,) = attention_errors([write(tmp_path / "a.parquet", rows)])
    assert (found.accelerator, found.name) == ("h100-sxm-80gb", "128")
    errors = found.to_document()["flash"]
    assert errors["rows"] == 1
    assert errors["bias_fraction"] == pytest.approx(-0.2, rel=1e-9)


def test_files_without_windows_have_none(tmp_path: Path) -> None:
    plain = {name: value for name, value in ATTENTION.items() if name != "window_size"}
    (found,) = attention_errors([write(tmp_path / "a.parquet", [plain | {"latency": 1.0}])])
    assert found.forms["flash"].rows == 1


EXPERTS = {
    "device": H100, "moe_dtype": "bfloat16", "num_tokens": 8192, "hidden_size": 4096,
    "inter_size": 14336, "topk": 2, "num_experts": 8, "moe_tp_size": 2, "moe_ep_size": 1,
    "distribution": "balanced", "kernel_source": "cutlass",
}  # fmt: skip


def test_experts_by_hand(part: Accelerator, tmp_path: Path) -> None:
    """8 experts of 2 048 rows: products of 2 048 × 14 336 × 4 096 and 2 048 × 4 096 × 7 168."""
    found = part.gemm["bf16"]
    assert (found.tile_m, found.tile_n) == (64, 64)
    hbm, start, rows = 3.35e12 * 0.9, found.overhead_seconds, 8 * 2048

    def product(n: int, k: int, groups: int) -> float:
        tiles = groups * 32 * (n // 64)
        idle = (132 * -(-tiles // 132) / tiles) ** 0.5
        peak = 989.5e12 * found.efficiency * k / (k + found.k_half)
        compute = 2 * groups * 2048 * n * k * idle / peak
        moved = 2 * groups * (2048 * k + k * n + 2048 * n) / hbm
        return start + (compute**3 + moved**3) ** (1 / 3)

    beside = rows * (4096 * 4 + 7168 * 6 + 4096 * 2) + 8192 * 4096 * 4
    one = product(14336, 4096, 8) + product(4096, 7168, 8) + beside / hbm + 5 * start
    each = 8 * (product(14336, 4096, 1) + product(4096, 7168, 1)) + beside / hbm + 5 * start
    rows_ = [
        EXPERTS | {"latency": one * 1e3},
        EXPERTS | {"latency": one * 1e3 / 2, "kernel_source": "a_marlin_kernel"},
        EXPERTS | {"latency": 1.0, "distribution": "power_law_1.2"},
        EXPERTS | {"latency": 1.0, "moe_ep_size": 2},
        EXPERTS | {"latency": 1.0, "num_tokens": 64},  # 16 rows an expert
        EXPERTS | {"latency": 1.0, "hidden_size": 2688},
        EXPERTS | {"latency": 1.0, "hidden_size": 2688, "kernel_source": "flow_nongated"},
    ]
    (errors,) = expert_errors([write(tmp_path / "moe.parquet", rows_)])
    assert (errors.accelerator, errors.name) == ("h100-sxm-80gb", "bf16")
    assert errors.forms["one launch"].rows == 1
    assert errors.forms["one launch"].median_fraction == pytest.approx(0, abs=1e-9)
    assert errors.forms["a launch each"].bias_fraction == pytest.approx(each / one - 1, rel=1e-9)
    assert each > one
