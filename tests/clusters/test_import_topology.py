"""Files merged by node: agreement, contradiction, what stays unknown, and the way to a plan."""

from pathlib import Path

import pytest
from click.testing import CliRunner

from planner import api
from planner.cli import main
from planner.clusters.import_topology import Imported, import_topology
from planner.clusters.write_files import inventory_yaml
from planner.errors import InputError
from planner.inputs.values import parse
from planner.problem.inventory import Inventory
from planner.problem.topology import Topology

DATA = Path(__file__).parent.parent / "data" / "topology"
TREE = "SwitchName=top Switches=s[1-2]\nSwitchName=s1 Nodes=n[1-2]\nSwitchName=s2 Nodes=n[3-4]\n"


def domain(found: Imported, node: str, tier: str) -> str | None:
    assert found.inventory is not None
    return next(n for n in found.inventory.nodes if n.name == node).domains.get(tier)


def files(folder: Path, **texts: str) -> list[Path]:
    for name, text in texts.items():
        (folder / name).write_text(text)
    return [folder / name for name in texts]


def test_the_yaml_reads_back() -> None:
    found = import_topology([DATA / "nodes.yaml"], like="gb200-nvl72")
    assert found.inventory is not None and found.topology is not None
    assert parse(inventory_yaml(found.inventory), "i", Inventory) == found.inventory
    assert parse(found.topology, "t", Topology).tier_names == ("nvlink", "leaf", "spine")
    again = [n.state for n in found.inventory.nodes]
    assert again == ["usable", "drained", "down", "usable"]


def test_topology_yaml_overrides_topology_conf(tmp_path: Path) -> None:
    conf, newer = files(
        tmp_path, conf="SwitchName=old Nodes=n[1-4]\n",
        yaml="- {topology: t, tree: {switches: [{switch: new, nodes: 'n[1-4]'}]}}",
    )  # fmt: skip
    for order in ([conf, newer], [newer, conf]):
        found = import_topology(order)
        assert domain(found, "n1", "leaf") == "new"
        assert any("overrides" in note for note in found.notes)


def test_trees_are_as_deep_as_they_are(tmp_path: Path) -> None:
    """A chain of 25 switches above two nodes."""
    chain = "".join(f"SwitchName=s{k + 1} Switches=s{k}\n" for k in range(24))
    found = import_topology(files(tmp_path, conf=f"SwitchName=s0 Nodes=n[1-2]\n{chain}"))
    assert found.inventory is not None
    assert found.inventory.tiers == (
        "leaf", "spine", "core", *(f"tier-{k}" for k in range(3, 25)),
    )  # fmt: skip


@pytest.mark.parametrize("level", ["tier-03", "tier-1", "3", "row"])
def test_a_level_of_another_name_is_refused(tmp_path: Path, level: str) -> None:
    with pytest.raises(InputError, match=f"'{level}' is no level; allowed: nvlink, leaf, spine"):
        import_topology(files(tmp_path, map=f'{{"n1": {{"{level}": "a"}}}}'))


def test_names_of_two_sources_differ_and_groups_agree(tmp_path: Path) -> None:
    """A label calls s1 rack-a: one domain; n5, that only labels know, is placed with it."""
    found = import_topology(
        files(
            tmp_path, conf=TREE,
            map='{"n1": "rack-a", "n2": "rack-a", "n3": "rack-b", "n5": "rack-a"}',
        )
    )  # fmt: skip
    assert domain(found, "n5", "leaf") == "s1"
    assert domain(found, "n4", "leaf") == "s2"


def test_a_domain_that_no_shared_node_ties_stays_unknown(tmp_path: Path) -> None:
    found = import_topology(files(tmp_path, conf=TREE, map='{"n1": "a", "n9": "z"}'))
    assert domain(found, "n9", "leaf") is None  # z may be s2, or another
    assert any("n9" in note and "unknown" in note for note in found.notes)


@pytest.mark.parametrize(
    ("other", "message"),
    [
        ('{"n1": "a", "n3": "a"}', r"map:1: leaf a holds n3 and n1 .*conf:3 and .*conf:2"),
        ('{"n1": "a", "n2": "b"}', r"map:1: n2 and n1 are in leaf b and a .*by .*conf:2"),
    ],
)
def test_groups_that_differ_contradict(tmp_path: Path, other: str, message: str) -> None:
    with pytest.raises(InputError, match=message):
        import_topology(files(tmp_path, conf=TREE, map=other))


def test_domains_must_nest(tmp_path: Path) -> None:
    text = '{"n1": {"nvlink": "a", "leaf": "s1"}, "n2": {"nvlink": "a", "leaf": "s2"}}'
    with pytest.raises(InputError, match=r"nvlink a \(node n2.*lies in leaf s2"):
        import_topology(files(tmp_path, map=text))


def test_two_kinds_of_node_without_names_contradict() -> None:
    with pytest.raises(InputError, match=r"links .*topo_m_reversed.txt"):
        import_topology([DATA / "topo_m_reversed.txt", DATA / "topo_m_shared.txt"])


def test_counts_that_differ_contradict() -> None:
    with pytest.raises(InputError, match="shows 8"):
        import_topology([DATA / "nodes.yaml", DATA / "topo_m_reversed.txt"])
    with pytest.raises(InputError, match="4 accelerators a node are given"):
        import_topology([DATA / "topo_m_reversed.txt"], accelerators=4)


def test_a_stray_host_of_the_fabric_is_usable_where_another_file_names_it(tmp_path: Path) -> None:
    alone = import_topology([DATA / "ibnetdiscover.txt"], accelerators=8)
    named = import_topology(
        [DATA / "ibnetdiscover.txt", *files(tmp_path, map='{"ufm-manager": {"nvlink": "x"}}')]
    )
    for found, state in ((alone, "unknown"), (named, "usable")):
        assert found.inventory is not None
        assert {n.name: n.state for n in found.inventory.nodes}["ufm-manager"] == state
    assert domain(alone, "ufm-manager", "nvlink") is None
    assert alone.inventory is not None
    assert next(n for n in alone.inventory.nodes if n.state == "unknown").accelerators is None


def test_an_unknown_domain_is_no_domain() -> None:
    """User case topo-05: unknown means not eligible, never a pseudo-domain."""
    found = import_topology([DATA / "cluster_uuids.txt"], like="gb200-nvl72", accelerators=4)
    assert domain(found, "tray20", "nvlink") is None
    assert any("not eligible: tray20" in note for note in found.notes)


def test_a_scale_up_domain_larger_than_the_topologys_is_refused() -> None:
    with pytest.raises(InputError, match="more than the 8 accelerators"):
        import_topology([DATA / "topology_block.conf"], like="dgx-h100", accelerators=8)


def test_what_is_missing_is_asked_for() -> None:
    found = import_topology([DATA / "topo_m_pdsh.txt"], like="gb200-nvl72")
    (ask,) = found.asks
    assert "72 accelerators in one, a node has 4" in ask
    found = import_topology([DATA / "topology_tree.conf"])
    assert [ask.split()[0] for ask in found.asks] == ["how", "which"]
    (ask,) = import_topology([DATA / "topo_m_reversed.txt"], like="dgx-h100").asks
    assert "which nodes there are" in ask


def test_widths_are_those_of_the_widest_domain() -> None:
    found = import_topology(
        [DATA / "topology.yaml", DATA / "topo_m_pdsh.txt"], like="gb200-nvl72", accelerators=4
    )
    assert found.topology is not None
    shape = parse(found.topology, "t", Topology)
    assert (shape.tier_names, shape.widths) == (("nvlink", "leaf", "spine"), (72, 1, 2))
    assert shape.accelerator.name == "gb200"


def test_tiers_go_by_the_names_of_the_topology() -> None:
    found = import_topology([DATA / "topology_tree.conf"], like="alibaba-hpn", accelerators=8)
    assert found.inventory is not None and found.topology is not None
    assert found.inventory.tiers == ("nvlink", "segment", "pod", "core")
    assert parse(found.topology, "t", Topology).widths == (8, 4, 2, 2)


def test_reports_that_do_not_fit_the_topology_are_said() -> None:
    found = import_topology([DATA / "nccl_profile_vm.xml"], like="dgx-h100")
    assert any("shows a100-sxm-40gb" in note for note in found.notes)
    found = import_topology([DATA / "nccl_dump_odd_speeds.xml"], like="dgx-h100")
    assert any("25 GB/s an accelerator, dgx-h100 has 50" in note for note in found.notes)
    found = import_topology([DATA / "topo_m_shared.txt"], like="dgx-h100")
    assert any("12 links an accelerator, dgx-h100 has 18" in note for note in found.notes)


@pytest.mark.parametrize(("rate", "said"), [(25, False), (100, True)])
def test_adapters_are_held_against_the_tiers_own_bandwidth(
    tmp_path: Path, rate: int, said: bool
) -> None:
    """Two of 200 Gbit/s for two accelerators; leaves shared 2:1 slow no adapter."""
    own = ", ".join(
        f"{key}: {{value: {value}, source: order, status: assumed}}"
        for key, value in (("bandwidth", f"{rate} GB/s"), ("oversubscription", 2))
    )
    leaf = f"  - {{name: leaf, width: 4, fabric: infiniband-ndr, {own}}}\n"
    [like] = files(
        tmp_path, like="name: own\ndescription: d\nsource: s\naccelerator: h100-sxm-80gb\n"
        f"tiers:\n  - {{name: nvlink, width: 8, fabric: nvlink4}}\n{leaf}",
    )  # fmt: skip
    found = import_topology([DATA / "nccl_dump_odd_speeds.xml"], like=str(like))
    notes = [note for note in found.notes if "GB/s an accelerator" in note]
    assert len(notes) == said
    assert all(f"25 GB/s an accelerator, own has {rate}" in note for note in notes)


def test_from_files_to_a_plan(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    done = CliRunner().invoke(
        main,
        ["import", "topology", str(DATA / "topology_tree.conf"),
         str(DATA / "topo_m_reversed.txt"), "--like", "dgx-h100", "--out", "lab.yaml"],
    )  # fmt: skip
    assert done.exit_code == 0, done.output
    scenario = api.load_scenario(
        "llama3-8b-h100x8", {"topology": "lab-topology.yaml", "num_accelerators": "32"}
    )
    assert scenario.topology.widths == (8, 4, 2, 2)
    assert api.plan(scenario).status == "optimal"


def test_asks_end_with_exit_code_1(tmp_path: Path) -> None:
    out = tmp_path / "lab.yaml"
    done = CliRunner().invoke(
        main, ["import", "topology", str(DATA / "switches.json"), "--out", str(out)]
    )
    assert done.exit_code == 1
    assert "needed: how many accelerators" in done.output
    assert out.is_file()


def test_an_inventory_by_hand_answers(tmp_path: Path) -> None:
    (hand,) = files(
        tmp_path, hand="name: x\nsource: by hand\ntiers: [nvlink, leaf]\nnodes:\n"
        "  - {name: 10.0.0.4, accelerators: 8, domains: {leaf: leaf-b}, state: reserved}\n",
    )  # fmt: skip
    found = import_topology([DATA / "switches.json", hand], like="dgx-h100", accelerators=8)
    assert domain(found, "10.0.0.4", "leaf") == "leaf-b"
    assert found.inventory is not None
    assert found.inventory.nodes[3].state == "reserved"
