"""What commands print and write."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from planner.errors import InputError

if TYPE_CHECKING:
    from rich.console import RenderableType

REPORT_COLUMNS = 100
MIN_COLUMNS = 40
"""A terminal that does not know its width reports fewer columns than this."""


def json_text(document: Any) -> str:
    """The document as JSON text; numbers must be finite."""
    return json.dumps(document, indent=2, allow_nan=False) + "\n"


def print_json(document: Any) -> None:
    """One JSON document on stdout."""
    click.echo(json_text(document), nl=False)


def print_report(report: RenderableType) -> None:
    """A report on stdout: with colours and as wide as a terminal there, as plain text in a pipe."""
    from planner.report.text.pieces import console, plain_text

    # rich finds out whether stdout is a terminal, and how wide
    terminal = console(sys.stdout)
    if terminal.is_terminal and terminal.width >= MIN_COLUMNS:
        terminal.print(report)
    else:
        click.echo(plain_text(report, max(terminal.width, MIN_COLUMNS)), nl=False)


def show(document: Any, report: RenderableType, as_json: bool) -> None:
    """The document or the report."""
    if as_json:
        print_json(document)
    else:
        print_report(report)


def write_file(path: str | Path, text: str) -> None:
    """Write a file, make its folder where there is none, and report it on stderr."""
    path = Path(path)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    except OSError as error:
        raise InputError(
            f"cannot be written: {error.strerror}", path=str(path), key="--out",
            allowed="a folder that can be made and written to",
        ) from None  # fmt: skip
    click.echo(f"wrote {path}", err=True)


def write(folder: str | Path, files: Mapping[str, str]) -> None:
    """Write the files into the folder."""
    for name, text in files.items():
        write_file(Path(folder) / name, text)


def write_results(folder: str, name: str, document: Any, report: RenderableType) -> None:
    """Write the document as `name` and the report as report.txt."""
    from planner.report.text.pieces import plain_text

    write(folder, {name: json_text(document), "report.txt": plain_text(report, REPORT_COLUMNS)})
