"""The report of a plan says the right numbers and keeps to its width."""

from __future__ import annotations

import io
from dataclasses import replace

import pytest
from rich.cells import cell_len
from rich.console import Console

from planner.planning.plan import MfuDenominator
from planner.report.text.pieces import Bar, Phrases, plain_text
from planner.report.text.plan import plan_report
from tests.report.fabricated import TIME, fabricated_plan, infeasible_plan

WIDTHS = (40, 80, 100, 120, 200)


def rendered(plan, width=100):
    return plain_text(plan_report(plan), width)


@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.parametrize("make", [fabricated_plan, infeasible_plan])
def test_no_line_is_wider_than_the_console(make, width):
    lines = rendered(make(), width).splitlines()
    assert max(map(cell_len, lines)) <= width
    assert all(line == line.rstrip() for line in lines)


def test_head_names_model_count_part_batch_precision_software_and_attention():
    head = rendered(fabricated_plan(), 120).splitlines()[:2]
    for fact in ("llama3-405b", "16,384 × h100-sxm-80gb", "dgx-h100"):
        assert fact in head[0]
    for fact in ("405.9 billion", "2,048 × 8,192 tokens", "bf16", "megatron-core"):
        assert fact in head[1]
    assert head[1].endswith(", attention by flash")


@pytest.mark.parametrize("make", [fabricated_plan, infeasible_plan])
def test_head_names_the_attention_kernels_of_the_plan(make):
    plan = make()
    assert "attention by flash-v2" in rendered(replace(plan, attention="flash-v2"), 120)
    # a plan file of before the key says nothing of them
    assert "attention by" not in rendered(replace(plan, attention=None), 120)


def test_head_names_the_length_of_packed_documents():
    plan = fabricated_plan()
    training = {**plan.inputs["training"], "mean_document_length": 1024}
    packed = replace(plan, inputs={**plan.inputs, "training": training})
    assert "tokens a step, documents of 1,024 tokens, bf16" in rendered(packed, 120)
    assert "documents" not in rendered(plan).splitlines()[1]


def test_answer_has_layout_step_rates_and_denominator():
    text = rendered(fabricated_plan(), 120)
    assert "tensor 8 + sequence · pipeline 16 × 2 virtual · data 128" in text
    assert "tp8 pp16 vp2 dp128 mbs1 zero1" in text
    assert "6.203 s" in text
    assert "41.2 % of 989.5 TFLOP/s dense BF16" in text
    assert "HFU 43.7 %" in text
    assert "fits: 68.9 of 85.5 GB, 16.6 GB free" in text


def test_the_flops_that_mfu_does_not_count_are_named():
    lines = rendered(fabricated_plan(), 140).splitlines()
    (line,) = [line for line in lines if line.startswith("MFU")]
    assert "excluding masked attention and recompute; HFU" in line


def test_bf16_mfu_stands_beside_that_of_a_lower_precision():
    plan = replace(
        fabricated_plan(),
        mfu_denominator=MfuDenominator("h100", "fp8", 1979e12),
        mfu_bf16=0.55,
    )
    assert "of 1,979 TFLOP/s dense FP8, 55.0 % of dense BF16" in rendered(plan, 120)


def test_run_appears_when_tokens_are_given():
    plan = fabricated_plan()
    training = {**plan.inputs["training"], "total_tokens": 15e12}
    plan = replace(
        plan, inputs={**plan.inputs, "training": training},
        days=64.2, accelerator_hours=25.2e6, cost=63e6,
    )  # fmt: skip
    assert (
        "15.00 trillion tokens: 64.2 days, 25.20 million accelerator-hours, 63.00 million USD"
        in (rendered(plan, 120))
    )
    assert "trillion tokens" not in rendered(fabricated_plan())


def test_intervals_follow_the_step_and_the_peak():
    plan = replace(
        fabricated_plan(), interval_coverage=0.8, step_seconds_low=5.5, step_seconds_high=7.25,
        memory=replace(fabricated_plan().memory, peak_low_bytes=61e9, peak_high_bytes=72.34e9),
    )  # fmt: skip
    text = rendered(plan, 140)
    assert "6.203 s (80 % interval 5.50 to 7.25 s); " in text
    assert "free (80 % interval 61.0 to 72.3 GB)" in text
    short = replace(plan, step_seconds_low=0.94)
    assert "(80 % interval 940 ms to 7.25 s)" in rendered(short, 140)
    assert "80 %" not in rendered(fabricated_plan(), 140)


def test_the_proof_of_a_robust_plan_is_about_upper_ends():
    plan = fabricated_plan()
    inputs = {**plan.inputs, "search": {**plan.inputs["search"], "robust": True}}
    robust = replace(plan, inputs=inputs, objective_seconds=7.2, step_seconds_high=7.236)
    text = rendered(robust, 120)
    assert (
        "no legal layout with the default stage split, however placed, has an interval that ends "
        "below 7.200 s" in " ".join(text.split())
    )
    assert "the plan shown is a tie, 0.50 % above that" in text


def test_proof_says_optimal_with_counts():
    text = rendered(fabricated_plan(), 120)
    assert "optimal: " in text
    assert "4,530 layouts, 2 searched in full, 560 placements evaluated" in text


def test_unfinished_search_shows_bound_and_gap():
    plan = replace(fabricated_plan(), status="feasible", bound_seconds=6.0, gap_fraction=0.0312)
    text = rendered(plan, 120)
    assert "not finished: best so far 6.193 s, lower bound 6.000 s, gap 3.12 %" in text
    assert "optimal:" not in text


def test_excluded_layouts_are_counted_with_the_rules_sentence():
    line = next(x for x in rendered(fabricated_plan()).splitlines() if "tp-divides-heads" in x)
    assert line.split()[0] == "120"
    assert "attention heads are a multiple of tp" in line


def test_groups_are_placed_with_members_tiers_and_order():
    lines = rendered(fabricated_plan()).splitlines()
    shard = next(x for x in lines if x.strip().startswith("shard"))
    assert shard.split()[-4:] == ["128", "·", "32", "4"]
    assert not any(x.strip().startswith("cp ") for x in lines)  # one member: no group
    assert any("tp 8, dp_shard 128, pp 16 (innermost first)" in x for x in lines)
    assert any("tp-cp-dp-pp" in x for x in lines)
    assert any("8 of 8" in x and "64 of 512" in x for x in lines)


def test_custom_order_is_said_to_be_one():
    text = rendered(replace(fabricated_plan(), rank_order_name=None))
    assert "a custom order" in text
    assert "would be" not in text


def test_time_terms_come_in_order_and_small_ones_are_folded():
    text = rendered(fabricated_plan())
    block = text[text.index("Time of a step") : text.index("Memory of")]
    names = [line.split("  ")[1].strip() for line in block.splitlines()[1:] if line]
    assert names[:2] == ["compute gemm", "compute attention"]
    assert names[-2:] == ["smaller terms", "step"]
    shown = [n.replace(" ", "_") for n in names[:-2]]
    assert shown == [n for n in TIME if n in shown]
    assert "optimizer" not in names
    folded = sum(v for n, v in TIME.items() if n not in shown)
    assert f"{folded:.3f} s" in block


def test_short_steps_are_shown_in_milliseconds():
    plan = replace(
        fabricated_plan(), step_seconds=0.05, objective_seconds=0.05, bound_seconds=0.05,
        time={"compute_gemm": 0.04, "bubble": 0.01},
    )  # fmt: skip
    assert "40.000 ms" in rendered(plan)


@pytest.mark.parametrize(("verdict", "said"), [("no", "does not fit"), ("fragile", "fragile")])
def test_verdicts(verdict, said):
    plan = fabricated_plan()
    memory = replace(plan.memory, verdict=verdict)
    assert f"Memory  {said}:" in rendered(replace(plan, memory=memory))


def test_too_much_memory_says_by_how_much():
    plan = fabricated_plan()
    memory = replace(plan.memory, verdict="no", peak_bytes=91.2e9)
    assert "91.2 of 85.5 GB, 5.7 GB over" in rendered(replace(plan, memory=memory))


def test_group_rows_have_both_intensities_ridge_wall_and_times():
    text = rendered(fabricated_plan())
    block = text[text.index("Groups, a step") : text.index("Swapping")]
    tp = next(x for x in block.splitlines() if x.strip().startswith("tp"))
    assert tp.split() == [
        "tp", "nvlink", "410.0", "6,341", "–", "2,200", "1,200.0", "120.0", "bandwidth",
    ]  # fmt: skip
    shard = next(x for x in block.splitlines() if x.strip().startswith("shard"))
    assert "68,421" in shard and "6.1e5" in shard
    assert "Lowest intensity first: tp < shard < pp" in block


def test_swaps_are_listed_dearest_first():
    text = rendered(fabricated_plan())
    block = text[text.index("Swapping") : text.index("Runners-up")]
    assert [line.split("  ")[1].strip() for line in block.splitlines()[1:] if line] == [
        "tp ↔ pp", "tp ↔ dp_shard", "dp_shard ↔ pp", "tp ↔ cp",
    ]  # fmt: skip
    assert "+12.4 s" in block and "share their tiers" in block


def test_runners_up_say_what_they_lose_and_where():
    text = rendered(fabricated_plan(), 140)
    line = next(x for x in text.splitlines() if "tp8 pp16 dp128 mbs1 zero1 selective" in x)
    assert "+9.2 %" in line
    assert "bubble +399 ms, tp +114 ms, recompute +57 ms" in line


def test_warnings_come_last():
    assert rendered(fabricated_plan()).rstrip().endswith("wider than any published machine.")


def test_infeasible_names_the_miss_and_what_would_help():
    text = rendered(infeasible_plan(), 120)
    assert "No layout fits." in text
    assert "5.7 GB over the limit on stage 0; largest term: activations" in text
    assert "search.recompute=null" in text and "12 layouts, lowest peak 61.0 GB" in text
    assert "num_accelerators=32768" in text


def test_no_legal_layout_at_all():
    plan = replace(infeasible_plan(), nearest_miss=None, relaxations=())
    assert "No layout satisfies the rules" in rendered(plan)


def test_unknown_claims_nothing():
    plan = replace(infeasible_plan(), status="unknown")
    assert "No layout was found within the time limit" in rendered(plan)
    assert "No layout fits" not in rendered(plan)


def test_names_cannot_steer_the_terminal():
    plan = fabricated_plan()
    model = {**plan.inputs["model"], "name": "evil\x1b[2J[red]name\nnext"}
    text = rendered(replace(plan, inputs={**plan.inputs, "model": model}))
    assert "\x1b" not in text
    assert "[red]name next" in text.splitlines()[0]


def test_bars_have_one_length_and_grow_with_the_share():
    lengths = []
    for share in (0.0, 0.01, 0.33, 0.999, 1.0, 7.0, -1.0):
        line = plain_text(Bar(share, track=True), 30).splitlines()[0]
        assert cell_len(line) == 30
        lengths.append(line.count("█"))
    assert lengths == [0, 0, 9, 30, 30, 30, 0]


def test_bars_without_unicode_use_hashes():
    out = io.TextIOWrapper(io.BytesIO(), encoding="ascii")
    console = Console(file=out, width=20)
    console.print(Bar(0.5))
    out.seek(0)
    assert out.read().strip() == "#" * 10


def test_phrases_break_between_phrases():
    lines = plain_text(Phrases(["bubble +1 s", "tp +2 s", "recompute +3 s"]), 20).splitlines()
    assert lines == ["bubble +1 s, tp +2 s", "recompute +3 s"] or lines == [
        "bubble +1 s,", "tp +2 s,", "recompute +3 s",
    ]  # fmt: skip
    assert all(len(line) <= 20 for line in lines)
