"""The global batch as users know it: a number, a band, or a middle with a tolerance."""

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

from planner.errors import InputError
from planner.inputs.complaints import Parsed, number_text, unknown_key
from planner.inputs.documents import show
from planner.inputs.quantities import MAX_COUNT

MULTIPLES = {
    "": 1, "k": 10**3, "M": 10**6, "G": 10**9, "Ki": 2**10, "Mi": 2**20, "Gi": 2**30,
}  # fmt: skip
"""Suffixes of counts of tokens: powers of ten, and of 1024."""

_NUMBER = re.compile(r"\s*(\d{1,18}(?:\.\d{1,18})?(?:[eE]\+?\d{1,2})?)\s*([A-Za-z]*)\s*")
_BOUNDS = ("at_least", "at_most")
_MIDDLE = ("about", "tolerance")


@dataclass(frozen=True, slots=True)
class Band:
    """Whole numbers from `at_least` to `at_most`, of which any may be chosen."""

    at_least: int
    at_most: int


class BatchSize(Parsed):
    """A whole number, or a band: {at_least, at_most}, or {about, tolerance} (a fraction)."""

    def __init__(self, noun: str, suffixes: bool = False) -> None:
        """noun: what is counted. suffixes: whether '4M' and '4Mi' are numbers too."""
        self.noun = noun
        self.suffixes = suffixes

    @property
    def allowed(self) -> str:
        text = " (or text such as 4M = 4·10^6, 4Mi = 4·2^20)" if self.suffixes else ""
        return (
            f"a whole number of {self.noun} >= 1{text}; or a band, {{at_least: ..., at_most: ...}} "
            "or {about: ..., tolerance: 0.1}"
        )

    def read(self, value: object) -> int | Band | None:
        """Return the checked number or band; None as it is.

        Raises:
            InputError: neither, or a band without a whole number in it.
        """
        if value is None:
            return None
        if isinstance(value, Band):
            return self._band(value.at_least, value.at_most)
        if not isinstance(value, Mapping):
            return self._checked(value, None)
        if set(value) == set(_BOUNDS):
            return self._band(*(self._checked(value[key], key) for key in _BOUNDS))
        if set(value) == set(_MIDDLE):
            return self._around(self._checked(value["about"], "about"), value["tolerance"])
        known = (*_BOUNDS, *_MIDDLE)
        for key in value:
            if key not in known:
                raise unknown_key(key, value[key], known)
        for keys in (_BOUNDS, _MIDDLE):
            missing = [key for key in keys if key not in value]
            if len(missing) == 1 and len(value) == 1:
                raise InputError("this key is missing", key=missing[0], allowed=self.allowed)
        raise InputError("is no band", value=value, allowed=self.allowed)

    def _band(self, least: int, most: int) -> int | Band:
        if least > most:
            raise InputError(
                f"a band from {least} to {most} is empty", key="at_most", value=most,
                allowed=f"an integer >= {least}",
            )  # fmt: skip
        return least if least == most else Band(least, most)

    def _around(self, middle: int, tolerance: object) -> int | Band:
        number = -1 if isinstance(tolerance, bool) else tolerance
        if not isinstance(number, int | float) or not 0 <= number < 1:
            raise InputError(
                f"{show(tolerance)} is no fraction", key="tolerance", value=tolerance,
                allowed="a number >= 0 and < 1: 0.1 is ten percent below and above",
            )  # fmt: skip
        offset = Fraction(str(number)) * middle
        return self._band(math.ceil(middle - offset), math.floor(middle + offset))

    def _checked(self, value: object, key: str | None) -> int:
        number = self._whole_number(value)
        if number is None:
            raise InputError(
                f"{show(value)} is no whole number of {self.noun}", key=key, value=value,
                allowed=self.allowed if key is None else f"a whole number of {self.noun} >= 1",
            )  # fmt: skip
        if not 1 <= number <= MAX_COUNT:
            sign = "negative" if number < 0 else "too small" if number < 1 else "too large"
            raise InputError(
                f"{show(value)} is {sign}", key=key, value=value,
                allowed=f"an integer from 1 to {number_text(MAX_COUNT)}",
            )  # fmt: skip
        return number

    def _whole_number(self, value: object) -> int | None:
        """Return the whole number that is written; None where there is none."""
        if isinstance(value, int):
            return None if isinstance(value, bool) else value
        if not self.suffixes:
            return None
        if isinstance(value, str):
            match = _NUMBER.fullmatch(value)
            if match is None or match[2] not in MULTIPLES:
                return None
            exact = Fraction(match[1]) * MULTIPLES[match[2]]
        elif isinstance(value, float) and math.isfinite(value):
            exact = Fraction(value)
        else:
            return None
        return int(exact) if exact.denominator == 1 else None

    def write(self, value: Any) -> object:
        if isinstance(value, Band):
            return {"at_least": value.at_least, "at_most": value.at_most}
        return value

    def __get_pydantic_json_schema__(self, schema: Any, handler: Any) -> dict[str, Any]:
        number: dict[str, Any] = {"type": "integer", "minimum": 1, "description": self.allowed}
        text: list[dict[str, Any]] = [{"type": "string"}] if self.suffixes else []
        return {"anyOf": [number, *text, _band_schema(_BOUNDS), _band_schema(_MIDDLE)]}


def _band_schema(keys: tuple[str, str]) -> dict[str, Any]:
    number = {"type": ["number", "string"]}
    return {
        "type": "object",
        "properties": dict.fromkeys(keys, number),
        "required": list(keys),
        "additionalProperties": False,
    }
