"""Plans for inventories: user cases, counts by hand, the nodes in exports, plan files."""

from __future__ import annotations

import json
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from planner import api
from planner.clusters.import_topology import import_topology
from planner.errors import ExportError, InputError
from planner.inputs.values import parse
from planner.layouts.rank_orders import local_ranks
from planner.planning.export import export_plan
from planner.planning.plan import NodesReport, Plan
from planner.problem.cluster import Cluster
from planner.problem.inventory import Inventory
from planner.problem.scenario import Scenario, scenario_from_document
from planner.problem.topology import Topology
from tests.frameworks import stubs
from tests.frameworks.test_slurm import small
from tests.inventories import inventory, nodes_in_leaves, racks

SMALL = {"training.sequence_length": "2048", "training.global_batch_size": "128"}


def scenario(n: int, of: Inventory | None, topology: str = "dgx-h100", **more: str) -> Scenario:
    keys = {"topology": topology, "num_accelerators": str(n)} | SMALL | more
    found = api.load_scenario("llama3-8b-h100x8", keys)
    return found if of is None else found.replace(inventory=of)


@cache
def scattered() -> Inventory:
    """32 nodes of 8 in 4 leaves of 8: names alternate between the leaves."""
    return inventory(
        ["nvlink", "leaf"],
        [
            {"name": f"n{i:02d}", "accelerators": 8,
             "domains": {"nvlink": f"n{i:02d}", "leaf": f"l{i % 4}"}}
            for i in range(32)
        ],
    )  # fmt: skip


def rank_nodes(plan: Plan) -> list[str]:
    assert plan.nodes is not None
    return [name for name, count in plan.nodes.ranks for _ in range(count)]


def test_whole_domains_cost_what_the_topology_says() -> None:
    """An inventory that is the whole topology changes no figure."""
    whole = nodes_in_leaves([[8] * 4] * 2)
    shape = parse(
        "name: t\ndescription: d\nsource: s\naccelerator: h100-sxm-80gb\ntiers:\n"
        "  - {name: nvlink, width: 8, fabric: nvlink4}\n"
        "  - {name: leaf, width: 4, fabric: infiniband-ndr}\n"
        "  - {name: spine, width: 2, fabric: infiniband-ndr}\n", "t.yaml", Topology,
    )  # fmt: skip
    plain = scenario(64, None).replace(topology=shape)
    one, other = api.plan(plain), api.plan(plain.replace(inventory=whole))
    assert (one.step_seconds, one.fill, one.layout) == (
        other.step_seconds,
        other.fill,
        other.layout,
    )
    assert one.nodes is None and other.nodes is not None
    assert not other.nodes.shared and other.nodes.spares == ()


def test_groups_stay_under_one_switch(tmp_path: Path) -> None:
    """User case rank-05: {node ip: switch}; ranks in creation order straddle switches."""
    switches = {f"10.0.0.{k}": f"leaf-{k % 2}" for k in range(1, 9)}
    (tmp_path / "switches.json").write_text(json.dumps(switches))
    of = import_topology([tmp_path / "switches.json"], like="dgx-h100", accelerators=8).inventory
    plan = api.evaluate(scenario(64, of), "tp=8,pp=4,vp=2,mbs=1")
    assert plan.nodes is not None
    shard = plan.nodes.crossings["shard"]
    assert (shard.groups, shard.before["leaf"]) == (32, 32)  # every pair straddles the switches
    for half in (slice(0, 32), slice(32, 64)):
        assert len({switches[name] for name in rank_nodes(plan)[half]}) == 1
    after = {name: of.after["leaf"] for name, of in plan.nodes.crossings.items()}
    assert min(after["shard"], after["pp"]) == 0  # one kind of group stays under a switch


def test_experts_stay_in_a_rack() -> None:
    """User case topo-01: ep straddles two racks when nodes come unlucky, and need not."""
    of = racks(3, 18)
    unlucky = inventory(
        of.tiers,
        [{"name": f"t{i % 5}{node.name}", "accelerators": 4, "domains": dict(node.domains)}
         for i, node in enumerate(of.nodes)],
    )  # fmt: skip
    given = scenario(
        128, unlucky, "gb200-nvl72", model="mixtral-8x7b",
        **{"training.sequence_length": "4096", "training.global_batch_size": "512"},
    )  # fmt: skip
    plan = api.evaluate(given, "tp=1,ep=8,pp=1,mbs=1,recompute=full")
    assert plan.nodes is not None
    ep = plan.nodes.crossings["ep"]
    assert ep.before["nvlink"] > 0
    assert ep.after["nvlink"] == 0
    assert plan.groups["ep"].split["nvlink"] == 8


def test_a_node_of_unknown_domain_is_never_used() -> None:
    """User case topo-05: not eligible, and no pseudo-domain."""
    of = nodes_in_leaves([[8] * 4] * 2)
    lost = inventory(
        of.tiers,
        [{"name": n.name, "accelerators": 8,
          "domains": {k: v for k, v in n.domains.items() if k != "leaf" or i}}
         for i, n in enumerate(of.nodes)],
    )  # fmt: skip
    with pytest.raises(InputError, match="more than the 56 usable"):
        scenario(64, lost)
    plan = api.plan(scenario(32, lost))
    assert plan.nodes is not None
    assert "n0.0" not in rank_nodes(plan)
    assert plan.nodes.left_out == {"n0.0": "leaf domain unknown"}
    assert {name.split(".")[0] for name in rank_nodes(plan)} == {"n1"}  # the whole leaf


def test_uneven_domains_hold_the_job_and_cost_what_the_rank_table_says() -> None:
    """6 nodes under leaves of 4 and 2: three pairs, two of which share a leaf."""
    of, more = nodes_in_leaves([[8] * 4, [8] * 2]), {"training.global_batch_size": "96"}
    plan = api.evaluate(scenario(48, of, **more), "tp=8,pp=2,vp=1,mbs=1")
    assert plan.nodes is not None
    assert plan.nodes.shared
    assert plan.nodes.domains == {"nvlink": 6, "leaf": 2, "spine": 1}
    assert plan.nodes.crossings["pp"].after["leaf"] == 0
    assert (
        plan.groups["shard"].split["spine"] == 2
    )  # three pairs in two leaves: the worst touches 2
    assert any("equal blocks" in warning for warning in plan.warnings)


def test_islands_hold_a_job_in_one() -> None:
    nodes = [
        {"name": f"n{i}", "accelerators": 8,
         "domains": {"nvlink": f"n{i}", "leaf": f"l{i}", "spine": f"island{i // 4}"}}
        for i in range(10)
    ]  # fmt: skip
    of = inventory(["nvlink", "leaf", "spine"], nodes)
    with pytest.raises(InputError, match="32 usable ones that inventory lab has in one spine"):
        scenario(64, of)
    plan = api.plan(scenario(16, of))
    assert set(rank_nodes(plan)) == {"n8", "n9"}  # the small island; the large ones are whole


def test_partial_racks_and_drained_nodes() -> None:
    """Racks of 72 used as 64, three trays missing."""
    of = racks(4, 18)
    drained = inventory(
        of.tiers,
        [{"name": n.name, "accelerators": 4, "domains": dict(n.domains),
          "state": "drained" if n.name in ("r000t03", "r001t00", "r001t07") else "usable"}
         for n in of.nodes],
    )  # fmt: skip
    given = scenario(256, drained, "gb200-nvl72", **{"training.global_batch_size": "512"})
    plan = api.plan(given)
    assert plan.nodes is not None and plan.fill is not None
    assert plan.status == "optimal"
    assert len(rank_nodes(plan)) == 256
    assert not {"r000t03", "r001t00", "r001t07"} & set(rank_nodes(plan))
    assert len(plan.nodes.spares) == 69 - len(set(rank_nodes(plan)))
    assert max(np.unique(rank_nodes(plan), return_counts=True)[1]) <= 4


# --- plan files and exports -----------------------------------------------------------------------


@cache
def planned() -> Plan:
    return api.evaluate(scenario(64, scattered()), "tp=8,pp=4,vp=2,mbs=1")


def test_the_plan_file_round_trips(tmp_path: Path) -> None:
    file = tmp_path / "plan.json"
    file.write_text(json.dumps(planned().to_document()))
    assert api.read_plan(file) == Plan.from_document(planned().to_document())


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda n: {**n, "ranks": n["ranks"][:-1]}, "56 ranks on nodes"),
        (lambda n: {**n, "ranks": [["n99", 8], *n["ranks"][1:]]}, "node n99 does not have"),
        (lambda n: {**n, "ranks": [[n["ranks"][0][0], 9], *n["ranks"][1:]]}, "does not have 9"),
        (lambda n: None, "an inventory's plan has nodes"),
    ],
)
def test_edited_nodes_are_refused(tmp_path: Path, change: Any, message: str) -> None:
    document = json.loads(json.dumps(planned().to_document()))
    document["nodes"] = change(document["nodes"])
    (tmp_path / "plan.json").write_text(json.dumps(document))
    with pytest.raises(InputError, match=message):
        api.read_plan(tmp_path)


def test_the_rank_table_names_nodes() -> None:
    lines = export_plan(planned(), "rankfile")["ranks.tsv"].splitlines()
    head, *rows = [line.split("\t") for line in lines if not line.startswith("#")]
    assert head[:3] == ["rank", "host", "local_rank"]
    hosts = [row[1] for row in rows]
    assert sorted(hosts) == sorted(rank_nodes(planned()))
    numbers = np.array([sorted(set(hosts)).index(host) for host in hosts])
    assert [int(row[2]) for row in rows] == local_ranks(numbers).tolist()


def test_the_check_of_seats_needs_no_solver() -> None:
    """Crossings are recounted from the rank table as exported, group by group."""
    plan = planned()
    assert plan.nodes is not None
    given = scenario_from_document(plan.inputs)
    assert given.inventory is not None
    leaf = {node.name: node.domains["leaf"] for node in given.inventory.nodes}
    lines = export_plan(plan, "rankfile")["ranks.tsv"].splitlines()
    head, *rows = [line.split("\t") for line in lines if not line.startswith("#")]
    table = [dict(zip(head, row, strict=True)) for row in rows]
    for group, axis in (("tp", "tp"), ("pp", "pp"), ("shard", "dp_shard")):
        others = [a for a in ("tp", "cp", "dp_shard", "dp_replicate", "pp") if a != axis]
        groups: dict[Any, set[str]] = {}
        for row in table:
            groups.setdefault(tuple(row.get(a, "0") for a in others), set()).add(leaf[row["host"]])
        crossing = sum(len(found) > 1 for found in groups.values())
        assert plan.nodes.crossings[group].after["leaf"] == crossing, group


def with_nodes(*runs: tuple[str, int]) -> Plan:
    nodes = NodesReport(runs, (), {}, {}, False, {})
    return replace(small(), nodes=nodes)


def test_slurm_places_ranks_on_the_plans_nodes(tmp_path: Path) -> None:
    """User case rank-04: Slurm hands nodes out by name, so a host file says where ranks go."""
    order = ["h2", "h0", "h1", "h3", "h7", "h5", "h6", "h4"]
    script = export_plan(with_nodes(*((host, 8) for host in order)), "slurm")["job.sbatch"]
    assert "#SBATCH --nodelist=h[0-7]\n" in script
    done = stubs.run(stubs.make(tmp_path), script, "program", hosts=8)
    assert done.returncode == 0, done.stderr
    for rank in range(64):
        assert stubs.words(tmp_path / f"ran-{rank}")[4] == order[rank // 8]
    assert "--distribution=arbitrary" in stubs.words(tmp_path / "srun-0")
    other = stubs.run(stubs.make(tmp_path), script, "program", hosts=9)
    assert other.returncode == 1 and "other nodes than planned" in other.stderr


@pytest.mark.parametrize(
    ("runs", "message"),
    [
        ([("h0", 8), ("h1", 4), ("h2", 52)], "nodes hold 4 or 8 or 52 ranks"),
        ([("h0", 32), ("h0", 32)], "ranks in a row"),
        ([("h0; rm -rf /", 32), ("h1", 32)], "is no host name; allowed: letters, digits"),
        ([("-h0", 32), ("h1", 32)], "is no host name; allowed: letters, digits"),
    ],
)
def test_what_slurm_cannot_be_told_is_refused(runs: Any, message: str) -> None:
    with pytest.raises(ExportError, match=message):
        export_plan(with_nodes(*runs), "slurm")


def test_the_report_shows_before_and_after() -> None:
    from planner.report.text.pieces import plain_text
    from planner.report.text.plan import plan_report

    text = plain_text(plan_report(planned()), 100)
    assert "cross leaf" in text and "→" in text
    assert "of 32 usable" in text


def test_shipped_inventories_fit_their_topologies() -> None:
    for name, topology in (("h100-140-nodes", "dgx-h100"), ("nvl72-5-racks", "gb300-nvl72")):
        given = api.load_scenario("llama3-8b-h100x8", {"inventory": name, "topology": topology})
        assert given.inventory is not None
        assert Cluster.of(given.inventory, given.topology).largest >= 256
