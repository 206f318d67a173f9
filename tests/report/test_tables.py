"""Tables of many: evaluated layouts, two plans, predictions against measurements, lists."""

from __future__ import annotations

from dataclasses import replace

import pytest
from rich.cells import cell_len

from planner.api import compare
from planner.errors import IllegalLayoutError
from planner.report.listing import facts_of, listing_report
from planner.report.pieces import plain_text
from planner.report.tables import comparison_report, evaluations_report, runs_report
from tests.report.fabricated import fabricated_plan

ILLEGAL = IllegalLayoutError(
    "tp-divides-heads", "Megatron-LM", "tp=7", "attention heads are a multiple of tp", ("tp=8",)
)

ERRORS = {
    "rows": 12, "mape_fraction": 0.12, "median_fraction": 0.095, "bias_fraction": -0.062,
    "p95_fraction": 0.297,
}  # fmt: skip
NO_ROWS = dict.fromkeys(ERRORS) | {"rows": 0}

RUNS = {
    "rows_scored": 12,
    "rows_skipped": {"ep unknown": 3},
    "rows_assumed_network": 4,
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
}  # fmt: skip


def other_plan():
    plan = fabricated_plan()
    time = {**plan.time, "bubble": 2.3}
    return replace(plan, time=time, step_seconds=sum(time.values()), mfu=0.35)


def reports():
    plan, other = fabricated_plan(), other_plan()
    memory = replace(plan.memory, verdict="no", peak_bytes=99e9)
    compared = compare(plan, other)
    return {
        "evaluations": evaluations_report([plan, ILLEGAL, replace(plan, memory=memory), other]),
        "comparison": comparison_report(plan, other, compared.time, compared.memory),
        "runs": runs_report(RUNS),
    }


@pytest.mark.parametrize("width", [80, 120])
@pytest.mark.parametrize("name", ["evaluations", "comparison", "runs"])
def test_no_line_is_wider_than_the_console(name, width):
    assert max(map(cell_len, plain_text(reports()[name], width).splitlines())) <= width


def test_evaluations_keep_their_order_and_mark_the_fastest_that_fits():
    lines = plain_text(reports()["evaluations"], 140).splitlines()
    assert lines[1].split()[0] == "1" and "fits, fastest" in lines[1]
    assert "tp-divides-heads" in lines[2] and "tp=7" in lines[2] and "illegal" in lines[2]
    assert "99.0" in lines[3] and lines[3].endswith("no")
    assert lines[4].endswith("fits")
    assert "2 of 4 layouts fit" in lines[-1]


def test_comparison_shows_both_and_the_difference():
    text = plain_text(reports()["comparison"], 100)
    bubble = next(x for x in text.splitlines() if x.strip().startswith("bubble"))
    assert bubble.split()[1:] == ["1.300", "2.300", "+1.000"]
    step = [x for x in text.splitlines() if x.strip().startswith("step ")]
    assert "+16.1 %" in step[0]
    assert step[1].split()[-1] == "+1.000"
    assert "optimizer" in text


def test_runs_table_has_sources_by_size_then_all():
    text = plain_text(reports()["runs"], 100)
    block = text[text.index("by source") : text.index("Step time by accelerator")]
    rows = [line.split() for line in block.splitlines()[2:] if line]
    assert [row[0] for row in rows] == ["many", "few", "none", "all"]
    assert rows[0][1:] == ["10", "9.5", "%", "12.0", "%", "-6.2", "%", "29.7", "%"]
    assert rows[2][1:] == ["0", "–", "–", "–", "–"]
    assert "h100-sxm-80gb" in text


def test_runs_report_has_the_other_checks_and_what_was_skipped():
    text = " ".join(plain_text(reports()["runs"], 100).split())
    assert "12 rows scored, 3 skipped; 4 with an unknown NIC" in text
    assert "86.2 % of pairs in the measured order, 43 groups" in text
    assert "9 of 43 picks ran out of memory" in text
    assert "balanced accuracy 73.1 %" in text
    assert "median error 5.0 %, at most 54.5 % under and 80.9 % over" in text
    assert "3 ep unknown" in text


@pytest.mark.parametrize("kind", ["topology", "model", "scenario", "software", "accelerator"])
def test_lists_have_a_line_of_facts_for_every_name(kind):
    facts = facts_of(kind)
    assert len(facts) == len({item["name"] for item in facts}) > 2
    assert all(all(item.values()) for item in facts)
    for width in (80, 120):
        text = plain_text(listing_report(facts), width)
        assert max(map(cell_len, text.splitlines())) <= width
        assert all(item["name"] in text for item in facts)


def test_list_facts_are_right():
    h100 = next(item for item in facts_of("topology") if item["name"] == "dgx-h100")
    assert h100["accelerator"] == "h100-sxm-80gb"
    assert "nvlink 8 × 450, leaf 32 × 50" in h100["tiers: width × GB/s"]
    llama = next(item for item in facts_of("model") if item["name"] == "llama3-405b")
    assert llama["parameters"] == "405.9 billion"
