"""Values that notebooks show as their report: `show_in_notebooks` gives classes a `_repr_html_`.

The report is that of the command line, through rich's own HTML, which escapes what it prints.
Nothing is imported before a value is shown.
"""

from __future__ import annotations

from collections.abc import Mapping
from importlib import import_module
from typing import Any

WIDTH = 100
FORMAT = (
    "<pre style=\"font-family:Menlo,'DejaVu Sans Mono',consolas,monospace;line-height:1.2;"
    'white-space:pre;overflow-x:auto">{code}</pre>'
)

REPORTS: Mapping[str, tuple[str, str]] = {
    "Plan": ("plan", "plan_report"),
    "Comparison": ("tables", "comparison_report"),
    "Explanation": ("explanation", "explanation_report"),
    "Diagnosis": ("diagnosis", "diagnosis_report"),
    "Check": ("check", "check_report"),
    "Roofline": ("roofline", "roofline_report"),
    "WhyNot": ("why_not", "why_not_report"),
    "ImportedModel": ("imported_model", "imported_report"),
    "Validation": ("run_errors", "runs_report"),
    "LeaveOneOut": ("run_errors", "runs_report"),
    "RunsCalibration": ("run_errors", "calibration_report"),
    "OwnCalibration": ("run_errors", "own_report"),
    "IntervalCalibration": ("run_errors", "intervals_report"),
    "CollectivesValidation": ("collective_errors", "collectives_report"),
    "FabricCalibration": ("collective_errors", "calibration_report"),
    "KernelsValidation": ("kernel_errors", "kernels_report"),
    "KernelCalibration": ("kernel_errors", "calibration_report"),
}
"""Class → module of report/text and its function; those of run, collective and kernel errors take
the value's document, a comparison's its parts."""


def show_in_notebooks(*classes: type) -> None:
    """Give classes of REPORTS the method that notebooks ask for."""
    for cls in classes:
        setattr(cls, "_repr_html_", lambda self: html(report_of(self)))  # noqa: B010


def report_of(value: Any) -> Any:
    """The report of a value whose class REPORTS names."""
    module, name = REPORTS[type(value).__name__]
    report = getattr(import_module(f"planner.report.text.{module}"), name)
    if module.endswith("_errors"):
        return report(value.to_document())
    if module == "tables":
        return report(*value.plans, value.time, value.memory)
    return report(value)


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
