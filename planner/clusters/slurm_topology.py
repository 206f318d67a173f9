"""Slurm's topology.conf and topology.yaml: trees of switches, and blocks.

A tree names the switches over nodes: those with nodes are leaves, and a switch is one level above
the highest switch below it. A block (topology/block) is the domain of a scale-up fabric.
Generators write the fabric's own name of a block in a comment before it (`# block001=nvl1`).
A leaf called `no-topology` has the nodes whose place is not known: they get no domain.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from planner.clusters.reading import SCALE_UP, Reading, Statement, in_words, level_name
from planner.clusters.slurm_hostlist import expand
from planner.errors import Place, nearest_of
from planner.inputs.documents import Node, show
from planner.inputs.yaml_text import read_yaml

UNPLACED = "no-topology"

_KEYS = {
    key.lower(): key
    for key in ("SwitchName", "Switches", "Nodes", "LinkSpeed", "BlockName", "BlockSizes")
}
_ALIAS = re.compile(r"#\s*([\w.-]+)\s*=\s*([\w.:-]+)\s*$")
_TOPOLOGY_YAML = "Slurm's topology.yaml"


@dataclass(slots=True)
class _Group:
    """A switch or a block: its nodes, the switches below it, and where it is declared."""

    name: str
    place: Place
    nodes: list[str] = field(default_factory=list)
    children: list[str] = field(default_factory=list)


@dataclass(slots=True)
class _File:
    """What has been read of a file."""

    path: str
    format: str
    switches: list[_Group] = field(default_factory=list)
    blocks: list[_Group] = field(default_factory=list)
    statements: list[Statement] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)

    def reading(self) -> Reading:
        groups = (*self.switches, *self.blocks)
        nodes = dict.fromkeys(node for group in groups for node in group.nodes)
        if not nodes:
            raise Place(self.path).error(
                "no node is named", allowed="Nodes=... in a switch or block"
            )
        return Reading(
            self.path,
            self.format,
            tuple(nodes),
            tuple(self.statements),
            notes=tuple(self.notes),
        )

    def note_block_sizes(self, sizes: str, line: int | None) -> None:
        self.notes.append(
            f"{self.path}:{line}: block sizes {sizes} are what the scheduler may hand out, no "
            "domains; blocks are read as scale-up (NVLink) domains"
        )


# ---------------------------------------------------------------- topology.conf


def read_topology_conf(text: str, path: str) -> Reading:
    """Return the nodes of a topology.conf and their switches and blocks.

    Raises:
        InputError: an unknown key, a switch declared twice or below two others or below itself, a
            node in two leaves or blocks.
    """
    file = _File(path, "slurm-conf")
    aliases: dict[str, str] = {}
    for line, words in _settings(text, path, aliases):
        if "BlockSizes" in words and len(words) == 1:
            file.note_block_sizes(words["BlockSizes"], line)
            continue
        name_key = "SwitchName" if "SwitchName" in words else "BlockName"
        if name_key not in words:
            raise Place(path, line).error(
                "neither a switch nor a block is declared",
                allowed="SwitchName=..., BlockName=... or BlockSizes=...",
            )
        group = _Group(words[name_key], Place(path, line))
        if "Nodes" in words:
            group.nodes = expand(words["Nodes"], Place(path, line, key="Nodes"))
        if "Switches" in words:
            group.children = expand(words["Switches"], Place(path, line, key="Switches"))
        if not group.nodes and not group.children:
            file.notes.append(f"{path}:{line}: {group.name} has neither nodes nor switches")
        (file.switches if name_key == "SwitchName" else file.blocks).append(group)
    file.statements += _of_tree(file.switches, "Slurm switches", aliases, file.notes)
    file.statements += _of_blocks(file.blocks, "Slurm blocks", aliases)
    return file.reading()


def _settings(
    text: str, path: str, aliases: dict[str, str]
) -> Iterator[tuple[int, dict[str, str]]]:
    """Yield each line's number and settings; a backslash continues it on the next line.

    Names that comments give to blocks are added to `aliases`.
    """
    continued, first = "", 0
    for number, raw in enumerate(text.splitlines(), 1):
        alias = _ALIAS.match(raw.strip())
        if alias:
            aliases[alias[1]] = alias[2]
        line = raw.split("#", 1)[0].rstrip()
        first = first if continued else number
        if line.endswith("\\"):
            continued += line[:-1] + " "
            continue
        line, continued = (continued + line).strip(), ""
        if line:
            yield first, _words(line, Place(path, first))


def _words(line: str, place: Place) -> dict[str, str]:
    """Return the settings of a line, `SwitchName=s1 Nodes=n[1-4]`, by key."""
    try:
        pieces = shlex.split(line, posix=True)
    except ValueError as error:
        raise place.error(f"not readable: {error}", allowed="KEY=VALUE pairs") from None
    settings: dict[str, str] = {}
    for piece in pieces:
        name, equals, value = piece.partition("=")
        key = _KEYS.get(name.lower())
        if key is None or not equals or not value:
            raise Place(place.path, place.line, key=name).error(
                f"'{piece}' is not a setting of topology.conf",
                allowed=", ".join(f"{known}=..." for known in _KEYS.values()),
                nearest=nearest_of(name, _KEYS.values()),
            )
        if key in settings:
            raise Place(place.path, place.line, key=key).error(
                "the key is given twice", allowed="each key once"
            )
        settings[key] = value
    return settings


# ---------------------------------------------------------------- topology.yaml


def read_topology_yaml(text: str, path: str) -> Reading:
    """Return the nodes of a topology.yaml: a list of named topologies, each tree, block or flat.

    Raises:
        InputError: as `read_topology_conf`, or not Slurm's topology.yaml.
    """
    file = _File(path, "slurm-yaml")
    for topology in _items(read_yaml(text, path), path):
        name = _text(_required(topology, "topology"))
        kind = next((kind for kind in ("tree", "block", "flat") if topology.child(kind)), None)
        if kind is None:
            raise topology.place.error(
                f"topology '{name}' has no kind", allowed="tree, block or flat"
            )
        body = topology.child(kind)
        assert body is not None
        if kind == "flat":
            file.notes.append(f"{path}:{body.line}: topology {name} is flat and places no node")
        elif kind == "tree":
            switches = [_group(item, "switch") for item in _items(body.child("switches"), path)]
            naming = f"Slurm switches of {name}"
            file.statements += _of_tree(switches, naming, {}, file.notes)
            file.switches += switches
        else:
            blocks = [_group(item, "block") for item in _items(body.child("blocks"), path)]
            file.statements += _of_blocks(blocks, f"Slurm blocks of {name}", {})
            file.blocks += blocks
            sizes = body.child("block_sizes")
            if sizes is not None:
                shown = ",".join(str(size) for size in sizes.plain() or ())
                file.note_block_sizes(shown, sizes.line)
    return file.reading()


def _items(node: Node | None, path: str) -> tuple[Node, ...]:
    if node is None or not isinstance(node.value, tuple):
        place = Place(path) if node is None else node.place
        raise place.error("a list is expected", allowed=_TOPOLOGY_YAML)
    return node.value


def _required(node: Node, key: str) -> Node:
    child = node.child(key) if isinstance(node.value, Mapping) else None
    if child is None:
        raise node.place.error(f"'{key}' is missing", allowed=_TOPOLOGY_YAML)
    return child


def _text(node: Node) -> str:
    if not isinstance(node.value, str) or not node.value:
        raise node.error(
            f"{show(node.plain())} is not text", allowed='text; a name of digits in quotes: "1101"'
        )
    return node.value


def _group(node: Node, name_key: str) -> _Group:
    """Return a switch or block; `name_key` is 'switch' or 'block'."""
    group = _Group(_text(_required(node, name_key)), node.place)
    assert isinstance(node.value, Mapping)
    for key, child in node.value.items():
        if key == "nodes":
            group.nodes = expand(_text(child), child.place)
        elif key == "children" and name_key == "switch":
            group.children = expand(_text(child), child.place)
        elif key != name_key:
            raise child.place.error(
                f"a {name_key} has no such key",
                value=key,
                allowed=f"{name_key}, nodes" + (", children" if name_key == "switch" else ""),
            )
    return group


# ---------------------------------------------------------------- statements of both


def _of_tree(
    switches: Sequence[_Group], naming: str, aliases: Mapping[str, str], notes: list[str]
) -> list[Statement]:
    """Return the switches above each node, by level.

    Raises:
        InputError: the switches are no tree, or a node is in two leaves.
    """
    parents = _parents(switches)
    heights = _heights(switches)
    statements = []
    for switch in switches:
        if switch.nodes and switch.name == UNPLACED:
            notes.append(
                f"{switch.place}: the place of {in_words(switch.nodes)} is not known: not eligible"
            )
            continue
        above: _Group | None = switch if switch.nodes else None
        while above is not None:
            level, domain = level_name(heights[above.name]), aliases.get(above.name, above.name)
            statements += [
                Statement(node, level, domain, naming, above.place) for node in switch.nodes
            ]
            above = parents.get(above.name)
    _check_nodes_once(switches)
    return statements


def _parents(switches: Sequence[_Group]) -> dict[str, _Group]:
    """Return the switch above each switch that has one."""
    by_name = _by_name(switches)
    parents: dict[str, _Group] = {}
    for switch in switches:
        for child in switch.children:
            if child not in by_name:
                raise switch.place.error(
                    f"switch {switch.name} has {child} below it, which is not declared",
                    value=child,
                    allowed="switches of this file",
                    nearest=nearest_of(child, by_name),
                )
            if child in parents:
                raise switch.place.error(
                    f"switch {child} is below {parents[child].name} (line "
                    f"{parents[child].place.line}) and below {switch.name}",
                    value=child,
                    allowed="one switch above another",
                )
            parents[child] = switch
    return parents


def _heights(switches: Sequence[_Group]) -> dict[str, int]:
    """Return each switch's levels above the leaves; children come before parents."""
    heights: dict[str, int] = {}
    waiting = list(switches)
    while waiting:
        ready = [s for s in waiting if all(child in heights for child in s.children)]
        if not ready:
            raise waiting[0].place.error(
                f"switch {waiting[0].name} is below itself", allowed="a tree of switches"
            )
        for switch in ready:
            heights[switch.name] = max((heights[c] + 1 for c in switch.children), default=0)
        waiting = [s for s in waiting if s.name not in heights]
    return heights


def _of_blocks(
    blocks: Sequence[_Group], naming: str, aliases: Mapping[str, str]
) -> list[Statement]:
    """Return the block of each node.

    Raises:
        InputError: a block is declared twice, or a node is in two blocks.
    """
    _by_name(blocks)
    _check_nodes_once(blocks)
    return [
        Statement(node, SCALE_UP, aliases.get(block.name, block.name), naming, block.place)
        for block in blocks
        for node in block.nodes
        if block.name != UNPLACED
    ]


def _by_name(groups: Sequence[_Group]) -> dict[str, _Group]:
    by_name: dict[str, _Group] = {}
    for group in groups:
        first = by_name.setdefault(group.name, group)
        if first is not group:
            raise group.place.error(
                f"{group.name} is declared twice, first on line {first.place.line}",
                value=group.name,
                allowed="each name once",
            )
    return by_name


def _check_nodes_once(groups: Sequence[_Group]) -> None:
    group_of: dict[str, _Group] = {}
    for group in groups:
        for node in group.nodes:
            first = group_of.setdefault(node, group)
            if first is not group:
                raise group.place.error(
                    f"node {node} is in {first.name} (line {first.place.line}) and in {group.name}",
                    value=node,
                    allowed="each node once",
                )
