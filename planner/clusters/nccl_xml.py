"""NCCL's topology XML: what it finds in a node (NCCL_TOPO_DUMP_FILE), or is told (NCCL_TOPO_FILE).

Profiles of virtual machines give PCIe bridges and speeds that are not real: speeds are shown, and
never taken. They often have no <gpu> or <net>: then devices are told apart by their PCI class.

The text may come from anywhere: no document type, entity or external reference is read, and
depth, length and the number of elements are bounded.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NoReturn
from xml.parsers import expat

from planner.clusters.node_hardware import adapter_notes
from planner.clusters.reading import Adapter, NodeHardware, Reading, group_sizes, in_words
from planner.errors import InputError, Place
from planner.inputs.text import natural_number

MAX_DEPTH = 64
MAX_ELEMENTS = 50_000

ACCELERATOR_CLASSES = ("0x0300", "0x0302", "0x0380", "0x1200")  # display, 3D, accelerators
ADAPTER_CLASSES = ("0x0200", "0x0207", "0x0280")  # Ethernet, InfiniBand, other network

ACCELERATOR_TYPES: Mapping[str, str] = {
    "0x1db1": "v100-sxm2-16gb", "0x1db5": "v100-sxm2-32gb",
    "0x20b0": "a100-sxm-40gb", "0x20b2": "a100-sxm-80gb", "0x20b5": "a100-pcie-80gb",
    "0x20bd": "a800-sxm-80gb", "0x2324": "h800-sxm-80gb", "0x2329": "h20",
    "0x2321": "h100-nvl", "0x2330": "h100-sxm-80gb", "0x2331": "h100-pcie",
    "0x2335": "h200-sxm-141gb", "0x2342": "gh200", "0x2901": "b200-sxm-180gb", "0x2941": "gb200",
}  # fmt: skip
"""PCI device ids of vendor 0x10de (the PCI ID Repository, pci-ids.ucw.cz) → accelerator type."""


@dataclass(slots=True)
class _Element:
    name: str
    attributes: Mapping[str, str]
    line: int
    children: list[_Element] = field(default_factory=list)

    def child(self, name: str) -> _Element | None:
        return next((child for child in self.children if child.name == name), None)

    def walk(self, around: tuple[_Element, ...] = ()) -> Iterator[_Device]:
        """Yield every element under this one with the elements around it, outermost first."""
        for child in self.children:
            yield _Device(child, (*around, self))
            yield from child.walk((*around, self))


@dataclass(frozen=True, slots=True)
class _Device:
    """An element, such as <pci>, and the elements around it, outermost first."""

    element: _Element
    around: tuple[_Element, ...]

    @property
    def bridges(self) -> list[_Element]:
        """The PCIe bridges on its way to the processor, the nearest one last."""
        return [element for element in self.around if element.name == "pci"]


def read(text: str, path: str) -> Reading:
    """Return the hardware of the node in the text, which does not say its name.

    Raises:
        InputError: not XML, a document type or entity, nested too deep, too many elements,
            hosts that differ, or no accelerator.
    """
    root = _parsed(text, path)
    if root.name != "system":
        raise _error(f"<{root.name}> is not a topology", path, root.line)
    processors: dict[str, list[_Element]] = {}  # host → its <cpu>s
    for cpu in root.children:
        if cpu.name != "cpu":
            raise _error(f"<{cpu.name}> is not part of a system", path, cpu.line)
        processors.setdefault(cpu.attributes.get("host_hash", ""), []).append(cpu)
    notes: dict[str, None] = {}  # each once, in order
    hosts = [_hardware(cpus, path, notes) for cpus in processors.values()]
    if not hosts or any(host.accelerators != hosts[0].accelerators for host in hosts):
        counts = ", ".join(str(host.accelerators) for host in hosts) or "no"
        raise _error(f"its hosts have {counts} accelerators", path, root.line)
    if not hosts[0].accelerators:
        raise _error("no accelerator is in it", path, root.line)
    return Reading(path, "nccl-xml", hardware=(hosts[0],), notes=(*notes, *adapter_notes(hosts[0])))


def _parsed(text: str, path: str) -> _Element:
    parser = expat.ParserCreate()
    top = _Element("", {}, 0)
    open_elements: list[_Element] = [top]
    count = 0

    def start(name: str, attributes: dict[str, str]) -> None:
        nonlocal count
        count += 1
        if len(open_elements) > MAX_DEPTH or count > MAX_ELEMENTS:
            raise _error("nested too deep or too long", path, parser.CurrentLineNumber)
        element = _Element(name, attributes, parser.CurrentLineNumber)
        open_elements[-1].children.append(element)
        open_elements.append(element)

    def end(_: str) -> None:
        open_elements.pop()

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
    allowed = "a topology file of NCCL: <system> with <cpu>, <pci>, <gpu>, <nic>"
    return Place(path, line).error(message, allowed=allowed)


def _number(element: _Element | None, attribute: str, path: str) -> int:
    """Return the number of an attribute; 0 where there is no element or attribute."""
    text = element.attributes.get(attribute, "0") if element is not None else "0"
    number = natural_number(text)
    if number is None:
        line = element.line if element is not None else None
        raise _error(f"{attribute}='{text[:40]}' is not a number", path, line)
    return number


# ---------------------------------------------------------------- one host


def _hardware(cpus: Sequence[_Element], path: str, notes: dict[str, None]) -> NodeHardware:
    gpus, nics = _devices(cpus, path)
    adapters = tuple(_adapter(nic, gpus, path, position) for position, nic in enumerate(nics))
    links = _links([gpu.element for gpu in gpus], path)
    types = [
        ACCELERATOR_TYPES.get(gpu.element.attributes.get("device", "").lower()) for gpu in gpus
    ]
    notes |= dict.fromkeys(_bridge_notes(gpus, nics, path))
    if links is None and gpus:
        notes[f"{path}: links between accelerators are not shown; they stay unknown"] = None
    notes |= dict.fromkeys(_rate_notes(adapters, path))
    return NodeHardware(
        None,
        accelerators=len(gpus),
        linked=None if links is None else group_sizes(_link_targets([g.element for g in gpus])),
        links=links,
        adapters=adapters,
        accelerator_types=tuple(dict.fromkeys(name for name in types if name is not None)),
        place=Place(path, gpus[0].element.line if gpus else None),
    )


def _devices(cpus: Sequence[_Element], path: str) -> tuple[list[_Device], list[_Device]]:
    """Return the accelerators and the adapters of a host, each in the order of their numbers."""
    gpus: list[_Device] = []
    nics: list[_Device] = []
    for cpu in cpus:
        for device in cpu.walk():
            element = device.element
            pci_class = element.attributes.get("class", "")[:6].lower()
            if element.name != "pci":
                continue
            if pci_class in ACCELERATOR_CLASSES or element.child("gpu") is not None:
                gpus.append(device)
            elif pci_class in ADAPTER_CLASSES or element.child("nic") is not None:
                nics.append(device)
    gpus.sort(key=lambda gpu: _number(gpu.element.child("gpu"), "dev", path))
    nics.sort(key=lambda nic: _number(_net(nic.element), "dev", path))
    return gpus, nics


def _net(pci: _Element) -> _Element | None:
    nic = pci.child("nic")
    return nic.child("net") if nic is not None else None


def _adapter(nic: _Device, gpus: Sequence[_Device], path: str, position: int) -> Adapter:
    net = _net(nic.element)
    name = net.attributes.get("name") if net is not None else None
    megabits_per_second = _number(net, "speed", path)
    distances = [_distance(nic, gpu) for gpu in gpus]
    shortest = min(distances, default=None)
    nearest = tuple(i for i, distance in enumerate(distances) if distance == shortest)
    return Adapter(
        name or f"adapter {position}", megabits_per_second * 1e6 or None, nearest, shortest
    )


def _distance(one: _Device, other: _Device) -> int:
    """Return the distance of two devices, as of `Adapter.distance`."""
    bridges = [bridge for bridge in one.bridges if any(bridge is a for a in other.around)]
    if bridges:
        # One PCIe switch is one <pci> around both of them, with none in between.
        return 0 if bridges[-1] is one.around[-1] and bridges[-1] is other.around[-1] else 1
    return 2 if any(a is b for a in other.around for b in one.around) else 4


def _link_elements(gpu: _Element) -> list[_Element]:
    inner = gpu.child("gpu")
    return [e for e in (inner.children if inner else []) if e.name in ("nvlink", "xgmi")]


def _links(gpus: Sequence[_Element], path: str) -> tuple[int, ...] | None:
    """Return the links of each accelerator; None where none are shown."""
    counts = tuple(
        sum(_number(link, "count", path) for link in _link_elements(gpu)) for gpu in gpus
    )
    return counts if any(counts) else None


def _link_targets(gpus: Sequence[_Element]) -> dict[int, set[str]]:
    """Return, for each accelerator, what its links reach, and itself: switches or accelerators."""
    targets: dict[int, set[str]] = {}
    for position, gpu in enumerate(gpus):
        links = _link_elements(gpu)
        targets[position] = {link.attributes.get("target", "") for link in links}
        if links:
            targets[position].add(gpu.attributes.get("busid", ""))
    return targets


# ---------------------------------------------------------------- what is not taken


def _rate_notes(adapters: Sequence[Adapter], path: str) -> list[str]:
    rates = {adapter.bits_per_second for adapter in adapters if adapter.bits_per_second}
    if not rates:
        return []
    shown = ", ".join(f"{rate / 1e9:g}" for rate in sorted(rates))
    return [
        f"{path}: adapters are said to run at {shown} Gbit/s; profiles of virtual machines "
        "often say less than there is: not taken"
    ]


def _bridge_notes(gpus: Sequence[_Device], nics: Sequence[_Device], path: str) -> list[str]:
    """Return what is made up or unlikely about the PCIe bridges around devices."""
    bridges = {id(bridge): bridge for device in (*gpus, *nics) for bridge in device.bridges}
    attributes = [bridge.attributes for bridge in bridges.values()]
    notes = []
    made_up = sum(given.get("busid", "").startswith("ffff:ff:") for given in attributes)
    if made_up:
        notes.append(f"{path}: {made_up} PCIe bridges are made up (ffff:ff:..): a VM's profile")
    slow = [
        f"{given.get('busid', '?')} ({given.get('link_speed', 'no speed')} "
        f"x{given.get('link_width', '?')})"
        for given in attributes
        if given.get("link_speed", "").startswith("2.5 ") or given.get("link_width") in ("0", "1")
    ]
    if slow:
        notes.append(f"{path}: PCIe bridges of unlikely speed: {in_words(slow, 2)}: not taken")
    no_width = sum(device.element.attributes.get("link_width") == "0" for device in (*gpus, *nics))
    if no_width:
        notes.append(f"{path}: {no_width} devices say a PCIe link of width 0: not taken")
    return notes
