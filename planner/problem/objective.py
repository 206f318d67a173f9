"""What a plan should be best at, and the choices beside the layout: counts, deadlines, overlaps."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic_core import core_schema

from planner.errors import InputError
from planner.inputs.complaints import Described
from planner.inputs.documents import show
from planner.inputs.quantities import MAX_ACCELERATORS, Quantity
from planner.layouts.keys import KEYS, axes_text

Objective = Literal["time", "accelerator_seconds", "fewest_for_deadline", "least_memory"]
"""Least time of a step (per token, where the batch is a band); least accelerators times seconds;
the fewest accelerators that keep a deadline; the lowest peak of memory."""

FREE = "free"
DAY_SECONDS = 86400.0


class CountChoices(Described):
    """A count, a list of counts, or `free`."""

    @property
    def allowed(self) -> str:
        return f"an integer from 1 to {MAX_ACCELERATORS}, a list of such, or {FREE}"

    def read(self, value: object) -> tuple[int, ...] | str | None:
        """The counts, each once, as given.

        Raises:
            InputError: something else.
        """
        if value is None or value == FREE:
            return None if value is None else FREE
        items = value if isinstance(value, tuple | list) else (value,)
        for item in items:
            if (
                isinstance(item, bool)
                or not isinstance(item, int)
                or not (1 <= item <= MAX_ACCELERATORS)
            ):
                raise InputError(
                    f"{show(item)} is no count of accelerators", value=item, allowed=self.allowed
                )
        if not items:
            raise InputError("the list is empty", value=value, allowed=self.allowed)
        return tuple(dict.fromkeys(items))

    def __get_pydantic_core_schema__(self, source: Any, handler: Any) -> core_schema.CoreSchema:
        return core_schema.no_info_plain_validator_function(
            self.read,
            serialization=core_schema.plain_serializer_function_ser_schema(
                lambda value: list(value) if isinstance(value, tuple) else value
            ),
        )

    def __get_pydantic_json_schema__(self, schema: Any, handler: Any) -> dict[str, Any]:
        count = {"type": "integer", "minimum": 1, "maximum": MAX_ACCELERATORS}
        several = {"type": "array", "items": count, "minItems": 1}
        return {"anyOf": [count, several, {"const": FREE}]}


Counts = Annotated[Any, CountChoices()]


class OverlapSet(Described):
    """Axes joined by +, or none: tp+dp."""

    @property
    def allowed(self) -> str:
        return KEYS["overlap"].allowed

    def read(self, value: object) -> str:
        """The set in its usual order.

        Raises:
            InputError: not such a set.
        """
        try:
            if isinstance(value, str):
                return axes_text(value.replace(" ", ""))
        except ValueError:
            pass
        raise InputError(f"{show(value)} is no overlap", value=value, allowed=self.allowed)

    def __get_pydantic_core_schema__(self, source: Any, handler: Any) -> core_schema.CoreSchema:
        return core_schema.no_info_plain_validator_function(self.read)

    def __get_pydantic_json_schema__(self, schema: Any, handler: Any) -> dict[str, Any]:
        return {"type": "string", "description": self.allowed}


Overlaps = Annotated[str, OverlapSet()]


class DayQuantity(Quantity):
    """Seconds written in days or in any unit of time: '30 days', '36 h'."""

    @property
    def value_allowed(self) -> str:
        return f"{super().value_allowed}, days"

    def number(self, value: object) -> float:
        if isinstance(value, str):
            number, _, unit = value.strip().partition(" ")
            if unit.strip() in ("day", "days"):
                return super().number(f"{number} s") * DAY_SECONDS
        return super().number(value)


Days = Annotated[float, DayQuantity("s", above=0)]
