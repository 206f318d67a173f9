"""Everything the command line does, as one call each.

scenario = planner.load_scenario("llama3-70b-h100x1024")
best = planner.plan(scenario)
other = planner.evaluate(scenario, "tp=8,pp=4,vp=5,mbs=1")
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from planner.advise.check import Check, check
from planner.advise.cluster_roofline import Roofline, generations, load_subject, roofline
from planner.advise.compare import Comparison, compare
from planner.advise.diagnose import Diagnosis, diagnose
from planner.advise.explain import Explanation, explain, timeline
from planner.advise.expressible import export as export_plan
from planner.advise.scaling import scaling_curve
from planner.advise.shrink import Shrunk, shrink
from planner.advise.what_if import WhatIf, what_if
from planner.advise.why_not import WhyNot, why_not
from planner.clusters.import_topology import Imported, import_topology, imported_files
from planner.errors import InputError
from planner.evidence.measuring import (
    PUBLISHED_COLLECTIVES,
    PUBLISHED_RUNS,
    Accuracy,
    CollectivesValidation,
    FabricCalibration,
    IntervalCalibration,
    KernelCalibration,
    KernelsValidation,
    LeaveOneOut,
    OwnCalibration,
    RunsCalibration,
    Validation,
    accuracy,
    calibrate_collectives,
    calibrate_errors,
    calibrate_kernels,
    calibrate_own_runs,
    calibrate_runs,
    is_own,
    profile_yaml,
    validate_collectives,
    validate_kernels,
    validate_left_out,
    validate_runs,
)
from planner.frameworks.import_model import import_model
from planner.frameworks.imported_model import ImportedModel
from planner.frameworks.target import Target, target
from planner.frameworks.write import EXPORTS
from planner.inputs import files
from planner.inputs.files import FileKind
from planner.inputs.values import Strict
from planner.planning.plan import Plan
from planner.planning.plan_file import read_plan, scenario_of
from planner.planning.solve import evaluate, evaluate_many, plan
from planner.problem.inventory import Inventory
from planner.problem.model import Model
from planner.problem.scenario import Scenario, load_scenario
from planner.problem.sweep import SweepFile
from planner.problem.topology import Topology
from planner.report.display import show_as_reports
from planner.report.page.report import Report, web_page
from planner.search.interface import Progress, Watch
from planner.sweep import Sweep, read_sweep, run_sweep

SCHEMAS: Mapping[str, type[Strict]] = {
    "scenario": Scenario,
    "topology": Topology,
    "inventory": Inventory,
    "model": Model,
    "sweep": SweepFile,
}


def names(kind: FileKind) -> list[str]:
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
    Check, CollectivesValidation, Comparison, Diagnosis, Explanation, FabricCalibration,
    ImportedModel, IntervalCalibration, KernelCalibration, KernelsValidation, LeaveOneOut,
    OwnCalibration, Plan, Roofline, RunsCalibration, Shrunk, Sweep, Validation, WhatIf, WhyNot,
)  # fmt: skip

__all__ = [
    "PUBLISHED_COLLECTIVES",
    "PUBLISHED_RUNS",
    "Accuracy",
    "Check",
    "CollectivesValidation",
    "Comparison",
    "Diagnosis",
    "Explanation",
    "FabricCalibration",
    "Imported",
    "ImportedModel",
    "IntervalCalibration",
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
    "web_page",
    "what_if",
    "why_not",
]
