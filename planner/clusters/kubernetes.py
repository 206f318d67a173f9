"""Kubernetes nodes (`kubectl get nodes -o yaml` or json): labels that place them, and their state.

network.topology.nvidia.com/accelerator or nvidia.com/gpu.clique name the NVLink domain, and
network.topology.nvidia.com/tier-0, tier-1, ... the switches, nearest first. Older releases of the
labeller wrote leaf, spine, core, and before that block, spine, datacenter, also under
network.topology.kubernetes.io.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping

from planner.clusters.reading import SCALE_UP, Reading, Statement, level_name
from planner.errors import Place
from planner.inputs.documents import Node, show
from planner.inputs.text import natural_number
from planner.inputs.yaml_text import read_yaml

PREFIXES = ("network.topology.nvidia.com/", "network.topology.kubernetes.io/")
CLIQUE = "nvidia.com/gpu.clique"
HEIGHTS = {"leaf": 0, "block": 0, "spine": 1, "core": 2, "datacenter": 2}
"""Labels of older releases → height of the switch, as of `level_name`."""

_ALLOWED = "nodes of Kubernetes: kind Node, or a List of them"
_ACCELERATORS = ("nvidia.com/gpu", "amd.com/gpu")
_NAMING = "kubernetes"


def read(text: str, path: str) -> Reading:
    """Return the nodes of one or more YAML or JSON documents.

    Raises:
        InputError: not YAML, a document that is no node, a node without a name, a label that is
            not text.
    """
    statements: list[Statement] = []
    names: list[str] = []
    notes: list[str] = []
    for node in _nodes(text, path):
        name = node.descendant("metadata", "name")
        if name is None or not isinstance(name.value, str) or not name.value:
            raise node.place.error("a node has no name", allowed=_ALLOWED)
        names.append(name.value)
        domains = list(_domains(name.value, node, notes))
        statements += [
            *domains,
            *_counts(name.value, node),
            *_state(name.value, node),
            *_address(name.value, node),
        ]
        if not domains:
            notes.append(f"{path}:{name.line}: node {name.value} carries no topology label")
    if not names:
        raise Place(path).error("no node is in it", allowed=_ALLOWED)
    return Reading(
        path, "kubernetes", tuple(dict.fromkeys(names)), tuple(statements), notes=tuple(notes)
    )


def documents(text: str, path: str) -> Iterator[Node]:
    """Yield the documents of a YAML text, each with the lines that it has in the text.

    Raises:
        InputError: not YAML.
    """
    lines: list[str] = []
    first = 0  # how many lines of the text are before these
    for number, line in enumerate([*text.splitlines(), "---"]):
        if not re.match(r"---(\s|$)", line):
            lines.append(line)
            continue
        if any(line.strip() and not line.strip().startswith("#") for line in lines):
            yield read_yaml("\n" * first + "\n".join(lines), path)
        # A document may begin behind its dashes.
        lines = [line[3:]] if line[3:].strip() else []
        first = number + 1 - len(lines)


def _nodes(text: str, path: str) -> Iterator[Node]:
    for document in documents(text, path):
        kind, items = document.child("kind"), document.child("items")
        if items is not None and isinstance(items.value, tuple):
            yield from items.value
        elif kind is not None and kind.value == "Node":
            yield document
        else:
            raise document.place.error(
                "is not a node", value=kind.plain() if kind else None, allowed=_ALLOWED
            )


# ---------------------------------------------------------------- statements about one node


def _domains(name: str, node: Node, notes: list[str]) -> Iterator[Statement]:
    labels = node.descendant("metadata", "labels")
    values = labels.value if labels is not None and isinstance(labels.value, Mapping) else {}
    for key, label in values.items():
        level, naming = _level_and_naming(key)
        if level is None and key.startswith(PREFIXES):
            notes.append(f"{label.path}:{label.line}: the label {key} is not known and not read")
        if level is None or label.value in (None, "", ".", "N/A"):
            continue
        if not isinstance(label.value, str):
            raise label.error(
                f"the label {show(label.plain())} is not text",
                allowed="text, in quotes where it is made of digits",
            )
        yield Statement(name, level, label.value, naming, label.place)


def _level_and_naming(key: str) -> tuple[str | None, str]:
    """Return the level that a label is about, None of other labels; and whose names it uses."""
    if key == CLIQUE:
        return SCALE_UP, CLIQUE
    prefix = next((prefix for prefix in PREFIXES if key.startswith(prefix)), None)
    if prefix is None:
        return None, ""
    about = key.removeprefix(prefix)
    tier = re.fullmatch(r"tier-(\d{1,2})", about)
    if about == "accelerator":
        return SCALE_UP, "label accelerator"
    if tier or about in HEIGHTS:
        return level_name(int(tier[1]) if tier else HEIGHTS[about]), "labels of switches"
    return None, ""


def _counts(name: str, node: Node) -> Iterator[Statement]:
    for resource in _ACCELERATORS:
        count = node.descendant("status", "capacity", resource)
        number = None if count is None else natural_number(str(count.value))
        if count is not None and number:
            yield Statement(name, "accelerators", number, _NAMING, count.place)


def _state(name: str, node: Node) -> Iterator[Statement]:
    ready = _ready(node)
    cordoned = node.descendant("spec", "unschedulable")
    if ready is not None and ready.value != "True":
        yield Statement(name, "state", "down", _NAMING, ready.place)
    elif cordoned is not None and cordoned.value is True:
        yield Statement(name, "state", "drained", _NAMING, cordoned.place)


def _ready(node: Node) -> Node | None:
    conditions = node.descendant("status", "conditions")
    for condition in conditions.items if conditions else ():
        if _value(condition, "type") == "Ready":
            return condition.child("status")
    return None


def _address(name: str, node: Node) -> Iterator[Statement]:
    addresses = node.descendant("status", "addresses")
    for entry in addresses.items if addresses else ():
        address = entry.child("address")
        if _value(entry, "type") == "InternalIP" and address and isinstance(address.value, str):
            yield Statement(name, "address", address.value, _NAMING, address.place)
            return


def _value(node: Node, key: str) -> object:
    child = node.child(key)
    return None if child is None else child.value
