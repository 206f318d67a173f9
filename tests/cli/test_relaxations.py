"""What an infeasible scenario's report prints to make it fit: taken as it stands, it does."""

from __future__ import annotations

import json
import re
import shlex
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from planner.cli import main
from planner.problem.scenario import Scenario, Search
from tests.scenarios import small_accelerator, small_scenario, small_software, small_topology

LINE = re.compile(r"^  ((?:--set \S+ ?)+) ", re.MULTILINE)


def tight(hbm_bytes: float = 2.5e8, num: int = 8, **changes: Any) -> Scenario:
    """Eight accelerators of little memory, of sixteen there are."""
    part = small_accelerator(hbm_bytes=hbm_bytes)
    software = small_software(
        runtime_bytes=1e7, communicator_bytes=1e6, zero_stages=(0, 1), recompute=("none", "full"),
        offloads=(),
    )  # fmt: skip
    usual = {"topology": small_topology((4, 4), accelerator=part), "software": software}
    return small_scenario(num, **(usual | changes))


def planned(file: Path, *options: str) -> str:
    done = CliRunner().invoke(main, ["plan", str(file), *options], env={"COLUMNS": "300"})
    assert done.exit_code in (0, 1), done.output
    return done.stdout


FREE: dict[str, Any] = {"mbs": (1,), "vp": (1,)}
CASES = {
    "restrictions": tight(4e8, search=Search(tp=(1,), pp=(1,), recompute=("none",), sp=(False,))),
    "an order": tight(
        1e12, 6, topology=small_topology((3, 2)), search=Search(tp=(2,), orders="framework", **FREE)
    ),
    "robust": tight(3e8, search=Search(robust=True, recompute=("none",), **FREE)),
    "counts are open": tight(3e8, search=Search(num_accelerators=(4, 8), **FREE)),
    "too few": tight(4e8, 4, search=Search(**FREE)),
}


@pytest.mark.parametrize("name", CASES)
def test_every_printed_change_makes_it_fit(tmp_path: Path, name: str) -> None:
    file = tmp_path / "scenario.json"
    file.write_text(json.dumps(CASES[name].model_dump(mode="json", by_alias=True)))
    text = planned(file)
    assert "No layout fits." in text
    lines = LINE.findall(text.partition("What would make it fit")[2])
    assert lines
    for line in lines:
        assert "Proof   optimal" in planned(file, *shlex.split(line)), line
