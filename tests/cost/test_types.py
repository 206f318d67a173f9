"""Costs are typed: what is no number is refused before it runs."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import planner

ROOT = Path(planner.__file__).parent.parent

SNIPPET = """
from planner.cost.collectives import GroupCost, duration

duration(GroupCost(1.0, (2.0,), 3.0), [0.5])  # line 4: numbers
duration(GroupCost("late", ("a",), None), [b""])  # line 5: nothing that is one
"""


def test_what_is_no_number_is_refused(tmp_path: Path) -> None:
    """One error for each of four arguments, and none where they are numbers."""
    snippet = tmp_path / "snippet.py"
    snippet.write_text(SNIPPET, "utf-8")
    command = [sys.executable, "-m", "mypy", "--cache-dir", str(tmp_path), str(snippet)]
    checked = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=300)
    assert checked.returncode == 1, checked.stdout + checked.stderr
    lines = re.findall(r"snippet\.py:(\d+): error: .* \[(?:arg-type|list-item)\]", checked.stdout)
    assert lines == ["5"] * 4, checked.stdout
