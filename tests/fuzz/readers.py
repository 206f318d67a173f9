"""What is fuzzed: one line a reader. A new reader is a new line."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from planner import api
from planner.advise import script
from planner.advise.measured import read_measured
from planner.cli.plans import read_layouts
from planner.clusters.import_topology import import_topology
from planner.cost.context import CostContext
from planner.cost.prediction_intervals import PredictionErrors
from planner.evidence.collective_logs import read_sweeps
from planner.evidence.kernel_measurements import read_latencies
from planner.evidence.published_runs import read_runs
from planner.frameworks.read import read_launch_script
from planner.frameworks.target import Target
from planner.inputs.files import data_root, resolve
from planner.inputs.values import Strict, from_document, load
from planner.problem.hardware import Accelerator
from planner.problem.inventory import Inventory
from planner.problem.model import Model
from planner.problem.scenario import Scenario, load_scenario
from planner.problem.software import Software
from planner.problem.topology import Fabric, Topology
from planner.search.space.given import given_layout, parse_layout
from planner.sweep.points import read_points

SAMPLES = Path(__file__).parent / "samples"
DATA = Path(__file__).parent.parent / "data"


@dataclass(frozen=True, eq=False)
class Reader:
    """A callable that reads a file, files that it reads, and what else can be asked of it.

    written, again: value → what it writes itself as, document → value; where it writes itself, the
    samples hold one YAML or JSON document each, of which every key and number counts but `aside`.
    """

    name: str
    read: Callable[[Path], Any]
    samples: Sequence[Path]
    written: Callable[[Any], Any] | None = None
    again: Callable[[Any], Any] | None = None
    aside: tuple[str, ...] = ()


def _value(name: str, kind: Any, model_cls: type[Strict], *samples: Path | str) -> Reader:
    return Reader(
        name, lambda path: load(path, kind, model_cls),
        [data_root() / sample for sample in samples],
        lambda value: value.model_dump(mode="json", by_alias=True),
        lambda document: from_document(document, "again", model_cls),
    )  # fmt: skip


@cache
def _small() -> Scenario:
    return load_scenario(
        "llama3-8b-h100x8", {"topology": "dgx-h100", "training.global_batch_size": "128"}
    )


def _text(path: Path) -> str:
    return path.read_bytes().decode("utf-8-sig", "replace")


def _script(path: Path) -> Any:
    return script.judged(read_launch_script(_text(path), path.name), _small())


def _layout(path: Path) -> Any:
    return given_layout(CostContext.of(_small()), parse_layout(_text(path)))


def _setting(path: Path) -> Any:
    key, _, value = _text(path).partition("=")
    return load_scenario("llama3-8b-h100x8", {key.strip(): value.strip()})


READERS = (
    _value("scenario", "scenario", Scenario, "scenarios/llama3-70b-h100x1024.yaml",
           "scenarios/mixtral-8x7b-h100x64.yaml"),
    _value("topology", "topology", Topology, "topologies/dgx-h100.yaml",
           "topologies/gb200-nvl72.yaml"),
    _value("accelerator", "accelerator", Accelerator, "topologies/accelerators/h100-sxm-80gb.yaml"),
    _value("fabric", "fabric", Fabric, "topologies/fabrics/infiniband-ndr.yaml"),
    _value("model", "model", Model, "models/llama3-8b.yaml", "models/deepseek-v3.yaml",
           "models/nemotron-3-nano.yaml"),
    _value("software", "software", Software, "software/megatron-core.yaml",
           "software/torchtitan.yaml"),
    _value("target", "target", Target, resolve("target", "megatron")),
    _value("errors", "scenario", PredictionErrors, "scenarios/published/prediction_intervals.yaml"),
    _value("inventory", "topology", Inventory, SAMPLES / "inventory.yaml"),
    Reader("plan", api.read_plan, [SAMPLES / "plan.json"], api.Plan.to_document,
           api.Plan.from_document, aside=("planner_version",)),
    Reader("sweep", read_points, [SAMPLES / "sweep.yaml"]),
    Reader("config.json", api.import_model, sorted((DATA / "huggingface").iterdir())),
    Reader("cluster", lambda path: import_topology([path], "dgx-h100", 8),
           sorted((DATA / "topology").iterdir())),
    Reader("runs", read_runs, [SAMPLES / "runs.jsonl"]),
    Reader("sweeps", lambda path: read_sweeps([path]),
           [*sorted((DATA / "nccl").iterdir()), SAMPLES / "sweeps.jsonl"]),
    Reader("latencies", lambda path: read_latencies([path]), [SAMPLES / "latencies.csv"]),
    Reader("script", _script, sorted((DATA / "launch").iterdir())),
    Reader("layouts", read_layouts, [SAMPLES / "layouts.csv"]),
    Reader("--layout", _layout, [SAMPLES / "layout.txt"]),
    Reader("--set", _setting, [SAMPLES / "set.txt", SAMPLES / "set-list.txt"]),
    Reader("--measured", lambda path: read_measured(_text(path)), [SAMPLES / "measured.txt"]),
)  # fmt: skip
