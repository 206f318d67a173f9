"""What ships, one line each."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from rich.console import RenderableType
from rich.text import Text

from planner.inputs.files import FileKind, names
from planner.inputs.values import load
from planner.problem.blocks import LETTERS
from planner.problem.hardware import Accelerator
from planner.problem.inventory import Inventory
from planner.problem.model import Model
from planner.problem.scenario import DEFAULT_SOFTWARE, Scenario, load_scenario
from planner.problem.software import Software
from planner.problem.sweep import SweepFile
from planner.problem.topology import Topology
from planner.report.text.numbers import in_words
from planner.report.text.pieces import STRONG, Phrases, printable, table
from planner.report.text.plan.head import sequences

Facts = dict[str, str]


def facts_of(kind: FileKind) -> list[Facts]:
    """Name and facts of every shipped file of a kind."""
    return [{"name": name} | _facts(kind, name) for name in names(kind)]


def _facts(kind: FileKind, name: str) -> Facts:
    if kind == "topology":
        return _topology(load(name, kind, Topology))
    if kind == "inventory":
        return _inventory(load(name, kind, Inventory))
    if kind == "model":
        return _model(load(name, kind, Model))
    if kind == "scenario":
        return _scenario(load_scenario(name))
    if kind == "sweep":
        return _sweep(load(name, kind, SweepFile))
    if kind == "software":
        return {"description": load(name, kind, Software).description}
    return _accelerator(load(name, "accelerator", Accelerator))


def _topology(topology: Topology) -> Facts:
    tiers = (f"{t.name} {t.width} × {t.bytes_per_second / 1e9:.3g}" for t in topology.tiers)
    return {
        "accelerator": topology.accelerator.name,
        "number": f"{topology.num_accelerators:,}",
        "tiers: width × GB/s": ", ".join(tiers),
    }


def _inventory(inventory: Inventory) -> Facts:
    usable = sum(node.state == "usable" for node in inventory.nodes)
    return {
        "nodes": f"{len(inventory.nodes):,}, {usable:,} usable",
        "tiers": ", ".join(inventory.tiers),
        "description": inventory.description,
    }


def _model(model: Model) -> Facts:
    return {
        "layers": _layers(model),
        "hidden": str(model.hidden_size),
        "heads": str(model.num_attention_heads),
        "experts": f"{model.moe.num_experts}, {model.moe.top_k} chosen" if model.moe else "·",
        "parameters": in_words(model.num_parameters),
    }


def _layers(model: Model) -> str:
    """How many; for a pattern also how many of each of its letters."""
    if model.layer_pattern is None:
        return str(model.num_layers)
    pattern = Counter(model.layer_pattern)
    letters = (f"{pattern[letter]} {letter}" for letter in LETTERS if pattern[letter])
    return f"{model.num_layers}: " + ", ".join(letters)


def _scenario(scenario: Scenario) -> Facts:
    training, software = scenario.training, scenario.software.name
    named_software = "" if software == DEFAULT_SOFTWARE else f", {software}"
    return {
        "accelerators": f"{scenario.num_accelerators:,} {scenario.topology.name}",
        "batch": f"{sequences(training)}×{training.sequence_length:,}",
        "job": f"{training.precision}{named_software}",
    }


def _sweep(sweep: SweepFile) -> Facts:
    axes = (
        f"{axis} × {len(values)}" if isinstance(values, tuple) else f"{axis}: {values.files}"
        for axis, values in sweep.axes.items()
    )
    return {"axes": "; ".join(axes), "plans": f"best {sweep.top_k}"}


def _accelerator(accelerator: Accelerator) -> Facts:
    peaks = dict(accelerator.peak_flops)
    if peaks.get("bf16") == peaks.get("fp16"):
        del peaks["fp16"]
    return {
        "dense TFLOP/s": ", ".join(f"{name} {peak / 1e12:,.5g}" for name, peak in peaks.items()),
        "HBM GB": f"{accelerator.hbm_bytes / 1e9:.1f}",
        "TB/s": f"{accelerator.hbm_bytes_per_second / 1e12:.3g}",
    }


def listing_report(facts: Sequence[Facts]) -> RenderableType:
    """A table of names and facts; lists break between their items."""
    heads = list(facts[0]) if facts else []
    rows = [[_cell(head, item[head]) for head in heads] for item in facts]
    return table([(head, _column_kind(head, facts)) for head in heads], rows)


def _column_kind(head: str, facts: Sequence[Facts]) -> str:
    if head == "name":
        return "l"
    digits = all(item[head].replace(",", "").replace(".", "").isdigit() for item in facts)
    return "r" if digits or head == "batch" else "w"


SENTENCES = ("description", "writes")
"""Columns of running text, which breaks between words."""


def _cell(head: str, text: str) -> RenderableType:
    if head == "name":
        return Text(printable(text), STRONG)
    if head in SENTENCES or ", " not in text:
        return printable(text)
    return Phrases(printable(text).split(", "))
