"""Everything the planner raises on purpose, and the place in a file that an error is about.

Exception
└── PlannerError                exit code 2, unless a subclass says otherwise
    ├── InputError              a file, key, quantity or option of the user is wrong (a ValueError)
    │   ├── UnknownNameError    no shipped topology, model ... has that name
    │   └── UnitError           a quantity without a unit, or with a unit that does not fit
    ├── IllegalLayoutError      a layout breaks a named rule of the software or of the model
    ├── UnsupportedError        valid input whose cost is not modelled yet
    └── ExportError             exit code 1: a target cannot express the plan

UserWarning
└── InputWarning                input that is read, except for one detail
"""

from collections.abc import Iterable
from dataclasses import dataclass
from difflib import get_close_matches
from typing import ClassVar, Self

MAX_SHOWN = 400
"""Characters shown of a message, key or path that a user wrote; the middle is left out."""


def one_paragraph(text: str) -> str:
    """Return `text` on one line: every run of white space becomes one blank, and control
    characters, which a terminal would obey, become visible escapes."""
    line = " ".join(text.split())
    return line if line.isprintable() else "".join(map(_visible, line))


def _visible(character: str) -> str:
    if character.isprintable():
        return character
    return character.encode("unicode_escape", "replace").decode()


def _shortened(text: str, longest: int = MAX_SHOWN) -> str:
    """Return `text`, without its middle where it is longer than `longest` characters."""
    half = longest // 2
    return text if len(text) <= longest else f"{text[:half]} ... {text[-half:]}"


def nearest_of(word: str, choices: Iterable[str]) -> str | None:
    """Return the choice most similar to `word`, ignoring letter case; None if none is similar."""
    by_folded = {choice.casefold(): choice for choice in choices}
    matches = get_close_matches(word.casefold(), by_folded, n=1, cutoff=0.6)
    return by_folded[matches[0]] if matches else None


class PlannerError(Exception):
    """Base of all errors of the planner; `exit_code` is what the command line exits with."""

    exit_code: ClassVar[int] = 2


class InputError(PlannerError, ValueError):
    """Wrong input: what is wrong, where it stands, what is allowed, and the nearest valid choice.

    It is a ValueError too, so that pydantic collects it when a validator raises it.

    Attributes:
        message: what is wrong.
        path, line, column, key: the place, as in `Place`.
        value: the wrong value.
        allowed: what would be right, in words.
        nearest: the valid choice that was probably meant; several are joined by ' or '.
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
        place = ":".join([_shortened(self.path), *numbers]) if self.path else ""
        clauses = (place, _shortened(self.key or ""), _shortened(self.message))
        text = ": ".join(clause for clause in clauses if clause)
        if self.allowed:
            # Lists of names are long, and cutting one hides the name that is looked for.
            text += f"; allowed: {_shortened(self.allowed, 5 * MAX_SHOWN)}"
        if self.nearest:
            choices = " or ".join(f"'{_shortened(c)}'" for c in self.nearest.split(" or "))
            text += f"; did you mean {choices}?"
        return one_paragraph(text)

    def __reduce__(self) -> tuple[object, ...]:
        # Exceptions are copied by their positional arguments; these have named ones.
        return _rebuild, (type(self), self.message, self._fields())

    def _fields(self) -> dict[str, object]:
        names = ("path", "line", "column", "key", "value", "allowed", "nearest")
        return {name: getattr(self, name) for name in names}

    def located(self, place: "Place") -> Self:
        """Return the same error at another place; a file it was about moves into the message."""
        message = f"{self.path}: {self.message}" if self.path else self.message
        fields = self._fields() | {
            "path": place.path,
            "line": place.line,
            "column": place.column,
            "key": place.key,
        }
        return type(self)(message, **fields)  # type: ignore[arg-type]


def _rebuild(error_class: type[InputError], message: str, fields: dict[str, object]) -> InputError:
    return error_class(message, **fields)  # type: ignore[arg-type]


@dataclass(frozen=True, slots=True)
class Place:
    """Where a value stands: file, line and column (from 1), dotted key; None where not known."""

    path: str | None = None
    line: int | None = None
    column: int | None = None
    key: str | None = None

    def __str__(self) -> str:
        """File and line, for messages about two places: 'topology.conf:7'."""
        return f"{self.path}:{self.line}" if self.line else self.path or ""

    def error(
        self,
        message: str,
        *,
        value: object = None,
        allowed: str | None = None,
        nearest: str | None = None,
    ) -> InputError:
        """Return the error that something is wrong here; arguments as of `InputError`."""
        return InputError(
            message, path=self.path, line=self.line, column=self.column, key=self.key,
            value=value, allowed=allowed, nearest=nearest,
        )  # fmt: skip


class InputWarning(UserWarning):
    """Input that is read, except for one detail, which the warning names."""


class UnknownNameError(InputError):
    """A name that no shipped file has."""


class UnitError(InputError):
    """A quantity without a unit, with an unlisted unit, or with one of the wrong dimension."""


class IllegalLayoutError(PlannerError):
    """A layout that a named rule of the software or of the model forbids.

    Attributes:
        rule: the rule's name.
        source: where the rule is from.
        value: the layout, or the choice in it that breaks the rule.
        message: what is wrong.
        nearest: legal layouts or choices that are close.
    """

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
        text = f"{_shortened(str(self.value))}: {self.message} (rule {self.rule}, {self.source})"
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
