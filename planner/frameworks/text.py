"""Text of launch files: their heads, and settings as bash arrays and YAML."""

from __future__ import annotations

import json
import shlex
from collections.abc import Iterable, Mapping
from typing import Any

from planner import __version__
from planner.frameworks.job import Job
from planner.frameworks.target import Target


def stamp(job: Job, target: Target) -> list[str]:
    """The lines that every file begins with: what it is, of what, and what is predicted."""
    scenario = job.scenario
    accelerator, topology = scenario.topology.accelerator.name, scenario.topology.name
    predicted = "" if job.step_seconds is None else f"predicted step {job.step_seconds:.4g} s"
    if job.mfu is not None:
        predicted += f", MFU {job.mfu:.1%}"
    return [
        f"{target.description} ({target.version}), written by planner {__version__}.",
        f"inputs_sha256: {one_line(job.inputs_sha256)}",
        f"{one_line(scenario.model.name)} on {scenario.num_accelerators} x {one_line(accelerator)} "
        f"of {one_line(topology)}",
        f"layout {job.layout.label()}",
        *([predicted] if predicted else []),
        *(one_line(note) for note in job.notes),
    ]


def commented(lines: Iterable[str]) -> list[str]:
    """Lines as comments of a shell script, YAML or TOML."""
    return [f"# {line}" for line in lines]


def one_line(text: str) -> str:
    """Text of the user's files that cannot leave its line."""
    return "".join(c if c.isprintable() else " " for c in text)


def file_text(lines: Iterable[str]) -> str:
    """Lines as the text of a file."""
    return "\n".join([*lines, ""])


def bash_array(name: str, lines: Iterable[str]) -> list[str]:
    """The lines that set an array, one of its flags or comments a line."""
    return [f"{name}=(", *(f"  {line}" for line in lines), ")"]


def bash_array_file(job: Job, target: Target, remarks: Iterable[str], array: Iterable[str]) -> str:
    """The text of a file to be sourced that sets an array. remarks: how, and what it leaves out."""
    # the array is unused in the file itself (SC2034), and the file has no shebang
    head = [*stamp(job, target), *remarks]
    return file_text(["# shellcheck shell=bash disable=SC2034", *commented(head), *array])


def flag_lines(settings: Mapping[str, Any]) -> list[str]:
    """Each setting as words of bash: a flag, and its values each safe as one word.

    A value of true is a switch, a text has a value for each of its words, and a list of lists one
    for each of its items, their names joined by commas.
    """
    return [
        name if value is True else " ".join([name, *map(shlex.quote, _words(value))])
        for name, value in settings.items()
    ]


def _words(value: Any) -> list[str]:
    return [",".join(item) for item in value] if isinstance(value, list) else str(value).split()


def by_section(settings: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
    """Dotted settings by what stands before the last dot, '' for those without one."""
    sections: dict[str, dict[str, Any]] = {}
    for name, value in settings.items():
        section, _, key = name.rpartition(".")
        sections.setdefault(section, {})[key] = value
    return sections


def yaml_lines(settings: Mapping[str, Any]) -> list[str]:
    """Settings of at most one dot as YAML, those without a section first."""
    lines: list[str] = []
    # keys behind a section would belong to it, so those without one come first
    sections: dict[str, dict[str, Any]] = {"": {}}
    for section, values in (sections | by_section(settings)).items():
        lines += [f"{section}:"] if section else []
        indent = "  " if section else ""
        lines += [f"{indent}{key}: {json.dumps(value)}" for key, value in values.items()]
    return lines
