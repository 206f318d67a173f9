"""Measured runs: counting errors by hand, as predicted, and what would hide seconds."""

from __future__ import annotations

import json
from dataclasses import replace
from functools import cache

import pytest

from planner import api
from planner.advise.baseline import Baseline, with_slow_tier
from planner.advise.diagnose import NEAR_FRACTION, Diagnosis, slow_factor
from planner.advise.measured import KEYS, read_measured
from planner.cost import flops
from planner.cost.context import CostContext
from planner.errors import InputError
from planner.planning.plan import Plan

NAME = "llama3-70b-h100x1024"
LAYOUT = "tp=8,pp=4,vp=5,mbs=1"
CP_LAYOUT = "tp=8,cp=2,pp=4,vp=5,mbs=1"


@cache
def predicted(layout: str = LAYOUT) -> Plan:
    return api.evaluate(api.load_scenario(NAME), layout)


def mfu(layout: str = LAYOUT) -> float:
    value = predicted(layout).mfu
    assert value is not None
    return value


def seconds(layout: str = LAYOUT) -> float:
    value = predicted(layout).step_seconds
    assert value is not None
    return value


def diagnosed(layout: str = LAYOUT, precision: str = "bf16", **measured: float) -> Diagnosis:
    problem = api.load_scenario(NAME, {"training.precision": precision})
    return api.diagnose(problem, measured, layout)


def factors(diagnosis: Diagnosis) -> dict[str, float]:
    return {convention.id: convention.factor for convention in diagnosis.conventions}


def explaining(diagnosis: Diagnosis) -> list[str]:
    return [convention.id for convention in diagnosis.conventions if convention.explains]


# --- the branches ---------------------------------------------------------------------------------


def test_near_the_prediction_it_is_as_predicted() -> None:
    for share in (0.93, 1.0, 1.08):
        found = diagnosed(mfu=share * mfu())
        assert found.verdict == "as-predicted"
        assert found.suspects == () and found.conventions == ()
        assert found.regime.metric == "mfu"
    assert found.step_seconds == pytest.approx(seconds() / 1.08)
    assert found.mfu is None and found.claimed_mfu == pytest.approx(1.08 * mfu())


@pytest.mark.parametrize(("longer", "verdict"), [
    (NEAR_FRACTION + 1e-3, "below"), (NEAR_FRACTION - 1e-3, "as-predicted"),
    (1e-3 - NEAR_FRACTION, "as-predicted"), (-1e-3 - NEAR_FRACTION, "above"),
])  # fmt: skip
def test_near_means_a_tenth_of_the_step(longer: float, verdict: str) -> None:
    assert diagnosed(step_seconds=seconds() * (1 + longer)).verdict == verdict


def test_time_tokens_and_tflops_are_one_measurement() -> None:
    plan = predicted()
    assert plan.tokens_per_second is not None
    peak = 989.5
    for measured in (
        {"step_seconds": 2 * seconds()},
        {"tokens_per_second": plan.tokens_per_second / 2},
        {"tflops": mfu() / 2 * peak},
        {"mfu": mfu() / 2},
    ):
        found = diagnosed(**measured)
        assert found.verdict == "below"
        assert found.step_seconds == pytest.approx(2 * seconds())
        assert found.unexplained_seconds == pytest.approx(seconds())


@pytest.mark.parametrize("key", ["tokens_per_second", "tflops"])
def test_two_ways_of_saying_one_thing_must_agree(key: str) -> None:
    plan = predicted()
    assert plan.tokens_per_second is not None
    one = {"tokens_per_second": ("step_seconds", seconds(), plan.tokens_per_second)}
    one["tflops"] = ("mfu", mfu(), mfu() * 989.5)
    other, value, same = one[key]
    assert diagnosed(**{other: value, key: same}).verdict == "as-predicted"
    with pytest.raises(InputError, match="do not agree"):
        diagnosed(**{other: value, key: 1.1 * same})


def test_a_layout_that_was_not_given_is_warned_of() -> None:
    problem = api.load_scenario("llama3-8b-h100x8")
    found = api.diagnose(problem, "mfu=0.4")
    assert "no layout was given" in found.warnings[0]
    assert api.diagnose(problem, "mfu=0.4", "tp=2").warnings == ()


def test_a_run_that_should_not_have_fitted_is_doubted() -> None:
    problem = api.load_scenario("llama3-8b-h100x8")
    (warning,) = api.diagnose(problem, "mfu=0.4", "tp=1,mbs=8").warnings
    assert "yet the run did fit" in warning


def test_without_any_layout_there_is_nothing_to_compare_with() -> None:
    problem = api.load_scenario(NAME, {"num_accelerators": "8"})
    with pytest.raises(InputError, match="--layout"):
        api.diagnose(problem, "mfu=0.4")


def test_the_document_is_plain_json() -> None:
    document = json.loads(json.dumps(diagnosed(mfu=0.31).to_document(), allow_nan=False))
    assert set(document) == {"schema_version", "planner_version", *Diagnosis.__dataclass_fields__}
    assert document["measured"] == {"mfu": 0.31}
    assert document["suspects"] and document["plan"]["layout"]["tp"] == 8


# --- accounting -----------------------------------------------------------------------------------


def test_above_the_peak_is_an_accounting_error_whatever_the_layout() -> None:
    found = diagnosed(mfu=1.96)
    assert found.verdict == "accounting-error"
    assert found.step_seconds is found.unexplained_seconds is None
    assert found.suspects == ()
    assert diagnosed(tflops=1937.0).verdict == "accounting-error"
    assert diagnosed(step_seconds=0.5).verdict == "accounting-error"


def test_conventions_by_hand() -> None:
    """70B at 8192 tokens: layers 2·L·(…), attention 2·L·s·q, head 2·h·V per token, forward."""
    ctx = CostContext.of(api.load_scenario(NAME))
    h, kv, f, v, layers, s = 8192, 1024, 28672, 128256, 80, 8192
    matmuls = 2.0 * layers * (h * (h + 2 * kv) + h * h + 3 * h * f)
    attention, head = 2.0 * layers * s * h, 2.0 * h * v
    assert flops.forward_flops_per_token(ctx) == pytest.approx((matmuls, attention, 0.0, head))
    total = matmuls + attention + head
    found = factors(diagnosed(CP_LAYOUT, mfu=1.96))
    assert found["full-attention"] == pytest.approx((total + attention) / total)
    assert found["no-head"] == pytest.approx((matmuls + attention) / total)
    assert found["full-recompute"] == pytest.approx(4 / 3)
    assert found["sparse-peak"] == 0.5
    assert found["fp8-ran"] == pytest.approx(2.0)
    parameters = ctx.model.num_parameters
    assert found["six-parameters"] == pytest.approx(6 * parameters / (3 * total))
    assert found["context-parallel-off"] == pytest.approx(total / (total - attention / 2))
    assert found["model-parallel-ranks"] == 64
    assert found["micro-batch-time"] == 1024 / (1024 // 64)


def test_each_convention_is_divided_out_of_the_claim() -> None:
    for convention in diagnosed(mfu=1.5).conventions:
        assert convention.mfu * convention.factor == pytest.approx(1.5)
        assert convention.explains == (abs(convention.mfu / mfu() - 1) <= NEAR_FRACTION)


def test_a_sparse_peak_explains_half_the_mfu() -> None:
    """420 TFLOP/s over 1979 rather than 989.5: 21 % for 42 %."""
    found = diagnosed(mfu=mfu() / 2)
    assert found.verdict == "below"
    assert explaining(found) == ["sparse-peak"]
    assert found.conventions[0].mfu == pytest.approx(mfu())


def test_the_bf16_peak_explains_twice_the_mfu_of_fp8() -> None:
    plan = api.evaluate(api.load_scenario(NAME, {"training.precision": "fp8"}), LAYOUT)
    assert plan.mfu is not None and plan.mfu_bf16 is not None
    found = diagnosed(precision="fp8", mfu=plan.mfu_bf16)
    assert found.verdict == "above"
    assert "bf16-peak" in explaining(found)


def test_two_conventions_together_are_found_when_none_does_alone() -> None:
    problem = api.load_scenario(NAME, {"training.precision": "fp8"})
    plan = api.evaluate(problem, LAYOUT)
    assert plan.mfu_bf16 is not None
    claim = plan.mfu_bf16 * 4 / 3
    found = api.diagnose(problem, {"mfu": claim, "step_seconds": plan.step_seconds or 0.0}, LAYOUT)
    assert found.verdict == "accounting-error"
    assert explaining(found) == ["full-recompute+bf16-peak"]
    assert found.conventions[0].factor == pytest.approx(8 / 3)


def test_an_mfu_that_its_own_step_time_denies_is_an_accounting_error() -> None:
    found = diagnosed(mfu=mfu() * 4 / 3, step_seconds=seconds())
    assert found.verdict == "accounting-error"
    assert found.mfu == pytest.approx(mfu()) and found.step_seconds == pytest.approx(seconds())
    assert explaining(found)[0] == "full-recompute"
    assert diagnosed(mfu=mfu() * 1.02, step_seconds=seconds()).verdict == "as-predicted"


def test_a_time_alone_is_not_blamed_on_peaks_or_flops() -> None:
    found = diagnosed(step_seconds=seconds() / 32)
    assert set(factors(found)) == {"model-parallel-ranks", "micro-batch-time"}
    assert "micro-batch-time" in explaining(found)


# --- what hides -----------------------------------------------------------------------------------


def test_a_slow_tier_makes_the_measured_time_when_it_is_as_slow_as_said() -> None:
    target = 1.6 * seconds()
    slow = {s.id: s for s in diagnosed(step_seconds=target).suspects if s.kind == "slow"}
    base = Baseline.of(api.load_scenario(NAME), predicted())
    for position, tier in enumerate(("nvlink", "leaf")):
        suspect = slow[f"tier:{tier}"]
        assert suspect.factor is not None and suspect.factor > 1
        step = base.step(with_slow_tier(base.ctx, position, suspect.factor))
        assert step == pytest.approx(target, rel=1e-4)
        now = base.ctx.topology.tiers[position].bytes_per_second
        assert suspect.value == pytest.approx(now / suspect.factor)
        # the same, through the scenario file
        key = f"topology.tiers.{position}.fabric.bandwidth.value"
        problem = api.load_scenario(NAME, {key: f"{suspect.value!r} B/s"})
        evaluated = replace(base, ctx=CostContext.of(problem)).step()
        assert evaluated == pytest.approx(target, rel=1e-4)


def test_slow_suspects_are_ordered_by_how_little_it_takes() -> None:
    slow = [s for s in diagnosed(mfu=0.31).suspects if s.kind == "slow"]
    known = [s.factor for s in slow if s.factor is not None]
    assert known == sorted(known) and len(known) >= 3
    assert slow[0].id == "rank"
    assert [s.id for s in slow if s.factor is None] == ["stall"]


def test_a_stall_explains_all_at_once() -> None:
    target = 1.5 * seconds()
    (stall,) = [s for s in diagnosed(step_seconds=target).suspects if s.id == "stall"]
    now = api.load_scenario(NAME).software.coefficients.unexplained_seconds
    value = f"{now + (stall.value or 0.0)!r} s"
    key = "software.coefficients.unexplained_seconds.value"
    problem = api.load_scenario(NAME, {key: value})
    assert api.evaluate(problem, LAYOUT).step_seconds == pytest.approx(target)


@pytest.mark.parametrize(("id_", "change"), [
    ("overlap", "overlap=none"), ("overlap:tp", "overlap=dp+pp"), ("recompute:full",
     "recompute=full"), ("virtual-stages", "vp=1"),
])  # fmt: skip
def test_what_is_not_in_force_is_evaluated(id_: str, change: str) -> None:
    key = change.split("=")[0]
    kept = [part for part in LAYOUT.split(",") if not part.startswith(f"{key}=")]
    step = api.evaluate(api.load_scenario(NAME), ",".join([*kept, change])).step_seconds
    assert step is not None
    target = 1.3 * seconds()
    off = {s.id: s for s in diagnosed(step_seconds=target).suspects if s.kind == "off"}
    assert off[id_].step_seconds == pytest.approx(step, rel=5e-3)
    share = (off[id_].step_seconds - seconds()) / (target - seconds())
    assert off[id_].explained_fraction == pytest.approx(share)


def test_the_run_that_recomputed_is_found_first() -> None:
    step = api.evaluate(api.load_scenario(NAME), f"{LAYOUT},recompute=full").step_seconds
    assert step is not None
    found = diagnosed(step_seconds=step)
    (again,) = [s for s in found.suspects if s.id == "recompute:full"]
    assert again.explained_fraction == pytest.approx(1.0, rel=1e-2)
    first = found.suspects[0].explained_fraction
    assert abs(first - 1) <= abs(again.explained_fraction - 1)


def test_ranks_in_each_others_place_cost_what_the_plan_says() -> None:
    plan = predicted()
    costs = {s.atoms: s.seconds for s in plan.swaps}
    cost = costs[("tp", "pp")]
    assert cost is not None
    found = diagnosed(step_seconds=seconds() + cost)
    (swap,) = [s for s in found.suspects if s.id == "swap:tp-pp"]
    assert swap.explained_fraction == pytest.approx(1.0)


def test_a_precision_that_is_not_in_force_is_suspected() -> None:
    bf16 = seconds()
    found = diagnosed(precision="fp8", step_seconds=bf16)
    ids = {s.id: s for s in found.suspects}
    assert ids["precision"].step_seconds == pytest.approx(bf16, rel=5e-3)


def test_slow_factor_solves_and_gives_up() -> None:
    assert slow_factor(lambda f: 2.0 + 3.0 * f, 11.0) == pytest.approx(3.0, rel=1e-5)
    assert slow_factor(lambda f: max(5.0, f), 7.5) == pytest.approx(7.5, rel=1e-5)
    assert slow_factor(lambda f: 5.0, 7.5) is None


# --- what is read ---------------------------------------------------------------------------------


def test_measured_values_are_read() -> None:
    assert read_measured("mfu=0.31, step_seconds = 10.5,") == {"mfu": 0.31, "step_seconds": 10.5}
    assert read_measured({"tflops": 420, "mfu": "0.42"}) == {"tflops": 420.0, "mfu": 0.42}
    assert read_measured("mfu=1.96") == {"mfu": 1.96}


@pytest.mark.parametrize(("text", "said"), [
    ("mfu=31", "did you mean 'mfu=0.31'"), ("mfu=31%", "did you mean 'mfu=0.31'"),
    ("mfu=-0.3", "negative"), ("mfu=0", "zero"), ("mfu=nan", "finite"), ("mfu=inf", "finite"),
    ("mfu=high", "not a number"), ("step_seconds=5.2s", "not a number"),
    ("mfu", "not key=value"), ("mfu=", "not key=value"), ("", "nothing is measured"),
    (",", "nothing is measured"), ("mfu=0.3,mfu=0.4", "twice"), ("mfuu=0.3", "did you mean 'mfu'"),
    ("speed=3", ", ".join(KEYS)), ("tp=8", "--layout tp=8"),
])  # fmt: skip
def test_measured_values_that_cannot_be(text: str, said: str) -> None:
    with pytest.raises(InputError, match="--measured") as caught:
        read_measured(text)
    assert said in str(caught.value)
