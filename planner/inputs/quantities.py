"""Numbers with units, bounds and provenance, as pydantic annotations.

In a file a `Figure` is `{value: 3.35 TB/s, source: "NVIDIA H100 data sheet", status: datasheet}`;
in Python it is a float in SI that remembers its source and status.
"""

import math
from collections.abc import Mapping
from typing import Annotated, Any, Literal, get_args

from annotated_types import Ge, Le
from pydantic_core import core_schema

from planner.errors import InputError, Place, nearest_of
from planner.inputs.complaints import Described, unknown_key
from planner.inputs.documents import show
from planner.inputs.units import ALLOWED_UNITS, exact_quantity, parse_quantity

Status = Literal["datasheet", "measured", "fitted", "assumed"]
"""How a number came about."""

_STATUSES: tuple[str, ...] = get_args(Status)
_FIGURE_KEYS = ("value", "source", "status")


class Figure(float):
    """A float in SI units with its source and status; arithmetic gives plain floats."""

    source: str
    status: Status

    def __new__(cls, value: float, source: str, status: Status) -> "Figure":
        figure = super().__new__(cls, value)
        figure.source = source
        figure.status = status
        return figure

    def __getnewargs__(self) -> tuple[float, str, Status]:  # type: ignore[override]
        return float(self), self.source, self.status


class Quantity(Described):
    """A float with bounds, in a file text with a unit: '2.5 USD/hour'; a number if `unit` is ''.

    The bounds are in the SI unit.
    """

    def __init__(
        self,
        unit: str = "",
        *,
        above: float | None = None,
        at_least: float | None = None,
        at_most: float | None = None,
    ) -> None:
        self.unit = unit
        self.above = above
        self.at_least = at_least
        self.at_most = at_most

    @property
    def bounds(self) -> str:
        """The bounds in words: '> 0 and <= 1'."""
        bounds = ((">", self.above), (">=", self.at_least), ("<=", self.at_most))
        return " and ".join(f"{sign} {bound:g}" for sign, bound in bounds if bound is not None)

    @property
    def value_allowed(self) -> str:
        """What the number itself may be, without source and status."""
        if not self.unit:
            return f"a plain number {self.bounds}".strip()
        return f"a number {self.bounds} with one of the units {self.units}"

    @property
    def allowed(self) -> str:
        return self.value_allowed

    @property
    def units(self) -> str:
        """The units that fit, in words."""
        return ", ".join(ALLOWED_UNITS[self.unit])

    def number(self, value: object) -> float:
        """Return the float of what stands in a file, or of a number given in Python, in SI.

        Raises:
            InputError: not a number, or out of bounds.
            UnitError: a unit that is missing or does not fit.
        """
        if self.unit and isinstance(value, str):
            number = self.parse(value)
        elif isinstance(value, str | bool) or not isinstance(value, int | float):
            raise InputError(
                f"{show(value)} is not a {'quantity' if self.unit else 'number'}",
                value=value,
                allowed=self.value_allowed,
            )
        else:
            number = float(value)
        self.check(number, value)
        return number

    def parse(self, text: str) -> float:
        """Return the number of text with a unit, in SI; bounds are not checked.

        Raises:
            UnitError: no number, or a unit that is missing or does not fit.
        """
        return parse_quantity(text, self.unit)

    def check(self, number: float, written: object) -> None:
        """Check the bounds; `written` is how the number was given.

        Raises:
            InputError: the number is not finite or out of bounds.
        """
        if not math.isfinite(number):
            raise InputError(
                f"{show(written)} is not finite", value=written, allowed=self.value_allowed
            )
        too_low = (self.above is not None and not number > self.above) or (
            self.at_least is not None and not number >= self.at_least
        )
        if too_low or (self.at_most is not None and not number <= self.at_most):
            what = "is negative" if number < 0 else "is zero" if number == 0 else "is out of range"
            raise InputError(f"{show(written)} {what}", value=written, allowed=self.value_allowed)

    def read(self, value: object, from_file: bool) -> float:
        """Return the float, as `number`; in a file a quantity must have its unit.

        Raises:
            InputError: as `number`, or a bare number in a file.
        """
        if from_file and self.unit and not isinstance(value, str):
            bare = isinstance(value, int | float) and not isinstance(value, bool)
            raise InputError(
                f"{show(value)} has no unit" if bare else f"{show(value)} is not a quantity",
                value=value,
                allowed=f"text of a number and one of the units {self.units}",
            )
        return self.number(value)

    def write(self, value: float) -> object:
        """Return what stands for the value in a document; it reads back to the same float."""
        return exact_quantity(value, self.unit) if self.unit else float(value)

    def __get_pydantic_core_schema__(self, source: Any, handler: Any) -> core_schema.CoreSchema:
        def validate(value: object, info: core_schema.ValidationInfo) -> float:
            return self.read(value, bool(info.context and info.context.get("from_file")))

        return core_schema.with_info_plain_validator_function(
            validate,
            serialization=core_schema.plain_serializer_function_ser_schema(self.write),
        )

    def value_schema(self) -> dict[str, Any]:
        """Return the JSON Schema of the number itself."""
        if self.unit:
            return {"type": "string", "description": self.value_allowed}
        return {"type": "number", "description": self.value_allowed}

    def __get_pydantic_json_schema__(self, schema: Any, handler: Any) -> dict[str, Any]:
        return self.value_schema()


class Sourced(Quantity):
    """A `Figure`: a quantity in a mapping with its source and status."""

    @property
    def allowed(self) -> str:
        return (
            f"a mapping with value ({self.value_allowed}), source (text) "
            f"and status ({', '.join(_STATUSES)})"
        )

    def read(self, value: object, from_file: bool) -> Figure:
        """Return the figure of a mapping; a `Figure` is checked against the bounds.

        Raises:
            InputError: not such a mapping, or its value as of `Quantity.read`.
        """
        if isinstance(value, Figure):
            self.check(value, float(value))
            return value
        if not isinstance(value, Mapping):
            raise InputError(
                f"{show(value)} has no source and status", value=value, allowed=self.allowed
            )
        self._check_keys(value)
        source, status = value["source"], value["status"]
        if not isinstance(source, str) or not source.strip():
            raise InputError(
                f"{show(source)} names no source",
                key="source",
                value=source,
                allowed="text that says where the number is from",
            )
        if status not in _STATUSES:
            raise InputError(
                f"{show(status)} is not a status",
                key="status",
                value=status,
                allowed=", ".join(_STATUSES),
                nearest=nearest_of(status, _STATUSES) if isinstance(status, str) else None,
            )
        try:
            number = super().read(value["value"], from_file)
        except InputError as error:
            raise error.located(Place(key="value")) from None
        return Figure(number, source, status)

    def _check_keys(self, value: Mapping[str, object]) -> None:
        for key in value:
            if key not in _FIGURE_KEYS:
                raise unknown_key(key, value[key], _FIGURE_KEYS)
        for key in _FIGURE_KEYS:
            if key not in value:
                raise InputError("this key is missing", key=key, allowed=self.allowed)

    def write(self, value: float) -> object:
        assert isinstance(value, Figure)
        return {"value": super().write(value), "source": value.source, "status": value.status}

    def __get_pydantic_json_schema__(self, schema: Any, handler: Any) -> dict[str, Any]:
        return {
            "type": "object",
            "properties": {
                "value": self.value_schema(),
                "source": {"type": "string"},
                "status": {"enum": list(_STATUSES)},
            },
            "required": list(_FIGURE_KEYS),
            "additionalProperties": False,
        }


# ---------------------------------------------------------------- fields

MAX_COUNT = 10**12  # far beyond any job, small enough that products stay finite floats
MAX_ACCELERATORS = 2**24  # more than exist; rank tables and layouts stay in memory
MAX_LAYERS = 1024

Count = Annotated[int, Ge(1), Le(MAX_COUNT)]
Accelerators = Annotated[int, Ge(1), Le(MAX_ACCELERATORS)]
Layers = Annotated[int, Ge(1), Le(MAX_LAYERS)]
CountOrZero = Annotated[int, Ge(0), Le(MAX_COUNT)]

Bytes = Annotated[Figure, Sourced("B", above=0)]
BytesPerSecond = Annotated[Figure, Sourced("B/s", above=0)]
FlopsPerSecond = Annotated[Figure, Sourced("FLOP/s", above=0)]
Seconds = Annotated[Figure, Sourced("s", at_least=0)]
Positive = Annotated[Figure, Sourced(above=0)]
NotNegative = Annotated[Figure, Sourced(at_least=0)]
Fraction = Annotated[Figure, Sourced(at_least=0, at_most=1)]
Efficiency = Annotated[Figure, Sourced(above=0, at_most=1)]


def divisors_in_words(number: int) -> str:
    """Return the divisors of a number up to 1024, for messages: '1, 2, 4'."""
    small = [candidate for candidate in range(1, min(number, 1024) + 1) if number % candidate == 0]
    return ", ".join(map(str, small))
