"""`planner import`: what users have, as files of the planner."""

from __future__ import annotations

import click

from planner.cli.program import Subjects


@click.group(name="import", cls=Subjects)
def import_() -> None:
    """Turn files of others into files of the planner."""
