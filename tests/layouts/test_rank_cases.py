"""What users met on which rank runs where, by the ids of their cases.

rank-04 on a played cluster, rank-05 of a map of switches: tests/test_inventory_plans.py; spans of
groups under every order: tests/test_ranks.py.
"""

from __future__ import annotations

import json
from itertools import groupby
from pathlib import Path
from typing import Any

import pytest

from planner import api
from planner.clusters.import_topology import import_topology
from planner.frameworks.write import EXPORTS
from planner.planning.export import export_plan
from planner.planning.plan import Plan

MESHES: dict[str, tuple[str, ...]] = {
    "torchtitan": ("pp", "dp_replicate", "dp_shard", "cp", "tp"),
    "megatron-core": ("pp", "dp_replicate", "dp_shard", "cp", "tp"),
}
"""Axes of device meshes, outer to inner: torchtitan's parallel_dims.py, and Megatron-LM's
order tp-cp-ep-dp-pp, read from the right."""


def job(software: str, num: int = 64, **more: str) -> Any:
    changes = {
        "software": software, "topology": "dgx-h100", "num_accelerators": str(num),
        "training.sequence_length": "2048", "training.global_batch_size": str(8 * num),
        "search.orders": "framework",
    }  # fmt: skip
    return api.load_scenario("llama3-8b-h100x8", changes | more)


def rank_table(plan: Plan) -> list[dict[str, int]]:
    lines = export_plan(plan, "rankfile")["ranks.tsv"].splitlines()
    head, *rows = [line.split("\t") for line in lines if not line.startswith("#")]
    return [dict(zip(head, map(int, row), strict=True)) for row in rows]


def spans(table: list[dict[str, int]], axis: str) -> set[int]:
    """Hosts that the groups of an axis touch."""
    others = [key for key in table[0] if key not in ("rank", "host", "local_rank", axis)]
    found: dict[Any, set[int]] = {}
    for row in table:
        found.setdefault(tuple(row[key] for key in others), set()).add(row["host"])
    return {len(hosts) for hosts in found.values()}


# --- rank-02: pytorch/torchtitan#286 --------------------------------------------------------------


@pytest.mark.parametrize("software", MESHES)
@pytest.mark.parametrize(
    "layout",
    ["tp=8,pp=2,mbs=1", "tp=4,cp=2,pp=2,mbs=1", "tp=2,pp=4,mbs=1", "tp=8,cp=2,mbs=1", "tp=4,mbs=1"],
)
def test_rank_02_tensor_parallel_groups_are_innermost(software: str, layout: str) -> None:
    plan = api.evaluate(job(software), layout)
    table = rank_table(plan)
    assert spans(table, "tp") == {1}
    sizes = {axis: max(row[axis] for row in table) + 1 for axis in MESHES[software]}
    for row in table:  # ranks count up through the framework's own mesh, tp fastest
        number = 0
        for axis in MESHES[software]:
            number = number * sizes[axis] + row[axis]
        assert number == row["rank"]


def test_rank_02_the_best_plans_of_every_target_keep_tensor_parallelism_in_a_node() -> None:
    for software, targets in (
        ("torchtitan", ("torchtitan", "torchtitan-toml")),
        ("megatron-core", ("megatron", "slurm", "torchrun")),
    ):
        given = job(software, 64, **{"search.tp": "[2, 4, 8]", "search.mbs": "1"})
        plan = api.plan(given, 1)
        for target in targets:
            assert target in EXPORTS and export_plan(plan, target)
        assert spans(rank_table(plan), "tp") == {1}
        assert plan.groups["tp"].split["nvlink"] == plan.groups["tp"].members


def test_rank_02_a_wider_group_is_seen_to_span_two_nodes() -> None:
    plan = api.evaluate(job("megatron-core"), "tp=16,mbs=1")
    assert spans(rank_table(plan), "tp") == {2}
    assert plan.groups["tp"].split == {"nvlink": 8, "leaf": 2, "spine": 1}


# --- rank-04: NVIDIA/pyxis#102, NVIDIA/nccl#1340 --------------------------------------------------


def switches(nodes: int) -> dict[str, str]:
    """Names in the order in which Slurm hands them out; switches in turn."""
    return {f"h{k:02d}": f"leaf-{k % 2}" for k in range(nodes)}


def imported(tmp_path: Path, nodes: int) -> Any:
    (tmp_path / "map.json").write_text(json.dumps(switches(nodes)))
    return import_topology([tmp_path / "map.json"], like="dgx-h100", accelerators=8).inventory


def test_rank_04_the_script_places_by_switch_and_checks(tmp_path: Path) -> None:
    plan = api.evaluate(job("megatron-core").replace(inventory=imported(tmp_path, 8)), "tp=8,mbs=1")
    script = export_plan(plan, "slurm")["job.sbatch"]
    assert "place=(--distribution=arbitrary)" in script and "export SLURM_HOSTFILE" in script
    assert "\ncheck_places\n" in script
    (line,) = [line for line in script.splitlines() if line.startswith("hosts=(")]
    order = line.removeprefix("hosts=(").removesuffix(")").split()
    assert sorted(order) == sorted(switches(8)) != order
    runs = [(leaf, len(list(run))) for leaf, run in groupby(order, switches(8).__getitem__)]
    assert [count for _, count in runs] == [4, 4]  # each switch's nodes in a row


# --- rank-05: intelligent-machine-learning/dlrover#1750, #1076 ------------------------------------


@pytest.mark.parametrize("layout", ["tp=8,pp=4,mbs=1", "tp=8,pp=2,mbs=1", "tp=8,mbs=1"])
def test_rank_05_crossings_are_counted_before_and_after(tmp_path: Path, layout: str) -> None:
    """Eight nodes, switches in turn: before, rank r of the order tp-cp-dp-pp is on the node created
    r/8-th, on switch (r/8) mod 2; after, as in the exported table. Both are recounted."""
    plan = api.evaluate(job("megatron-core").replace(inventory=imported(tmp_path, 8)), layout)
    assert plan.nodes is not None
    table = named_table(plan)
    created = sorted(switches(8))
    assert sorted(row["host"] for row in table) == sorted(
        name for name in created for _ in range(8)
    )
    seats = [name for name, count in plan.nodes.ranks for _ in range(count)]
    for kind, axis in (("tp", "tp"), ("pp", "pp"), ("shard", "dp_shard")):
        if kind not in plan.nodes.crossings:
            continue
        others = [a for a in ("tp", "cp", "dp_shard", "dp_replicate", "pp") if a != axis]
        before: dict[Any, set[str]] = {}
        after: dict[Any, set[str]] = {}
        for row in table:
            key = tuple(row[a] for a in others)
            after.setdefault(key, set()).add(switches(8)[row["host"]])
            before.setdefault(key, set()).add(switches(8)[created[own_rank(table, row) // 8]])
        told = plan.nodes.crossings[kind]
        assert told.groups == len(after)
        assert told.after["leaf"] == sum(len(found) > 1 for found in after.values())
        assert told.before["leaf"] == sum(len(found) > 1 for found in before.values())
    for half in (seats[:32], seats[32:]):  # the reordered list: one switch after the other
        assert len({switches(8)[name] for name in half}) == 1


def own_rank(table: list[dict[str, str]], row: dict[str, str]) -> int:
    """The rank in Megatron's own order, tp innermost."""
    number = 0
    for axis in ("pp", "dp_replicate", "dp_shard", "cp", "tp"):
        number = number * (1 + max(int(other[axis]) for other in table)) + int(row[axis])
    return number


def named_table(plan: Plan) -> list[dict[str, str]]:
    lines = export_plan(plan, "rankfile")["ranks.tsv"].splitlines()
    head, *rows = [line.split("\t") for line in lines if not line.startswith("#")]
    return [dict(zip(head, row, strict=True)) for row in rows]
