"""NCCL's topology XML: what it finds in a node (NCCL_TOPO_DUMP_FILE), or is told (NCCL_TOPO_FILE).

Profiles of virtual machines give PCIe bridges and speeds that are not real: speeds are shown, and
never taken. They often hold no <gpu> or <net>: then devices are told apart by their PCI class.

The text may come from anywhere: no document type, entity or external reference is read, and
depth, length and the number of elements are bounded.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import NoReturn
from xml.parsers import expat

from planner.clusters.cluster_facts import Adapter, Host, Reading, host_notes, listed
from planner.clusters.joined import sizes
from planner.errors import InputError
from planner.inputs.text import natural_number

MOST_DEPTH = 64
MOST_ELEMENTS = 50_000
ACCELERATOR_CLASSES = ("0x0300", "0x0302", "0x0380", "0x1200")  # display, 3D, accelerators
ADAPTER_CLASSES = ("0x0200", "0x0207", "0x0280")  # Ethernet, InfiniBand, other network
_ALLOWED = "a topology file of NCCL: <system> with <cpu>, <pci>, <gpu>, <nic>"

DEVICES = {
    "0x1db1": "v100-sxm2-16gb", "0x1db5": "v100-sxm2-32gb",
    "0x20b0": "a100-sxm-40gb", "0x20b2": "a100-sxm-80gb", "0x20b5": "a100-pcie-80gb",
    "0x20bd": "a800-sxm-80gb", "0x2324": "h800-sxm-80gb", "0x2329": "h20",
    "0x2321": "h100-nvl", "0x2330": "h100-sxm-80gb", "0x2331": "h100-pcie",
    "0x2335": "h200-sxm-141gb", "0x2342": "gh200", "0x2901": "b200-sxm-180gb", "0x2941": "gb200",
}  # fmt: skip
"""PCI device ids of vendor 0x10de (the PCI ID Repository, pci-ids.ucw.cz) → accelerator."""


@dataclass(slots=True)
class _Element:
    name: str
    given: Mapping[str, str]
    line: int
    children: list[_Element] = field(default_factory=list)

    def walk(self, inside: tuple[_Element, ...] = ()) -> Iterator[tuple[_Element, tuple]]:  # type: ignore[type-arg]
        """Every element under this one with the elements around it, outermost first."""
        for child in self.children:
            yield child, (*inside, self)
            yield from child.walk((*inside, self))


def read(text: str, path: str) -> Reading:
    """The host of the text; no name is in it.

    Raises:
        InputError: not XML, a document type or entity, nested too deep, too many elements,
            hosts that differ, or no accelerator.
    """
    root = _parsed(text, path)
    if root.name != "system":
        raise _error(f"<{root.name}> is not a topology", path, root.line)
    by_host: dict[str, list[_Element]] = {}
    for cpu in root.children:
        if cpu.name != "cpu":
            raise _error(f"<{cpu.name}> is not part of a system", path, cpu.line)
        by_host.setdefault(cpu.given.get("host_hash", ""), []).append(cpu)
    notes: dict[str, None] = {}
    hosts = [_host(cpus, path, notes) for cpus in by_host.values()]
    if not hosts or any(h.accelerators != hosts[0].accelerators for h in hosts):
        counts = ", ".join(str(host.accelerators) for host in hosts) or "no"
        raise _error(f"its hosts hold {counts} accelerators", path, root.line)
    if not hosts[0].accelerators:
        raise _error("no accelerator is in it", path, root.line)
    found = (*notes, *host_notes(hosts[0]))
    return Reading(path, "nccl-xml", hosts=(hosts[0],), notes=found)


def _parsed(text: str, path: str) -> _Element:
    parser = expat.ParserCreate()
    top = _Element("", {}, 0)
    open_: list[_Element] = [top]
    count = 0

    def start(name: str, given: dict[str, str]) -> None:
        nonlocal count
        count += 1
        if len(open_) > MOST_DEPTH or count > MOST_ELEMENTS:
            raise _error("nested too deep or too long", path, parser.CurrentLineNumber)
        made = _Element(name, given, parser.CurrentLineNumber)
        open_[-1].children.append(made)
        open_.append(made)

    def end(_: str) -> None:
        open_.pop()

    def refuse(*_: object) -> NoReturn:
        raise _error("document types and entities are not read", path, parser.CurrentLineNumber)

    parser.StartElementHandler, parser.EndElementHandler = start, end
    parser.StartDoctypeDeclHandler = parser.EntityDeclHandler = refuse
    parser.ExternalEntityRefHandler = refuse
    try:
        parser.Parse(text.encode(), True)
    except expat.ExpatError as error:
        raise _error(
            f"not readable as XML: {expat.ErrorString(error.code)}", path, error.lineno
        ) from None
    return top.children[0]


def _error(message: str, path: str, line: int | None) -> InputError:
    return InputError(message, path=path, line=line, allowed=_ALLOWED)


# --- one host -------------------------------------------------------------------------------------


def _host(cpus: list[_Element], path: str, notes: dict[str, None]) -> Host:
    gpus: list[tuple[_Element, tuple[_Element, ...]]] = []
    nics: list[tuple[_Element, tuple[_Element, ...]]] = []
    for cpu in cpus:
        for element, around in cpu.walk():
            kind = element.given.get("class", "")[:6].lower()
            if element.name != "pci":
                continue
            if kind in ACCELERATOR_CLASSES or _child(element, "gpu") is not None:
                gpus.append((element, around))
            elif kind in ADAPTER_CLASSES or _child(element, "nic") is not None:
                nics.append((element, around))
    gpus.sort(key=lambda pair: _number(_child(pair[0], "gpu"), "dev", path))
    _odd_speeds(gpus, nics, path, notes)
    nics.sort(key=lambda pair: _number(_net(pair[0]), "dev", path))
    adapters = [_adapter(nic, around, gpus, path, k) for k, (nic, around) in enumerate(nics)]
    links = _links([gpu for gpu, _ in gpus], path)
    if links is None and gpus:
        notes[f"{path}: links between accelerators are not shown; they stay unknown"] = None
    speeds = {a.bits_per_second for a in adapters if a.bits_per_second}
    if speeds:
        shown = ", ".join(f"{speed / 1e9:g}" for speed in sorted(speeds))
        notes[
            f"{path}: adapters are said to run at {shown} Gbit/s; profiles of virtual machines "
            "often say less than there is: not taken"
        ] = None
    devices = [DEVICES.get(gpu.given.get("device", "").lower(), "") for gpu, _ in gpus]
    return Host(
        None, len(gpus), None if links is None else links[1], None if links is None else links[0],
        tuple(adapters), tuple(dict.fromkeys(d for d in devices if d)), path,
        gpus[0][0].line if gpus else None,
    )  # fmt: skip


def _child(element: _Element, name: str) -> _Element | None:
    return next((child for child in element.children if child.name == name), None)


def _net(pci: _Element) -> _Element | None:
    inner = _child(pci, "nic")
    return _child(inner, "net") if inner is not None else None


def _number(element: _Element | None, key: str, path: str) -> int:
    text = element.given.get(key, "0") if element is not None else "0"
    number = natural_number(text)
    if number is None:
        line = element.line if element is not None else None
        raise _error(f"{key}='{text[:40]}' is not a number", path, line)
    return number


def _adapter(
    nic: _Element,
    around: tuple[_Element, ...],
    gpus: list[tuple[_Element, tuple[_Element, ...]]],
    path: str,
    position: int,
) -> Adapter:
    net = _net(nic)
    name = net.given.get("name") if net is not None else None
    speed = _number(net, "speed", path) * 1e6 if net is not None else 0.0
    shared = [_distance(around, other) for _, other in gpus]
    least = min(shared, default=4)
    nearest = tuple(i for i, distance in enumerate(shared) if distance == least)
    return Adapter(name or f"adapter {position}", speed or None, nearest, least if gpus else None)


def _distance(one: tuple[_Element, ...], other: tuple[_Element, ...]) -> int:
    """As `Adapter.distance`: 0 with one bridge in common next to both, else 1, 2, 4."""
    bridges = [b for b in one if b.name == "pci" and any(b is a for a in other)]
    if bridges:
        return 0 if bridges[-1] is one[-1] and bridges[-1] is other[-1] else 1
    return 2 if any(c is a for c in one for a in other) else 4


def _links(gpus: list[_Element], path: str) -> tuple[tuple[int, ...], tuple[int, ...]] | None:
    """Links of each accelerator and sizes of what they join: switches join all that reach them."""
    counts, reach = [], []
    for gpu in gpus:
        inner = _child(gpu, "gpu")
        links = [e for e in (inner.children if inner else []) if e.name in ("nvlink", "xgmi")]
        counts.append(sum(_number(link, "count", path) for link in links))
        targets = {link.given.get("target", "") for link in links}
        reach.append(targets | ({gpu.given.get("busid", "")} if links else set()))
    if not any(counts):
        return None
    return tuple(counts), sizes(dict(enumerate(reach)))


def _odd_speeds(
    gpus: list[tuple[_Element, tuple[_Element, ...]]],
    nics: list[tuple[_Element, tuple[_Element, ...]]],
    path: str,
    notes: dict[str, None],
) -> None:
    bridges = {id(b): b for _, around in (*gpus, *nics) for b in around if b.name == "pci"}
    virtual = [b for b in bridges.values() if b.given.get("busid", "").startswith("ffff:ff:")]
    if virtual:
        notes[f"{path}: {len(virtual)} PCIe bridges are made up (ffff:ff:..): a VM's profile"] = (
            None
        )
    slow = [
        f"{b.given.get('busid', '?')} ({b.given['link_speed']} x{b.given.get('link_width', '?')})"
        for b in bridges.values()
        if b.given.get("link_speed", "").startswith("2.5 ")
        or b.given.get("link_width") in ("0", "1")
    ]
    zero = [d for d, _ in (*gpus, *nics) if d.given.get("link_width") == "0"]
    if slow:
        notes[f"{path}: PCIe bridges of unlikely speed: {listed(slow, 2)}: not taken"] = None
    if zero:
        notes[f"{path}: {len(zero)} devices say a PCIe link of width 0: not taken"] = None
