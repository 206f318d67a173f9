"""The sweep file: a base scenario, axes of values for its keys, and which points to leave out."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import Annotated, Any

from annotated_types import Ge, Le
from pydantic import Field, SkipValidation, model_validator

from planner.errors import InputError, Place
from planner.inputs.complaints import Described, Parsed, unknown_key
from planner.inputs.documents import show
from planner.inputs.quantities import Quantity
from planner.inputs.values import Reference, Strict
from planner.problem.scenario import Scenario

MAX_POINTS = 100_000
"""Of a sweep, and values of a range."""

Number = int | float


@dataclass(frozen=True, slots=True)
class FileGlob:
    """A glob; each file that it finds is a value of a key that takes a file."""

    files: str


Values = tuple[Any, ...] | FileGlob
"""The values of an axis. Of keys that change together, each value is a list, one item per key."""


class AxisValues(Parsed):
    """A list of values, a range of numbers, or a glob of files."""

    allowed = (
        "a list of values, {from: 8, to: 64, step: 8}, {from: 8, to: 64, times: 2} or "
        '{files: "clusters/*.yaml"}'
    )

    def read(self, value: object) -> Values:
        """Return the values of an axis, a range written out.

        Raises:
            InputError: none of the three, or a range that is endless or misses its end.
        """
        if isinstance(value, tuple):
            if not value:
                raise InputError("the list is empty", value=value, allowed=self.allowed)
            return value
        if not isinstance(value, Mapping):
            raise InputError(f"{show(value)} is not a list", value=value, allowed=self.allowed)
        if "files" in value:
            _check_keys(value, ("files",))
            return FileGlob(_text(value, "files"))
        return _written_out(value)

    def __get_pydantic_json_schema__(self, schema: Any, handler: Any) -> dict[str, Any]:
        number = {"type": "number"}
        bounds = {"from": number, "to": number}
        return {
            "anyOf": [
                {"type": "array", "minItems": 1},
                *(
                    {
                        "type": "object",
                        "properties": {**bounds, growth: number},
                        "required": ["from", "to", growth],
                        "additionalProperties": False,
                    }
                    for growth in ("step", "times")
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
            raise unknown_key(key, value[key], keys)


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
    growth = "step" if "step" in value else "times"
    written = [_number(value, key) for key in ("from", "to", growth)]
    # Decimals, so that from 0.1 by 0.1 reaches 0.3.
    first, last, by = (Decimal(str(number)) for number in written)
    grows = by > 0 if growth == "step" else by > 1 and first > 0
    if not grows or last < first:
        key = "to" if grows else growth
        raise InputError(
            "the range is empty or has no end",
            key=key,
            value=value[key],
            allowed="'to' not below 'from'; 'step' above 0; 'times' above 1, from a number above 0",
        )
    numbers = [first]
    while numbers[-1] < last and len(numbers) < MAX_POINTS:
        numbers.append(numbers[-1] + by if growth == "step" else numbers[-1] * by)
    if numbers[-1] != last:
        raise _never_reached(written[0], written[1], numbers[-2:], last)
    all_integers = all(isinstance(number, int) for number in written)
    return tuple(int(number) if all_integers else float(number) for number in numbers)


def _never_reached(
    first: Number, last: Number, around: Sequence[Decimal], end: Decimal
) -> InputError:
    """Return the error that a range misses its end; `around` are its last two numbers."""
    if around[-1] < end:
        return InputError(
            f"a range from {first} to {last} has more than {MAX_POINTS:,} values",
            key="to",
            value=last,
            allowed=f"a range of at most {MAX_POINTS:,} values",
        )
    return InputError(
        f"a range from {first} does not reach {last}",
        key="to",
        value=last,
        allowed="an end that the range reaches",
        nearest=" or ".join(str(number) for number in around),
    )


# ---------------------------------------------------------------- filters

COMPARISONS: tuple[str, ...] = ("above", "at_least", "below", "at_most", "multiple_of")


class Conditions(Parsed):
    """Keys and what their values must be; all conditions must be met."""

    allowed = (
        "a mapping of keys to a value, to a list of values, or to a mapping of "
        f"{', '.join(COMPARISONS)} to a number or another key"
    )

    def read(self, value: object) -> dict[str, Any]:
        """Return the conditions, by key.

        Raises:
            InputError: not a mapping, an unknown comparison, or one with neither number nor key.
        """
        if not isinstance(value, Mapping) or not value:
            is_empty = isinstance(value, Mapping)
            what = "no conditions are given" if is_empty else f"{show(value)} is not a mapping"
            raise InputError(what, value=value, allowed=self.allowed)
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
    """Which points are planned: those that meet `keep`, or those that do not meet `drop`."""

    keep: Annotated[dict[str, Any], Conditions()] | None = None
    drop: Annotated[dict[str, Any], Conditions()] | None = None

    @model_validator(mode="after")
    def _one_of_the_two(self) -> "Filter":
        if (self.keep is None) == (self.drop is None):
            raise InputError("a filter has either 'keep' or 'drop'", allowed="one of the two")
        return self


# ---------------------------------------------------------------- the file


class Axes(Described):
    """Keys of the scenario and their values."""

    allowed = "a mapping of one or more dotted keys of the scenario to their values"


class SweepFile(Strict):
    """A base scenario and axes, which are crossed, the first changing slowest.

    Every point is a plan of its own. The base is checked together with the values of each point,
    so it may leave out what an axis gives.
    """

    base: Annotated[SkipValidation[Scenario], Reference("scenario")]
    # Dotted keys of the scenario, as of --set; keys joined by commas change together.
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
    """Return the dotted keys of an axis; several change together."""
    return tuple(key.strip() for key in axis.split(","))


def _check_rows(axis: str, keys: tuple[str, ...], values: Values) -> None:
    rows = values if isinstance(values, tuple) else (values,)
    for position, row in enumerate(rows):
        if not isinstance(row, tuple) or len(row) != len(keys):
            raise InputError(
                f"{show(row)} does not give {', '.join(keys)} a value each",
                key=f"axes.{axis}" if isinstance(values, FileGlob) else f"axes.{axis}.{position}",
                value=row,
                allowed=f"a list of lists of {len(keys)} values",
            )
