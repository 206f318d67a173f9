"""Files of clusters: every format, and the pitfalls of each."""

from pathlib import Path

import pytest

from planner.clusters.formats import FORMATS, read_file
from planner.clusters.reading import Reading
from planner.clusters.slurm_topology import read_topology_conf, read_topology_yaml
from planner.errors import InputError

DATA = Path(__file__).parent.parent / "data" / "topology"

EXPECTED = {
    "addresses.txt": "addresses", "cluster_uuids.txt": "addresses",
    "ibnetdiscover.txt": "ibnetdiscover", "nccl_dump_odd_speeds.xml": "nccl-xml",
    "nccl_profile_vm.xml": "nccl-xml", "nodes.yaml": "kubernetes",
    "nodes_older_labels.yaml": "kubernetes", "switches.json": "map",
    "topo_m_old_driver.txt": "topo-m", "topo_m_pdsh.txt": "topo-m",
    "topo_m_reversed.txt": "topo-m", "topo_m_shared.txt": "topo-m",
    "topology.yaml": "slurm-yaml", "topology_block.conf": "slurm-conf",
    "topology_tree.conf": "slurm-conf",
}  # fmt: skip


def reading(name: str) -> Reading:
    return read_file(DATA / name)


def domains(found: Reading, level: str) -> dict[str, str | int]:
    return {said.node: said.value for said in found.statements if said.key == level}


def noted(found: Reading, text: str) -> bool:
    return any(text in note for note in found.notes)


@pytest.mark.parametrize("name", sorted(p.name for p in DATA.iterdir()))
def test_content_tells_the_format(name: str, tmp_path: Path) -> None:
    """The suffix does not count."""
    copy = tmp_path / "file.dat"
    copy.write_bytes((DATA / name).read_bytes())
    assert read_file(copy).format == EXPECTED[name]
    assert EXPECTED[name] in FORMATS


@pytest.mark.parametrize("text", ["hello world\n", "{}", "- 1\n", "3", "a: [1, 2\n"])
def test_what_is_no_format_is_refused(tmp_path: Path, text: str) -> None:
    path = tmp_path / "x"
    path.write_text(text)
    with pytest.raises(InputError, match=r"--format|mapping"):
        read_file(path)


def test_an_ambiguous_text_asks_for_the_format(tmp_path: Path) -> None:
    path = tmp_path / "x"
    path.write_text((DATA / "topo_m_pdsh.txt").read_text() + "SwitchName=s1 Nodes=a\n")
    with pytest.raises(InputError, match="topo-m or slurm-conf"):
        read_file(path)


# --- nvidia-smi topo -m ---------------------------------------------------------------------------


def test_adapters_numbered_the_other_way_are_said() -> None:
    found = reading("topo_m_reversed.txt")
    (host,) = found.hardware
    assert (host.accelerators, host.linked, set(host.links or ())) == (8, (8,), {18})
    assert [a.nearest for a in host.adapters] == [(7 - i,) for i in range(8)]
    assert host.adapters[0].name == "mlx5_0"  # by the legend
    assert noted(found, "reversed")


def test_shared_and_storage_adapters_are_told_apart() -> None:
    found = reading("topo_m_shared.txt")  # with colours of a terminal
    (host,) = found.hardware
    assert [a.nearest for a in host.adapters[:4]] == [(0, 1), (2, 3), (4, 5), (6, 7)]
    assert noted(found, "mlx5_0 is nearest to accelerators 0, 1 alike")
    assert noted(found, "mlx5_4, mlx5_bond_0 are behind no accelerator's PCIe switch")


def test_an_old_driver_names_adapters_and_shows_a_mesh() -> None:
    (host,) = reading("topo_m_old_driver.txt").hardware
    assert host.linked == (8,)  # a hybrid mesh: not every pair is linked, all are joined
    assert set(host.links or ()) == {6}
    assert [a.name for a in host.adapters] == ["mlx5_0", "mlx5_2", "mlx5_1", "mlx5_3"]


def test_labels_tell_whose_table_it_is() -> None:
    found = reading("topo_m_pdsh.txt")  # lines of two nodes mixed
    assert found.nodes == ("tray01", "tray02")
    assert [(h.node, h.accelerators, h.linked) for h in found.hardware] == [
        ("tray01", 4, (4,)), ("tray02", 4, (4,)),
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("GPU1\tNV18\tX", "GPU1\tNV12\tX", "the other way"),
        ("GPU1\tNV18\tX", "GPU1\tNV18", "no relation|cells under"),
        ("GPU1\tNV18\tX", "GPU1\tWAT\tX", "'WAT' is no relation"),
        ("GPU1\tNV18\tX", "GPU9\tNV18\tX", "GPU1 is expected"),
    ],
)
def test_a_damaged_table_is_refused(tmp_path: Path, old: str, new: str, message: str) -> None:
    path = tmp_path / "x"
    text = (DATA / "topo_m_reversed.txt").read_text()
    assert old in text
    path.write_text(text.replace(old, new))
    with pytest.raises(InputError, match=message) as error:
        read_file(path)
    assert error.value.line is not None


def test_a_table_cut_short_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "x"
    path.write_text("\n".join((DATA / "topo_m_reversed.txt").read_text().splitlines()[:6]))
    with pytest.raises(InputError, match="ends after 5 of 16 rows"):
        read_file(path)


# --- NCCL XML -------------------------------------------------------------------------------------


def test_a_virtual_machines_profile_has_no_links() -> None:
    found = reading("nccl_profile_vm.xml")
    (host,) = found.hardware
    assert (host.accelerators, host.linked, host.links) == (8, None, None)
    assert [a.nearest for a in host.adapters] == [(0, 1), (2, 3), (4, 5), (6, 7)]
    assert host.accelerator_types == ("a100-sxm-40gb",)
    assert noted(found, "made up (ffff:ff:..)")


def test_odd_speeds_are_said_and_not_taken() -> None:
    found = reading("nccl_dump_odd_speeds.xml")
    (host,) = found.hardware
    assert (host.linked, set(host.links or ())) == ((8,), {18})  # 4 + 5 + 5 + 4 to the switches
    assert {a.bits_per_second for a in host.adapters} == {200e9}
    for text in ("unlikely speed", "width 0", "200 Gbit/s", "not taken"):
        assert noted(found, text)


def test_a_bridge_without_speed_is_noted() -> None:
    text = """<system version="1"><cpu numaid="0"><pci busid="0" class="0x060400" link_width="0">
    <pci busid="1" class="0x030200"/></pci></cpu></system>"""
    assert noted(FORMATS["nccl-xml"](text, "topo.xml"), "0 (no speed x0)")


BOMB = """<!DOCTYPE x [<!ENTITY a "aaaaaaaaaa"><!ENTITY b "&a;&a;&a;&a;">]>
<system version="1"><cpu numaid="&b;"/></system>"""
OUTSIDE = """<!DOCTYPE system SYSTEM "file:///etc/passwd"><system version="1"/>"""


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (BOMB, "document types"),
        (OUTSIDE, "document types"),
        ("<system>" + "<cpu>" * 70 + "</cpu>" * 70 + "</system>", "too deep"),
        ("<system>" + "<cpu/>" * 60_000 + "</system>", "too long"),
        ("<system><cpu></system>", "not readable as XML"),
        ("<system><cpu/></system>", "no accelerator"),
        ("<html/>", "not a topology"),
        ("<system><cpu numaid='&x;'/></system>", "not readable as XML"),
    ],
)
def test_hostile_xml_is_refused(tmp_path: Path, text: str, message: str) -> None:
    path = tmp_path / "x"
    path.write_text(text)
    with pytest.raises(InputError, match=message):
        read_file(path)


# --- Slurm ----------------------------------------------------------------------------------------


def test_a_tree_has_levels_and_leaves_some_nodes_unplaced() -> None:
    found = reading("topology_tree.conf")
    assert domains(found, "leaf")["gpu10"] == "tor2"
    assert domains(found, "spine")["rack2n1"] == "pod2"  # over a continued line
    assert set(domains(found, "core").values()) == {"core"}
    assert {"gpu90", "gpu95"} <= set(found.nodes) - domains(found, "leaf").keys()
    assert noted(found, "gpu90, gpu95 is not known")


def test_blocks_go_by_the_fabrics_name() -> None:
    found = reading("topology_block.conf")
    assert domains(found, "nvlink")["tray18"] == "nvl-a"
    assert domains(found, "nvlink")["tray19"] == "nvl-b"
    assert noted(found, "no domains")  # what BlockSizes are not


def test_topology_yaml_has_several_topologies() -> None:
    found = reading("topology.yaml")
    assert domains(found, "nvlink")["tray36"] == "b2"
    assert domains(found, "leaf")["tray36"] == "s2"
    assert domains(found, "spine")["tray01"] == "top"
    assert noted(found, "flat")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("SwitchName=a Nodes=n1\nSwitchName=a Nodes=n2", "declared twice, first on line 1"),
        ("SwitchName=a Switches=b", "not declared"),
        ("SwitchName=a Switches=b\nSwitchName=b Switches=a", "below itself"),
        ("SwitchName=a Nodes=n1\nSwitchName=b Nodes=n1", r"in a \(line 1\) and in b"),
        ("SwitchName=a Nodes=n1\nSwitchName=b Switches=a\nSwitchName=c Switches=a", "below b"),
        ("SwitchNam=a Nodes=n1", "did you mean 'SwitchName'"),
        ("SwitchName=a Nodes=n1 Nodes=n2", "given twice; allowed: each key once"),
        ("Nodes=n1", "neither a switch nor a block"),
        ("SwitchName=a", "no node is named"),
        ("BlockName=a Nodes=n1\nBlockName=b Nodes=n[1-2]", "is in a"),
    ],
)
def test_a_wrong_topology_conf_is_refused(text: str, message: str) -> None:
    with pytest.raises(InputError, match=message):
        read_topology_conf(text, "topology.conf")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("- tree: {switches: []}", "'topology' is missing"),
        ("- {topology: a}", "no kind"),
        ("- {topology: a, tree: {switches: [{switch: s, nodes: 1101}]}}", "in quotes"),
        ("- {topology: a, tree: {switches: [{switch: s, node: n}]}}", "no such key"),
        ("- {topology: a, tree: {}}", "a list is expected"),
    ],
)
def test_a_wrong_topology_yaml_is_refused(text: str, message: str) -> None:
    with pytest.raises(InputError, match=message):
        read_topology_yaml(text, "topology.yaml")


# --- ibnetdiscover --------------------------------------------------------------------------------


def test_hosts_without_switches_have_no_domain() -> None:
    found = FORMATS["ibnetdiscover"]('Ca 1 "H-1" # "node1 HCA-1"', "net.txt")
    assert (found.nodes, found.statements) == (("node1",), ())


def test_rails_make_one_leaf_group() -> None:
    """Each node hangs on two leaves: the leaves' group is the domain, not the leaf."""
    found = reading("ibnetdiscover.txt")
    leaf = domains(found, "leaf")
    assert leaf["node01"] == leaf["node04"] == "LEAF1+1"
    assert leaf["node05"] == leaf["node08"] == "LEAF3+1"
    assert set(domains(found, "spine").values()) == {"SPINE1+1"}
    assert noted(found, "rails")


def test_nameless_adapters_and_managers_are_no_nodes_to_use() -> None:
    found = reading("ibnetdiscover.txt")
    assert not any("MT4129" in node or "Aggregation" in node for node in found.nodes)
    assert noted(found, "1 adapters carry no node's name")
    assert domains(found, "state") == {"ufm-manager": "unknown"}


# --- Kubernetes, lists, maps ----------------------------------------------------------------------


def test_labels_place_nodes() -> None:
    found = reading("nodes.yaml")
    assert domains(found, "nvlink") | {"w2": "nvl2"} == {"w0": "nvl1", "w1": "nvl1", "w2": "nvl2"}
    assert domains(found, "leaf") == {"w0": "s1", "w1": "s1", "w2": "s2"}
    assert domains(found, "state") == {"w1": "drained", "w2": "down"}
    assert domains(found, "accelerators") == dict.fromkeys(("w0", "w1", "w2", "w3"), 4)
    assert domains(found, "address")["w3"] == "10.0.0.4"
    assert noted(found, "w3 carries no topology label")  # an empty clique is none
    assert next(s.place.line for s in found.statements if s.node == "w1" and s.key == "leaf") == 25


def test_older_labels_are_read_and_unknown_ones_said() -> None:
    found = reading("nodes_older_labels.yaml")
    assert domains(found, "leaf") == {"w0": "b1", "w1": "b1"}
    assert domains(found, "core") == {"w0": "d", "w1": "d"}
    assert noted(found, "planet")


def test_a_cluster_uuid_of_zeros_is_none() -> None:
    found = reading("cluster_uuids.txt")
    nvlink = domains(found, "nvlink")
    assert nvlink["tray01"] == nvlink["tray02"] != nvlink["tray19"]  # a clique each, one cluster
    assert "tray20" not in nvlink
    assert "tray20" in found.nodes


def test_addresses_of_slurm_follow_their_pattern() -> None:
    found = reading("addresses.txt")
    assert domains(found, "leaf") == {"tray01": "s1", "tray02": "s1"}
    assert domains(found, "spine") == {"tray01": "top", "tray02": "top"}
    assert domains(found, "nvlink") == {"tray19": "b2"}


def test_a_plain_map_places_nodes() -> None:
    """User case rank-05: {node ip: switch}."""
    found = reading("switches.json")
    assert domains(found, "leaf") == {
        "10.0.0.1": "leaf-a", "10.0.0.2": "leaf-b", "10.0.0.3": "leaf-a",
    }  # fmt: skip
    assert "10.0.0.4" in found.nodes


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("n1: ClusterUUID : 1b9d6bcd-bbfd-4b2d-9b5d-ab8dfbbd4bed\n"
         "n1: ClusterUUID : 2b9d6bcd-bbfd-4b2d-9b5d-ab8dfbbd4bed", "on line 1"),
        ("n1: SLURM_TOPOLOGY_ADDR=a.n2", "does not fit"),
        ("n1: SLURM_TOPOLOGY_ADDR=a.b.n1 SLURM_TOPOLOGY_ADDR_PATTERN=block.node", "does not fit"),
        ("n1: SLURM_TOPOLOGY_ADDR=a.n1\nsomething else", "places no node"),
        ('{"a": "s1", "b": [1]}', "not the name of a switch"),
        ('{"a": "s1", "a": "s2"}', "given twice"),
        ("kind: Pod\napiVersion: v1\n", "is not a node"),
        ("kind: Node\napiVersion: v1\nmetadata: {labels: {}}\n", "no name"),
    ],
)  # fmt: skip
def test_wrong_lists_and_maps_are_refused(tmp_path: Path, text: str, message: str) -> None:
    path = tmp_path / "x"
    path.write_text(text)
    with pytest.raises(InputError, match=message):
        read_file(path)
