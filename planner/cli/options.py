"""Options that several commands share, and the checks click does not do."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import click

from planner.errors import nearest_of

Command = Callable[..., Any]
Decorator = Callable[[Command], Command]


_EXAMPLES = {"KEY=VALUE": "training.global_batch_size=512", "NAME=VALUE": "NNODES=16"}


class Choice(click.Choice[str]):
    """A choice that answers a misspelt value with the nearest one."""

    def get_invalid_choice_message(self, value: Any, ctx: click.Context | None) -> str:
        """What is allowed, and the nearest choice."""
        near = nearest_of(str(value), self.choices)
        hint = f"; did you mean '{near}'?" if near else ""
        return f"'{value}' is not one of {', '.join(self.choices)}{hint}"


def assignments(
    ctx: click.Context, param: click.Parameter, given: tuple[str, ...]
) -> dict[str, str]:
    """KEY=VALUE, any number of times, as a mapping."""
    overrides = {}
    for text in given:
        key, equals, value = text.partition("=")
        if not equals or not key.strip():
            raise click.BadParameter(
                f"'{text}' is not {param.metavar}, such as {_EXAMPLES[str(param.metavar)]}",
                ctx,
                param,
            )
        if key.strip() in overrides:
            raise click.BadParameter(f"{key.strip()} is set twice", ctx, param)
        overrides[key.strip()] = value.strip()
    return overrides


def _finite(ctx: click.Context, param: click.Parameter, given: float | None) -> float | None:
    if given is not None and not math.isfinite(given):
        raise click.BadParameter(f"{given} is not a finite number", ctx, param)
    return given


def _quality(ctx: click.Context, param: click.Parameter, given: str) -> str:
    letters = given.upper()
    if not letters or set(letters) - set("ABCD"):
        raise click.BadParameter(f"'{given}' is not made of the letters A to D", ctx, param)
    return letters


def as_json(command: Command) -> Command:
    """--json"""
    return click.option(
        "--json", "as_json", is_flag=True, help="Print one JSON document and nothing else."
    )(command)


def overrides(command: Command) -> Command:
    """--set KEY=VALUE, any number of times"""
    return click.option(
        "--set", "overrides", multiple=True, metavar="KEY=VALUE", callback=assignments,
        help="Override a key of the scenario (dotted; the value is YAML). Repeatable.",
    )(command)  # fmt: skip


def out(required: bool = False, text: str = "Write plan.json and report.txt here.") -> Decorator:
    """--out DIR"""
    return click.option(
        "--out", "out", metavar="DIR", required=required,
        type=click.Path(file_okay=False), help=text,
    )  # fmt: skip


def top(command: Command) -> Command:
    """--top K"""
    return click.option(
        "--top", "top_k", type=click.IntRange(1, 1000), default=5, show_default=True, metavar="K",
        help="How many of the best layouts to prove and show.",
    )(command)  # fmt: skip


def robust(command: Command) -> Command:
    """--robust"""
    return click.option(
        "--robust", is_flag=True,
        help="Choose by the upper ends of the error bars of step time and peak memory.",
    )(command)  # fmt: skip


def time_limit(command: Command) -> Command:
    """--time-limit S"""
    return click.option(
        "--time-limit", "time_limit", type=click.FloatRange(min=0, min_open=True), metavar="S",
        callback=_finite, help="Stop the search after S seconds with what is proven so far.",
    )(command)  # fmt: skip


def quality(command: Command) -> Command:
    """--quality AB"""
    return click.option(
        "--quality", default="AB", show_default=True, callback=_quality, metavar="LETTERS",
        help="Qualities of measured rows to score.",
    )(command)  # fmt: skip


def min_mfu(default: float = 0.0) -> Decorator:
    """--min-mfu F"""
    return click.option(
        "--min-mfu", type=click.FloatRange(0, 1), default=default, show_default=True,
        callback=_finite, help="Leave out timed rows of lower measured MFU.",
    )  # fmt: skip


def half(default: str) -> Decorator:
    """--half fit|test|all"""
    return click.option(
        "--half", type=Choice(["fit", "test", "all"]), default=default, show_default=True,
        help="Which half of the rows: the one parameters are fitted on, or the other.",
    )  # fmt: skip
