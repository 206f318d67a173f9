"""What a launch script says, in the planner's words: values between its reader and the check."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from planner.errors import IllegalLayoutError, InputError
from planner.inputs.quantities import MAX_LAYERS
from planner.inputs.text import natural_number

MOST = 10**9
"""The greatest number that is read: greater ones are slips."""

LIMITS = {"--num-layers": MAX_LAYERS}
"""Settings of which fewer can be: as many things are made as they say."""


@dataclass(frozen=True, slots=True)
class Setting:
    """One setting of a script, its value as text, a number, true for a switch, or a list.

    outside: the environment may say otherwise (`${TP:-8}`).
    """

    name: str
    value: Any
    line: int | None = None
    outside: bool = False


@dataclass(frozen=True, slots=True)
class Note:
    """Something said about a script: where it stands, what it is about, a sentence."""

    subject: str
    text: str
    line: int | None = None


@dataclass(frozen=True, slots=True)
class Count:
    """Accelerators a script names: hosts, and accelerators of each, as far as it says them."""

    hosts: int | None = None
    each: int | None = None
    total: int | None = None
    settings: tuple[str, ...] = ()
    line: int | None = None
    outside: bool = False


@dataclass(frozen=True, slots=True)
class Launch:
    """A script read for one target: known settings by name, what was ignored, what is unknown."""

    target: str
    path: str
    settings: Mapping[str, Setting]
    count: Count = Count()
    ignored: tuple[Note, ...] = ()
    unread: tuple[Note, ...] = ()

    def has(self, name: str) -> bool:
        """Whether the script sets it."""
        return name in self.settings

    def line(self, *names: str) -> int | None:
        """The line of the first of these settings that is there."""
        return next((self.settings[n].line for n in names if n in self.settings), None)

    def text(self, name: str, default: str = "") -> str:
        """A setting's value as text."""
        return str(self.settings[name].value) if name in self.settings else default

    def on(self, name: str) -> bool:
        """Whether a switch is on."""
        return self.text(name).lower() in ("true", "1")

    def whole(self, name: str, default: int | None = None, least: int = 1) -> int | None:
        """A setting's value as an integer.

        Raises:
            InputError: it is none, or not from `least` to MOST (of some LIMITS).
        """
        if name not in self.settings:
            return default
        found = self.settings[name]
        value, most = whole_number(found.value), LIMITS.get(name, MOST)
        if value is None or not least <= value <= most:
            raise InputError(
                f"{found.value} is of the wrong kind", path=self.path, line=found.line, key=name,
                value=found.value, allowed=f"an integer >= {least} and <= {most}",
            )  # fmt: skip
        return value

    def choice(self, name: str, known: Sequence[str], default: str) -> str:
        """A setting's value, one of those known.

        Raises:
            InputError: another value.
        """
        text = self.text(name, default)
        if text not in known:
            raise InputError(
                f"{text} is not known", path=self.path, line=self.line(name), key=name, value=text,
                allowed=", ".join(known),
            )  # fmt: skip
        return text


def whole_number(value: object) -> int | None:
    """An integer, or text that is one; else None."""
    if isinstance(value, int) and not isinstance(value, bool):
        return value
    text = str(value).strip()
    number = natural_number(text.removeprefix("-"))
    return -number if number is not None and text.startswith("-") else number


@dataclass(frozen=True, slots=True)
class Said:
    """One key of ours that a script says: its value, the setting that says it, and where."""

    key: str
    value: Any
    setting: str
    line: int | None


@dataclass(slots=True)
class Understood:
    """A script in the planner's words.

    layout, training, model: our keys (of the model dotted below it) to values. order: the name of
    the target's rank order. software: the profile it means, if it tells. defaults: what the
    framework does where the script is silent. otherwise: what is judged otherwise than written.
    broken: what the framework itself refuses, beyond our rules.
    """

    order: str
    layout: dict[str, Any] = field(default_factory=dict)
    training: dict[str, Any] = field(default_factory=dict)
    model: dict[str, Any] = field(default_factory=dict)
    model_name: str | None = None
    software: str | None = None
    said: list[Said] = field(default_factory=list)
    defaults: list[Note] = field(default_factory=list)
    otherwise: list[Note] = field(default_factory=list)
    broken: list[IllegalLayoutError] = field(default_factory=list)

    def say(self, launch: Launch, key: str, value: Any, *settings: str) -> None:
        """A key of the layout, `training.` or `model.`, and the settings that say it."""
        part, _, name = key.partition(".")
        if part == "training":
            self.training[name] = value
        elif part == "model":
            self.model[name] = value
        else:
            self.layout[key] = value
        there = [name for name in settings if launch.has(name)]
        if there:
            self.said.append(Said(key, value, " ".join(there), launch.line(*there)))

    def refuse(
        self, rule: str, source: str, value: str, message: str, nearest: tuple[str, ...] = ()
    ) -> None:
        """What the framework refuses."""
        self.broken.append(IllegalLayoutError(rule, source, value, message, nearest))
