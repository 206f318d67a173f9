"""Launch scripts as values: what one sets, and what that means in the planner's words."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from planner.errors import IllegalLayoutError, InputError
from planner.frameworks.rule import SettingsRule
from planner.inputs.quantities import MAX_LAYERS
from planner.inputs.text import natural_number

MAX_VALUE = 10**9
"""The greatest number that is read: greater ones are slips."""

MAX_VALUES = {"--num-layers": MAX_LAYERS}
"""Settings whose value is a number of things that are then made: they have a lower limit."""


# ---------------------------------------------------------------- what a script sets


@dataclass(frozen=True, slots=True)
class ScriptSetting:
    """One setting of a script, its value as text, a number, true for a switch, or a list.

    overridable: the environment may give another value (`${TP:-8}`).
    """

    name: str
    value: Any
    line: int | None = None
    overridable: bool = False


@dataclass(frozen=True, slots=True)
class Note:
    """A remark about a script: its subject, a sentence, and the line it is about."""

    subject: str
    text: str
    line: int | None = None


@dataclass(frozen=True, slots=True)
class AcceleratorCount:
    """Accelerators that a script names, as far as it does, and the settings that name them."""

    hosts: int | None = None
    per_host: int | None = None
    total: int | None = None
    settings: tuple[str, ...] = ()
    line: int | None = None
    overridable: bool = False


@dataclass(frozen=True, slots=True)
class LaunchScript:
    """A script read for one target.

    settings: those that the target's table knows, by name. ignored: other settings, and why they
    do not count. unread: what may hold settings and cannot be read.
    """

    target: str
    path: str
    settings: Mapping[str, ScriptSetting]
    count: AcceleratorCount = AcceleratorCount()
    ignored: tuple[Note, ...] = ()
    unread: tuple[Note, ...] = ()

    def values(self) -> dict[str, Any]:
        """The value of every setting."""
        return {name: setting.value for name, setting in self.settings.items()}

    def has(self, name: str) -> bool:
        """Whether the script sets it."""
        return name in self.settings

    def line(self, *names: str) -> int | None:
        """The line of the first of these settings that the script has."""
        return next((self.settings[n].line for n in names if n in self.settings), None)

    def text(self, name: str, default: str = "") -> str:
        """A setting's value as text."""
        return str(self.settings[name].value) if name in self.settings else default

    def is_on(self, name: str) -> bool:
        """Whether a switch is on."""
        return self.text(name).lower() in ("true", "1")

    def integer(self, name: str, default: int | None = None, minimum: int = 1) -> int | None:
        """A setting's value as an integer.

        Raises:
            InputError: it is none, or outside `minimum` to MAX_VALUE (or its MAX_VALUES).
        """
        if name not in self.settings:
            return default
        value, maximum = integer_of(self.settings[name].value), MAX_VALUES.get(name, MAX_VALUE)
        if value is None or not minimum <= value <= maximum:
            raise self.wrong(
                name, "is of the wrong kind", f"an integer >= {minimum} and <= {maximum}"
            )
        return value

    def degree(self, name: str) -> int:
        """A setting's value as a count, 1 where the script does not set it.

        Raises:
            InputError: it is no integer from 1 on.
        """
        return self.integer(name, 1) or 1

    def choice(self, name: str, known: Sequence[str], default: str) -> str:
        """A setting's value, one of those known.

        Raises:
            InputError: another value.
        """
        text = self.text(name, default)
        if text not in known:
            raise self.wrong(name, "is not known", ", ".join(known))
        return text

    def wrong(self, name: str, problem: str, allowed: str) -> InputError:
        """The error that the value of a setting is wrong; `problem` follows the value."""
        value = self.settings[name].value
        return InputError(
            f"{value} {problem}", path=self.path, line=self.line(name), key=name, value=value,
            allowed=allowed,
        )  # fmt: skip


def integer_of(value: object) -> int | None:
    """An integer, or text that is one; else None."""
    if isinstance(value, int) and not isinstance(value, bool):
        return value
    text = str(value).strip()
    # int() would take "1_000", "٣" and numbers of any length
    number = natural_number(text.removeprefix("-"))
    return -number if number is not None and text.startswith("-") else number


# ---------------------------------------------------------------- what it means

LEFT_TO_PROGRAM = {
    "mbs": "1: the program's to choose, --layout mbs=... says it",
    "recompute": "none: the program's to choose, --layout recompute=full says it",
    "training": "the model, and what else is not said, are the scenario's",
}
"""What configurations, other than scripts with all arguments, leave to the training program."""


@dataclass(frozen=True, slots=True)
class StatedKey:
    """A key of the planner that a script states: its value, the settings that do, and where."""

    key: str
    value: Any
    setting: str
    line: int | None


@dataclass(slots=True)
class Interpretation:
    """A script in the planner's words, filled in while its settings are gone through.

    layout, training, model: the planner's keys (of the model dotted below it) to values.
    rank_order: the name of the target's order. software: the profile that it means, if it tells.
    stated: keys that settings give; the others are the framework's defaults. defaults: what the
    framework does where the script is silent. approximations: what is judged otherwise than
    written. broken: rules of the framework that the settings break.
    """

    script: LaunchScript
    rank_order: str
    layout: dict[str, Any] = field(default_factory=dict)
    training: dict[str, Any] = field(default_factory=dict)
    model: dict[str, Any] = field(default_factory=dict)
    model_name: str | None = None
    software: str | None = None
    stated: list[StatedKey] = field(default_factory=list)
    defaults: list[Note] = field(default_factory=list)
    approximations: list[Note] = field(default_factory=list)
    broken: list[IllegalLayoutError] = field(default_factory=list)

    def state(self, key: str, value: Any, *settings: str) -> None:
        """Set a key of the layout, `training.` or `model.`; name those settings that state it."""
        owner, _, name = key.partition(".")
        if key == "model_name":
            self.model_name = value
        elif name:
            {"training": self.training, "model": self.model}[owner][name] = value
        else:
            self.layout[key] = value
        # a value that no setting gives is a default: it counts, but is not stated
        given = [name for name in settings if self.script.has(name)]
        if given:
            self.stated.append(StatedKey(key, value, " ".join(given), self.script.line(*given)))

    def placed(self, error: InputError, key: str) -> InputError:
        """The error that the value of a key is wrong, at the settings that state the key.

        Where none do the script is named, and the key. An error that is about another file, or an
        option, stays as it is.
        """
        path, message = self.script.path, error.message
        if error.path not in (None, path):
            return error
        stated = next((one for one in self.stated if one.key == key), None)
        line, name = (None, error.key) if stated is None else (stated.line, stated.setting)
        own_name = str(error.key).rpartition(".")[2]
        if name != error.key and not key.endswith(own_name) and own_name not in message:
            message = f"{error.key}: {message}"
        return InputError(
            message, path=path, line=line, key=name, value=error.value, allowed=error.allowed,
            nearest=error.nearest,
        )  # fmt: skip

    def note_default(self, subject: str, text: str, *settings: str) -> None:
        """Note what the framework does by default, with the line of the first of `settings`."""
        self.defaults.append(Note(subject, text, self.script.line(*settings)))

    def note_approximation(self, subject: str, text: str, *settings: str) -> None:
        """Note what is judged otherwise than these settings mean."""
        self.approximations.append(Note(subject, text, self.script.line(*settings)))

    def refuse(
        self, rule: SettingsRule, value: str, nearest: Sequence[str] = (), **numbers: object
    ) -> None:
        """Note a rule that the settings break; `numbers` fill in its sentence and source."""
        self.broken.append(rule.broken_by(value, nearest, **numbers))
