"""A job to be launched, its rank order in a target's terms, and why a target cannot express it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from planner.cost.stage_split import chunk_layers
from planner.errors import ExportError
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
    step_seconds and mfu are what is predicted; `notes` go to the head of every file.
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
        """Whether the axis' traffic is planned to overlap computation."""
        return axis in self.layout.overlap.split("+")

    def chunk_layers(self) -> list[int] | None:
        """Layers of every chunk in model order; None where stage_layers leaves that open."""
        model, software = self.scenario.model, self.scenario.software
        return chunk_layers(model.num_layers, self.layout, software.reserved_layers(model))

    def value(self, key: str) -> Any:
        """What a dotted key of a target's table stands for; None where the job has no such key."""
        owner: Any = self.scenario if "." in key else self.layout
        for name in key.split("."):
            owner = getattr(owner, name, None)
        return owner

    def settings(self, target: Target, *keys: str) -> Settings:
        """Settings that mean the values of these keys; keys that the job lacks are left out."""
        settings: Settings = {}
        for key in keys:
            value = self.value(key)
            if value is not None:
                settings |= target.settings(key, value)
        return settings


# ---------------------------------------------------------------- what is not expressible


@dataclass(frozen=True, slots=True)
class Refusal:
    """Something that a framework cannot run or be told, beyond what its table leaves out.

    sentence: why not, and what is expressible; its `{layout.…}`, `{model.…}`, `{training.…}`,
    `{stage_layers}` and `{biases}` are the job's.
    """

    id: str
    sentence: str
    source: str
    applies: Callable[[Job], bool]

    def reason(self, job: Job) -> str:
        """The sentence about a job."""
        layout, model = job.layout, job.scenario.model
        return self.sentence.format(
            layout=layout,
            model=model,
            training=job.scenario.training,
            stage_layers="+".join(map(str, layout.stage_layers or ())),
            biases=", ".join(model.biases),
        )


NOT_WRITTEN = "the planner does not write it"
"""Source of refusals that are no limit of the framework."""


def reasons_of(refusals: Iterable[Refusal], job: Job) -> list[str]:
    """The sentences of those refusals that apply to a job."""
    return [refusal.reason(job) for refusal in refusals if refusal.applies(job)]


def require_expressible(reasons: Sequence[str]) -> None:
    """Refuse a job for these reasons.

    Raises:
        ExportError: there are any.
    """
    if reasons:
        raise ExportError(*dict.fromkeys(reasons))


def refusals(job: Job, target: Target, keys: Iterable[str]) -> list[str]:
    """Why a target cannot express a job, as far as its table tells: one sentence each."""
    reasons = []
    software = job.scenario.software
    if target.software and not target.takes(software):
        reasons.append(
            f"the plan is scored for software {software.name}; {target.name} is written for plans "
            f"of {' or '.join(target.software)}"
        )
    if job.scenario.training.mean_document_length is not None:
        reasons.append(
            "packed documents are not exported: how a framework masks them lies with its data; "
            "expressible: training without mean_document_length"
        )
    for key, allowed in target.limits.items():
        value = job.value(key)
        if value not in allowed:
            reasons.append(
                f"{key} {value} is not expressible in {target.version}; expressible: "
                f"{', '.join(map(str, allowed))}"
            )
    for key in keys:
        value = job.value(key)
        # a key without a value, such as one of experts in a dense model, need not be expressed
        if value is not None and not target.expresses(key, value):
            reasons.append(
                f"{key.rpartition('.')[2]} {text_of(value)} is not expressible in "
                f"{target.version}; expressible: {_expressible(key, target)}"
            )
    return reasons


def _expressible(key: str, target: Target) -> str:
    """Values of a key that a target has a word for; without any, the default needs none."""
    values = target.values(key)
    if not values and key in KEYS and not KEYS[key].derived:
        values = (text_of(KEYS[key].default),)
    return ", ".join(values) or "none"


def coded_keys(job: Job) -> tuple[str, ...]:
    """The choices of a layout that a target must have a word for, and the precision."""
    values = {name: getattr(job.layout, name) for name in KEYS}
    return (*(name for name, key in KEYS.items() if key.expressed(values)), "training.precision")


# ---------------------------------------------------------------- rank orders


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
    return matching_order(order, target.orders)


def matching_order(order: Order, orders: Mapping[str, Sequence[str]]) -> str | None:
    """The name of the first of several rank orders that numbers the ranks as planned, or None."""
    # atoms of degree 1 are left out on both sides: where they stand changes no rank
    planned = order_as_atoms(order)
    for name, axes in orders.items():
        atoms = order_atoms(axes, EXPERT_GRID)
        if planned == [atom for atom in atoms if atom in planned]:
            return name
    return None


def order_as_atoms(order: Order) -> list[str]:
    """Atoms of an order, innermost first, without degrees of 1; adjoining pieces are one."""
    atoms: list[str] = []
    for atom, factor in order:
        if factor > 1 and (not atoms or atoms[-1] != atom):
            atoms.append(atom)
    return atoms
