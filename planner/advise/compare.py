"""Two plans side by side: figures, terms of time and of memory, and their differences."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any

from pydantic import Field

from planner.errors import InputError
from planner.planning.document import json_values
from planner.planning.plan import Plan

FIGURES = ("status", "step_seconds", "mfu", "hfu", "tokens_per_second", "cost")
"""Attributes of plans that stand side by side, before their layouts."""

Row = tuple[float, float, float]
"""(first, second, second − first)."""


@dataclass(frozen=True, slots=True)
class Comparison:
    """Two plans term by term: seconds of `time`, bytes of `memory`."""

    labels: tuple[str, str]
    summary: Mapping[str, tuple[Any, Any]]
    time: Mapping[str, Row]
    memory: Mapping[str, Row]
    plans: Annotated[tuple[Plan, Plan], Field(exclude=True)]

    def to_document(self) -> dict[str, Any]:
        """The comparison as JSON values."""
        return json_values(self)


def compare(first: Plan, second: Plan) -> Comparison:
    """Two plans side by side.

    Raises:
        InputError: a plan holds no layout.
    """
    for which, plan in (("first", first), ("second", second)):
        if plan.layout is None:
            raise InputError(
                f"a plan without a layout cannot be compared: the {which} is of status "
                f"{plan.status}",
                key="PLAN", allowed="plans that hold a layout",
            )  # fmt: skip
    summary = {name: (getattr(first, name), getattr(second, name)) for name in FIGURES}
    return Comparison(
        labels=("first", "second"),
        summary=summary | {"layout": (_layout_keys(first), _layout_keys(second))},
        time=_rows(first.time or {}, second.time or {}),
        memory=_rows(_memory_terms(first), _memory_terms(second)),
        plans=(first, second),
    )


def _layout_keys(plan: Plan) -> dict[str, Any] | None:
    return None if plan.layout is None else plan.layout.to_document()


def _memory_terms(plan: Plan) -> dict[str, float]:
    """Bytes by term and their sum."""
    if plan.memory is None:
        return {}
    return {**plan.memory.terms, "peak_bytes": plan.memory.peak_bytes}


def _rows(first: Mapping[str, float], second: Mapping[str, float]) -> dict[str, Row]:
    pairs = {term: (first.get(term, 0.0), second.get(term, 0.0)) for term in {**first, **second}}
    return {term: (a, b, b - a) for term, (a, b) in pairs.items()}
