"""What `nvidia-smi topo -m` prints: accelerators, their links, and adapters near them.

            GPU0  GPU1  NIC0  CPU Affinity  NUMA Affinity  GPU NUMA ID
    GPU0     X    NV18  PIX   0-47          0              N/A

Columns vary by driver: adapters are NIC0.. with a legend, or go by their own names (mlx5_0), or
are absent; affinities may have blanks or be missing. Lines may carry the name of the node that
printed them (pdsh, clush, srun with labels): `node1: GPU0 ...`, nodes one after another or mixed.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from planner.clusters.node_hardware import adapter_notes
from planner.clusters.reading import Adapter, NodeHardware, Reading, Statement, group_sizes
from planner.errors import Place

DISTANCES = {"PIX": 0, "PXB": 1, "PHB": 2, "NODE": 3, "SOC": 4, "SYS": 4}
"""How the driver writes the distances of `Adapter.distance`."""

MOST_LINKS = 18  # of an accelerator, of any generation so far

_COLOURS = re.compile(r"\x1b\[[0-9;]*m")
_LABEL = re.compile(r"^([A-Za-z0-9][\w.-]*):\s")
_DEVICE = re.compile(r"GPU\d+|NIC\d+|[a-z]\w*_\w+|ib\d+|eth\d+")
_CELL = re.compile(r"X|NV\d{1,3}|SYS|SOC|NODE|PHB|PXB|PIX")
_LEGEND = re.compile(r"\s*(NIC\d+)\s*:\s*(\S+)\s*$")
_ALLOWED = "what `nvidia-smi topo -m` prints"

_Lines = Sequence[tuple[int, str]]
"""Lines with their numbers in the file."""


@dataclass(frozen=True, slots=True)
class _Row:
    device: str
    cells: tuple[str, ...]
    line: int


@dataclass(frozen=True, slots=True)
class _Table:
    """The relations of devices to each other: rows and columns are the same devices."""

    devices: tuple[str, ...]
    rows: tuple[_Row, ...]


def looks_like(text: str) -> bool:
    """Whether the text contains such a table."""
    return any(_devices(_split_label(line)[1]) for line in text.splitlines())


def read(text: str, path: str) -> Reading:
    """Return the hardware of the nodes in the text.

    Raises:
        InputError: a row of another length than the head, rows that disagree with each other, a
            cell that is no relation, a table without accelerators.
    """
    hardware = []
    for node, lines in _lines_by_node(text).items():
        tables = list(_tables(lines, path))
        if not tables:
            raise Place(path, lines[0][0]).error("there is no table", allowed=_ALLOWED)
        if len(tables) > 1:
            raise Place(path, tables[1].rows[0].line).error(
                "a second table of the same node",
                allowed="one table a node: lines of others carry their name, as pdsh writes it",
            )
        hardware.append(_hardware(node, tables[0], lines, path))
    statements = [
        Statement(each.node, "accelerators", each.accelerators, "nvidia-smi", each.place)
        for each in hardware
        if each.node is not None
    ]
    notes = dict.fromkeys(note for each in hardware for note in adapter_notes(each))
    nodes = tuple(each.node for each in hardware if each.node is not None)
    return Reading(path, "topo-m", nodes, tuple(statements), tuple(hardware), tuple(notes))


# ---------------------------------------------------------------- lines and tables


def _lines_by_node(text: str) -> dict[str | None, list[tuple[int, str]]]:
    """Return lines by the label before them; labels count only where a table's head has one."""
    lines = [(number, _COLOURS.sub("", raw)) for number, raw in enumerate(text.splitlines(), 1)]
    heads = [line for _, line in lines if _devices(_split_label(line)[1])]
    with_labels = any(_split_label(line)[0] for line in heads)
    by_node: dict[str | None, list[tuple[int, str]]] = {}
    for number, line in lines:
        label, rest = _split_label(line) if with_labels else (None, line)
        if with_labels and label is None:
            continue
        by_node.setdefault(label, []).append((number, rest))
    return by_node


def _split_label(line: str) -> tuple[str | None, str]:
    line = _COLOURS.sub("", line)
    match = _LABEL.match(line)
    return (match[1], line[match.end() - 1 :]) if match else (None, line)


def _devices(line: str) -> tuple[str, ...]:
    """Return the devices that a head line names; none of any other line."""
    if line.lstrip().startswith("#"):
        return ()
    words = line.split()
    devices = []
    for word in words:
        if not _DEVICE.fullmatch(word):
            break
        devices.append(word)
    rest = words[len(devices) :]
    is_head = devices[:1] == ["GPU0"] and (not rest or rest[0] in ("CPU", "NUMA", "GPU"))
    return tuple(devices) if is_head and (rest or len(devices) > 1) else ()


def _tables(lines: _Lines, path: str) -> Iterator[_Table]:
    position = 0
    while position < len(lines):
        devices = _devices(lines[position][1])
        position += 1
        if not devices:
            continue
        rows: list[_Row] = []
        while position < len(lines) and len(rows) < len(devices):
            number, line = lines[position]
            words = line.split()
            position += 1
            if words:
                rows.append(_row(words, devices, devices[len(rows)], Place(path, number)))
        if len(rows) < len(devices):
            raise Place(path, lines[-1][0]).error(
                f"the table ends after {len(rows)} of {len(devices)} rows", allowed=_ALLOWED
            )
        yield _Table(devices, tuple(rows))


def _row(words: list[str], devices: Sequence[str], device: str, place: Place) -> _Row:
    """Return the row of `device`, which is the next one expected."""
    cells = tuple(words[1 : len(devices) + 1])
    wrong_cell = next((cell for cell in cells if not _CELL.fullmatch(cell)), None)
    reason = None
    if words[0] != device:
        reason = f"the row of {words[0]} stands where {device} is expected"
    elif wrong_cell is not None:
        reason = f"'{wrong_cell}' is no relation of two devices"
    elif len(cells) != len(devices):
        reason = f"{len(cells)} cells under {len(devices)} devices"
    if reason is not None:
        raise Place(place.path, place.line, key=device).error(reason, allowed=_ALLOWED)
    assert place.line is not None
    return _Row(device, cells, place.line)


# ---------------------------------------------------------------- one node


def _hardware(node: str | None, table: _Table, lines: _Lines, path: str) -> NodeHardware:
    _check_symmetry(table, path)
    rows, devices = table.rows, table.devices
    gpus = [i for i, device in enumerate(devices) if device.startswith("GPU")]
    links = tuple(_all_links([_links(rows[i].cells[j]) for j in gpus]) for i in gpus)
    legend = {match[1]: match[2] for _, line in lines if (match := _LEGEND.match(line))}
    adapters = tuple(
        _adapter(legend.get(devices[i], devices[i]), [rows[i].cells[j] for j in gpus])
        for i in range(len(devices))
        if i not in gpus
    )
    neighbours = {i: [i, *(j for j in gpus if _links(rows[i].cells[j]))] for i in gpus}
    return NodeHardware(
        node,
        accelerators=len(gpus),
        linked=group_sizes(neighbours),
        links=links,
        adapters=adapters,
        accelerator_types=(),
        place=Place(path, rows[0].line),
    )


def _check_symmetry(table: _Table, path: str) -> None:
    """Check that the diagonal is X, and that two devices say the same of each other."""
    for i, row in enumerate(table.rows):
        for j, cell in enumerate(row.cells):
            other = table.rows[j]
            if (cell == "X") != (i == j) or other.cells[i] != cell:
                raise Place(path, row.line, key=row.device).error(
                    f"{row.device} to {other.device} is {cell}, the other way {other.cells[i]} "
                    f"(line {other.line})",
                    value=cell,
                    allowed=_ALLOWED,
                )


def _links(cell: str) -> int:
    return int(cell[2:]) if cell.startswith("NV") else 0


def _all_links(cells: Sequence[int]) -> int:
    """Return the links of an accelerator from those to each other one.

    Through switches every pair shows all of them; without, they add up.
    """
    return sum(cells) if sum(cells) <= MOST_LINKS else max(cells)


def _adapter(name: str, cells: Sequence[str]) -> Adapter:
    """Return an adapter from its relations to the accelerators."""
    distances = [DISTANCES.get(cell, 4) for cell in cells]
    shortest = min(distances)
    nearest = tuple(i for i, distance in enumerate(distances) if distance == shortest)
    return Adapter(name, None, nearest, shortest)
