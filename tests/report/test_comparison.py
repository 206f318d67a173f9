"""Layouts next to each other: many evaluated, two plans; and lists."""

from __future__ import annotations

from dataclasses import replace

import pytest
from rich.cells import cell_len

from planner.api import compare
from planner.errors import IllegalLayoutError
from planner.report.text.comparison import comparison_report, evaluations_report
from planner.report.text.listing import facts_of, listing_report
from planner.report.text.pieces import plain_text
from tests.report.fabricated import fabricated_plan

ILLEGAL = IllegalLayoutError(
    "tp-divides-heads", "Megatron-LM", "tp=7", "attention heads are a multiple of tp", ("tp=8",)
)


def other_plan():
    plan = fabricated_plan()
    time = {**plan.time, "bubble": 2.3}
    return replace(plan, time=time, step_seconds=sum(time.values()), mfu=0.35)


def reports():
    plan, other = fabricated_plan(), other_plan()
    memory = replace(plan.memory, verdict="no", peak_bytes=99e9)
    return {
        "evaluations": evaluations_report([plan, ILLEGAL, replace(plan, memory=memory), other]),
        "comparison": comparison_report(compare(plan, other)),
    }


@pytest.mark.parametrize("width", [80, 120])
@pytest.mark.parametrize("name", ["evaluations", "comparison"])
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


@pytest.mark.parametrize("kind", ["topology", "model", "scenario", "software", "accelerator"])
def test_lists_have_a_line_of_facts_for_every_name(kind):
    facts = facts_of(kind)
    assert len(facts) == len({item["name"] for item in facts}) > 2
    assert all(all(item.values()) for item in facts)
    for width in (80, 120):
        text = plain_text(listing_report(facts), width)
        assert max(map(cell_len, text.splitlines())) <= width
        assert all(item["name"] in text for item in facts)


def test_sentences_break_between_words():
    text = plain_text(listing_report([{"name": "a", "description": "one, two " * 9}]), 40)
    assert [len(line) > 30 for line in text.splitlines()[1:-1]] == [True, True]


def test_list_facts_are_right():
    h100 = next(item for item in facts_of("topology") if item["name"] == "dgx-h100")
    assert h100["accelerator"] == "h100-sxm-80gb"
    assert "nvlink 8 × 450, leaf 32 × 50" in h100["tiers: width × GB/s"]
    llama = next(item for item in facts_of("model") if item["name"] == "llama3-405b")
    assert llama["parameters"] == "405.9 billion"
