"""The reports of kernels say the figures of the document and keep to their width."""

from __future__ import annotations

from typing import Any

import pytest
from rich.cells import cell_len

from planner.report.text.measured_kernels import calibration_report, kernels_report
from planner.report.text.pieces import plain_text

ERRORS = {
    "rows": 2355,
    "mape_fraction": 0.068,
    "median_fraction": 0.047,
    "bias_fraction": -0.004,
    "p95_fraction": 0.203,
}
NONE = dict.fromkeys(ERRORS) | {"rows": 0}


def entry(coefficients: str, errors: dict[str, Any] = ERRORS) -> dict[str, Any]:
    return {"coefficients": coefficients, "all": ERRORS | {"rows": 11305}, "held_out": errors}


DOCUMENT = ERRORS | {
    "scored": "held_out",
    "gemm": {
        "a100-sxm-80gb": {"bf16": entry("bf16", NONE)},
        "h200-sxm-141gb": {"bf16": entry("bf16"), "fp8_block": entry("fp8")},
    },
    "attention": {"h200-sxm-141gb": {"128": {"flash": ERRORS}}},
    "experts": {
        "h200-sxm-141gb": {
            "bf16": {"one launch": ERRORS, "a launch each": ERRORS | {"median_fraction": 1.386}}
        }
    },
    "skipped": {"m, n or k below 512": 564_101},
}
FIT = {
    "coefficients": {
        "efficiency": 0.8607, "k_half": 151.0, "tile_m": 64.0, "tile_n": 128.0,
        "overhead_seconds": 2.49e-6,
    },
    "fitted": ERRORS, "held_out": ERRORS, "held_out_before": None,
}  # fmt: skip
FITS = {"fits": {"h200-sxm-141gb": {"bf16": FIT, "fp8_block": FIT}}, "skipped": {}}


def cells(text: str, start: str) -> list[list[str]]:
    """Words of the lines that start so."""
    return [line.split() for line in text.splitlines() if line.strip().startswith(start)]


@pytest.mark.parametrize("width", [60, 80, 100])
def test_no_line_is_wider_than_the_console(width: int) -> None:
    for report in (kernels_report(DOCUMENT), calibration_report(FITS)):
        lines = plain_text(report, width).splitlines()
        assert max(map(cell_len, lines)) <= width


def test_at_80_columns_nothing_is_cut() -> None:
    for report in (kernels_report(DOCUMENT), calibration_report(FITS)):
        assert "…" not in plain_text(report, 80)


def test_errors_stand_beside_their_part_and_type() -> None:
    text = plain_text(kernels_report(DOCUMENT), 100)
    gemm, attention, experts = cells(text, "h200-sxm-141gb")
    shown = ["2,355", "4.7", "%", "6.8", "%", "-0.4", "%", "20.3", "%"]
    assert gemm == ["h200-sxm-141gb", "bf16", *shown]
    assert attention == ["h200-sxm-141gb", "128", *shown]
    assert experts == ["h200-sxm-141gb", "bf16", *shown, "138.6", "%"]
    assert cells(text, "fp8_block") == [["fp8_block", *shown]]
    assert cells(text, "a100") == [["a100-sxm-80gb", "bf16", "0", "–", "–", "–", "–"]]
    assert "fp8_block is predicted with those of fp8" in text
    assert "564,101" in text
    assert text.startswith("2,355 matmuls held out from every fit: median error 4.7 %, MAPE 6.8 %")


def test_of_a_file_only_products_are_shown() -> None:
    alone = {"scored": "all", "attention": {}, "experts": {}, "skipped": {}}
    text = plain_text(kernels_report(DOCUMENT | alone))
    assert text.startswith("2,355 matmuls: median error 4.7 %")
    assert cells(text, "h200-sxm-141gb")[0][:3] == ["h200-sxm-141gb", "bf16", "11,305"]
    assert not any(word in text for word in ("Attention", "Experts", "Skipped"))


def test_coefficients_are_shown_with_their_units() -> None:
    text = plain_text(calibration_report(FITS), 100)
    assert cells(text, "h200-sxm-141gb")[0] == [
        "h200-sxm-141gb", "bf16", "0.8607", "151", "64", "×", "128", "2.49", "us",
    ]  # fmt: skip
    assert cells(text, "h200-sxm-141gb")[1][-1] == "–"  # no coefficients before
