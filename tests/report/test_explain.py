"""Explanations and diagnoses say the right numbers and keep to their width."""

from __future__ import annotations

import re
from dataclasses import replace
from functools import cache

import pytest
from rich.cells import cell_len

from planner import api
from planner.advise.diagnose import Diagnosis
from planner.advise.explain import Explanation, Inversion
from planner.advise.ledger import REGIMES, Regime
from planner.report.text.diagnosis import diagnosis_report
from planner.report.text.explanation import LEDGER, explanation_report
from planner.report.text.numbers import signed_seconds
from planner.report.text.pieces import plain_text

WIDTHS = (40, 80, 100, 120, 200)
NAME = "llama3-70b-h100x1024"
LAYOUT = "tp=8,pp=4,vp=5,mbs=1"
BELOW, NEAR, ABOVE, IMPOSSIBLE, DENIED = MEASURED = (
    "slow", "as predicted", "fast", "beyond the peak", "denied by its step time",
)  # fmt: skip


@cache
def explained() -> Explanation:
    return api.explain(api.load_scenario(NAME), LAYOUT)


@cache
def diagnosed(kind: str) -> Diagnosis:
    mfu, step = explained().plan.mfu or 0.0, explained().plan.step_seconds or 0.0
    measured = {
        BELOW: {"mfu": 0.63 * mfu},
        NEAR: {"mfu": 1.02 * mfu},
        ABOVE: {"mfu": 1.4 * mfu},
        IMPOSSIBLE: {"mfu": 1.96},
        DENIED: {"mfu": 4 / 3 * mfu, "step_seconds": step},
    }[kind]
    return api.diagnose(api.load_scenario(NAME), measured, LAYOUT)


def shown(explanation: Explanation, width: int = 100) -> str:
    return plain_text(explanation_report(explanation), width)


def told(diagnosis: Diagnosis, width: int = 100) -> str:
    return plain_text(diagnosis_report(diagnosis), width)


def joined(text: str) -> str:
    """The text with its line breaks made blanks."""
    return " ".join(text.split())


@pytest.mark.parametrize("width", WIDTHS)
def test_no_line_is_wider_than_the_console(width: int) -> None:
    for text in (shown(explained(), width), *(told(diagnosed(m), width) for m in MEASURED)):
        lines = text.splitlines()
        assert max(map(cell_len, lines)) <= width
        assert all(line == line.rstrip() for line in lines)


@pytest.mark.parametrize("width", [80, 120])
def test_tables_are_whole_and_aligned(width: int) -> None:
    text = shown(explained(), width)
    assert "…" not in text
    lines = text.splitlines()
    top = next(i for i, line in enumerate(lines) if line.split()[:2] == ["group", "lives"])
    ends = [cell_len(line) for line in lines[top : top + 4]]
    assert len(set(ends)) == 1  # right-aligned numbers end together
    for measured in MEASURED:
        assert "…" not in told(diagnosed(measured), width)


# --- explanation ----------------------------------------------------------------------------------


def test_head_names_the_job_the_layout_and_the_denominator() -> None:
    head = shown(explained(), 120).splitlines()[:2]
    assert head[0] == "llama3-70b on 1,024 × h100-sxm-80gb (dgx-h100)"
    assert "tp8 pp4 vp5 dp32 mbs1 zero1" in head[1]
    assert f"{100 * (explained().plan.mfu or 0):.1f} % of 989.5 TFLOP/s dense BF16" in head[1]


def test_the_ledger_is_shown_down_to_half_a_percent_and_sums_to_the_step() -> None:
    text = shown(explained())
    block = text[text.index("What the step waits for") : text.index("Groups and")]
    regime = explained().regime
    assert regime is not None
    step = sum(regime.ledger.values())
    for name, value in regime.ledger.items():
        assert (LEDGER[name] in block) == (value >= 0.005 * step), name
    values = [float(value) for value in re.findall(r"(\d+\.\d{3}) s ", block)]
    small = [value for value in regime.ledger.values() if value < 0.005 * step]
    shown_rows = len(regime.ledger) - len(small) + (sum(small) > 1e-6 * step)
    assert len(values) == shown_rows + 1
    assert sum(values[:-1]) == pytest.approx(values[-1], abs=0.008)


@pytest.mark.parametrize("name", REGIMES)
def test_every_regime_is_said_with_the_metric_that_fits(name: str) -> None:
    said = {
        "compute": ("compute-bound", "MFU: 49.0 %"), "kernel": ("kernel-bound", "the peak"),
        "memory": ("memory-bound", "HBM bandwidth: 12.0 %"),
        "communication": ("most of it tp's", "busbw, as nccl-tests define it: 300 GB/s"),
        "bubble": ("bubble-bound", "time that stages are idle: 61.0 %"),
        "host": ("host-bound", "gaps between kernels: 62.0 %"),
        "straggler": ("straggler-bound", "ranks' times: 63.0 %"),
        "unexplained": ("no formula here explains", "outside kernels and traffic: 64.0 %"),
    }[name]  # fmt: skip
    metrics = {
        "mfu": 0.49, "hfu": 0.5, "kernel_efficiency": 0.55, "hbm_utilisation": 0.12, "busbw": 3e11,
        "bubble_fraction": 0.61, "host_fraction": 0.62, "straggler_fraction": 0.63,
        "unexplained_fraction": 0.64,
    }  # fmt: skip
    now = explained().regime
    assert now is not None
    regime = Regime(name, 0.6, "tp", now.shares, now.ledger, "mfu", metrics)
    text = joined(shown(replace(explained(), regime=regime)))
    assert "60.0 %" in text
    assert all(part in text for part in said), said


def test_groups_have_intensity_rank_ridge_and_walls() -> None:
    text = shown(explained(), 120)
    block = text[text.index("Groups and") : text.index("Why each")]
    tp = next(line for line in block.splitlines() if line.strip().startswith("tp"))
    place = explained().groups[0]
    assert tp.split()[:4] == ["tp", "nvlink", f"{place.intensity:,.0f}", "1"]
    assert f"{place.walls['bandwidth'] * 1e3:,.1f}" in tp
    assert f"{place.ridge:,.0f}" in tp and f"{place.ridge_ratio:.1f} ×" in tp


def test_reasons_say_what_every_swap_costs() -> None:
    text = joined(shown(explained(), 200))
    block = text[text.index("Why each") : text.index("What would change")]
    place = explained().groups[0]
    for other, cost in place.exchanges.items():
        assert cost is not None
        assert f"with {other} {signed_seconds(cost)} (" in block
    assert f"on leaf alone it would be at {place.ridge_ratios['leaf']:.2f} ×" in block
    assert "Lowest intensity first: tp < shard < pp" in block


def test_an_inversion_is_told() -> None:
    pairs = Inversion("pp", "shard", 0.0), Inversion("shard", "tp", 1.5), Inversion("a", "b", None)
    text = joined(shown(replace(explained(), inversions=pairs), 200))
    said = "lives further in than {}, against their intensities:"
    assert f"pp {said.format('shard')} the other order costs nothing." in text
    assert f"shard {said.format('tp')} the other order costs +1.50 s." in text
    together = "they move together or share their tiers, so there is nothing to swap."
    assert f"a {said.format('b')} {together}" in text


def test_actions_stand_under_their_labels_in_order_with_gains() -> None:
    text = shown(explained(), 120)
    places = [text.index(x) for x in ("Fill the roof", "Raise the roof", "Move the point")]
    assert places == sorted(places)
    for action in explained().actions:
        (line,) = [x for x in text.splitlines() if action.text in x]
        if action.gain_fraction is None:
            assert "–" in line and "not possible" in line
        elif action.gain_seconds == 0:
            assert line.split()[:2] == ["0", "%"]
        else:
            assert line.split()[:2] == [f"{100 * action.gain_fraction:.1f}", "%"]


def test_without_a_layout_the_plan_speaks() -> None:
    problem = api.load_scenario(NAME, {"num_accelerators": "8"})
    assert "No layout fits." in shown(api.explain(problem))


def test_one_accelerator_has_no_group_tables() -> None:
    text = shown(api.explain(api.load_scenario("llama3-8b-h100x8", {"num_accelerators": "1"}), ""))
    assert "Groups and" not in text and "Why each" not in text
    assert "Raise the roof" in text


# --- diagnosis ------------------------------------------------------------------------------------


def test_below_says_what_is_unexplained_and_suspects() -> None:
    found = diagnosed(BELOW)
    text = joined(told(found, 200))
    assert f"{found.unexplained_seconds:.2f} s of each step is unexplained" in text
    for suspect in found.suspects:
        assert suspect.text in text
        if suspect.kind == "off":
            assert f"{100 * suspect.explained_fraction:.0f} %" in text
    assert "Is something off" in text and "Is something slow?" in text


def test_as_predicted_says_so_with_the_metric() -> None:
    text = joined(told(diagnosed(NEAR)))
    assert "within 10 % of the prediction" in text
    assert "Judge it by MFU" in text and "unexplained" not in text


def test_above_the_peak_shows_every_convention_and_no_ledger() -> None:
    found = diagnosed(IMPOSSIBLE)
    text = joined(told(found, 200))
    assert "An MFU of 196.0 % is above the dense peak: no run can do that." in text
    assert all(convention.text in text for convention in found.conventions)
    assert "waits for" not in text and "unexplained" not in text


def test_a_step_time_above_the_peak_is_named_as_such() -> None:
    found = api.diagnose(api.load_scenario(NAME), "mfu=0.5,step_seconds=0.5", LAYOUT)
    text = joined(told(found))
    assert "The step time implies an MFU of" in text


def test_a_claim_its_time_denies_shows_both() -> None:
    found = diagnosed(DENIED)
    text = joined(told(found))
    assert "contradict each other" in text
    assert f"MFU {100 * (found.claimed_mfu or 0):.1f} % as given" in text
    assert f"MFU {100 * (found.mfu or 0):.1f} % by the step time" in text
    assert "explains a whole recomputed forward pass counted" in text


def test_faster_than_predicted_names_what_explains_it() -> None:
    text = joined(told(diagnosed(ABOVE)))
    assert "Faster than predicted" in text
    assert "explains" in text


def test_warnings_come_last() -> None:
    found = replace(diagnosed(BELOW), warnings=("watch\x1b out",))
    assert told(found).rstrip().endswith("! watch� out")
