"""The page of a plan, of a what-if or of a sweep, with its pictures."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from planner.advise.what_if import WhatIf
from planner.errors import InputError, PlannerError
from planner.planning.plan import Plan
from planner.problem.scenario import scenario_from_document
from planner.report.libraries import require_jinja2, require_matplotlib
from planner.sweep.store import FILE

if TYPE_CHECKING:
    from planner.layouts.timeline import Timeline
    from planner.report.page.frame import Picture


class SweepResult(Protocol):
    """Results of a sweep: dotted keys of its axes, a flat row per point, the points' plans."""

    @property
    def axes(self) -> Sequence[str]: ...
    @property
    def rows(self) -> Sequence[Mapping[str, Any]]: ...
    def plan(self, point: int) -> Plan: ...


@dataclass(frozen=True, slots=True)
class Report:
    """A self-contained web page, and the pictures on it."""

    html: str
    pictures: tuple[Picture, ...]

    def _repr_html_(self) -> str:
        from html import escape

        return f'<iframe width="100%" height="800" srcdoc="{escape(self.html)}"></iframe>'


def is_sweep(path: str | Path) -> bool:
    """Whether a folder is that of a sweep."""
    return (Path(path) / FILE).is_file()


def web_page(subject: Plan | WhatIf | SweepResult, name: str = "") -> Report:
    """The page of a plan or of a sweep (`name` is in its heading), with its pictures.

    For a `WhatIf` the page of its plan, and what other hardware would save. Without matplotlib the
    page has no pictures and says why.

    Raises:
        PlannerError: Jinja2 is not installed.
    """
    # loading these takes longer than many commands run
    from planner.report.page.pictures import outlook_pictures, plan_pictures, sweep_pictures
    from planner.report.page.plan_page import plan_page
    from planner.report.page.sweep_page import sweep_page

    require_jinja2()
    try:
        require_matplotlib()
        missing: list[str] = []
    except PlannerError as error:
        # the tables are worth a page of their own
        missing = [f"No pictures: {error}."]
    if isinstance(subject, Plan | WhatIf):
        outlook = subject if isinstance(subject, WhatIf) else None
        plan = subject.plan if isinstance(subject, WhatIf) else subject
        pictures = [] if missing else plan_pictures(plan, _timeline(plan))
        if outlook is not None and not missing:
            pictures += outlook_pictures(outlook)
        return Report(plan_page(plan, pictures, missing, outlook), tuple(pictures))
    pictures = [] if missing else sweep_pictures(subject.rows, subject.axes)
    page = sweep_page(subject.rows, subject.axes, name, pictures, missing)
    return Report(page, tuple(pictures))


def _timeline(plan: Plan) -> Timeline | None:
    """The timeline of the plan's pipeline, if it has one."""
    if plan.layout is None or plan.layout.pp == 1:
        return None
    from planner.advise.explain import timeline

    return timeline(scenario_from_document(plan.inputs, "plan inputs"), plan)


def point_of(sweep: SweepResult, point: int) -> Plan:
    """The plan of a point.

    Raises:
        InputError: the sweep has no such point.
    """
    points = [row["point"] for row in sweep.rows]
    if point not in points:
        raise InputError(
            "the sweep has no such point", key="--point", value=point,
            allowed=f"{min(points)} to {max(points)}" if points else "none yet",
        )  # fmt: skip
    return sweep.plan(point)
