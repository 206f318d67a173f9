"""Parallelism placement planner for LLM training clusters.

    best = planner.plan("llama3-70b-h100x1024")
    print(best)

Every call of `planner.api` is importable from here, with the values they return and the errors they
raise; loading them is put off until they are used, so that `planner --help` starts at once.
"""

from importlib import import_module
from typing import Any

__version__ = "0.2.0"

_HOMES = {
    "planner.api": (
        "accuracy", "calibrate_collectives", "calibrate_errors", "calibrate_kernels",
        "calibrate_own_runs", "calibrate_runs", "check", "compare", "diagnose", "evaluate",
        "evaluate_many", "explain", "export_plan", "generations", "import_model",
        "import_topology", "imported_files", "is_own", "load_scenario", "load_subject", "names",
        "plan", "profile_yaml", "read_plan", "read_sweep", "roofline", "run_sweep",
        "scaling_curve", "scenario_of", "schema", "shrink", "targets", "timeline",
        "validate_collectives", "validate_kernels", "validate_left_out", "validate_runs",
        "web_page", "what_if", "why_not",
        "Accuracy", "Check", "CollectivesValidation", "Comparison", "Diagnosis", "Explanation",
        "FabricCalibration", "Imported", "ImportedModel", "IntervalCalibration",
        "KernelCalibration", "KernelsValidation", "LeaveOneOut", "OwnCalibration", "Plan",
        "Progress", "Report", "Roofline", "RunsCalibration", "Scenario", "Shrunk", "Sweep",
        "Validation", "Watch", "WhatIf", "WhyNot",
        "PUBLISHED_COLLECTIVES", "PUBLISHED_RUNS",
    ),
    "planner.layouts.layout": ("Layout",),
    "planner.errors": (
        "ExportError", "IllegalLayoutError", "InputError", "PlannerError", "UnknownNameError",
        "UnsupportedError",
    ),
}  # fmt: skip

_WHERE = {name: home for home, members in _HOMES.items() for name in members}

__all__ = ["__version__", *sorted(_WHERE)]


def __getattr__(name: str) -> Any:
    if name in _WHERE:
        return getattr(import_module(_WHERE[name]), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return __all__
