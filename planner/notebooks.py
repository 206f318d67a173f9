"""Values that notebooks show as their report: `show_in_notebooks` gives classes a `_repr_html_`.

The report is that of the command line, through rich's own HTML, which escapes what it prints.
Nothing is imported before a value is shown.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from importlib import import_module
from typing import Any

WIDTH = 100
FORMAT = (
    "<pre style=\"font-family:Menlo,'DejaVu Sans Mono',consolas,monospace;line-height:1.2;"
    'white-space:pre;overflow-x:auto">{code}</pre>'
)

REPORTS: Mapping[str, Callable[[Any], Any]] = {
    "Plan": lambda value: _report("text", "plan_report")(value),
    "Comparison": lambda value: _report("tables", "comparison_report")(
        *value.plans, value.time, value.memory
    ),
    "Explanation": lambda value: _report("explain", "explanation_report")(value),
    "Diagnosis": lambda value: _report("diagnosis", "diagnosis_report")(value),
    "Check": lambda value: _report("check", "check_report")(value),
    "Roofline": lambda value: _report("roofline", "roofline_report")(value),
    "WhyNot": lambda value: _report("why_not", "why_not_report")(value),
    "ImportedModel": lambda value: _report("imported", "imported_report")(value),
    "Validation": lambda value: _report("runs", "runs_report")(value.to_document()),
    "LeaveOneOut": lambda value: _report("runs", "runs_report")(value.to_document()),
    "RunsCalibration": lambda value: _report("runs", "calibration_report")(value.to_document()),
    "OwnCalibration": lambda value: _report("runs", "own_report")(value.to_document()),
    "ErrorCalibration": lambda value: _report("runs", "errors_report")(value.to_document()),
    "CollectivesValidation": lambda value: _report("collectives", "collectives_report")(
        value.to_document()
    ),
    "Calibration": lambda value: _report("collectives", "calibration_report")(value.to_document()),
    "KernelsValidation": lambda value: _report("kernels", "kernels_report")(value.to_document()),
    "KernelCalibration": lambda value: _report("kernels", "calibration_report")(
        value.to_document()
    ),
}
"""Class → the report of its values."""


def show_in_notebooks(*classes: type) -> None:
    """Give classes of REPORTS the method that notebooks ask for."""
    for cls in classes:
        report = REPORTS[cls.__name__]
        setattr(cls, "_repr_html_", lambda self, report=report: html(report(self)))  # noqa: B010


def html(report: Any, width: int = WIDTH) -> str:
    """A report as HTML that needs nothing else, colours in it."""
    import io

    from rich.console import Console

    console = Console(
        file=io.StringIO(), width=width, record=True, markup=False, highlight=False, emoji=False,
        force_terminal=True, color_system="truecolor", legacy_windows=False,
    )  # fmt: skip
    console.print(report)
    return console.export_html(inline_styles=True, code_format=FORMAT)


def _report(module: str, name: str) -> Any:
    return getattr(import_module(f"planner.report.{module}"), name)
