"""Everything the planner raises on purpose.

PlannerError                    exit code 2
├── InputError                  a file, key, quantity or option of the user is wrong
│   ├── UnknownNameError        no shipped topology, model ... of that name
│   └── UnitError               a quantity without unit, or with a unit that does not fit
├── IllegalLayoutError          a layout breaks a named rule of the software
├── UnsupportedError            valid input whose cost is not modelled yet
└── ExportError                 exit code 1: a target cannot express the plan
"""

from collections.abc import Iterable
from difflib import get_close_matches
from typing import ClassVar, Self

LONGEST = 400
"""Characters of a message, key or path that are shown of what a user wrote."""


def one_paragraph(text: str) -> str:
    """Return `text` on one line: every run of white space becomes one blank, and signs that a
    terminal would obey are spelt out."""
    line = " ".join(text.split())
    return line if line.isprintable() else "".join(map(_visible, line))


def _visible(sign: str) -> str:
    return sign if sign.isprintable() else sign.encode("unicode_escape", "replace").decode()


def shortened(text: str, longest: int = LONGEST) -> str:
    """Return `text`, its middle left out where it is longer than so many characters."""
    half = longest // 2
    return text if len(text) <= longest else f"{text[:half]} ... {text[-half:]}"


def nearest_of(word: str, choices: Iterable[str]) -> str | None:
    """Return the choice most like `word` (letter case ignored), or None when none is near."""
    by_folded = {choice.casefold(): choice for choice in choices}
    matches = get_close_matches(word.casefold(), by_folded, n=1, cutoff=0.6)
    return by_folded[matches[0]] if matches else None


class PlannerError(Exception):
    """Base of all errors of the planner; `exit_code` is what the command line exits with."""

    exit_code: ClassVar[int] = 2


class InputError(PlannerError, ValueError):
    """Wrong input: where it stands, what it is, what is allowed, and the nearest valid choice.

    It is a ValueError too, so that pydantic collects it when a validator raises it.
    """

    def __init__(
        self,
        message: str,
        *,
        path: str | None = None,
        line: int | None = None,
        column: int | None = None,
        key: str | None = None,
        value: object = None,
        allowed: str | None = None,
        nearest: str | None = None,
    ) -> None:
        super().__init__(message)
        self.message = message
        self.path = path
        self.line = line
        self.column = column
        self.key = key
        self.value = value
        self.allowed = allowed
        self.nearest = nearest

    def __str__(self) -> str:
        numbers = [str(number) for number in (self.line, self.column) if number is not None]
        place = ":".join([shortened(self.path), *numbers]) if self.path else ""
        parts = (place, shortened(self.key or ""), shortened(self.message))
        text = ": ".join(part for part in parts if part)
        if self.allowed:
            text += f"; allowed: {shortened(self.allowed, 5 * LONGEST)}"
        if self.nearest:
            choices = " or ".join(f"'{shortened(c)}'" for c in self.nearest.split(" or "))
            text += f"; did you mean {choices}?"
        return one_paragraph(text)

    def __reduce__(self) -> tuple[object, ...]:
        return _rebuild, (type(self), self.message, self._fields())

    def _fields(self) -> dict[str, object]:
        names = ("path", "line", "column", "key", "value", "allowed", "nearest")
        return {name: getattr(self, name) for name in names}

    def located(
        self, path: str | None, line: int | None, column: int | None, key: str | None
    ) -> Self:
        """Return the same error at this place; the file it was about moves into the message."""
        message = f"{self.path}: {self.message}" if self.path else self.message
        place = {"path": path, "line": line, "column": column, "key": key}
        return type(self)(message, **(self._fields() | place))  # type: ignore[arg-type]


def _rebuild(kind: type[InputError], message: str, fields: dict[str, object]) -> InputError:
    return kind(message, **fields)  # type: ignore[arg-type]


class InputWarning(UserWarning):
    """Input that is read but for a part, which the warning names."""


class UnknownNameError(InputError):
    """A name that no shipped file has."""


class UnitError(InputError):
    """A quantity without a unit, with an unlisted unit, or with one of the wrong dimension."""


class IllegalLayoutError(PlannerError):
    """A layout that a named rule of the software or of the model forbids."""

    def __init__(
        self, rule: str, source: str, value: object, message: str, nearest: tuple[str, ...] = ()
    ) -> None:
        super().__init__(rule, source, value, message, nearest)
        self.rule = rule
        self.source = source
        self.value = value
        self.message = message
        self.nearest = nearest

    def __str__(self) -> str:
        text = f"{shortened(str(self.value))}: {self.message} (rule {self.rule}, {self.source})"
        if self.nearest:
            text += f"; nearest legal: {', '.join(self.nearest)}"
        return one_paragraph(text)


class UnsupportedError(PlannerError):
    """Valid input whose cost is not modelled yet."""


class ExportError(PlannerError):
    """A target cannot express the plan, for each of `reasons`."""

    exit_code: ClassVar[int] = 1

    def __init__(self, *reasons: str) -> None:
        super().__init__(*reasons)
        self.reasons = reasons

    def __str__(self) -> str:
        return one_paragraph("; ".join(self.reasons))
