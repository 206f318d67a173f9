"""Real parsers of launch targets, each in one subprocess that answers JSON lines.

They live in an environment of their own, which `tests/parsers/setup.sh FOLDER` makes; the tests
find it by the variable PLANNER_PARSERS and are skipped without it.
"""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import pytest

VARIABLE = "PLANNER_PARSERS"
HERE = Path(__file__).parent
SETUP = "tests/parsers/setup.sh FOLDER makes them; then PLANNER_PARSERS=FOLDER"


def folder(part: str) -> Path:
    """The folder of the parsers that holds `part`; without it the test is skipped, and says how."""
    given = os.environ.get(VARIABLE)
    if not given:
        pytest.skip(f"the frameworks' own parsers are not set up: {SETUP}")
    found = Path(given).resolve()
    if not (found / part).exists():
        pytest.skip(f"{found} has no {part}: {SETUP}")
    return found


def ask(
    driver: str, part: str, jobs: Iterable[Mapping[str, Any]], **environment: str
) -> list[dict[str, Any]]:
    """The driver's answers to jobs, in order."""
    root = folder(part)
    lines = "".join(json.dumps(job) + "\n" for job in jobs)
    done = subprocess.run(
        [root / "venv" / "bin" / "python", HERE / driver],
        input=lines,
        capture_output=True,
        text=True,
        env={
            "PATH": os.environ["PATH"], "HOME": os.environ.get("HOME", "/"),
            "PYTHONPATH": str(root / part), **environment,
        },
        timeout=600,
    )  # fmt: skip
    answers = [json.loads(line) for line in done.stdout.splitlines()]
    assert len(answers) == lines.count("\n"), done.stderr[-4000:]
    return answers


def bash_words(text: str, array: str) -> list[str]:
    """The words of an array that a text of bash sets."""
    script = f'source /dev/stdin; printf "%s\\0" "${{{array}[@]}}"'
    done = subprocess.run(
        ["bash", "-eu", "-c", script], input=text, check=True, capture_output=True, text=True
    )
    assert done.stderr == ""
    return done.stdout.split("\0")[:-1]
