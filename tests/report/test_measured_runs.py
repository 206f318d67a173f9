"""Tables of predictions against runs, of fitted coefficients, and of prediction intervals."""

from __future__ import annotations

import pytest
from rich.cells import cell_len

from planner.report.text.measured_runs import calibration_report, intervals_report, runs_report
from planner.report.text.pieces import plain_text

ERRORS = {
    "rows": 12, "mape_fraction": 0.12, "median_fraction": 0.095, "bias_fraction": -0.062,
    "p95_fraction": 0.297,
}  # fmt: skip
NO_ROWS = dict.fromkeys(ERRORS) | {"rows": 0}

INSIDE = {"rows": 12, "inside_fraction": 0.81, "below_fraction": 0.13, "above_fraction": 0.06}

RUNS = {
    "rows_scored": 12,
    "rows_skipped": {"moe not costed yet": 3},
    "rows_assumed_network": 4,
    "rows_assumed_software": 0,
    "assumed_software": {},
    "time": ERRORS,
    "by_source": {"few": ERRORS | {"rows": 2}, "many": ERRORS | {"rows": 10}, "none": NO_ROWS},
    "by_accelerator": {"h100-sxm-80gb": ERRORS},
    "macro_mape_fraction": 0.132,
    "macro_pairwise_fraction": None,
    "ranking": {
        "groups": 43, "pairwise_fraction": 0.862, "regret_median_fraction": 0.0,
        "regret_max_fraction": 0.596, "picks": 43, "picks_oom": 9,
    },
    "fits": {
        "true_fit": 625, "false_fit": 95, "true_oom": 162, "false_oom": 126,
        "fragile_fit": 3, "fragile_oom": 4, "balanced_accuracy": 0.731,
    },
    "memory": {
        "rows": 63, "median_fraction": 0.05, "max_under_fraction": 0.545,
        "max_over_fraction": 0.809,
    },
    "intervals": {
        "step_seconds": {"data-parallel": INSIDE | {"rows": 9}, "all": INSIDE},
        "peak_bytes": {"all": dict.fromkeys(INSIDE) | {"rows": 0}},
    },
}  # fmt: skip


def _folds(mape, **folds):
    """Errors of what was left out; the rows of each by its name."""
    by_fold = {name: {"time": ERRORS | {"rows": rows}, "inside_fraction": 0.75}
               for name, rows in folds.items()}  # fmt: skip
    total = {"time": ERRORS | {"rows": sum(folds.values())}, "inside_fraction": 0.7}
    return {"total": total, "macro_mape_fraction": mape, "by_fold": by_fold}


LEFT_OUT = RUNS | {
    "leave_one_out": {},
    "left_out_by": "family",
    "left_out": {"dense": _folds(0.111, gpt=3, llama=7), "moe": _folds(None)},
}

CALIBRATION = {
    "profiles": {
        "megatron-core": {
            "software": "megatron-core",
            "sources": {"owner/benchmarks": 11, "mine": 1},
            "coefficients": {"unexplained_seconds": {"before": 0.0377, "after": 0.0325}},
            "kept": ["pp_overlap_fraction"],
            "before": ERRORS,
            "after": ERRORS | {"mape_fraction": 0.081},
        }
    },
    "clocks": {"blackwell": {"bf16": 0.65}, "gb300": {"fp8": 0.98}},
    "overheads": {
        "collective_seconds": {"value": 4e-5, "low": 1e-5, "high": 1.5e-4, "clusters": 8}
    },
    "too_few": {"torchtitan": 1},
    "rows_skipped": {"moe not costed yet": 3},
}

END = {"rows": 41, "sources": 3, "low": {"value": 0.88}, "high": {"value": 1.209}}
INTERVALS = {
    "coverage": {"value": 0.8},
    "step_seconds": {"low-precision": END, "experts": END},
    "peak_bytes": {"low-precision": END, "experts": END},
    "inside": {
        quantity: {"low-precision": INSIDE, "all": INSIDE | {"inside_fraction": 0.7}}
        for quantity in ("step_seconds", "peak_bytes")
    },
    "inside_by_source": {
        "few/rows": INSIDE | {"rows": 14, "inside_fraction": 0.1},
        "a/b": INSIDE | {"rows": 15, "inside_fraction": 0.65},
        "c/d": INSIDE | {"rows": 40, "inside_fraction": 0.9},
    },
    "inside_without_own_source": INSIDE | {"inside_fraction": 0.77},
}


def reports():
    return {
        "validation": runs_report(RUNS),
        "left out": runs_report(LEFT_OUT),
        "calibration": calibration_report(CALIBRATION),
        "intervals": intervals_report(INTERVALS),
    }


@pytest.mark.parametrize("width", [80, 120])
@pytest.mark.parametrize("name", ["validation", "left out", "calibration", "intervals"])
def test_no_line_is_wider_than_the_console(name, width):
    lines = plain_text(reports()[name], width).splitlines()
    assert max(map(cell_len, lines)) <= width
    assert not any("…" in line for line in lines)


def test_runs_table_has_sources_by_size_then_all():
    text = plain_text(reports()["validation"], 100)
    block = text[text.index("by source") : text.index("Step time by accelerator")]
    rows = [line.split() for line in block.splitlines()[2:] if line]
    assert [row[0] for row in rows] == ["many", "few", "none", "all"]
    assert rows[0][1:] == ["10", "9.5", "%", "12.0", "%", "-6.2", "%", "29.7", "%"]
    assert rows[2][1:] == ["0", "–", "–", "–", "–"]
    assert "h100-sxm-80gb" in text


def test_runs_report_has_the_other_checks_and_what_was_skipped():
    text = " ".join(plain_text(reports()["validation"], 100).split())
    assert "12 rows scored, 3 skipped; 4 with an unknown NIC" in text
    assert "86.2 % of pairs in the measured order, 43 groups" in text
    assert "9 of 43 picks ran out of memory" in text
    assert "balanced accuracy 73.1 %" in text
    assert "median error 5.0 %, at most 54.5 % under and 80.9 % over" in text
    assert "3 moe not costed yet" in text
    assert "step data-parallel 9 81.0 % 13.0 % 6.0 %" in text
    assert "peak all 0 – – –" in text


def test_rows_that_numbers_were_fitted_to_judge_no_interval():
    text = " ".join(plain_text(runs_report(RUNS, fitted=True), 100).split())
    assert "Measurements inside" not in text and "step data-parallel" not in text
    assert "were fitted to these rows: --leave-one-out judges them" in text


def test_assumed_software_has_a_table_of_its_own():
    assumed = {
        "time": ERRORS | {"rows": 5},
        "by_framework": {"Homemade": ERRORS | {"rows": 5}},
        "intervals": {"step_seconds": {"all": INSIDE | {"inside_fraction": 0.6}}},
    }
    document = RUNS | {"rows_assumed_software": 6, "assumed_software": assumed}
    text = " ".join(plain_text(runs_report(document), 100).split())
    assert "6 more, of frameworks without a profile, take software fallback" in text
    assert "frameworks without a profile rows median MAPE bias p95 Homemade 5 9.5 %" in text
    assert "inside the prediction intervals: 60.0 %" in text
    assert "fallback" not in plain_text(reports()["validation"], 100)


def test_leave_one_out_says_so_first():
    text = " ".join(plain_text(reports()["left out"], 100).split())
    assert (
        "each model family predicted with numbers fitted without it: MAPE 11.1 % of "
        "dense models, each model family counted once"
    ) in text
    assert "fitted without it" not in plain_text(reports()["validation"], 100)


def test_leave_one_out_has_a_row_for_each_group():
    text = plain_text(reports()["left out"], 100)
    block = text[text.index("left out, dense") : text.index("Step time by source")]
    rows = [" ".join(line.split()) for line in block.splitlines()[2:] if line.strip()]
    assert rows == [
        "llama 7 12.0 % -6.2 % 75.0 %",
        "gpt 3 12.0 % -6.2 % 75.0 %",
        "each model family once 11.1 %",
        "all 10 12.0 % -6.2 % 70.0 %",
    ]
    by_source = plain_text(runs_report(LEFT_OUT | {"left_out_by": "source"}), 100)
    assert "Sources left out, dense models" in by_source
    assert "each source predicted" in by_source
    assert "models with experts" not in text


def test_calibration_shows_errors_and_what_moved():
    text = " ".join(plain_text(reports()["calibration"], 100).split())
    assert "owner/benchmarks 11, mine 1" in text
    assert "before 12 9.5 % 12.0 %" in text and "after 12 9.5 % 8.1 %" in text
    assert "unexplained seconds 0.0377 0.0325" in text
    assert "unchanged, as no row depends on them: pp overlap fraction" in text
    assert "torchtitan keeps its coefficients: 1 timed row" in text


def test_calibration_shows_clocks_and_how_clusters_differ():
    text = " ".join(plain_text(reports()["calibration"], 100).split())
    assert "blackwell bf16 0.65" in text and "gb300 fp8 0.98" in text
    assert "collective seconds 4e-05 1e-05 to 0.00015 8" in text


def test_bars_show_their_ends_and_what_was_left_out_of_them():
    lines = [line.split() for line in plain_text(reports()["intervals"], 100).splitlines()]
    row = next(line for line in lines if line[:1] == ["low-precision"])
    assert row[1:] == ["0.880", "to", "1.209", "41", "3", "12", "81.0", "%"]
    experts = next(line for line in lines if line[:1] == ["experts"])
    assert experts[-2:] == ["–", "–"]
    text = " ".join(plain_text(reports()["intervals"], 100).split())
    assert "made without it: 77.0 % inside; least of a source with 15 rows or more: 65.0 %" in text
    assert "65.0 % of a/b" in text
