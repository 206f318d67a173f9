"""The sweep file: a base scenario, axes of values for its keys, and which points to leave out."""

from collections.abc import Mapping
from dataclasses import dataclass
from decimal import Decimal
from typing import Annotated, Any

from annotated_types import Ge, Le
from pydantic import Field, SkipValidation, model_validator
from pydantic_core import core_schema

from planner.errors import InputError, Place, nearest_of
from planner.inputs.complaints import Described
from planner.inputs.documents import show
from planner.inputs.quantities import Quantity
from planner.inputs.values import Reference, Strict
from planner.problem.scenario import Scenario

MAX_POINTS = 100_000

Number = int | float


@dataclass(frozen=True, slots=True)
class Pattern:
    """A glob of files, each of which is a value of a key that takes a file."""

    files: str


Values = tuple[Any, ...] | Pattern
"""The values of an axis; of keys stepped together each value is a list, one for each key."""


class AxisValues(Described):
    """A list, a range written out, or a glob of files."""

    allowed = (
        "a list of values, {from: 8, to: 64, step: 8}, {from: 8, to: 64, times: 2} or "
        '{files: "clusters/*.yaml"}'
    )

    def read(self, value: object) -> Values:
        """Return the values of what stands in a file."""
        if isinstance(value, tuple):
            if not value:
                raise InputError("the list is empty", value=value, allowed=self.allowed)
            return value
        if not isinstance(value, Mapping):
            raise InputError(f"{show(value)} is not a list", value=value, allowed=self.allowed)
        if "files" in value:
            _check_keys(value, ("files",))
            return Pattern(_text(value, "files"))
        return _written_out(value)

    def __get_pydantic_core_schema__(self, source: Any, handler: Any) -> core_schema.CoreSchema:
        return core_schema.no_info_plain_validator_function(self.read)

    def __get_pydantic_json_schema__(self, schema: Any, handler: Any) -> dict[str, Any]:
        number = {"type": "number"}
        bounds = {"from": number, "to": number}
        return {
            "anyOf": [
                {"type": "array", "minItems": 1},
                *(
                    {
                        "type": "object",
                        "properties": {**bounds, way: number},
                        "required": ["from", "to", way],
                        "additionalProperties": False,
                    }
                    for way in ("step", "times")
                ),
                {
                    "type": "object",
                    "properties": {"files": {"type": "string"}},
                    "required": ["files"],
                    "additionalProperties": False,
                },
            ],
            "description": self.allowed,
        }


def _check_keys(value: Mapping[str, object], keys: tuple[str, ...]) -> None:
    for key in value:
        if key not in keys:
            raise InputError(
                "unknown key",
                key=key,
                value=value[key],
                allowed=f"the keys {', '.join(keys)}",
                nearest=nearest_of(key, keys),
            )


def _text(value: Mapping[str, object], key: str) -> str:
    text = value[key]
    if not isinstance(text, str) or not text:
        raise InputError(f"{show(text)} is not text", key=key, value=text, allowed="text")
    return text


def _number(value: Mapping[str, object], key: str) -> Number:
    number = value.get(key)
    if isinstance(number, bool) or not isinstance(number, int | float):
        what = f"{show(number)} is not a number" if key in value else "this key is missing"
        raise InputError(what, key=key, value=number, allowed="a number")
    return number


def _written_out(value: Mapping[str, object]) -> tuple[Number, ...]:
    """Return every number of a range; it ends exactly at `to`, or is refused."""
    _check_keys(value, ("from", "to", "step", "times", "files"))
    if ("step" in value) == ("times" in value):
        raise InputError(
            "a range needs either 'step' or 'times'", value=value, allowed=AxisValues.allowed
        )
    way = "step" if "step" in value else "times"
    written = [_number(value, key) for key in ("from", "to", way)]
    first, last, by = (Decimal(str(number)) for number in written)
    moves = by > 0 if way == "step" else by > 1 and first > 0
    if not moves or last < first:
        raise InputError(
            "the range is empty or has no end",
            key=way if not moves else "to",
            value=value[way if not moves else "to"],
            allowed="'to' not below 'from'; 'step' above 0; 'times' above 1, from a number above 0",
        )
    numbers = [first]
    while numbers[-1] < last and len(numbers) < MAX_POINTS:
        numbers.append(numbers[-1] + by if way == "step" else numbers[-1] * by)
    whole = all(isinstance(number, int) for number in written)
    if numbers[-1] < last:
        raise InputError(
            f"a range from {written[0]} to {written[1]} has more than {MAX_POINTS:,} values",
            key="to",
            value=written[1],
            allowed=f"a range of at most {MAX_POINTS:,} values",
        )
    if numbers[-1] != last:
        near = [number for number in numbers[-2:] if number >= first]
        raise InputError(
            f"a range from {written[0]} does not reach {written[1]}",
            key="to",
            value=written[1],
            allowed="an end that the range reaches",
            nearest=" or ".join(str(number) for number in near),
        )
    return tuple(int(number) if whole else float(number) for number in numbers)


# ---------------------------------------------------------------- filters

COMPARISONS = ("above", "at_least", "below", "at_most", "multiple_of")


class Conditions(Described):
    """Keys and what their values must be; all of them must hold."""

    allowed = (
        "a mapping of keys to a value, to a list of values, or to a mapping of "
        f"{', '.join(COMPARISONS)} to a number or another key"
    )

    def read(self, value: object) -> dict[str, Any]:
        """Return the conditions of what stands in a file, checked."""
        if not isinstance(value, Mapping) or not value:
            raise InputError(
                f"{show(value)} holds no conditions", value=value, allowed=self.allowed
            )
        for key, condition in value.items():
            if not isinstance(condition, Mapping):
                continue
            try:
                _check_keys(condition, COMPARISONS)
            except InputError as error:
                raise error.located(Place(key=f"{key}.{error.key}")) from None
            for name, other in condition.items():
                if isinstance(other, bool) or not isinstance(other, int | float | str):
                    raise InputError(
                        f"{show(other)} is not a number or a key",
                        key=f"{key}.{name}",
                        value=other,
                        allowed="a number, or another key of the scenario",
                    )
        return dict(value)

    def __get_pydantic_core_schema__(self, source: Any, handler: Any) -> core_schema.CoreSchema:
        return core_schema.no_info_plain_validator_function(self.read)

    def __get_pydantic_json_schema__(self, schema: Any, handler: Any) -> dict[str, Any]:
        other = {"anyOf": [{"type": "number"}, {"type": "string"}]}
        compared = {
            "type": "object",
            "properties": dict.fromkeys(COMPARISONS, other),
            "additionalProperties": False,
        }
        values = {"type": ["array", "string", "number", "boolean"]}
        return {
            "type": "object",
            "additionalProperties": {"anyOf": [compared, values]},
            "description": self.allowed,
        }


class Filter(Strict):
    """Which points stay: those that `keep` holds of, or all but those that `drop` holds of."""

    keep: Annotated[dict[str, Any], Conditions()] | None = None
    drop: Annotated[dict[str, Any], Conditions()] | None = None

    @model_validator(mode="after")
    def _one_of_the_two(self) -> "Filter":
        if (self.keep is None) == (self.drop is None):
            raise InputError("a filter has either 'keep' or 'drop'", allowed="one of the two")
        return self


# ---------------------------------------------------------------- the file


class Axes(Described):
    """Keys and their values."""

    allowed = "a mapping of one or more dotted keys of the scenario to their values"


class SweepFile(Strict):
    """Axes are crossed, the first changing slowest; every point is a full plan.

    The base is checked with the values of each point, so it may leave out what an axis gives.
    """

    base: Annotated[SkipValidation[Scenario], Reference("scenario")]
    # Dotted keys of the scenario, as of --set; keys joined by commas are stepped together.
    axes: Annotated[dict[str, Annotated[Any, AxisValues()]], Axes()] = Field(min_length=1)
    filters: tuple[Filter, ...] = ()
    top_k: Annotated[int, Ge(1), Le(1000)] = 5
    time_limit_seconds: Annotated[float, Quantity("s", above=0)] | None = Field(
        alias="time_limit", default=None
    )

    @model_validator(mode="after")
    def _base_is_mapping(self) -> "SweepFile":
        if not isinstance(self.base, Mapping):
            raise InputError(
                f"{show(self.base)} is not a scenario",
                key="base",
                value=self.base,
                allowed="the name or path of a scenario, or a mapping of its keys",
            )
        return self

    @model_validator(mode="after")
    def _keys_differ(self) -> "SweepFile":
        seen: dict[str, str] = {}
        for axis, values in self.axes.items():
            keys = keys_of(axis)
            for key in keys:
                if not key or not all(key.split(".")):
                    raise InputError(
                        "the axis names no key",
                        key=f"axes.{axis}",
                        allowed="a dotted key of the scenario, or several joined by commas",
                    )
                if key in seen:
                    raise InputError(
                        f"the key {key} is in two places of the axes",
                        key=f"axes.{axis}",
                        value=axis,
                        allowed="each key once",
                    )
                seen[key] = axis
            if len(keys) > 1:
                _check_rows(axis, keys, values)
        return self


def keys_of(axis: str) -> tuple[str, ...]:
    """Return the dotted keys of an axis; several are stepped together."""
    return tuple(key.strip() for key in axis.split(","))


def _check_rows(axis: str, keys: tuple[str, ...], values: Values) -> None:
    rows = values if isinstance(values, tuple) else (values,)
    for position, row in enumerate(rows):
        if not isinstance(row, tuple) or len(row) != len(keys):
            raise InputError(
                f"{show(row)} does not give {', '.join(keys)} a value each",
                key=f"axes.{axis}" if isinstance(values, Pattern) else f"axes.{axis}.{position}",
                value=row,
                allowed=f"a list of lists of {len(keys)} values",
            )
