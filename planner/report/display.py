"""How values show themselves: `print` gives their report as text, notebooks as HTML.

`show_as_reports` gives classes a `__str__` and a `_repr_html_`, which render the report that the
command line prints; of a plan `print` gives the short one. rich escapes what it writes as HTML.
Nothing is imported before a value is shown.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rich.console import RenderableType

COLUMNS = 100
HTML = (
    "<pre style=\"font-family:Menlo,'DejaVu Sans Mono',consolas,monospace;line-height:1.2;"
    'white-space:pre;overflow-x:auto">{code}</pre>'
)


@dataclass(frozen=True, slots=True)
class Rendering:
    """Which function renders a class: a module of `planner.report.text`, its function, whether that
    takes the value's document instead of the value, and the function for `print`, if another."""

    module: str
    function: str
    of_document: bool = False
    short_function: str | None = None

    def of(self, value: Any, short: bool = False) -> RenderableType:
        """The report of a value."""
        # only now: rich and the reports take longer to load than most values to compute
        module = import_module(f"planner.report.text.{self.module}")
        render = getattr(module, (short and self.short_function) or self.function)
        report: RenderableType = render(value.to_document() if self.of_document else value)
        return report


RENDERINGS: Mapping[str, Rendering] = {
    "Plan": Rendering("plan", "plan_report", short_function="short_report"),
    "Comparison": Rendering("comparison", "comparison_report"),
    "Explanation": Rendering("explanation", "explanation_report"),
    "Diagnosis": Rendering("diagnosis", "diagnosis_report"),
    "WhyNot": Rendering("why_not", "why_not_report"),
    "WhatIf": Rendering("what_if", "what_if_report"),
    "Check": Rendering("check", "check_report"),
    "Roofline": Rendering("roofline", "roofline_report"),
    "Shrunk": Rendering("shrink", "shrink_report"),
    "Sweep": Rendering("sweep", "sweep_report"),
    "ImportedModel": Rendering("imported_model", "imported_report"),
    "Validation": Rendering("measured_runs", "runs_report", of_document=True),
    "LeaveOneOut": Rendering("measured_runs", "runs_report", of_document=True),
    "RunsCalibration": Rendering("measured_runs", "calibration_report", of_document=True),
    "OwnCalibration": Rendering("measured_runs", "own_report", of_document=True),
    "IntervalCalibration": Rendering("measured_runs", "intervals_report", of_document=True),
    "CollectivesValidation": Rendering(
        "measured_collectives", "collectives_report", of_document=True
    ),
    "FabricCalibration": Rendering("measured_collectives", "calibration_report", of_document=True),
    "KernelsValidation": Rendering("measured_kernels", "kernels_report", of_document=True),
    "KernelCalibration": Rendering("measured_kernels", "calibration_report", of_document=True),
}
"""Name of a class → how it is rendered."""


def show_as_reports(*classes: type) -> None:
    """Give classes of RENDERINGS the methods that `print` and notebooks call."""
    for cls in classes:
        # set from outside: the classes are on lower floors, which know nothing of reports
        cls.__str__ = _text  # type: ignore[method-assign, assignment]
        setattr(cls, "_repr_html_", _html)  # noqa: B010


def _text(value: Any) -> str:
    from planner.report.text.pieces import plain_text

    return plain_text(RENDERINGS[type(value).__name__].of(value, short=True), COLUMNS).rstrip("\n")


def _html(value: Any) -> str:
    return html(RENDERINGS[type(value).__name__].of(value))


def html(report: RenderableType, columns: int = COLUMNS) -> str:
    """A report as HTML that needs nothing else, with its colours."""
    import io

    from rich.console import Console

    console = Console(
        # force_terminal and truecolor: colours, though the output is no terminal
        file=io.StringIO(), width=columns, record=True, markup=False, highlight=False, emoji=False,
        force_terminal=True, color_system="truecolor", legacy_windows=False,
    )  # fmt: skip
    console.print(report)
    return console.export_html(inline_styles=True, code_format=HTML)
