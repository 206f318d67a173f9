"""Layouts of models with experts against a product of all choices filtered in plain Python."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest

from planner.cost.context import CostContext
from planner.layouts.layout import Layout
from planner.planning.assess import memory_report
from planner.problem.model import Model
from planner.problem.scenario import Scenario, Search
from planner.search.space.enumerate import MEMORY_RULE, NESTED_RULE, SEARCH_RULE, layouts
from tests.expert_scenarios import LATENT, experts, shipped_scenario
from tests.oracles import divisors, nests
from tests.scenarios import (
    small_accelerator,
    small_model,
    small_scenario,
    small_software,
    small_topology,
    small_training,
)

MODULES = ("act", "act_norm", "moe", "mla_up_proj")


def toy(**changes: Any) -> Model:
    moe = experts(num_experts=12, top_k=2, expert_ffn_hidden_size=96)
    usual = {"num_attention_heads": 6, "num_key_value_heads": 6, "hidden_size": 768, "moe": moe}
    return small_model(**(usual | changes))


def framework(**changes: Any) -> Any:
    usual: dict[str, Any] = {
        "dispatchers": ("flex", "alltoall"),
        "overlap": ("dp", "ep"),
        "recompute": ("none", "full", *MODULES),
        "sequence_parallel": "optional",
        "zero_stages": (1,),
        "shard_groups": "full",
    }
    return small_software(**(usual | changes))


def sparse(num: int = 8, gigabytes: float = 32.0, **changes: Any) -> Scenario:
    part = small_accelerator(hbm_bytes=1e9 * gigabytes)
    usual: dict[str, Any] = {
        "model": toy(),
        "software": framework(),
        "topology": small_topology(accelerator=part),
        "training": small_training(sequence_length=1200, global_batch_size=num),
        "search": Search(vp=(1, 2), mbs=(1, 2)),
    }
    return small_scenario(num, **(usual | changes))


# --- the oracle -----------------------------------------------------------------------------------


def meaningful(scenario: Scenario) -> list[str]:
    """Kinds of recomputation of parts that the model has."""
    latent = scenario.model.mla is not None
    return [k for k in scenario.software.recompute if k != "mla_up_proj" or latent]


def shapes(scenario: Scenario) -> Iterator[Layout]:
    """Every combination of degrees, legal or not, without recomputation."""
    n, batch, model = (
        scenario.num_accelerators, scenario.training.global_batch_size, scenario.model
    )  # fmt: skip
    software = scenario.software
    for tp, cp, pp, shard in itertools.product(divisors(n), repeat=4):
        rest, left = divmod(n, tp * cp * pp * shard)
        if left or not rest:
            continue
        for mbs, vp, zero, sp in itertools.product(
            divisors(batch), range(1, model.num_layers + 1), software.zero_stages, (False, True)
        ):
            if batch % (mbs * shard * rest):
                continue
            for etp, ep in itertools.product(divisors(tp), divisors(n)):
                for dispatcher in software.dispatchers if ep > 1 else ("alltoall",):
                    yield Layout(
                        tp=tp, cp=cp, pp=pp, dp_shard=shard, dp_replicate=rest, vp=vp, mbs=mbs,
                        num_microbatches=batch // (mbs * shard * rest), zero_stage=zero, sp=sp,
                        etp=etp, ep=ep, dispatcher=dispatcher,
                    )  # fmt: skip


def legal(scenario: Scenario, x: Layout) -> bool:
    model, s, moe = scenario.model, scenario.training.sequence_length, scenario.model.moe
    assert moe is not None
    return all(
        [
            model.num_attention_heads % x.tp == 0,
            model.ffn_hidden_size % x.tp == 0,
            not x.sp or (x.tp > 1 and s % (x.tp * x.cp) == 0),
            x.cp == 1 or s % (2 * x.cp) == 0,
            x.pp * x.vp <= model.num_layers,
            x.vp == 1 or x.pp > 1,
            x.dp_replicate == 1 or scenario.software.shard_groups == "any",
            # of experts
            moe.num_experts % x.ep == 0,
            moe.expert_ffn_hidden_size % x.etp == 0,
            (x.tp * x.cp * x.dp_shard) % (x.etp * x.ep) == 0,
            x.tp == 1 or x.sp,
            nests(x),
        ]
    )


def wanted(search: Search, x: Layout) -> bool:
    names = ("tp", "cp", "pp", "dp", "ep", "etp", "edp", "vp", "mbs", "dispatcher")
    given = {name: getattr(search, name) for name in names}
    given["dispatcher"] = given["dispatcher"] if x.ep > 1 else None
    return all(allowed is None or getattr(x, name) in allowed for name, allowed in given.items())


def overlaps(scenario: Scenario, x: Layout) -> set[Layout]:
    """With the software's overlaps; exchanges with or without where another micro-batch is near."""
    beside = x.ep > 1 and (x.pp == 1 or x.vp > 1) and x.num_microbatches > 1
    beside = beside and x.recompute not in ("moe", "full")
    without = [axis for axis in scenario.software.overlap if axis != "ep"]
    both = [without, list(scenario.software.overlap)] if beside else [without]
    return {replace(x, overlap="+".join(names) or "none") for names in both}


def brute_force(scenario: Scenario) -> set[Layout]:
    """Of those that fit as they are, only as they are: recomputing trades time for memory."""
    ctx = CostContext.of(scenario)
    found = set()
    for x in shapes(scenario):
        if not (legal(scenario, x) and wanted(scenario.search, x)):
            continue
        fits = all(memory_report(ctx, y).verdict == "fits" for y in overlaps(scenario, x))
        for kind in ["none"] if fits else meaningful(scenario):
            if scenario.search.recompute is None or kind in scenario.search.recompute:
                found |= overlaps(scenario, replace(x, recompute=kind))
    return found


def rows_of(scenario: Scenario, prune: bool = False) -> tuple[list[Layout], dict[str, int]]:
    table, excluded = layouts(CostContext.of(scenario), scenario.search, prune)
    return [table.row(i) for i in range(len(table))], dict(excluded)


# --- against the oracle ---------------------------------------------------------------------------


@pytest.mark.parametrize(
    "scenario",
    [
        sparse(),
        sparse(gigabytes=1.5),
        sparse(gigabytes=0.5, model=toy(mla=LATENT)),
        sparse(6, software=framework(overlap=("tp", "dp", "pp"), sequence_parallel="always")),
        sparse(
            12,
            model=toy(num_attention_heads=12, num_key_value_heads=12),
            search=Search(vp=(1,), mbs=(1,)),
        ),
        sparse(software=framework(shard_groups="any"), search=Search(vp=(1,), mbs=(1,))),
        sparse(search=Search(vp=(1,), mbs=(1,), ep=(2, 4), etp=(1,))),
        sparse(search=Search(vp=(1,), mbs=(1,), edp=(2,), tp=(2,))),
        sparse(model=toy(mtp_layers=1, moe=experts(num_experts=4, num_dense_layers=2))),
    ],
)
def test_table_equals_a_filtered_product(scenario: Scenario) -> None:
    rows, excluded = rows_of(scenario)
    assert len(set(rows)) == len(rows)
    assert set(rows) == brute_force(scenario)
    assert {row.ep for row in rows} > {2} or scenario.search.edp
    assert all(count > 0 for count in excluded.values())


def test_recompute_is_offered_where_memory_is_short() -> None:
    """The instances above see all three: nothing fits as it is, some does, all does."""
    kinds = [
        {row.recompute for row in rows_of(sparse(gigabytes=size))[0]} for size in (32.0, 1.5, 0.1)
    ]
    assert kinds[0] == {"none"}
    assert kinds[1] == kinds[2] == {"none", "full", "act", "act_norm", "moe"}


def test_grids_that_do_not_nest_are_counted() -> None:
    """Three tensor ranks against pairs of experts."""
    _, excluded = rows_of(sparse(12, model=toy(num_attention_heads=12, num_key_value_heads=12)))
    assert excluded[NESTED_RULE] > 0
    _, excluded = rows_of(sparse(8))
    assert NESTED_RULE not in excluded


@pytest.mark.parametrize("dispatchers", [("alltoall",), ("flex", "alltoall")])
def test_dispatchers_asked_for_are_all_tried(dispatchers: Any) -> None:
    search = Search(vp=(1,), mbs=(1,), dispatcher=dispatchers)
    rows, _ = rows_of(sparse(search=search))
    assert {row.dispatcher for row in rows if row.ep > 1} == set(dispatchers)
    assert {row.dispatcher for row in rows if row.ep == 1} == {"alltoall"}
    free, _ = rows_of(sparse(search=Search(vp=(1,), mbs=(1,))))
    assert {row.dispatcher for row in free if row.ep > 1} == {"flex", "alltoall"}


@pytest.mark.parametrize(
    ("name", "values"), [("ep", (4,)), ("etp", (1,)), ("edp", (1, 2)), ("recompute", ("act",))]
)
def test_search_keeps_what_it_lists(name: str, values: tuple[Any, ...]) -> None:
    short = sparse(gigabytes=0.1)
    free, _ = rows_of(short)
    rows, _ = rows_of(short.replace(search=short.search.replace(**{name: values})))
    assert set(rows) == {row for row in free if getattr(row, name) in values}
    assert 0 < len(rows) < len(free)


# --- pruning --------------------------------------------------------------------------------------


@pytest.mark.parametrize("gigabytes", [0.1, 0.4, 0.8, 1.5, 4.0])
def test_pruning_loses_no_layout_that_fits(gigabytes: float) -> None:
    scenario = sparse(gigabytes=gigabytes)
    ctx = CostContext.of(scenario)
    whole, pruned = (rows_of(scenario, prune) for prune in (False, True))
    fitting = [
        {row for row in rows if memory_report(ctx, row).verdict == "fits"}
        for rows, _ in (whole, pruned)
    ]
    assert fitting[0] == fitting[1]
    assert set(pruned[0]) <= set(whole[0])
    assert MEMORY_RULE not in whole[1]
    assert (pruned[1].get(MEMORY_RULE, 0) > 0) == (len(pruned[0]) < len(whole[0]))


def test_pruning_leaves_out_much_of_a_large_model() -> None:
    """Mixtral 8x7B on 16 H100: of layouts without expert parallelism none can fit."""
    scenario = shipped_scenario("mixtral-8x7b", "dgx-h100", 16)
    scenario = scenario.replace(search=Search(mbs=(1,), vp=(1,), cp=(1,), tp=(1, 2)))
    ctx = CostContext.of(scenario)
    whole, pruned = (rows_of(scenario, prune)[0] for prune in (False, True))
    assert len(pruned) < 0.7 * len(whole)
    fits = [row for row in whole if memory_report(ctx, row).verdict == "fits"]
    assert fits and set(fits) <= set(pruned)
    assert SEARCH_RULE in rows_of(scenario)[1]
