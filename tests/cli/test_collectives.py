"""`planner validate collectives` and `planner calibrate collectives`, as a user runs them."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from planner.cli import main

LOGS = Path(__file__).parent.parent / "data" / "nccl"


def run(*arguments: str | Path) -> Result:
    return CliRunner().invoke(main, [str(argument) for argument in arguments])


def test_published_collectives_are_the_default() -> None:
    found = run("validate", "collectives", "--json")
    assert found.exit_code == 0
    document = json.loads(found.stdout)
    assert document["logs"] == 61
    assert document["median_fraction"] <= 0.10
    assert set(document) >= {"p95_fraction", "by_log", "sections", "skipped"}


def test_report_names_sections_and_suspicious_hosts() -> None:
    found = run("validate", "collectives")
    assert found.exit_code == 0
    for words in ("held out", "degraded", "α+S/β", "Suspicious hosts", "h100_2x8_ib_degraded"):
        assert words in found.stdout


def test_text_on_a_topology() -> None:
    found = run(
        "validate", "collectives", LOGS / "all_reduce_two_nodes.txt", "--topology", "dgx-h100"
    )
    assert found.exit_code == 0
    assert "1 logs, 4 points" in found.stdout
    alone = run("validate", "collectives", LOGS / "all_reduce_two_nodes.txt")
    assert alone.exit_code == 0
    assert "Skipped" in alone.stdout


def test_calibrate_writes_a_fabric_that_a_topology_can_use(tmp_path: Path) -> None:
    out = tmp_path / "measured-nvlink.yaml"
    log = LOGS / "all_gather_old.txt"
    found = run("calibrate", "collectives", log, "--topology", "dgx-a100", "--out", out, "--json")
    assert found.exit_code == 0
    assert f"wrote {out}" in found.stderr
    document = json.loads(found.stdout)
    assert document["fabric"] == "measured-nvlink"
    assert document["by_log"]["all_gather_old"]["num_bytes"] == [1024.0, 32768.0]
    assert len(document["by_log"]["all_gather_old"]["error_fraction"]) == 2
    text = Path("topologies/dgx-a100.yaml").read_text("utf-8")
    mine = tmp_path / "mine.yaml"
    mine.write_text(text.replace("fabric: nvlink3", "fabric: ./measured-nvlink.yaml"), "utf-8")
    used = run("validate", "collectives", log, "--topology", mine, "--json")
    assert used.exit_code == 0
    assert json.loads(used.stdout)["by_log"]["all_gather_old"]["fabrics"] == ["measured-nvlink"]


def test_calibrate_shows_the_error_at_each_size(tmp_path: Path) -> None:
    found = run(
        "calibrate", "collectives", LOGS / "all_to_all_cut.txt",
        "--topology", "dgx-h100", "--out", tmp_path / "x.yaml",
    )  # fmt: skip
    assert found.exit_code == 0
    for words in ("16,777,216", "busbw", "all_to_all_efficiency", "line 7 is cut short"):
        assert words in found.stdout


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (("validate", "collectives", "no.txt"), "no.txt: cannot be read"),
        (("validate", "collectives", __file__), "holds no table of nccl-tests"),
        (("calibrate", "collectives", "x.txt", "--topology", "dgx-h100"), "--out"),
        (("calibrate", "collectiv"), "did you mean 'collectives'"),
    ],
)
def test_mistakes_are_answered(arguments: tuple[str, ...], says: str) -> None:
    found = run(*arguments)
    assert found.exit_code == 2
    assert says in found.stderr
