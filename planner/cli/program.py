"""The program: its group of commands, errors as one paragraph, exit codes, interrupts, pipes.

Nothing here imports more than click and the exceptions: `planner --help` must be quick.
"""

from __future__ import annotations

import io
import os
import sys
import warnings
from collections.abc import Sequence
from typing import Any, NoReturn

import click
from click.exceptions import NoArgsIsHelpError

from planner import __version__
from planner.errors import InputWarning, PlannerError, nearest_of, one_paragraph

DONE, NO_LAYOUT, BAD_INPUT, INTERRUPTED = 0, 1, 2, 130


class Subjects(click.Group):
    """A command whose subjects are commands: `validate runs`."""

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """The command of a name; an unknown name is answered with the nearest one."""
        # click offers no suggestions for commands
        name = args[0]
        if self.get_command(ctx, name) is None and not name.startswith("-"):
            known = self.list_commands(ctx)
            near = nearest_of(name, known)
            hint = f"; did you mean '{near}'?" if near else f"; there are {', '.join(known)}"
            raise click.UsageError(f"no command '{name}'{hint}", ctx)
        return super().resolve_command(ctx, args)


class Program(Subjects):
    """The group of all commands. Commands return their exit code, or None for done."""

    def main(  # type: ignore[override]
        self, args: Sequence[str] | None = None, prog_name: str | None = None, **extra: Any
    ) -> NoReturn:
        """Run and exit: 0 done, 1 no layout fits (or cannot be expressed), 2 bad input."""
        # click would print its errors in its own form and exit: both are done here
        extra["standalone_mode"] = False
        _make_streams_printable()
        try:
            with warnings.catch_warnings():
                # Python shows a warning once per place in the code; every input has its own
                warnings.simplefilter("always", InputWarning)
                warnings.showwarning = _warn
                result = super().main(args, prog_name or "planner", **extra)
            # a full disk or a closed pipe shows now, while it can be answered
            sys.stdout.flush()
            code = result if isinstance(result, int) else DONE
        except PlannerError as error:
            code = _fail(str(error), error.exit_code)
        except NoArgsIsHelpError as error:
            # the help of a group that was called without a command
            click.echo(error.format_message(), err=True)
            code = BAD_INPUT
        except click.UsageError as error:
            code = _fail(_usage(error), BAD_INPUT)
        except click.Abort:
            code = INTERRUPTED
        except click.ClickException as error:
            code = _fail(error.format_message(), BAD_INPUT)
        except KeyboardInterrupt:
            code = INTERRUPTED
        # the reader, such as `head`, has what it wanted: no message
        except BrokenPipeError:
            _drop_output()
            code = NO_LAYOUT
        except OSError as error:
            code = _fail(f"output or input failed: {error.strerror or error}", BAD_INPUT)
            _drop_output()
        sys.exit(code)


@click.group(
    cls=Program,
    name="planner",
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
)
@click.version_option(__version__, prog_name="planner")
def main() -> None:
    """Choose how to split a training job over the bandwidth tiers of a cluster, with a proof.

    SCENARIO is a shipped name (`planner list scenarios`) or a YAML file. PLAN is a plan.json or
    the folder that holds one. Exit codes: 0 done, 1 no layout fits or a target cannot express the
    plan, 2 bad input.
    """


def _usage(error: click.UsageError) -> str:
    where = f" (see `{error.ctx.command_path} --help`)" if error.ctx is not None else ""
    return f"{error.format_message()}{where}"


def _fail(message: str, code: int) -> int:
    click.echo(f"planner: error: {one_paragraph(message)}", err=True)
    return code


def _warn(
    message: Warning | str, category: type[Warning], filename: str, lineno: int,
    file: object = None, line: str | None = None,
) -> None:  # fmt: skip
    """A warning as one paragraph on stderr: of ours the sentence, of others what Python prints."""
    if issubclass(category, InputWarning):
        click.echo(f"planner: warning: {one_paragraph(str(message))}", err=True)
    else:
        click.echo(warnings.formatwarning(message, category, filename, lineno, line), err=True)


def _make_streams_printable() -> None:
    """Replace characters that the terminal's encoding lacks, and closed streams by silent ones."""
    for name in ("stdout", "stderr"):
        stream = getattr(sys, name)
        if stream is None:
            setattr(sys, name, io.StringIO())
        elif isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="replace")


def _drop_output() -> None:
    """Point stdout at nothing, so that the interpreter's last flush does not fail again."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
