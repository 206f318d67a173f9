"""Kubernetes nodes (`kubectl get nodes -o yaml` or json): labels that place them, and their state.

network.topology.nvidia.com/accelerator or nvidia.com/gpu.clique name the NVLink domain, and
network.topology.nvidia.com/tier-0, tier-1, ... the switches, nearest first. Older releases of the
labeller wrote leaf, spine, core, and before that block, spine, datacenter, also under
network.topology.kubernetes.io.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping

from planner.clusters.cluster_facts import SCALE_UP, Reading, Said, level_name
from planner.errors import InputError
from planner.inputs.documents import Node
from planner.inputs.text import natural_number
from planner.inputs.yaml_text import read_yaml

PREFIXES = ("network.topology.nvidia.com/", "network.topology.kubernetes.io/")
CLIQUE = "nvidia.com/gpu.clique"
LEVELS = {"leaf": 0, "block": 0, "spine": 1, "core": 2, "datacenter": 2}
_ALLOWED = "nodes of Kubernetes: kind Node, or a List of them"
_ACCELERATORS = ("nvidia.com/gpu", "amd.com/gpu")


def read(text: str, path: str) -> Reading:
    """The nodes of one or more YAML or JSON documents.

    Raises:
        InputError: not YAML, a document that is no node, a node without a name.
    """
    said: list[Said] = []
    names: list[str] = []
    notes: list[str] = []
    for node in _nodes(text, path):
        metadata = node.child("metadata")
        name = metadata.child("name") if metadata else None
        if name is None or not isinstance(name.value, str) or not name.value:
            raise InputError("a node has no name", path=path, line=node.line, allowed=_ALLOWED)
        names.append(name.value)
        found = list(_said(name.value, node, path, notes))
        said += found
        if not any(s.key not in ("accelerators", "state", "address") for s in found):
            notes.append(f"{path}:{name.line}: node {name.value} carries no topology label")
    if not names:
        raise InputError("no node is in it", path=path, allowed=_ALLOWED)
    return Reading(path, "kubernetes", tuple(dict.fromkeys(names)), tuple(said), notes=tuple(notes))


def documents(text: str, path: str) -> Iterator[Node]:
    """The documents of a YAML text, each with its own lines."""
    part: list[str] = []
    before = 0
    for number, line in enumerate([*text.splitlines(), "---"]):
        if re.match(r"---(\s|$)", line):
            body = "\n".join(part)
            if any(t.strip() and not t.strip().startswith("#") for t in part):
                yield read_yaml("\n" * before + body, path)
            before, part = number + 1, [line[3:]] if line[3:].strip() else []
            before -= len(part)
        else:
            part.append(line)


def _nodes(text: str, path: str) -> Iterator[Node]:
    for document in documents(text, path):
        kind = document.child("kind")
        items = document.child("items")
        if items is not None and isinstance(items.value, tuple):
            yield from items.value
        elif kind is not None and kind.value == "Node":
            yield document
        else:
            raise InputError(
                "is not a node", path=path, line=document.line,
                value=kind.plain() if kind else None, allowed=_ALLOWED,
            )  # fmt: skip


def _said(name: str, node: Node, path: str, notes: list[str]) -> Iterator[Said]:
    labels = _at(node, "metadata", "labels")
    values = labels.value if labels is not None and isinstance(labels.value, Mapping) else {}
    for key, label in values.items():
        level, naming = _level(key, label, path, notes)
        if level is None or label.value in (None, "", ".", "N/A"):
            continue
        if not isinstance(label.value, str):
            raise InputError(
                "a label is not text", path=path, line=label.line, key=key, value=label.plain(),
                allowed="text, in quotes where it is made of digits",
            )  # fmt: skip
        yield Said(name, level, label.value, naming, path, label.line)
    for key in _ACCELERATORS:
        count = _at(node, "status", "capacity", key)
        number = None if count is None else natural_number(str(count.value))
        if count is not None and number:
            yield Said(name, "accelerators", number, "kubernetes", path, count.line)
    cordoned = _at(node, "spec", "unschedulable")
    ready = _ready(node)
    if ready is not None and ready.value != "True":
        yield Said(name, "state", "down", "kubernetes", path, ready.line)
    elif cordoned is not None and cordoned.value is True:
        yield Said(name, "state", "drained", "kubernetes", path, cordoned.line)
    addresses = _at(node, "status", "addresses")
    for address in addresses.value if addresses and isinstance(addresses.value, tuple) else ():
        text = address.child("address")
        if _plain(address.child("type")) == "InternalIP" and isinstance(_plain(text), str):
            assert text is not None
            yield Said(name, "address", str(text.value), "kubernetes", path, text.line)
            break


def _level(key: str, label: Node, path: str, notes: list[str]) -> tuple[str | None, str]:
    if key == CLIQUE:
        return SCALE_UP, CLIQUE
    prefix = next((p for p in PREFIXES if key.startswith(p)), None)
    if prefix is None:
        return None, ""
    what = key.removeprefix(prefix)
    tier = re.fullmatch(r"tier-(\d{1,2})", what)
    if what == "accelerator":
        return SCALE_UP, "label accelerator"
    if tier or what in LEVELS:
        return level_name(int(tier[1]) if tier else LEVELS[what]), "labels of switches"
    notes.append(f"{path}:{label.line}: the label {key} is not known and not read")
    return None, ""


def _at(node: Node, *keys: str) -> Node | None:
    found: Node | None = node
    for key in keys:
        found = found.child(key) if found is not None else None
    return found


def _plain(node: Node | None) -> object:
    return None if node is None else node.value


def _ready(node: Node) -> Node | None:
    conditions = _at(node, "status", "conditions")
    for condition in conditions.value if conditions and isinstance(conditions.value, tuple) else ():
        if _plain(condition.child("type")) == "Ready":
            return condition.child("status")
    return None
