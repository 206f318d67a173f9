"""Why not this layout: against plain enumeration, and arithmetic by hand."""

from __future__ import annotations

from functools import cache
from math import isclose
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from planner import api
from planner.advise.why_not import WhyNot, why_not
from planner.cost import memory
from planner.cost.context import CostContext
from planner.errors import InputError
from planner.layouts.layout import Layout, LayoutTable
from planner.planning.plan import Plan
from planner.problem.scenario import Scenario, Search
from planner.report.text.pieces import plain_text
from planner.report.text.why_not import why_not_report
from planner.search.rules.catalog import rules_for
from planner.search.rules.legality import broken_rules
from planner.search.space.enumerate import layouts
from planner.search.space.limits import fits_in_memory
from tests.expert_scenarios import experts
from tests.oracles import plain_least_step
from tests.scenarios import (
    small_accelerator,
    small_model,
    small_scenario,
    small_software,
    small_topology,
    small_training,
)
from tests.search.checks import fitting_layouts


def dense(gigabytes: float = 80.0, **changes: Any) -> Scenario:
    topology = small_topology(accelerator=small_accelerator(hbm_bytes=1e9 * gigabytes))
    software = small_software(recompute=("none", "full"))
    return small_scenario(8, **({"topology": topology, "software": software} | changes))


def sparse(**changes: Any) -> Scenario:
    usual: dict[str, Any] = {
        "topology": small_topology((2, 4)),
        "model": small_model(moe=experts(expert_ffn_hidden_size=512)),
        "training": small_training(sequence_length=960, global_batch_size=8),
        "software": small_software(
            dispatchers=("flex",), overlap=("tp", "dp", "pp", "ep"), recompute=("none", "full")
        ),
    }
    return small_scenario(8, **(usual | changes))


SCENARIOS = {
    "dense": dense(search=Search(mbs=(1,), vp=(1,), tie_fraction=0.0)),
    "memory is short": dense(0.5, search=Search(mbs=(1,), vp=(1,), tie_fraction=0.0)),
    "restricted": dense(search=Search(tp=(1, 2), vp=(1,), mbs=(1,), tie_fraction=0.0)),
    "experts": sparse(search=Search(mbs=(1,), vp=(1,), tie_fraction=0.0)),
}


@cache
def best_of(name: str) -> Plan:
    return api.plan(SCENARIOS[name], 1)


@cache
def least_step(name: str, row: Layout) -> float:
    return plain_least_step(CostContext.of(SCENARIOS[name]), row)


@cache
def fitting(name: str, stages: tuple[int, ...] | None) -> list[Layout]:
    """Layouts that fit; of those that differ in a ZeRO stage that shards nothing, the least."""
    scenario = SCENARIOS[name]
    free = Search(mbs=(1, 2), vp=scenario.search.vp, zero_stage=stages, tie_fraction=0.0)
    return fitting_layouts(CostContext.of(scenario), scenario.replace(search=free))


def least_steps(name: str, values: dict[str, Any]) -> dict[Layout, float]:
    """Every layout with the values that fits and keeps `search:` in other keys, in its best
    placement, by the scalar step."""
    scenario = SCENARIOS[name]
    stages = (values["zero_stage"],) if "zero_stage" in values else None
    others = [key for key in ("tp", "cp", "pp", "mbs", "vp") if key not in values]
    return {
        row: least_step(name, row)
        for row in fitting(name, stages)
        if all(getattr(row, key) == value for key, value in values.items())
        and all(
            getattr(row, k) in (getattr(scenario.search, k) or (getattr(row, k),)) for k in others
        )
    }


KEYS: dict[str, Any] = {
    "tp": st.sampled_from([1, 2, 3, 4, 8, 16]),
    "pp": st.sampled_from([1, 2, 3, 4, 8]),
    "cp": st.sampled_from([1, 2, 4]),
    "mbs": st.sampled_from([1, 2]),
    "dp": st.sampled_from([1, 2, 4, 8]),
    "ep": st.sampled_from([1, 2, 4]),
    "zero_stage": st.sampled_from([0, 1, 2]),
    "recompute": st.sampled_from(["none", "full"]),
    "sp": st.booleans(),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", SCENARIOS)
def test_the_verdict_is_that_of_enumeration(name: str) -> None:
    scenario, best = SCENARIOS[name], best_of(name)

    @settings(
        max_examples=10 if name != "experts" else 6, deadline=None, derandomize=True, database=None,
        suppress_health_check=list(HealthCheck),
    )  # fmt: skip
    @given(
        st.lists(st.sampled_from(sorted(KEYS)), min_size=1, max_size=3, unique=True).flatmap(
            lambda keys: st.fixed_dictionaries({key: KEYS[key] for key in keys})
        )
    )
    def check(values: dict[str, Any]) -> None:
        steps = least_steps(name, values)
        check_answer(scenario, why_not(scenario, values, best), steps, values)

    check()


def check_answer(
    scenario: Scenario, answer: WhyNot, steps: dict[Layout, float], values: dict[str, Any]
) -> None:
    listed = all(value in (getattr(scenario.search, k) or (value,)) for k, value in values.items())
    least = min(steps.values(), default=None)
    if answer.verdict == "best":
        assert answer.terms is not None and not any(answer.terms.values())
        assert least is not None and listed and answer.loss_fraction == 0
        assert answer.plan.step_seconds == pytest.approx(least, rel=1e-9)
    elif answer.verdict == "slower":
        assert least is not None and listed
        check_loss(answer, least)
    elif answer.verdict == "unfit":
        assert least is None and answer.over_bytes is not None and answer.over_bytes > 0
        check_unfit(scenario, answer, values)
    elif answer.other is not None:  # only the scenario's search: forbids it
        assert least is not None and not listed
        assert {rule.id for rule in answer.rules} == {"search"}
        check_loss(answer, least)
    else:
        assert least is None and answer.rules
        assert no_legal(scenario, values)


def check_loss(answer: WhyNot, least: float) -> None:
    assert answer.other is not None and answer.terms is not None
    assert answer.other.step_seconds == pytest.approx(least, rel=1e-9)
    if answer.plan.step_seconds is None:
        return
    assert answer.loss_fraction == pytest.approx(least / answer.plan.step_seconds - 1, abs=1e-9)
    difference = least - answer.plan.step_seconds
    assert sum(answer.terms.values()) == pytest.approx(difference, abs=1e-9 * least)


def check_unfit(scenario: Scenario, answer: WhyNot, values: dict[str, Any]) -> None:
    """The least excess of all legal completions; the nearest values do fit."""
    assert answer.miss is not None
    for key, texts in (answer.nearest or {}).items():
        for text in texts:
            other = why_not(scenario, {**values, key: text.partition("=")[2]}, answer.plan)
            assert other.other is not None


def no_legal(scenario: Scenario, values: dict[str, Any]) -> bool:
    """Whether every layout that search: leaves with these keys breaks a rule, one by one."""
    ctx = CostContext.of(scenario)
    free = {k: None if k in values else v for k, v in scenario.search}
    whole, _ = layouts(ctx, Search(**free), prune=False)
    rows = (whole.row(i) for i in range(len(whole)))
    return not any(all(getattr(row, k) == v for k, v in values.items()) for row in rows)


# --- what forbids ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("values", "rules"),
    [
        ({"tp": 16}, {"tp-divides-heads"}),
        ({"tp": 3}, {"world-size", "tp-divides-heads", "tp-divides-ffn"}),
        ({"sp": True, "tp": 1}, {"sp-needs-tp"}),
        ({"vp": 2, "pp": 1}, {"vp-needs-pp"}),
        ({"zero_stage": 3}, {"zero-stage"}),
        ({"mbs": 3}, {"batch-divides"}),
        ({"ep": 2}, {"experts-need-moe", "no-expert-parallelism"}),
        ({"cp_kind": "a2a", "cp": 2}, {"cp-kind"}),
        ({"pp": 8}, {"chunks-have-layers"}),
    ],
)
def test_rules_that_forbid_are_all_named(values: dict[str, Any], rules: set[str]) -> None:
    scenario = small_scenario(16, software=small_software(zero_stages=(0, 1)))
    answer = why_not(scenario, values)
    assert answer.verdict == "illegal" and not answer.together
    assert {rule.id for rule in answer.rules} == rules
    for rule in answer.rules:
        assert rule.source and rule.sentence and rule.value


def test_rules_that_forbid_only_together_are_a_smallest_set() -> None:
    """pp=2, vp=2 and three micro-batches: interleaving needs a multiple of pp, and no layout of
    eight ranks is left; without either rule one is."""
    scenario = small_scenario(
        2,
        topology=small_topology((2, 2)),
        software=small_software(rules=("interleaved-microbatches",)),
        training=small_training(global_batch_size=3),
    )
    answer = why_not(scenario, "pp=2,vp=2")
    assert answer.verdict == "illegal"
    assert "interleaved-microbatches" in {rule.id for rule in answer.rules}
    (rule,) = [rule for rule in answer.rules if rule.id == "interleaved-microbatches"]
    assert {"megatron-core", "nemo"} <= set(rule.holds_for)
    assert set(rule.nearest) == {"pp=1", "vp=1"} or "vp=1" in rule.nearest


def test_nearest_values_are_legal_with_the_others_and_none_is_nearer() -> None:
    scenario = small_scenario(16)
    answer = why_not(scenario, "tp=16,pp=1")
    assert answer.nearest is not None
    assert answer.nearest["tp"] == ("tp=8",)
    answer = why_not(scenario, "pp=8")
    assert answer.nearest == {"pp": ("pp=4",)}


def test_nearest_degrees_fill_domains_evenly() -> None:
    """Nodes of six, twelve heads: four divides the heads but leaves nodes partly crossed."""
    model = small_model(
        hidden_size=1536, ffn_hidden_size=6144, num_attention_heads=12, num_key_value_heads=12
    )
    scenario = small_scenario(
        24, topology=small_topology((6, 4)), model=model,
        training=small_training(global_batch_size=24),
    )  # fmt: skip
    answer = why_not(scenario, "tp=8,cp=1,pp=1")
    assert answer.verdict == "illegal"
    assert answer.nearest is not None
    assert answer.nearest["tp"] == ("tp=6", "tp=12")


def test_a_restriction_of_the_scenario_is_named_and_the_loss_told() -> None:
    scenario = small_scenario(16, search=Search(tp=(1, 2, 8)))
    answer = why_not(scenario, "tp=4")
    assert answer.verdict == "illegal"
    (rule,) = answer.rules
    assert (rule.id, rule.value, rule.nearest) == ("search", "tp=4", ("tp=2", "tp=8"))
    assert answer.loss_fraction is not None and answer.other is not None


@pytest.mark.slow
def test_overlap_and_splits_of_stages_are_completed_too() -> None:
    scenario = small_scenario(8, search=Search(mbs=(1,), tie_fraction=0.0))
    ctx = CostContext.of(scenario)
    best = api.plan(scenario, 1)
    for values in (
        {"overlap": "none"}, {"stage_layers": (1, 3)}, {"overlap": "dp", "pp": 2},
        {"pp": 2, "stage_layers": (1, 1, 1, 1)},
    ):  # fmt: skip
        answer = why_not(scenario, values, best)
        assert answer.verdict == "slower" and answer.other is not None
        assert answer.other.layout is not None
        table, _ = layouts(ctx, Search(mbs=(1,)), prune=False, ruled=False)
        rows = [Layout(**fields(table.row(i)) | values) for i in range(len(table))]
        kept = [
            row for row in rows
            if all(getattr(row, k) == v for k, v in values.items())
            and not list(broken_rules(ctx, row))
        ]  # fmt: skip
        least = min(plain_least_step(ctx, row) for row in kept)
        assert answer.other.step_seconds is not None
        assert isclose(answer.other.step_seconds, least, rel_tol=1e-9)


def test_a_chunk_at_an_end_may_be_empty() -> None:
    """Where the software lets it; of six chunks in all, which only one number a rank makes."""
    scenario = small_scenario(8, software=small_software(empty_end_chunks=True))
    answer = why_not(scenario, {"pp": 2, "stage_layers": (0, 1, 1, 1, 1, 0)})
    assert answer.verdict == "slower" and answer.other is not None
    assert answer.other.layout is not None and answer.other.layout.vp == 3
    refused = why_not(scenario, {"pp": 2, "stage_layers": (0, 1, 0, 2, 0, 1)})  # a rank without
    assert refused.verdict == "illegal"


@pytest.mark.slow
@pytest.mark.parametrize(
    "values", [{"overlap": "none"}, {"stage_layers": (1, 3)}, {"recompute": "full"}]
)
def test_where_the_least_memory_is_asked_completions_are_the_leanest(
    values: dict[str, Any],
) -> None:
    """Also of keys that no search crosses, which are set on layouts written out."""
    scenario = small_scenario(8, search=Search(objective="least_memory", tie_fraction=0.0))
    ctx = CostContext.of(scenario)
    answer = why_not(scenario, values)
    table, _ = layouts(ctx, Search(), prune=False, ruled=False)
    rows = [Layout(**fields(table.row(i)) | values) for i in range(len(table))]
    legal = [LayoutTable.from_layouts([r]) for r in rows if not list(broken_rules(ctx, r))]
    peaks = [
        memory.worst_stage(ctx, one)[1][0]
        for one in legal if fits_in_memory(ctx, scenario.search, one)[0]
    ]  # fmt: skip
    assert answer.other is not None and answer.other.memory is not None
    assert answer.other.memory.peak_bytes == min(peaks)


def fields(layout: Layout) -> dict[str, Any]:
    return {name: getattr(layout, name) for name in Layout.__slots__}


def test_an_open_count_is_answered_on_the_plan_s() -> None:
    scenario = small_scenario(8)
    asked = api.plan(scenario, 1)
    wide = scenario.replace(search=Search(num_accelerators=(4, 8)))
    best = api.plan(wide, 1)
    answer = why_not(wide, "pp=4", best)
    assert answer.other is not None
    count = best.inputs["num_accelerators"]
    assert answer.other.inputs["num_accelerators"] == count
    if count == 8:
        assert answer.other.step_seconds == why_not(scenario, "pp=4", asked).other.step_seconds  # type: ignore[union-attr]


def test_where_the_least_memory_is_asked_for_peaks_are_held_against_it() -> None:
    scenario = small_scenario(8, search=Search(objective="least_memory"))
    best = api.plan(scenario, 1)
    assert best.memory is not None and best.layout is not None
    given = {"tp": 1 if best.layout.tp > 1 else 2}
    answer = why_not(scenario, given, best)
    alone = api.plan(scenario.replace(search=Search(objective="least_memory", tp=(given["tp"],))))
    assert alone.memory is not None
    assert answer.verdict == "larger"
    assert answer.more_bytes == alone.memory.peak_bytes - best.memory.peak_bytes
    assert "needs more memory" in plain_text(why_not_report(answer))


def test_what_is_given_twice_is_told_of_its_own_option() -> None:
    with pytest.raises(InputError, match="--why-not: tp is given twice"):
        why_not(small_scenario(8), "tp=1,tp=2")


@pytest.mark.parametrize("text", ["", "tp", "tpp=2", "tp=x", "recompute=fulll"])
def test_wrong_input_is_refused(text: str) -> None:
    with pytest.raises(InputError):
        why_not(small_scenario(8), text)


def test_every_rule_of_the_tests_software_is_known() -> None:
    """A rule's id says its sentence and source; without rules there are more layouts."""
    scenario = small_scenario(8, search=Search(mbs=(1,)))
    ctx = CostContext.of(scenario)
    ruled, free = (layouts(ctx, scenario.search, False, ruled)[0] for ruled in (True, False))
    assert len(free) > len(ruled)
    keeps = [
        all(bool(rule.holds(ctx, free.row(i))) for rule in rules_for(ctx)) for i in range(len(free))
    ]
    kept = {free.row(i) for i in range(len(free)) if keeps[i]}
    assert kept == {ruled.row(i) for i in range(len(ruled))}
    assert isinstance(ruled, LayoutTable)
