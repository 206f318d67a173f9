"""A job to be launched: its parts at hand, what a target lacks for it, how a file begins."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from planner import __version__
from planner.frameworks.target import Settings, Target, text_of
from planner.layouts.grids import EXPERT_GRID
from planner.layouts.keys import KEYS
from planner.layouts.layout import Layout
from planner.layouts.rank_orders import Order, order_atoms
from planner.problem.scenario import Scenario


@dataclass(frozen=True, slots=True)
class Job:
    """A scenario's layout and where its ranks live, ready to be written as launch files.

    fill: accelerators used of each tier's domain, by tier name. node_runs: (node, ranks in a row)
    in the order of places, where nodes are named. document: the plan file this is of.
    step_seconds and mfu are what is predicted; `notes` are said in the head of every file.
    """

    scenario: Scenario
    layout: Layout
    rank_order: Order
    fill: Mapping[str, int] = field(default_factory=dict)
    node_runs: tuple[tuple[str, int], ...] | None = None
    inputs_sha256: str = ""
    step_seconds: float | None = None
    mfu: float | None = None
    document: Mapping[str, Any] = field(default_factory=dict)
    notes: tuple[str, ...] = ()

    def overlaps(self, axis: str) -> bool:
        """Whether the axis' traffic is planned to run beside computation."""
        return axis in self.layout.overlap.split("+")

    def value(self, key: str) -> Any:
        """What a dotted key of a target's table stands for; None where the job has no such part."""
        owner: Any = self.scenario if "." in key else self.layout
        for part in key.split("."):
            owner = getattr(owner, part, None)
        return owner

    def settings(self, target: Target, *keys: str) -> Settings:
        """Settings that say these keys; those that the job has no value of are left out."""
        found: Settings = {}
        for key in keys:
            value = self.value(key)
            if value is not None:
                found |= target.settings(key, value)
        return found


def refusals(job: Job, target: Target, keys: Iterable[str]) -> list[str]:
    """Why a target cannot express a job, as far as its tables say: one sentence each."""
    found = []
    software = job.scenario.software
    if target.software and not {software.name, software.family} & set(target.software):
        found.append(
            f"the plan is scored for software {software.name}; {target.name} is written for plans "
            f"of {' or '.join(target.software)}"
        )
    if job.scenario.training.mean_document_length is not None:
        found.append(
            "packed documents are not exported: how a framework masks them lies with its data; "
            "expressible: training without mean_document_length"
        )
    for key, allowed in target.limits.items():
        value = job.value(key)
        if value not in allowed:
            found.append(
                f"{key} {value} is not expressible in {target.version}; expressible: "
                f"{', '.join(map(str, allowed))}"
            )
    for key in keys:
        value = job.value(key)
        if value is not None and not target.says(key, value):
            found.append(
                f"{key.rpartition('.')[2]} {text_of(value)} is not expressible in "
                f"{target.version}; expressible: {', '.join(target.values(key)) or 'none'}"
            )
    return found


def coded_keys(job: Job) -> tuple[str, ...]:
    """The choices of a layout that a target must have a word for, and the precision."""
    values = {name: getattr(job.layout, name) for name in KEYS}
    return (*(name for name, key in KEYS.items() if key.expressed(values)), "training.precision")


def order_refusals(job: Job, target: Target) -> list[str]:
    """Why a target cannot place ranks as planned, if so."""
    if order_name(job.rank_order, target) is not None:
        return []
    orders = " and ".join("-".join(order_atoms(axes)) for axes in target.orders.values())
    return [
        f"{target.name} cannot place ranks in the order {'-'.join(order_as_atoms(job.rank_order))} "
        f"(innermost first); expressible: {orders}. Plan with --set search.orders=framework, or "
        "take the target slurm, which places any order"
    ]


def order_name(order: Order, target: Target) -> str | None:
    """The target's rank order that numbers the ranks as planned, or None."""
    planned = order_as_atoms(order)
    for name, axes in target.orders.items():
        atoms = order_atoms(axes, EXPERT_GRID)
        if planned == [atom for atom in atoms if atom in planned]:
            return name
    return None


def order_as_atoms(order: Order) -> list[str]:
    """Atoms of an order, innermost first, without degrees of 1; adjoining pieces are one."""
    found: list[str] = []
    for atom, factor in order:
        if factor > 1 and (not found or found[-1] != atom):
            found.append(atom)
    return found


def stamp(job: Job, target: Target) -> list[str]:
    """The lines every file begins with: what it is, of what, and what is predicted."""
    scenario = job.scenario
    accelerator, topology = scenario.topology.accelerator.name, scenario.topology.name
    predicted = "" if job.step_seconds is None else f"predicted step {job.step_seconds:.4g} s"
    if job.mfu is not None:
        predicted += f", MFU {job.mfu:.1%}"
    return [
        f"{target.description} ({target.version}), written by planner {__version__}.",
        f"inputs_sha256: {one_line(job.inputs_sha256)}",
        f"{one_line(scenario.model.name)} on {scenario.num_accelerators} x {one_line(accelerator)} "
        f"of {one_line(topology)}",
        f"layout {job.layout.label()}",
        *([predicted] if predicted else []),
        *(one_line(note) for note in job.notes),
    ]


def commented(lines: Sequence[str]) -> list[str]:
    """Lines as comments of a shell script, YAML or TOML."""
    return [f"# {line}" for line in lines]


def one_line(text: str) -> str:
    """Text of the user's files that cannot leave its line."""
    return "".join(c if c.isprintable() else " " for c in text)
