"""Commands run in the test's process, and what a failed one prints."""

from __future__ import annotations

from click.testing import CliRunner, Result

from planner.cli import main

SMALL = "llama3-8b-h100x8"


def run(*args: object) -> Result:
    """The result of `planner ARGS`."""
    return CliRunner().invoke(main, [str(arg) for arg in args])


def fails(result: Result, code: int = 2) -> str:
    """The message of a failed run: one paragraph on stderr, nothing on stdout."""
    assert result.exit_code == code, result.output
    assert isinstance(result.exception, SystemExit)
    assert result.stdout == ""
    assert result.stderr.startswith("planner: error: ")
    assert result.stderr.count("\n") == 1
    return result.stderr
