"""Inventories: the nodes that a cluster really has, where each is and whether it may be used.

A topology says how domains nest and how fast their links are; an inventory says which nodes there
are. `domains` names the domain of every tier that a node lies in, by the topology's tier names:
two nodes are in one domain of a tier exactly where the names agree. Where a node has no domain of
a tier, it is unknown in which it lies; the node is never taken for a domain of its own.
"""

from collections.abc import Iterable, Mapping
from itertools import pairwise
from typing import Annotated, Literal

from annotated_types import MinLen
from pydantic import Field, model_validator

from planner.errors import InputError
from planner.inputs.quantities import Count
from planner.inputs.values import Strict

NodeState = Literal["usable", "reserved", "drained", "down", "unknown"]
"""Jobs are placed on usable nodes only."""


class InventoryNode(Strict):
    """One host: its accelerators (None: not known), its domain in each tier, its state."""

    name: Annotated[str, MinLen(1)]
    accelerators: Count | None = None
    domains: Mapping[str, str] = Field(default_factory=dict)
    state: NodeState = "usable"
    address: str | None = None


class Inventory(Strict):
    """The nodes of a cluster; tiers are named inner to outer, as in its topology."""

    name: str
    description: str = ""
    source: str
    tiers: Annotated[tuple[str, ...], MinLen(1)]
    nodes: Annotated[tuple[InventoryNode, ...], MinLen(1)]

    @model_validator(mode="after")
    def _names_differ(self) -> "Inventory":
        for key, names in (
            ("tiers.{}", self.tiers),
            ("nodes.{}.name", [node.name for node in self.nodes]),
        ):
            repeat = first_repeat(names)
            if repeat is not None:
                raise InputError(
                    f"'{names[repeat]}' is given twice",
                    key=key.format(repeat),
                    value=names[repeat],
                    allowed="names that differ",
                )
        return self

    @model_validator(mode="after")
    def _tiers_are_known(self) -> "Inventory":
        for position, node in enumerate(self.nodes):
            for tier in node.domains:
                if tier not in self.tiers:
                    raise InputError(
                        f"node {node.name} is in a domain of an unknown tier",
                        key=f"nodes.{position}.domains.{tier}",
                        value=tier,
                        allowed=", ".join(self.tiers),
                    )
        return self

    @model_validator(mode="after")
    def _domains_nest(self) -> "Inventory":
        # tier, its domain, the next tier that the node names → domain of that one, first node
        around: dict[tuple[str, str, str], tuple[str, str]] = {}
        for position, node in enumerate(self.nodes):
            named = [tier for tier in self.tiers if tier in node.domains]
            for inner, outer in pairwise(named):
                key = (inner, node.domains[inner], outer)
                domain, first = around.setdefault(key, (node.domains[outer], node.name))
                if domain != node.domains[outer]:
                    raise InputError(
                        f"{inner} domain '{node.domains[inner]}' lies in two {outer} domains: "
                        f"'{domain}' by node {first} and '{node.domains[outer]}' by {node.name}",
                        key=f"nodes.{position}.domains.{outer}",
                        value=node.domains[outer],
                        allowed="domains that nest",
                    )
        return self


def first_repeat(names: Iterable[str]) -> int | None:
    """Return the position of the first name that repeats an earlier one; None if all differ."""
    seen: set[str] = set()
    for position, name in enumerate(names):
        if name in seen:
            return position
        seen.add(name)
    return None
