"""Inventories: what a file may say of nodes and domains."""

import pytest

from planner.errors import InputError
from planner.inputs.values import from_document
from planner.problem.inventory import Inventory

NODE = {"name": "n1", "accelerators": 8, "domains": {"nvlink": "n1", "leaf": "a"}}
OTHER = {"name": "n2", "accelerators": 8, "domains": {"nvlink": "n2", "leaf": "a"}, "state": "down"}


def document(*nodes: dict[str, object], tiers: tuple[str, ...] = ("nvlink", "leaf")) -> object:
    return {"name": "lab", "source": "by hand", "tiers": list(tiers), "nodes": list(nodes)}


def test_nodes_keep_their_domains_and_states() -> None:
    found = from_document(document(NODE, OTHER), "lab.yaml", Inventory)
    assert [node.state for node in found.nodes] == ["usable", "down"]
    assert found.nodes[0].domains == {"nvlink": "n1", "leaf": "a"}


def test_what_is_not_said_is_unknown() -> None:
    (node,) = from_document(document({"name": "n1"}), "lab.yaml", Inventory).nodes
    assert node.accelerators is None
    assert node.domains == {}


@pytest.mark.parametrize(
    ("nodes", "tiers", "message"),
    [
        ((NODE, NODE), ("nvlink", "leaf"), "'n1' is given twice"),
        ((NODE,), ("leaf", "leaf", "nvlink"), "'leaf' is given twice"),
        ((NODE,), ("nvlink",), "unknown tier"),
        (
            ({"name": "a", "domains": {"nvlink": "r", "leaf": "x"}},
             {"name": "b", "domains": {"nvlink": "r", "leaf": "y"}}),
            ("nvlink", "leaf"),
            "nvlink domain 'r' lies in two leaf domains",
        ),
        ((), ("leaf",), "nodes"),
        (({"name": "a", "state": "broken"},), ("leaf",), "usable"),
    ],
)  # fmt: skip
def test_what_contradicts_itself_is_refused(
    nodes: tuple[dict[str, object], ...], tiers: tuple[str, ...], message: str
) -> None:
    with pytest.raises(InputError, match=message):
        from_document(document(*nodes, tiers=tiers), "lab.yaml", Inventory)
