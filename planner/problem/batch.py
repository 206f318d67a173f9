"""The global batch as users know it: a number, a band, or a middle with a tolerance."""

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

from pydantic_core import core_schema

from planner.errors import InputError, nearest_of
from planner.inputs.complaints import Described
from planner.inputs.documents import show
from planner.inputs.quantities import MAX_COUNT

MULTIPLES = {
    "": 1, "k": 10**3, "M": 10**6, "G": 10**9, "Ki": 2**10, "Mi": 2**20, "Gi": 2**30,
}  # fmt: skip
"""Suffixes of counts of tokens: powers of ten, and of 1024."""

_NUMBER = re.compile(r"\s*(\d{1,18}(?:\.\d{1,18})?(?:[eE]\+?\d{1,2})?)\s*([A-Za-z]*)\s*")
_FORMS = (("at_least", "at_most"), ("about", "tolerance"))


@dataclass(frozen=True, slots=True)
class Band:
    """Whole numbers from `at_least` to `at_most`, of which any may be chosen."""

    at_least: int
    at_most: int


class Amount(Described):
    """A whole number, or a band: {at_least, at_most}, or {about, tolerance} (a share).

    words: also text of a number with a suffix, '4M' or '4Mi'.
    """

    def __init__(self, noun: str, words: bool = False) -> None:
        self.noun = noun
        self.words = words

    @property
    def allowed(self) -> str:
        text = " (or text such as 4M = 4·10^6, 4Mi = 4·2^20)" if self.words else ""
        return (
            f"a whole number of {self.noun} >= 1{text}; or a band, {{at_least: ..., at_most: ...}} "
            "or {about: ..., tolerance: 0.1}"
        )

    def read(self, value: object) -> int | Band:
        """The checked number or band.

        Raises:
            InputError: neither, or a band without a whole number in it.
        """
        if isinstance(value, Band):
            return self._band(value.at_least, value.at_most)
        if not isinstance(value, Mapping):
            return self._whole(value, None)
        form = next((form for form in _FORMS if set(form) == set(value)), None)
        if form is None:
            known = [key for keys in _FORMS for key in keys]
            wrong = next((key for key in value if key not in known), None)
            raise InputError(
                "is no band" if wrong is None else "unknown key",
                key=wrong, value=value if wrong is None else value[wrong], allowed=self.allowed,
                nearest=None if wrong is None else nearest_of(str(wrong), known),
            )  # fmt: skip
        if form == _FORMS[0]:
            least, most = (self._whole(value[key], key) for key in form)
            return self._band(least, most)
        middle, share = self._whole(value["about"], "about"), value["tolerance"]
        if isinstance(share, bool) or not isinstance(share, int | float) or not 0 <= share < 1:
            raise InputError(
                f"{show(share)} is no share", key="tolerance", value=share,
                allowed="a number >= 0 and < 1: 0.1 is ten percent either way",
            )  # fmt: skip
        off = Fraction(str(share)) * middle
        return self._band(math.ceil(middle - off), math.floor(middle + off))

    def _band(self, least: int, most: int) -> int | Band:
        if least > most:
            raise InputError(
                f"a band from {least} to {most} holds nothing", key="at_most", value=most,
                allowed=f"an integer >= {least}",
            )  # fmt: skip
        return least if least == most else Band(least, most)

    def _whole(self, value: object, key: str | None) -> int:
        whole = self._number(value)
        if whole is None:
            raise InputError(
                f"{show(value)} is no whole number of {self.noun}", key=key, value=value,
                allowed=self.allowed if key is None else f"a whole number of {self.noun} >= 1",
            )  # fmt: skip
        if not 1 <= whole <= MAX_COUNT:
            what = "is negative" if whole < 0 else "is too small" if whole < 1 else "is too large"
            raise InputError(
                f"{show(value)} {what}", key=key, value=value,
                allowed=f"an integer from 1 to {MAX_COUNT}",
            )  # fmt: skip
        return whole

    def _number(self, value: object) -> int | None:
        """The whole number of what is written, or None."""
        if isinstance(value, int):
            return None if isinstance(value, bool) else value
        if not self.words:
            return None
        if isinstance(value, str):
            match = _NUMBER.fullmatch(value)
            factor = MULTIPLES.get(match[2]) if match else None
            exact = Fraction(match[1]) * factor if match and factor else Fraction(1, 2)
        elif isinstance(value, float) and math.isfinite(value):
            exact = Fraction(value)
        else:
            return None
        return int(exact) if exact.denominator == 1 else None

    def write(self, value: int | Band) -> object:
        if isinstance(value, Band):
            return {"at_least": value.at_least, "at_most": value.at_most}
        return value

    def __get_pydantic_core_schema__(self, source: Any, handler: Any) -> core_schema.CoreSchema:
        return core_schema.no_info_plain_validator_function(
            lambda value: None if value is None else self.read(value),
            serialization=core_schema.plain_serializer_function_ser_schema(
                lambda value: None if value is None else self.write(value)
            ),
        )

    def __get_pydantic_json_schema__(self, schema: Any, handler: Any) -> dict[str, Any]:
        whole = {"type": "integer", "minimum": 1, "description": self.allowed}
        one: list[dict[str, Any]] = [whole]
        one += [{"type": "string"}] if self.words else []
        return {"anyOf": [*one, *(_form_schema(form) for form in _FORMS)]}


def _form_schema(form: tuple[str, str]) -> dict[str, Any]:
    number = {"type": ["number", "string"]}
    return {
        "type": "object",
        "properties": dict.fromkeys(form, number),
        "required": list(form),
        "additionalProperties": False,
    }
