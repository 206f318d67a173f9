"""The command line: `planner`. Everything it does is one call of `planner.api`."""

from planner.cli.commands import main

__all__ = ["main"]
