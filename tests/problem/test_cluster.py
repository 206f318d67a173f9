"""Usable nodes as nested domains: what they can hold, against enumeration."""

from itertools import product

import pytest
from hypothesis import given
from hypothesis import strategies as st

from planner.errors import InputError
from planner.inputs.values import load
from planner.problem.cluster import Cluster
from planner.problem.inventory import Inventory
from planner.problem.topology import Topology

DGX = load("dgx-h100", "topology", Topology)
NVL = load("gb200-nvl72", "topology", Topology)


def inventory(tiers: list[str], *nodes: tuple[str, int | None, dict[str, str], str]) -> Inventory:
    return Inventory.model_validate(
        {
            "name": "lab", "source": "test", "tiers": tuple(tiers),
            "nodes": tuple(
                {"name": n, "accelerators": a, "domains": d, "state": s} for n, a, d, s in nodes
            ),
        }
    )  # fmt: skip


def racks(*trays: int, size: int = 4) -> Inventory:
    """One leaf of racks with so many usable trays each."""
    return inventory(
        ["nvlink", "leaf"],
        *(
            (f"r{r}t{t}", size, {"nvlink": f"r{r}", "leaf": f"l{r // 8}"}, "usable")
            for r, count in enumerate(trays)
            for t in range(count)
        ),
    )


def test_partial_racks_hold_what_is_left_of_them() -> None:
    found = Cluster.of(racks(18, 17, 16), NVL)
    assert found.accelerators[0].tolist() == [72, 68, 64]
    assert found.widest == (72, 3, 1)
    assert found.holds((64, 3, 1))  # 72-GPU racks used as 64
    assert not found.holds((68, 3, 1))
    assert found.holds((36, 3, 1))
    assert found.blocks((32, 2, 1))[1].tolist() == [3]  # 2 + 2 + 2 blocks of 32, two a pair
    assert found.holds((9, 8, 1))  # 8 + 7 + 7 blocks of 9
    assert found.largest == 204
    assert next(found.fills(192)) == (64, 3, 1)
    assert next(found.fills(204)) == (4, 51, 1)  # of whole trays: 68 a rack is too much for one


def test_who_is_not_eligible_and_why() -> None:
    """User case topo-05: an unknown domain is not a domain."""
    found = Cluster.of(
        inventory(
            ["nvlink", "leaf"],
            ("a", 4, {"nvlink": "r", "leaf": "l"}, "usable"),
            ("b", 4, {"leaf": "l"}, "usable"),
            ("c", None, {"nvlink": "r", "leaf": "l"}, "usable"),
            ("d", 4, {"nvlink": "r", "leaf": "l"}, "drained"),
        ),
        NVL,
    )
    assert found.nodes == ("a",)
    assert found.left_out == {
        "b": "nvlink domain unknown", "c": "accelerators unknown", "d": "drained",
    }  # fmt: skip


def test_a_node_may_be_the_innermost_domain() -> None:
    nodes = [(f"n{i}", 8, {"leaf": f"l{i // 3}"}, "usable") for i in range(6)]
    found = Cluster.of(inventory(["leaf"], *nodes), DGX)
    assert found.domains[0] == ("n0", "n1", "n2", "n3", "n4", "n5")
    assert found.widest == (8, 3, 2)
    assert found.domains[2] == ("",)  # the outermost tier has one domain


def test_tiers_inside_a_node_are_cut_from_it() -> None:
    topology = load("h100-nvl", "topology", Topology)  # bridges of 2, 4 of them on a node's PCIe
    found = Cluster.of(inventory(["leaf"], ("n", 8, {"leaf": "l"}, "usable")), topology)
    assert found.accelerators[0].tolist() == [2, 2, 2, 2]
    assert [piece.first for (piece,) in found.pieces] == [0, 2, 4, 6]
    assert found.widest == (2, 4, 1, 1)


def test_islands_are_domains_of_the_outermost_tier() -> None:
    nodes = [
        (f"n{i}", 8, {"nvlink": f"n{i}", "leaf": f"l{i}", "spine": f"s{i // 3}"}, "usable")
        for i in range(5)
    ]
    found = Cluster.of(inventory(["nvlink", "leaf", "spine"], *nodes), DGX)
    assert found.largest == 24
    assert not found.holds((8, 1, 4))


@pytest.mark.parametrize(
    ("tiers", "node", "topology", "message"),
    [
        (["rack"], ("a", 8, {"rack": "r"}, "usable"), DGX, "names tier 'rack'"),
        (["leaf", "nvlink"], ("a", 8, {}, "usable"), DGX, "another order"),
        (["nvlink"], ("a", 8, {"nvlink": "a"}, "usable"), DGX, "does not name the leaf"),
        (["leaf"], ("a", 4, {"leaf": "l"}, "usable"), NVL, "not made of domains of 72"),
        (["nvlink", "leaf"], ("a", 9, {"nvlink": "a", "leaf": "l"}, "usable"), DGX, "at most 8"),
        (["leaf"], ("a", 8, {"leaf": "l"}, "down"), DGX, r"no node .* is usable \(down\)"),
    ],
)
def test_what_does_not_fit_the_topology_is_refused(
    tiers: list[str], node: tuple[str, int, dict[str, str], str], topology: Topology, message: str
) -> None:
    with pytest.raises(InputError, match=message):
        Cluster.of(inventory(tiers, node), topology)


def can_hold(trays: list[list[int]], fill: tuple[int, int, int]) -> bool:
    """By enumeration: blocks of every rack, then how many leaves' blocks they make."""
    for numbers in product(*(range(a // fill[0] + 1) for leaf in trays for a in leaf)):
        rest, blocks = list(numbers), 0
        for leaf in trays:
            blocks += sum(rest[: len(leaf)]) // fill[1]
            rest = rest[len(leaf) :]
        if blocks >= fill[2]:
            return True
    return False


@given(
    st.lists(st.lists(st.integers(1, 7), min_size=1, max_size=2), min_size=1, max_size=2),
    st.tuples(st.integers(1, 4), st.integers(1, 3), st.integers(1, 3)),
)
def test_blocks_are_counted_as_enumerated(
    trays: list[list[int]], fill: tuple[int, int, int]
) -> None:
    nodes = [
        (f"n{i}.{j}", a, {"nvlink": f"n{i}.{j}", "leaf": f"l{i}"}, "usable")
        for i, leaf in enumerate(trays)
        for j, a in enumerate(leaf)
    ]
    found = Cluster.of(inventory(["nvlink", "leaf"], *nodes), NVL)
    assert found.holds(fill) == can_hold(trays, fill)
