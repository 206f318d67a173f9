"""Everything the command line does, as one call each.

scenario = planner.load_scenario("llama3-70b-h100x1024")
best = planner.plan(scenario)
other = planner.evaluate(scenario, "tp=8,pp=4,vp=5,mbs=1")
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from planner.advise import diagnose as diagnosing
from planner.advise import explain as explaining
from planner.advise.advice import Diagnosis, Explanation
from planner.advise.check import check
from planner.advise.checked import Check
from planner.advise.expressible import export as export_plan
from planner.advise.measured import read_measured
from planner.advise.outlook import WhatIf
from planner.advise.roofline import generations, load_subject, roofline
from planner.advise.roofs import Roofline
from planner.advise.scaling import scaling_curve
from planner.advise.shrink import shrink
from planner.advise.shrunk import Shrunk
from planner.advise.timeline import timeline
from planner.advise.what_if import what_if
from planner.advise.why_not import why_not
from planner.advise.why_not_answer import WhyNot
from planner.clusters.import_topology import Imported, import_topology, imported_files
from planner.cost.context import CostContext
from planner.errors import IllegalLayoutError, InputError
from planner.evidence.collective_logs import PUBLISHED
from planner.evidence.fabric_fit import Calibration
from planner.evidence.fits.accuracy import Accuracy
from planner.evidence.fits.intervals import ErrorCalibration
from planner.evidence.fits.left_out import LeaveOneOut
from planner.evidence.fits.software import RunsCalibration
from planner.evidence.fits.software_file import profile_yaml
from planner.evidence.kernel_fit import KernelCalibration
from planner.evidence.measuring import (
    accuracy,
    calibrate_collectives,
    calibrate_errors,
    calibrate_kernels,
    calibrate_runs,
    validate_collectives,
    validate_kernels,
    validate_left_out,
)
from planner.evidence.own_runs import calibrate_own_runs, is_own
from planner.evidence.own_runs_fit import OwnCalibration
from planner.evidence.published_runs import PUBLISHED_RUNS
from planner.evidence.validate_collectives import CollectivesValidation
from planner.evidence.validate_kernels import KernelsValidation
from planner.evidence.validate_runs import Validation, validate_runs
from planner.frameworks.export import EXPORTS
from planner.frameworks.import_model import import_model
from planner.frameworks.imported_model import ImportedModel
from planner.frameworks.target import Target, target
from planner.inputs import files
from planner.inputs.files import Kind
from planner.inputs.text import file_text, json_value
from planner.layouts.grids import DENSE_GRID, EXPERT_GRID
from planner.layouts.rank_orders import order_degrees
from planner.planning.agreement import require_agreement
from planner.planning.plan import Plan
from planner.planning.seating import require_nodes
from planner.planning.solve import chosen_scenario, evaluate, evaluate_many, plan
from planner.problem.inventory import Inventory
from planner.problem.model import Model
from planner.problem.scenario import Scenario, inputs_sha256, load_scenario, scenario_from_document
from planner.problem.sweep import SweepFile
from planner.problem.topology import Topology
from planner.report.display import show_as_reports
from planner.report.page.report import Report, report
from planner.search.protocol import Progress, Watch, unwatched
from planner.search.space.given import given_layout
from planner.sweep import Sweep, read_sweep, run_sweep

PLAN_FILE = "what `planner plan --json` prints"
SCHEMAS: Mapping[str, type[files.Strict]] = {
    "scenario": Scenario,
    "topology": Topology,
    "inventory": Inventory,
    "model": Model,
    "sweep": SweepFile,
}


def read_plan(path: str | Path) -> Plan:
    """The plan of a plan file, or of the folder that holds its plan.json.

    Raises:
        InputError: no such file, not a plan, or edited so that its parts disagree.
    """
    file = Path(path)
    if files.is_folder(file):
        file = file / "plan.json"
    text = file_text(file, PLAN_FILE, shown=str(path))
    found = Plan.from_document(json_value(text, str(path), PLAN_FILE), str(path))
    _verify(found, str(path))
    return found


def _verify(found: Plan, path: str) -> None:
    """Refuse a plan file whose scenario, hash, layout and rank order do not agree."""
    if inputs_sha256(found.inputs) != found.inputs_sha256:
        raise InputError(
            "the inputs are not those the plan was made from",
            path=path,
            key="inputs_sha256",
            value=found.inputs_sha256,
            allowed="a plan file that was not edited; plan the changed scenario anew",
        )
    scenario = scenario_from_document(found.inputs, path)
    if found.layout is None:
        return
    require_nodes(found, scenario, path)
    try:
        layout = given_layout(CostContext.of(scenario), found.layout, f"{path}: layout")
    except IllegalLayoutError as error:
        raise InputError(f"the layout is not legal: {error}", path=path, key="layout") from None
    for key, value in found.layout.items():
        if isinstance(value, str) and not isinstance(getattr(layout, key), str):
            raise InputError(
                "text where a number is expected",
                path=path,
                key=f"layout.{key}",
                value=value,
                allowed="the value without quotes",
            )
    degrees = order_degrees(found.rank_order or ())
    # experts cut the axes, but where the two grids do not nest ranks follow the dense one
    grids = (DENSE_GRID, EXPERT_GRID) if scenario.model.moe else (DENSE_GRID,)
    numbered = [dict(zip(grid.atoms, layout.degrees(grid), strict=True)) for grid in grids]
    grids_degrees = [{a: d for a, d in grid.items() if d > 1} for grid in numbered]
    if {a: d for a, d in degrees.items() if d > 1} not in grids_degrees:
        raise InputError(
            "the rank order does not number the layout's ranks",
            path=path,
            key="rank_order",
            allowed=f"factors of {', '.join(numbered[-1])} that multiply to their degrees",
        )
    require_agreement(found, scenario, path)


def scenario_of(plan_: Plan) -> Scenario:
    """The scenario a plan was made from."""
    return scenario_from_document(plan_.inputs, "plan inputs")


@dataclass(frozen=True, slots=True)
class Comparison:
    """Two plans term by term: seconds and bytes as (first, second, second − first)."""

    labels: tuple[str, str]
    summary: Mapping[str, tuple[Any, Any]]
    time: Mapping[str, tuple[float, float, float]]
    memory: Mapping[str, tuple[float, float, float]]
    plans: tuple[Plan, Plan]

    def to_document(self) -> dict[str, Any]:
        """The comparison as JSON values."""
        return {
            "labels": list(self.labels),
            "summary": {k: list(v) for k, v in self.summary.items()},
            "time": {k: list(v) for k, v in self.time.items()},
            "memory": {k: list(v) for k, v in self.memory.items()},
        }


def compare(first: Plan, second: Plan) -> Comparison:
    """Two plans side by side.

    Raises:
        InputError: a plan holds no layout.
    """
    if first.time is None or second.time is None or first.memory is None or second.memory is None:
        which = "first" if first.time is None or first.memory is None else "second"
        raise InputError(
            f"a plan without a layout cannot be compared: the {which} is of status "
            f"{(first if which == 'first' else second).status}",
            key="PLAN", allowed="plans that hold a layout",
        )  # fmt: skip

    def rows(a: Mapping[str, float], b: Mapping[str, float]) -> dict[str, Any]:
        return {
            k: (a.get(k, 0.0), b.get(k, 0.0), b.get(k, 0.0) - a.get(k, 0.0)) for k in {**a, **b}
        }

    names = ("status", "step_seconds", "mfu", "hfu", "tokens_per_second", "cost", "layout")
    return Comparison(
        labels=("first", "second"),
        summary={name: (getattr(first, name), getattr(second, name)) for name in names},
        time=rows(first.time, second.time),
        memory=rows(
            {**first.memory.terms, "peak_bytes": first.memory.peak_bytes},
            {**second.memory.terms, "peak_bytes": second.memory.peak_bytes},
        ),
        plans=(first, second),
    )


def explain(
    scenario: Scenario,
    layout: str | Mapping[str, Any] | None = None,
    watch: Watch = unwatched,
) -> Explanation:
    """Why each group of the best plan (or of a layout) lives where it does, what the step waits
    for, and what would make it faster, each change tried. `watch` follows the search, as in `plan`.

    Raises:
        IllegalLayoutError, InputError: as `evaluate`.
    """
    found = plan(scenario, watch=watch) if layout is None else evaluate(scenario, layout)
    return explaining.explain(chosen_scenario(scenario, found), found)


def diagnose(
    scenario: Scenario,
    measured: str | Mapping[str, float | str],
    layout: str | Mapping[str, Any] | None = None,
) -> Diagnosis:
    """A measured run (mfu, step_seconds, tokens_per_second, tflops) beside its prediction.

    layout: the one that ran; without it the best plan's is compared, with a warning.

    Raises:
        IllegalLayoutError, InputError: as `evaluate`, or a measured value is wrong, or no layout
            is given and none fits.
    """
    given = read_measured(measured)
    if layout is not None:
        return diagnosing.diagnose(scenario, evaluate(scenario, layout), given)
    best = plan(scenario)
    if best.layout is None:
        raise InputError("no layout fits to compare with", key="--layout", allowed="the one run")
    warning = "no layout was given: compared with the best plan, not with what ran (--layout)"
    return diagnosing.diagnose(chosen_scenario(scenario, best), best, given, (warning,))


def names(kind: Kind) -> list[str]:
    """Names of what is shipped: topologies, models, scenarios, software, accelerators, fabrics."""
    return files.names(kind)


def targets() -> list[Target]:
    """The launch targets, most used first."""
    return [target(name) for name in EXPORTS]


def schema(kind: str) -> dict[str, Any]:
    """JSON Schema of a file kind, for editors.

    Raises:
        InputError: no such kind.
    """
    if kind not in SCHEMAS:
        raise InputError("no schema of that name", value=kind, allowed=", ".join(SCHEMAS))
    return SCHEMAS[kind].model_json_schema(by_alias=True)


show_as_reports(
    Calibration, Check, CollectivesValidation, Comparison, Diagnosis, ErrorCalibration, Explanation,
    ImportedModel, KernelCalibration, KernelsValidation, LeaveOneOut, OwnCalibration, Plan,
    Roofline, RunsCalibration, Shrunk, Sweep, Validation, WhatIf, WhyNot,
)  # fmt: skip

__all__ = [
    "PUBLISHED",
    "PUBLISHED_RUNS",
    "Accuracy",
    "Calibration",
    "Check",
    "CollectivesValidation",
    "Comparison",
    "Diagnosis",
    "ErrorCalibration",
    "Explanation",
    "Imported",
    "ImportedModel",
    "KernelCalibration",
    "KernelsValidation",
    "LeaveOneOut",
    "OwnCalibration",
    "Plan",
    "Progress",
    "Report",
    "Roofline",
    "RunsCalibration",
    "Scenario",
    "Shrunk",
    "Sweep",
    "Validation",
    "Watch",
    "WhatIf",
    "WhyNot",
    "accuracy",
    "calibrate_collectives",
    "calibrate_errors",
    "calibrate_kernels",
    "calibrate_own_runs",
    "calibrate_runs",
    "check",
    "compare",
    "diagnose",
    "evaluate",
    "evaluate_many",
    "explain",
    "export_plan",
    "generations",
    "import_model",
    "import_topology",
    "imported_files",
    "is_own",
    "load_scenario",
    "load_subject",
    "names",
    "plan",
    "profile_yaml",
    "read_plan",
    "read_sweep",
    "report",
    "roofline",
    "run_sweep",
    "scaling_curve",
    "scenario_of",
    "schema",
    "shrink",
    "targets",
    "timeline",
    "validate_collectives",
    "validate_kernels",
    "validate_left_out",
    "validate_runs",
    "what_if",
    "why_not",
]
