"""`planner check`: whether a launch script runs on a cluster, how fast, what would be better."""

from __future__ import annotations

import shlex
import sys

import click

from planner.cli import options
from planner.cli.program import DONE, NO_LAYOUT

ARGUMENTS = "arguments after --"


class _WithArguments(click.Command):
    """A command that keeps apart what follows `--`."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Words before `--` are parsed, those behind it kept as they are."""
        if "--" in args:
            cut = args.index("--")
            args, ctx.meta[ARGUMENTS] = args[:cut], args[cut + 1 :]
        return super().parse_args(ctx, args)


@click.command(cls=_WithArguments)
@click.argument("names", nargs=-1, metavar="[SCRIPT] SCENARIO [-- ARGUMENT...]")
@click.option(
    "--target", metavar="NAME",
    help="What the script is: megatron, torchtitan, torchtitan-toml, deepspeed or accelerate; "
    "without it the content tells.",
)  # fmt: skip
@click.option(
    "--env", "variables", multiple=True, metavar="NAME=VALUE", callback=options.assignments,
    help="Value of a shell variable, whatever the script assigns. Repeatable.",
)  # fmt: skip
@click.option(
    "--layout", metavar="KEY=VALUE,...", help="Layout keys that the script leaves to the program."
)
@options.as_json
@options.overrides
@click.pass_context
def check(
    ctx: click.Context,
    names: tuple[str, ...],
    target: str | None,
    variables: dict[str, str],
    layout: str | None,
    as_json: bool,
    overrides: dict[str, str],
) -> int:
    """Check a launch script of your own against a scenario.

    SCRIPT is a file, or - for standard input: Megatron-LM or torchtitan arguments, a shell script
    with them, torchtitan's TOML, DeepSpeed's JSON, accelerate's YAML. It is read, never run.
    Arguments may follow -- instead.

    Exit codes: 0 it runs, 1 it will not run (a rule is broken, or it does not fit), 2 bad input.
    """
    given = ctx.meta.get(ARGUMENTS)
    wanted = 1 if given is not None else 2
    if len(names) != wanted:
        raise click.UsageError(
            "give SCRIPT and SCENARIO, or SCENARIO alone with the arguments behind --", ctx
        )
    from planner import api
    from planner.cli.output import show
    from planner.report.text.check import check_report

    path = ARGUMENTS if given is not None else names[0]
    text = shlex.join(given) if given is not None else _read(path)
    scenario = api.load_scenario(names[-1], overrides)
    found = api.check(text, scenario, path, target, variables, layout)
    show(found.to_document(), check_report(found), as_json)
    return DONE if found.runs else NO_LAYOUT


def _read(path: str) -> str:
    from planner.errors import InputError
    from planner.inputs.text import file_text, stream_text

    allowed = "a launch script or configuration"
    if path != "-":
        return file_text(path, allowed, pipes=True)
    if sys.stdin is None:
        raise InputError("cannot be read: standard input is closed", path=path, allowed=allowed)
    return stream_text(sys.stdin.buffer, allowed, shown=path)
