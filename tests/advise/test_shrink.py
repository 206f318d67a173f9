"""Nodes lost: who is meant, what is left, which ways on there are."""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path

import pytest
from click.testing import CliRunner

from planner import api
from planner.advise import shrink as shrinking
from planner.advise.shrink import BEST, FEWER, SAME, Shrunk
from planner.cli import main
from planner.errors import InputError
from planner.planning.plan import Plan
from tests.inventories import nodes_in_leaves

KEYS = {
    "topology": "dgx-h100", "num_accelerators": "32", "training.sequence_length": "2048",
    "training.global_batch_size": "64", "search.tp": "8", "search.cp": "1",
    "search.recompute": "none",
}  # fmt: skip


@cache
def former(spares: int = 1) -> Plan:
    """Llama 3 8B on 4 of 4 + `spares` nodes of 8."""
    given = api.load_scenario("llama3-8b-h100x8", KEYS)
    of = nodes_in_leaves([[8] * 2, [8] * (2 + spares)])
    return api.evaluate(given.replace(inventory=of), "tp=8,pp=1,mbs=1")


@cache
def without_inventory() -> Plan:
    return api.evaluate(api.load_scenario("llama3-8b-h100x8", KEYS), "tp=8,pp=1,mbs=1")


def names(found: Shrunk) -> dict[str, int]:
    return {option.name: option.plan.inputs["num_accelerators"] for option in found.options}


def used(plan: Plan) -> set[str]:
    assert plan.nodes is not None
    return {name for name, _ in plan.nodes.ranks}


def test_a_spare_takes_the_place_of_a_lost_node() -> None:
    lost = next(iter(used(former())))
    found = api.shrink(former(), [lost])
    same = next(option for option in found.options if option.name == SAME)
    assert same.plan.inputs["num_accelerators"] == 32
    assert lost not in used(same.plan)
    assert same.plan.layout == former().layout
    assert abs(same.loss_fraction) < 0.01


def test_without_spares_dp_shrinks_to_what_divides_the_batch() -> None:
    """4 nodes less one: dp 3 does not divide the batch of 64, dp 2 does."""
    found = api.shrink(former(0), ["n1.1"])
    assert found.usable_accelerators == 24
    assert names(found)[FEWER] == 16
    fewer = next(option for option in found.options if option.name == FEWER)
    assert fewer.plan.layout is not None and former(0).layout is not None
    assert fewer.plan.layout.dp_shard == 2
    assert 0.5 < fewer.loss_fraction < 1.1  # half the accelerators, the same batch
    for option in found.options:
        training = option.plan.inputs["training"]
        assert training["global_batch_size"] == 64
        assert "n1.1" not in used(option.plan)
        assert (
            sum(count for _, count in option.plan.nodes.ranks)
            == option.plan.inputs["num_accelerators"]
        )  # type: ignore[union-attr]


def test_the_best_is_the_best_of_every_number() -> None:
    """By planning on every number of whole nodes that is left."""
    found = api.shrink(former(0), ["n1.1"])
    best = next(option for option in found.options if option.name == BEST)
    steps = []
    given = api.load_scenario("llama3-8b-h100x8", KEYS)
    left = nodes_in_leaves([[8] * 2, [8]])
    for count in (8, 16, 24):
        one = api.plan(given.replace(inventory=left, num_accelerators=count))
        if one.objective_seconds is not None:
            steps.append(one.objective_seconds)
    assert best.plan.objective_seconds == pytest.approx(min(steps), rel=1e-9)
    assert len(found.searched_num_accelerators) + found.ruled_out_by_bound <= 3


def test_a_plan_without_an_inventory_has_its_own_nodes() -> None:
    found = api.shrink(without_inventory(), ["h3"])
    assert found.lost == ("h3",)
    assert found.usable_accelerators == 24
    assert names(found)[FEWER] == 16


@pytest.mark.parametrize(
    ("lose", "lost"),
    [
        (["n0.*"], ("n0.0", "n0.1")),
        (["n1.[0-1]"], ("n1.0", "n1.1")),
        (["n0.0", "n1.?"], ("n0.0", "n1.0", "n1.1")),
    ],
)
def test_lists_and_patterns_name_nodes(lose: list[str], lost: tuple[str, ...]) -> None:
    from planner.advise.shrink import _lost
    from planner.problem.scenario import scenario_from_document

    inventory = scenario_from_document(former(0).inputs).inventory
    assert inventory is not None
    assert tuple(_lost(inventory, former(0), lose)) == lost


def test_a_number_means_the_last_nodes_of_the_job() -> None:
    plan = former(0)
    assert plan.nodes is not None
    last = plan.nodes.ranks[-1][0]
    assert api.shrink(plan, ["1"]).lost == (last,)


@pytest.mark.parametrize(
    ("lose", "message"),
    [
        (["n9"], "no node is called 'n9'"),
        (["n0.00"], "did you mean 'n0.0'"),
        (["0"], "from 1 to 4"),
        (["5"], "from 1 to 4"),
        (["n[1"], "not closed"),
    ],
)
def test_what_cannot_be_lost_is_refused(lose: list[str], message: str) -> None:
    with pytest.raises(InputError, match=message):
        api.shrink(former(0), lose)


def test_the_limit_is_of_all_numbers_together(monkeypatch: pytest.MonkeyPatch) -> None:
    """Out of time none is searched, and none counts as ruled out."""
    monkeypatch.setattr(shrinking, "plan", lambda *_, **__: 1 / 0)
    found = api.shrink(former(), ["n1.1"], time_limit_seconds=0.0)
    assert found.searched_num_accelerators == () and found.ruled_out_by_bound == 0
    assert names(found).keys() <= {SAME, FEWER} and found.options


def test_where_all_are_lost_nothing_is_left(tmp_path: Path) -> None:
    found = api.shrink(former(0), ["n*"])
    assert (found.usable_accelerators, found.options) == (0, ())
    (tmp_path / "plan.json").write_text(json.dumps(former(0).to_document()))
    run = CliRunner().invoke(main, ["shrink", str(tmp_path), "--lose", "n*"])
    assert run.exit_code == 1
    assert "No option keeps the batch" in run.stdout


def test_the_command_writes_a_folder_for_every_way(tmp_path: Path) -> None:
    (tmp_path / "plan.json").write_text(json.dumps(former(0).to_document()))
    done = CliRunner().invoke(
        main,
        ["shrink", str(tmp_path), "--lose", "n1.1", "n1.0", "--out", str(tmp_path / "on")],
    )
    assert done.exit_code == 0, done.output
    assert "fewer dp" in done.output and "n1.0, n1.1" in done.output
    again = api.read_plan(tmp_path / "on" / "fewer-dp")
    assert again.inputs["num_accelerators"] == 16
