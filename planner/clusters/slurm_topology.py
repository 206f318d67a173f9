"""Slurm's topology.conf and topology.yaml: trees of switches, and blocks.

A tree names the switches over nodes: those that hold nodes are leaves, and a switch is one level
above the highest switch below it. A block (topology/block) is the domain of a scale-up fabric.
Generators write the fabric's own name of a block in a comment before it (`# block001=nvl1`).
A leaf called `no-topology` holds the nodes whose place is not known: they get no domain.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from planner.clusters.cluster_facts import SCALE_UP, Reading, Said, level_name, listed
from planner.clusters.hostlist import expand
from planner.errors import InputError, nearest_of
from planner.inputs.documents import Node
from planner.inputs.yaml_text import read_yaml

UNPLACED = "no-topology"
_KEYS = {
    key.lower(): key
    for key in ("SwitchName", "Switches", "Nodes", "LinkSpeed", "BlockName", "BlockSizes")
}
_ALIAS = re.compile(r"#\s*([\w.-]+)\s*=\s*([\w.:-]+)\s*$")


@dataclass(slots=True)
class Switch:
    """A switch or block: what it holds and where it is declared."""

    name: str
    line: int | None
    nodes: list[str] = field(default_factory=list)
    children: list[str] = field(default_factory=list)


def read_topology_conf(text: str, path: str) -> Reading:
    """A topology.conf.

    Raises:
        InputError: an unknown key, a switch declared twice or held by two or by itself, a node in
            two leaves or blocks.
    """
    switches: list[Switch] = []
    blocks: list[Switch] = []
    alias: dict[str, str] = {}
    notes: list[str] = []
    for line, words in _lines(text, path, alias):
        if "BlockSizes" in words and len(words) == 1:
            notes.append(_sizes_note(words["BlockSizes"], path, line))
            continue
        kind = "SwitchName" if "SwitchName" in words else "BlockName"
        if kind not in words:
            raise InputError(
                "neither a switch nor a block is declared", path=path, line=line,
                allowed="SwitchName=..., BlockName=... or BlockSizes=...",
            )  # fmt: skip
        made = Switch(words[kind], line)
        if "Nodes" in words:
            made.nodes = expand(words["Nodes"], path, line, "Nodes")
        if "Switches" in words:
            made.children = expand(words["Switches"], path, line, "Switches")
        if not made.nodes and not made.children:
            notes.append(f"{path}:{line}: {made.name} holds nothing")
        (switches if kind == "SwitchName" else blocks).append(made)
    said = [*_tree(switches, path, "Slurm switches", notes, alias)]
    said += _blocks(blocks, path, "Slurm blocks", alias)
    return _reading(path, "slurm-conf", switches, blocks, said, notes)


def _lines(text: str, path: str, alias: dict[str, str]) -> Iterator[tuple[int, dict[str, str]]]:
    pending, start = "", 0
    for number, raw in enumerate(text.splitlines(), 1):
        found = _ALIAS.match(raw.strip())
        if found:
            alias[found[1]] = found[2]
        line = raw.split("#", 1)[0].rstrip()
        start = start if pending else number
        if line.endswith("\\"):
            pending += line[:-1] + " "
            continue
        line, pending = (pending + line).strip(), ""
        if line:
            yield start, _words(line, path, start)


def _words(line: str, path: str, number: int) -> dict[str, str]:
    try:
        pieces = shlex.split(line, posix=True)
    except ValueError as error:
        raise InputError(
            f"not readable: {error}", path=path, line=number, allowed="KEY=VALUE pairs"
        ) from None
    found: dict[str, str] = {}
    for piece in pieces:
        name, equals, value = piece.partition("=")
        key = _KEYS.get(name.lower())
        if key is None or not equals or not value:
            raise InputError(
                f"'{piece}' is not a setting of topology.conf", path=path, line=number, key=name,
                allowed=", ".join(f"{known}=..." for known in _KEYS.values()),
                nearest=nearest_of(name, _KEYS.values()),
            )  # fmt: skip
        if key in found:
            raise InputError(
                "the key is given twice", path=path, line=number, key=key, allowed="each key once"
            )
        found[key] = value
    return found


# --- topology.yaml --------------------------------------------------------------------------------


def read_topology_yaml(text: str, path: str) -> Reading:
    """A topology.yaml: a list of named topologies, each a tree, blocks, or flat.

    Raises:
        InputError: as `read_topology_conf`, or a part is of the wrong kind.
    """
    root = read_yaml(text, path)
    said: list[Said] = []
    switches: list[Switch] = []
    blocks: list[Switch] = []
    notes: list[str] = []
    for topology in _items(root, path):
        name = _text(_need(topology, "topology", path), path)
        kind = next((k for k in ("tree", "block", "flat") if topology.child(k)), None)
        if kind is None:
            raise InputError(
                f"topology '{name}' has no kind", path=path, line=topology.line,
                allowed="tree, block or flat",
            )  # fmt: skip
        body = topology.child(kind)
        assert body is not None
        if kind == "flat":
            notes.append(f"{path}:{body.line}: topology {name} is flat and places no node")
        elif kind == "tree":
            found = [_switch(item, "switch", path) for item in _items(body.child("switches"), path)]
            said += _tree(found, path, f"Slurm switches of {name}", notes, {})
            switches += found
        else:
            found = [_switch(item, "block", path) for item in _items(body.child("blocks"), path)]
            said += _blocks(found, path, f"Slurm blocks of {name}", {})
            blocks += found
            sizes = body.child("block_sizes")
            if sizes is not None:
                shown = ",".join(str(size) for size in sizes.plain() or ())
                notes.append(_sizes_note(shown, path, sizes.line))
    return _reading(path, "slurm-yaml", switches, blocks, said, notes)


def _items(node: Node | None, path: str) -> tuple[Node, ...]:
    if node is None or not isinstance(node.value, tuple):
        raise InputError(
            "a list is expected", path=path, line=node.line if node else None,
            key=node.key or None if node else None, allowed="Slurm's topology.yaml",
        )  # fmt: skip
    return node.value


def _need(node: Node, key: str, path: str) -> Node:
    found = node.child(key) if isinstance(node.value, Mapping) else None
    if found is None:
        raise InputError(
            f"'{key}' is missing", path=path, line=node.line, key=node.key or None,
            allowed="Slurm's topology.yaml",
        )  # fmt: skip
    return found


def _text(node: Node, path: str) -> str:
    if not isinstance(node.value, str) or not node.value:
        raise InputError(
            "is not text", path=path, line=node.line, key=node.key, value=node.plain(),
            allowed='text; a name of digits in quotes: "1101"',
        )  # fmt: skip
    return node.value


def _switch(node: Node, name: str, path: str) -> Switch:
    made = Switch(_text(_need(node, name, path), path), node.line)
    assert isinstance(node.value, Mapping)
    for key, child in node.value.items():
        if key == "nodes":
            made.nodes = expand(_text(child, path), path, child.line, child.key)
        elif key == "children" and name == "switch":
            made.children = expand(_text(child, path), path, child.line, child.key)
        elif key != name:
            raise InputError(
                f"a {name} has no such key", path=path, line=child.line, key=child.key, value=key,
                allowed=f"{name}, nodes" + (", children" if name == "switch" else ""),
            )  # fmt: skip
    return made


# --- what both say --------------------------------------------------------------------------------


def _tree(
    switches: Sequence[Switch],
    path: str,
    naming: str,
    notes: list[str],
    alias: Mapping[str, str],
) -> list[Said]:
    by_name = _declared(switches, path)
    parents: dict[str, Switch] = {}
    for switch in switches:
        for child in switch.children:
            if child not in by_name:
                raise InputError(
                    f"switch {switch.name} holds {child}, which is not declared",
                    path=path, line=switch.line, value=child,
                    allowed="switches of this file", nearest=nearest_of(child, by_name),
                )  # fmt: skip
            if child in parents:
                raise InputError(
                    f"switch {child} is held by {parents[child].name} (line "
                    f"{parents[child].line}) and by {switch.name}",
                    path=path, line=switch.line, value=child, allowed="one switch above another",
                )  # fmt: skip
            parents[child] = switch
    heights = _heights(switches, path)
    said = []
    for switch in switches:
        if switch.nodes and switch.name == UNPLACED:
            notes.append(
                f"{path}:{switch.line}: the place of {listed(switch.nodes)} is not known: "
                "not eligible"
            )
            continue
        above: Switch | None = switch if switch.nodes else None
        while above is not None:
            level, domain = level_name(heights[above.name]), alias.get(above.name, above.name)
            said += [Said(n, level, domain, naming, path, above.line) for n in switch.nodes]
            above = parents.get(above.name)
    _once(switches, path)
    return said


def _heights(switches: Sequence[Switch], path: str) -> dict[str, int]:
    """Levels above the leaves, children before parents; a circle is refused."""
    heights: dict[str, int] = {}
    waiting = list(switches)
    while waiting:
        ready = [s for s in waiting if all(child in heights for child in s.children)]
        if not ready:
            raise InputError(
                f"switch {waiting[0].name} holds itself", path=path, line=waiting[0].line,
                allowed="a tree of switches",
            )  # fmt: skip
        for switch in ready:
            heights[switch.name] = max((heights[c] + 1 for c in switch.children), default=0)
        waiting = [s for s in waiting if s.name not in heights]
    return heights


def _blocks(
    blocks: Sequence[Switch], path: str, naming: str, alias: Mapping[str, str]
) -> list[Said]:
    _declared(blocks, path)
    _once(blocks, path)
    return [
        Said(node, SCALE_UP, alias.get(block.name, block.name), naming, path, block.line)
        for block in blocks
        for node in block.nodes
        if block.name != UNPLACED
    ]


def _declared(switches: Sequence[Switch], path: str) -> dict[str, Switch]:
    found: dict[str, Switch] = {}
    for switch in switches:
        first = found.setdefault(switch.name, switch)
        if first is not switch:
            raise InputError(
                f"{switch.name} is declared twice, first on line {first.line}",
                path=path, line=switch.line, value=switch.name, allowed="each name once",
            )  # fmt: skip
    return found


def _once(switches: Sequence[Switch], path: str) -> None:
    seen: dict[str, Switch] = {}
    for switch in switches:
        for node in switch.nodes:
            first = seen.setdefault(node, switch)
            if first is not switch:
                raise InputError(
                    f"node {node} is in {first.name} (line {first.line}) and in {switch.name}",
                    path=path, line=switch.line, value=node, allowed="each node once",
                )  # fmt: skip


def _sizes_note(sizes: str, path: str, line: int | None) -> str:
    return (
        f"{path}:{line}: block sizes {sizes} are what the scheduler may hand out, no domains; "
        "blocks are read as scale-up (NVLink) domains"
    )


def _reading(
    path: str,
    format_: str,
    switches: Sequence[Switch],
    blocks: Sequence[Switch],
    said: Sequence[Said],
    notes: Sequence[str],
) -> Reading:
    nodes = dict.fromkeys(node for switch in (*switches, *blocks) for node in switch.nodes)
    if not nodes:
        raise InputError("no node is named", path=path, allowed="Nodes=... in a switch or block")
    return Reading(path, format_, tuple(nodes), tuple(said), notes=tuple(notes))
