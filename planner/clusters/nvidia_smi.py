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

from planner.clusters.cluster_facts import Adapter, Host, Reading, Said, host_notes
from planner.clusters.joined import sizes
from planner.errors import InputError

DISTANCES = {"PIX": 0, "PXB": 1, "PHB": 2, "NODE": 3, "SOC": 4, "SYS": 4}
MOST_LINKS = 18  # of an accelerator, of any generation so far
_COLOURS = re.compile(r"\x1b\[[0-9;]*m")
_LABEL = re.compile(r"^([A-Za-z0-9][\w.-]*):\s")
_DEVICE = re.compile(r"GPU\d+|NIC\d+|[a-z]\w*_\w+|ib\d+|eth\d+")
_CELL = re.compile(r"X|NV\d{1,3}|SYS|SOC|NODE|PHB|PXB|PIX")
_LEGEND = re.compile(r"\s*(NIC\d+)\s*:\s*(\S+)\s*$")
_ALLOWED = "what `nvidia-smi topo -m` prints"


@dataclass(frozen=True, slots=True)
class _Row:
    device: str
    cells: tuple[str, ...]
    line: int


def looks_like(text: str) -> bool:
    """Whether the text holds such a table."""
    return any(_columns(_labelled(line)[1]) for line in text.splitlines())


def read(text: str, path: str) -> Reading:
    """The hosts of the text.

    Raises:
        InputError: a row of another length than the head, rows that disagree with each other, a
            cell that is no relation, a table without accelerators.
    """
    hosts = []
    for node, lines in _by_node(text).items():
        tables = list(_tables(lines, path))
        if not tables:
            raise InputError("holds no table", path=path, line=lines[0][0], allowed=_ALLOWED)
        if len(tables) > 1:
            raise InputError(
                "a second table of the same node", path=path, line=tables[1][1][0].line,
                allowed="one table a node: lines of others carry their name, as pdsh writes it",
            )  # fmt: skip
        hosts.append(_host(node, *tables[0], lines, path))
    said = [
        Said(h.node, "accelerators", h.accelerators, "nvidia-smi", path, h.line)
        for h in hosts
        if h.node is not None
    ]
    notes = dict.fromkeys(note for host in hosts for note in host_notes(host))
    names = tuple(host.node for host in hosts if host.node is not None)
    return Reading(path, "topo-m", names, tuple(said), tuple(hosts), tuple(notes))


def _by_node(text: str) -> dict[str | None, list[tuple[int, str]]]:
    """Lines by the label before them; labels count only where a table's head carries one."""
    lines = [(n, _COLOURS.sub("", raw)) for n, raw in enumerate(text.splitlines(), 1)]
    heads = [line for _, line in lines if _columns(_labelled(line)[1])]
    with_labels = any(_labelled(line)[0] for line in heads)
    found: dict[str | None, list[tuple[int, str]]] = {}
    for number, line in lines:
        label, rest = _labelled(line) if with_labels else (None, line)
        if with_labels and label is None:
            continue
        found.setdefault(label, []).append((number, rest))
    return found


def _labelled(line: str) -> tuple[str | None, str]:
    line = _COLOURS.sub("", line)
    match = _LABEL.match(line)
    return (match[1], line[match.end() - 1 :]) if match else (None, line)


def _columns(line: str) -> tuple[str, ...]:
    """The devices of a head line, or nothing."""
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


def _tables(
    lines: Sequence[tuple[int, str]], path: str
) -> Iterator[tuple[tuple[str, ...], list[_Row]]]:
    position = 0
    while position < len(lines):
        devices = _columns(lines[position][1])
        position += 1
        if not devices:
            continue
        rows: list[_Row] = []
        while position < len(lines) and len(rows) < len(devices):
            number, line = lines[position]
            words = line.split()
            position += 1
            if not words:
                continue
            rows.append(_row(words, devices, devices[len(rows)], path, number))
        if len(rows) < len(devices):
            raise InputError(
                f"the table ends after {len(rows)} of {len(devices)} rows", path=path,
                line=lines[-1][0], allowed=_ALLOWED,
            )  # fmt: skip
        yield devices, rows


def _row(words: list[str], devices: Sequence[str], device: str, path: str, line: int) -> _Row:
    cells = tuple(words[1 : len(devices) + 1])
    wrong = next((cell for cell in cells if not _CELL.fullmatch(cell)), None)
    if words[0] != device or len(cells) != len(devices) or wrong is not None:
        reason = (
            f"the row of {words[0]} stands where {device} is expected"
            if words[0] != device
            else f"'{wrong}' is no relation of two devices"
            if wrong is not None
            else f"{len(cells)} cells under {len(devices)} devices"
        )
        raise InputError(reason, path=path, line=line, key=device, allowed=_ALLOWED)
    return _Row(device, cells, line)


def _host(
    node: str | None,
    devices: tuple[str, ...],
    rows: list[_Row],
    lines: Sequence[tuple[int, str]],
    path: str,
) -> Host:
    for i, row in enumerate(rows):
        for j, cell in enumerate(row.cells):
            if (cell == "X") != (i == j) or rows[j].cells[i] != cell:
                raise InputError(
                    f"{row.device} to {devices[j]} is {cell}, the other way "
                    f"{rows[j].cells[i]} (line {rows[j].line})",
                    path=path, line=row.line, key=row.device, value=cell, allowed=_ALLOWED,
                )  # fmt: skip
    gpus = [i for i, device in enumerate(devices) if device.startswith("GPU")]
    links = tuple(_all_links([_links(rows[i].cells[j]) for j in gpus]) for i in gpus)
    legend = {m[1]: m[2] for _, line in lines if (m := _LEGEND.match(line))}
    adapters = tuple(
        _adapter(legend.get(devices[i], devices[i]), [rows[i].cells[j] for j in gpus])
        for i in range(len(devices))
        if i not in gpus
    )
    linked = {i: [i, *(j for j in gpus if _links(rows[i].cells[j]))] for i in gpus}
    return Host(node, len(gpus), sizes(linked), links, adapters, (), path, rows[0].line)


def _links(cell: str) -> int:
    return int(cell[2:]) if cell.startswith("NV") else 0


def _all_links(cells: Sequence[int]) -> int:
    """Links of an accelerator: through switches every pair shows all of them, else they add up."""
    return sum(cells) if sum(cells) <= MOST_LINKS else max(cells)


def _adapter(name: str, cells: Sequence[str]) -> Adapter:
    distances = [DISTANCES.get(cell, 4) for cell in cells]
    least = min(distances)
    return Adapter(name, None, tuple(i for i, d in enumerate(distances) if d == least), least)
