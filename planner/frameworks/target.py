"""Launch targets: what a framework calls things, in the version that is written for.

A target's table `NAME.yaml` lies next to the code that uses it. It is read in both directions: a
plan's keys and values become the target's settings, a script's settings become keys and values.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from typing import Annotated, Any, Literal

from pydantic import Field

from planner.inputs.quantities import Figure, Sourced
from planner.inputs.values import Strict, load
from planner.layouts.keys import KEYS, Choice
from planner.problem.software import OrderAxis, Software

SettingValue = str | int | bool

Settings = dict[str, SettingValue]
"""A target's own names to values; true is a switch."""

Arity = Literal["switch", "one", "many"]
"""How many values a setting takes."""


class Variable(Strict):
    """An environment variable that a launch sets, the condition by name, and its source."""

    value: str
    where: str
    source: str


class Target(Strict):
    """One target: its version, whose plans it takes, its names and its codes.

    names: the planner's dotted key → a setting of the same value. codes: key → value, as text →
    the settings that mean it. defaults: what a key of the layout is without any of its settings.
    reads: settings that a script may have and neither names nor codes cover, or that take several
    values. limits: values of search keys that it can express. tier: how surely its files are read
    back (1 by the real parser, 2 with stand-ins, 3 not run).
    """

    name: str
    description: str
    version: str
    tier: Literal[1, 2, 3]
    parser: str
    software: tuple[str, ...] = ()  # profiles whose plans it takes; the first is re-solved under
    # Further profiles that scripts of this target may be checked under.
    checked_under: tuple[str, ...] = ()
    orders: dict[str, tuple[OrderAxis, ...]] = Field(default_factory=dict)
    names: dict[str, str] = Field(default_factory=dict)
    codes: dict[str, dict[str, dict[str, SettingValue]]] = Field(default_factory=dict)
    defaults: dict[str, str] = Field(default_factory=dict)
    reads: dict[str, Arity] = Field(default_factory=dict)
    limits: dict[str, tuple[int, ...]] = Field(default_factory=dict)

    accelerators_per_host: dict[str, Annotated[Figure, Sourced(at_least=1)]] = Field(
        default_factory=dict
    )
    environment: dict[str, Variable] = Field(default_factory=dict)

    def takes(self, software: Software) -> bool:
        """Whether the target is written for plans scored under a profile or its family."""
        return bool({software.name, software.family} & set(self.software))

    def values(self, key: str) -> tuple[str, ...]:
        """Values of a key that the target can express, as text."""
        return tuple(self.codes[key]) if key in self.codes else ()

    def expresses(self, key: str, value: object) -> bool:
        """Whether the target can express a value of a key."""
        return key in self.names or text_of(value) in self.codes.get(key, {})

    def settings(self, key: str, value: object) -> Settings:
        """The settings that mean a key's value."""
        if key in self.names:
            assert isinstance(value, str | int | bool)
            return {self.names[key]: value}
        return dict(self.codes[key][text_of(value)])

    def options(self) -> dict[str, str]:
        """Keys of a layout that take a default unless they are given, and have a setting of the
        same value: key → setting."""
        return {
            key: setting
            for key, setting in self.names.items()
            if key in KEYS and KEYS[key].choice is Choice.DEFAULT
        }

    def settings_of(self, key: str) -> tuple[str, ...]:
        """Every setting that a key is written with, whatever its value."""
        if key in self.names:
            return (self.names[key],)
        return tuple(dict.fromkeys(name for code in self.codes[key].values() for name in code))

    def arities(self) -> dict[str, Arity]:
        """All settings that are read, and how many values each takes."""
        arities: dict[str, Arity] = dict.fromkeys(self.names.values(), "one")
        for codes in self.codes.values():
            for code in codes.values():
                arities |= {name: "switch" if v is True else "one" for name, v in code.items()}
        # `reads` overrules: a code writes a list as one text, which a script gives word by word
        return arities | self.reads

    def read(self, settings: Mapping[str, Any]) -> dict[str, Any]:
        """The planner's keys and values of given settings; values of codes as text.

        Of a key's values the one that most of the settings mean; a key that none means is left
        out, unless one of its values is written with no setting at all.
        """
        values: dict[str, Any] = {
            key: settings[name] for key, name in self.names.items() if name in settings
        }
        given = {(name, text_of(value)) for name, value in settings.items()}
        for key, codes in self.codes.items():
            matching = [
                value
                for value, code in codes.items()
                if {(name, text_of(setting)) for name, setting in code.items()} <= given
            ]
            if matching:
                # a value written with no setting matches everything, so the longest code counts
                values[key] = max(matching, key=lambda value: len(codes[value]))
        return values


def text_of(value: object) -> str:
    """A value as the tables write it."""
    return ("false", "true")[value] if isinstance(value, bool) else str(value)


@cache
def target(name: str) -> Target:
    """A shipped target.

    Raises:
        UnknownNameError: there is no such target.
    """
    return load(name, "target", Target)
