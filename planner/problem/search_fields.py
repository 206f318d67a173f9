"""Fields of a scenario's `search:` that take more than a list of values: the objective and its
deadline, counts of accelerators, sets of overlaps."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from planner.errors import InputError, UnitError, nearest_of
from planner.inputs.complaints import Parsed
from planner.inputs.documents import show
from planner.inputs.quantities import MAX_ACCELERATORS, Quantity
from planner.layouts.keys import KEYS, axes_text

Objective = Literal["time", "accelerator_seconds", "fewest_for_deadline", "least_memory"]
"""What is minimised: the time of a step (per token, where the batch is a band); accelerators times
seconds; the accelerators with which a deadline is met; the peak memory."""

FREE = "free"
"""Instead of a count: the planner chooses it, up to the scenario's own."""

DAY_SECONDS = 86400.0


class CountChoices(Parsed):
    """A count, a list of counts, or `free`."""

    @property
    def allowed(self) -> str:
        return f"an integer from 1 to {MAX_ACCELERATORS}, a list of such, or {FREE}"

    def read(self, value: object) -> tuple[int, ...] | str | None:
        """Return the counts, each once, in the order given; `free` and None as they are.

        Raises:
            InputError: something else.
        """
        if value is None or value == FREE:
            return None if value is None else FREE
        counts = value if isinstance(value, tuple | list) else (value,)
        for count in counts:
            is_integer = isinstance(count, int) and not isinstance(count, bool)
            if not is_integer or not 1 <= count <= MAX_ACCELERATORS:
                raise InputError(
                    f"{show(count)} is no count of accelerators",
                    value=count,
                    allowed=self.allowed,
                    nearest=nearest_of(count, [FREE]) if isinstance(count, str) else None,
                )
        if not counts:
            raise InputError("the list is empty", value=value, allowed=self.allowed)
        return tuple(dict.fromkeys(counts))

    def write(self, value: Any) -> object:
        return list(value) if isinstance(value, tuple) else value

    def __get_pydantic_json_schema__(self, schema: Any, handler: Any) -> dict[str, Any]:
        count = {"type": "integer", "minimum": 1, "maximum": MAX_ACCELERATORS}
        several = {"type": "array", "items": count, "minItems": 1}
        return {"anyOf": [count, several, {"const": FREE}]}


Counts = Annotated[Any, CountChoices()]


class OverlapSet(Parsed):
    """Axes whose communication overlaps with computation, joined by +: tp+dp; or none."""

    @property
    def allowed(self) -> str:
        return KEYS["overlap"].allowed

    def read(self, value: object) -> str:
        """Return the set in its usual order.

        Raises:
            InputError: not such a set.
        """
        try:
            if isinstance(value, str):
                return axes_text(value.replace(" ", ""))
        except ValueError:
            pass
        raise InputError(f"{show(value)} is no overlap", value=value, allowed=self.allowed)

    def __get_pydantic_json_schema__(self, schema: Any, handler: Any) -> dict[str, Any]:
        return {"type": "string", "description": self.allowed}


Overlaps = Annotated[str, OverlapSet()]


class DayQuantity(Quantity):
    """Seconds written in days or in any unit of time: '30 days', '36 h'."""

    @property
    def units(self) -> str:
        return f"{super().units}, days"

    def parse(self, text: str) -> float:
        number, _, unit = text.strip().partition(" ")
        in_days = unit.strip() in ("day", "days")
        try:
            return super().parse(f"{number} s") * DAY_SECONDS if in_days else super().parse(text)
        except UnitError as error:
            message = error.message.replace(f"'{number} s'", f"'{text}'")
            raise UnitError(
                message,
                value=text,
                allowed=f"a number with one of the units {self.units}",
                nearest=error.nearest,
            ) from None


Days = Annotated[float, DayQuantity("s", above=0)]
