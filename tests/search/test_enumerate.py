"""The table of legal layouts against a product of all choices filtered in plain Python."""

import itertools
from collections.abc import Iterable, Iterator
from typing import Any, Literal

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from planner.cost.context import CostContext
from planner.layouts.keys import CP_KINDS, SCHEDULES
from planner.layouts.layout import Layout, LayoutTable
from planner.problem.scenario import Scenario, Search
from planner.search.rules.catalog import rules_of
from planner.search.space.crossings import divisors
from planner.search.space.enumerate import SEARCH_RULE, layouts
from tests import oracles
from tests.scenarios import (
    shipped_software,
    small_model,
    small_scenario,
    small_software,
    small_training,
)


def enumerated(scenario: Scenario) -> tuple[LayoutTable, dict[str, int]]:
    table, excluded = layouts(CostContext.of(scenario), scenario.search)
    return table, dict(excluded)


# --- the oracle: no numpy, no rule objects --------------------------------------------------------


MODULES = ("mla_up_proj", "act", "act_norm", "moe")
"""Recomputed where a model has experts or latent attention."""


def product_of_choices(scenario: Scenario) -> Iterator[Layout]:
    """Every combination of the choices that the scenario's restrictions allow, legal or not."""
    n, batch = scenario.num_accelerators, scenario.training.global_batch_size
    software, search = scenario.software, scenario.search

    def wanted(name: str, values: Iterable[Any]) -> list[Any]:
        allowed = getattr(search, name)
        return [value for value in values if allowed is None or value in allowed]

    named = [
        (vp, schedule)
        for vp in wanted("vp", range(1, scenario.model.num_layers + 2))
        for schedule in wanted(
            "schedule", dict.fromkeys(("1f1b", "interleaved", *software.schedules))
        )
        if Layout(vp=vp, schedule=schedule).schedule == schedule  # others get another name
    ]
    plain = [kind for kind in software.recompute if kind not in MODULES]
    rest = [wanted("zero_stage", range(4)), wanted("sp", (False, True)), wanted("recompute", plain)]
    kinds = wanted("cp_kind", search.cp_kind or software.cp_kinds)
    overlap = "+".join(o for o in software.overlap if o != "ep") or "none"
    degrees = oracles.divisors(n)
    for tp, cp, pp, shard in itertools.product(
        wanted("tp", degrees),
        wanted("cp", degrees),
        wanted("pp", degrees),
        wanted("dp_shard", degrees),
    ):
        if n % (tp * cp * pp * shard):
            continue
        replicate = n // (tp * cp * pp * shard)
        if not wanted("dp_replicate", [replicate]) or not wanted("dp", [shard * replicate]):
            continue
        for mbs in wanted("mbs", oracles.divisors(batch)):
            if batch % (mbs * shard * replicate):
                continue
            for (vp, schedule), zero, sp, recompute, kind in itertools.product(
                named, *rest, kinds if cp > 1 else wanted("cp_kind", ["ring"])
            ):
                for inner in range(1, cp + 1) if kind == "hierarchical" else [1]:
                    yield Layout(
                        tp=tp, cp=cp, pp=pp, schedule=schedule, dp_shard=shard,
                        dp_replicate=replicate, vp=vp, mbs=mbs,
                        num_microbatches=batch // (mbs * shard * replicate), zero_stage=zero, sp=sp,
                        recompute=recompute, cp_kind=kind, cp_a2a=inner, overlap=overlap,
                    )  # fmt: skip


def legal(scenario: Scenario, x: Layout) -> bool:
    """The rules of a framework in plain Python."""
    model, software, s = scenario.model, scenario.software, scenario.training.sequence_length
    heads, kv, layers = model.num_attention_heads, model.num_key_value_heads, model.num_layers
    able = (
        x.zero_stage in software.zero_stages
        and (x.vp == 1 or x.pp > 1)
        and x.pp * x.vp <= layers + 2 * (software.empty_end_chunks and x.vp > 2)
        and (x.pp > 1 or x.schedule == "1f1b")
        and (x.schedule in software.schedules or (x.pp == 1 and x.schedule == "1f1b"))
        and heads % x.tp == 0
        and model.ffn_hidden_size % x.tp == 0
        and (not x.sp or (x.tp > 1 and s % (x.tp * x.cp) == 0))
        and {"always": x.sp == (x.tp > 1), "never": not x.sp, "optional": True}[
            software.sequence_parallel
        ]
        and (x.cp == 1 or s % (2 * x.cp) == 0)
        and (x.cp_kind != "a2a" or x.cp == 1 or kv % (x.tp * x.cp) == 0)
        and (
            x.cp_kind != "hierarchical"
            or (1 < x.cp_a2a < x.cp and x.cp % x.cp_a2a == 0 and kv % (x.tp * x.cp_a2a) == 0)
        )
        and x.vp == {"zb-v": 2, "dualpipev": 2, "dualpipe": 1}.get(x.schedule, x.vp)
        and (x.schedule != "dualpipe" or x.pp % 2 == x.num_microbatches % 2 == 0)
        and (not x.schedule.startswith("dualpipe") or x.num_microbatches >= 2 * x.pp)
        and (x.schedule != "zb-v" or x.num_microbatches >= 2 * x.pp - 1)
        # with ZeRO-0 nothing is sharded: the whole data-parallel group is one
        and (x.dp_replicate == 1 or (x.zero_stage > 0 and software.shard_groups == "any"))
    )
    if not able:
        return False
    named = {
        "kv-heads-replicate": kv % x.tp == 0 or x.tp % kv == 0,
        "tp-divides-kv-heads": kv % x.tp == 0,
        "interleaved-microbatches": (
            "interleaved" not in x.schedule or x.num_microbatches % x.pp == 0
        ),
        "microbatches-fill-pipeline": x.num_microbatches >= x.pp,
        "stages-even": layers % (x.pp * x.vp) == 0,
        "zero2-excludes-pipeline": x.zero_stage < 2 or x.pp == 1,
        "data-parallel-only": x.tp == x.cp == x.pp == 1,
        "no-context-parallelism": x.cp == 1,
    }
    return all(named[rule] for rule in software.rules)


def canonical(scenario: Scenario, x: Layout) -> bool:
    """One of the layouts that differ in the ZeRO stage alone while there is nothing to shard.

    Under dualpipe two ranks hold every stage, and share its states.
    """
    first = min(scenario.software.zero_stages)
    chosen = scenario.search.zero_stage
    shared = x.cp * x.dp_shard > 1 or x.schedule == "dualpipe"
    alone = not shared and (chosen is None or first in chosen)
    return not alone or x.zero_stage == first


def brute_force(scenario: Scenario) -> set[Layout]:
    return {
        x for x in product_of_choices(scenario) if legal(scenario, x) and canonical(scenario, x)
    }


def check_equal(scenario: Scenario) -> int:
    table, excluded = enumerated(scenario)
    rows = [table.row(i) for i in range(len(table))]
    assert len(set(rows)) == len(rows)
    assert set(rows) == brute_force(scenario)
    ids = {rule.id for rule in rules_of(scenario.software)} | {SEARCH_RULE}
    assert set(excluded) <= ids
    assert all(count > 0 for count in excluded.values())
    return len(rows)


# --- against the oracle ---------------------------------------------------------------------------

RULES = (
    (), ("kv-heads-replicate", "interleaved-microbatches"),
    ("tp-divides-kv-heads", "microbatches-fill-pipeline", "stages-even"),
    ("zero2-excludes-pipeline", "no-context-parallelism"), ("data-parallel-only",),
)  # fmt: skip


@st.composite
def random_scenarios(draw: st.DrawFn) -> Scenario:
    num = draw(st.sampled_from([4, 6, 8, 12]))
    heads = draw(st.sampled_from([4, 6, 12]))
    some = st.lists(st.sampled_from(oracles.divisors(num)), min_size=1, max_size=3, unique=True)

    def maybe(values: Any) -> Any:
        return draw(st.one_of(st.none(), values.map(tuple)))

    vp = maybe(st.lists(st.integers(1, 3), min_size=1, max_size=2))
    able = draw(st.sampled_from([("1f1b",), ("1f1b", "interleaved"), SCHEDULES, SCHEDULES[2:]]))
    schedules = maybe(st.lists(st.sampled_from(able), min_size=1))
    shard_groups = draw(st.sampled_from(["any", "full"]))
    return small_scenario(
        num,
        model=small_model(
            num_layers=draw(st.integers(1, 5)), num_attention_heads=heads, hidden_size=64 * heads,
            num_key_value_heads=draw(st.sampled_from(oracles.divisors(heads))),
            ffn_hidden_size=draw(st.sampled_from([36, 48, 256])),
        ),
        training=small_training(
            sequence_length=draw(st.sampled_from([12, 24, 72, 128])),
            global_batch_size=draw(st.sampled_from([6, 8, 12])),
        ),
        software=small_software(
            rules=draw(st.sampled_from(RULES)),
            zero_stages=draw(st.sampled_from([(0,), (1,), (0, 1), (2, 3), (0, 1, 2, 3)])),
            shard_groups=shard_groups,
            schedules=able,
            recompute=draw(st.sampled_from([("none",), ("none", "full")])),
            sequence_parallel=draw(st.sampled_from(["always", "never", "optional"])),
            cp_kinds=(draw(st.sampled_from(CP_KINDS)),),
            overlap=draw(st.sampled_from([(), ("dp",), ("tp", "dp", "pp")])),
        ),
        search=Search(
            tp=maybe(some), cp=maybe(some), dp=maybe(some),
            dp_shard=maybe(some) if shard_groups == "any" else None,
            mbs=maybe(st.lists(st.integers(1, 4), min_size=1, max_size=2)),
            vp=vp,
            zero_stage=maybe(st.lists(st.integers(0, 3), min_size=1, max_size=2)),
            schedule=schedules if vp is None else None,
        ),
    )  # fmt: skip


@pytest.mark.slow
@given(random_scenarios())
@settings(max_examples=100, deadline=None, derandomize=True)
def test_table_equals_a_filtered_product(scenario: Scenario) -> None:
    check_equal(scenario)


@pytest.mark.slow
@pytest.mark.parametrize("software", ["megatron-core", "torchtitan", "deepspeed", "fsdp-composer",
                                      "jax-xla", "megatron-2021", "megatron-zero-bubble",
                                      "deepseek", "torchtitan-eager", "fallback"])  # fmt: skip
def test_shipped_profiles_equal_a_filtered_product(software: str) -> None:
    scenario = small_scenario(8, software=shipped_software(software))
    assert check_equal(scenario) > 10


def test_stops_at_prime_and_unit_counts() -> None:
    for num in (1, 2, 7, 13):
        assert check_equal(small_scenario(num, training=small_training(global_batch_size=num))) > 0


# --- restrictions ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("restriction", "values"),
    [
        ("tp", (2, 8)), ("cp", (2,)), ("pp", (1, 4)), ("dp", (4,)), ("dp_shard", (2,)),
        ("dp_replicate", (2, 4)), ("vp", (2,)), ("mbs", (1, 4)), ("zero_stage", (0, 3)),
        ("recompute", ("none",)), ("sp", (True,)), ("schedule", ("interleaved",)),
        ("schedule", ("1f1b",)),
    ],
)  # fmt: skip
def test_search_keeps_exactly_what_it_lists(restriction: str, values: tuple[Any, ...]) -> None:
    free = small_scenario(16, software=small_software(recompute=("none", "full")))
    table, _ = enumerated(free)
    all_rows = [table.row(i) for i in range(len(table))]
    restricted = free.replace(search=free.search.replace(**{restriction: values}))
    table, excluded = enumerated(restricted)
    rows = {table.row(i) for i in range(len(table))}
    assert rows == {row for row in all_rows if getattr(row, restriction) in values}
    assert 0 < len(rows) < len(all_rows)
    assert excluded[SEARCH_RULE] > 0


@pytest.mark.parametrize("restriction", ["dp_shard", "dp_replicate"])
def test_shard_restrictions_hold_where_the_software_shards_over_all(restriction: str) -> None:
    software = small_software(shard_groups="full")
    check_equal(
        small_scenario(16, software=software, search=Search().replace(**{restriction: (2,)}))
    )


@pytest.mark.parametrize("schedule", ["1f1b", "interleaved"])
def test_vp_and_schedule_restrict_together(schedule: Literal["1f1b", "interleaved"]) -> None:
    check_equal(small_scenario(16, search=Search(vp=(1, 2), schedule=(schedule,))))


def test_search_for_a_cp_kind_offers_that_kind() -> None:
    search = Search(cp=(2, 4), cp_kind=("a2a", "all_gather"))
    scenario = small_scenario(16, software=small_software(cp_kinds=CP_KINDS), search=search)
    table, _ = enumerated(scenario)
    assert {table.row(i).cp_kind for i in range(len(table))} == {"a2a", "all_gather"}
    check_equal(scenario)


@pytest.mark.parametrize("search", [Search(tp=(5,)), Search(tp=(8,), pp=(4,)), Search(mbs=(7,))])
def test_nothing_allowed_is_an_empty_table_with_reasons(search: Search) -> None:
    table, excluded = enumerated(small_scenario(16, search=search))
    assert len(table) == 0
    assert excluded[SEARCH_RULE] > 0


# --- counts ---------------------------------------------------------------------------------------


def test_excluded_counts_by_hand() -> None:
    """Twelve accelerators: tp ∈ 1 2 3 4 6 12 meets four heads, feed-forward 36 and 3 layers."""
    scenario = small_scenario(
        12,
        model=small_model(num_layers=3, num_attention_heads=4, ffn_hidden_size=36),
        training=small_training(sequence_length=24, global_batch_size=12),
        software=small_software(sequence_parallel="never", zero_stages=(1,), shard_groups="full"),
        search=Search(cp=(1,), vp=(1,), mbs=(1,)),
    )
    table, excluded = enumerated(scenario)
    assert sorted({table.row(i).tp for i in range(len(table))}) == [1, 2, 4]
    assert excluded["tp-divides-heads"] == 3  # 3, 6, 12
    # cp: divisors of 12, 6 and 3 without 1
    pairs = sum(len(divisors(12 // tp)) - 1 for tp in (1, 2, 4))
    # pp ∈ 1 2 3 of the divisors of 12, 6 and 3; pp > 3 has stages without a layer
    too_deep = sum(pp > 3 for tp in (1, 2, 4) for pp in divisors(12 // tp))
    assert excluded["chunks-have-layers"] == too_deep == 4
    grids = [(tp, pp) for tp in (1, 2, 4) for pp in divisors(12 // tp) if pp <= 3]
    assert len(table) == len(grids)
    # without virtual stages and micro-batches above one; cp was counted before
    assert excluded[SEARCH_RULE] >= pairs
    assert set(excluded) <= {
        "tp-divides-heads", "cp-divides-sequence", "chunks-have-layers", SEARCH_RULE, "sp-never"
    }  # fmt: skip


@pytest.mark.parametrize(
    ("software", "changes", "rule"),
    [
        ({"rules": ("stages-even",)}, {"model": small_model(num_layers=5)}, "stages-even"),
        ({"rules": ("no-context-parallelism",)}, {}, "no-context-parallelism"),
        ({"sequence_parallel": "always"}, {}, "sp-always"),
        ({"schedules": ("1f1b",)}, {}, "schedule"),
        ({}, {"training": small_training(global_batch_size=6)}, "batch-divides"),
        ({}, {"training": small_training(sequence_length=12)}, "cp-divides-sequence"),
    ],
)
def test_a_rule_that_bites_is_counted(
    software: dict[str, Any], changes: dict[str, Any], rule: str
) -> None:
    _, excluded = enumerated(small_scenario(8, software=small_software(**software), **changes))
    assert excluded[rule] > 0


def test_divisors() -> None:
    for number in (1, 2, 36, 72, 97, 1024):
        assert divisors(number) == oracles.divisors(number)


def test_software_without_1f1b_runs_pipelines_its_own_way() -> None:
    """DeepSeek's stack: every pipeline is dualpipe or, of two chunks a rank, dualpipev."""
    scenario = small_scenario(
        16, software=shipped_software("deepseek"), training=small_training(global_batch_size=64),
        model=small_model(num_layers=8),
    )  # fmt: skip
    table, excluded = enumerated(scenario)
    rows = [table.row(i) for i in range(len(table))]
    found = {(x.schedule, x.vp) for x in rows if x.pp > 1}
    assert found == {("dualpipe", 1), ("dualpipev", 2)}
    assert excluded["schedule"] > 0  # three chunks a rank would be interleaved
