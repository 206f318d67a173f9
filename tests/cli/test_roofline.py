"""`planner roofline`: reports, documents, pictures, exit codes."""

from __future__ import annotations

import json

import pytest

from planner import api
from planner.advise.cluster_roofline import roofline_of
from planner.problem.scenario import load_scenario
from planner.problem.topology import Topology
from tests.cli.running import fails, run
from tests.report.fabricated import SCENARIO, fabricated_plan, infeasible_plan


@pytest.fixture
def planned(monkeypatch):
    """A scenario's roofline has the fabricated plan; what was asked is recorded."""
    asked = {}
    real = api.roofline

    def roofline(subject, time_limit_seconds=None):
        asked.update(subject=subject, time_limit=time_limit_seconds)
        if isinstance(subject, Topology):
            return real(subject)
        return roofline_of(load_scenario(SCENARIO), fabricated_plan())

    monkeypatch.setattr(api, "roofline", roofline)
    return asked


def test_topology(planned):
    result = run("roofline", "dgx-h100")
    assert result.exit_code == 0, result.stderr
    assert "Roofs of dgx-h100" in result.stdout and "Groups of the plan" not in result.stdout
    assert "roofline" in run("--help").stdout


def test_scenario_with_options(planned):
    result = run(
        "roofline", SCENARIO, "--time-limit", "2", "--set", "training.global_batch_size=1024"
    )
    assert result.exit_code == 0, result.stderr
    assert "Their three walls" in result.stdout
    assert planned["time_limit"] == 2
    assert planned["subject"].training.global_batch_size == 1024


def test_json_is_one_document(planned):
    document = json.loads(run("roofline", SCENARIO, "--json").stdout)
    assert [group["name"] for group in document["groups"]] == ["tp", "shard", "pp"]
    assert document["levels"][0]["ridges"]["bf16"] == pytest.approx(295.4, rel=1e-3)
    assert json.loads(run("roofline", "dgx-h100", "--json").stdout)["plan"] is None


def test_picture_beside_the_report(planned, tmp_path):
    file = tmp_path / "new" / "roofs.svg"
    result = run("roofline", SCENARIO, "--json", "--out", file)
    assert result.exit_code == 0, result.stderr
    json.loads(result.stdout)
    assert file.read_bytes().startswith(b"<?xml")
    assert "roofs.svg" in result.stderr


def test_a_scenario_that_nothing_fits_answers_as_plan_does(monkeypatch, tmp_path):
    empty = roofline_of(load_scenario(SCENARIO), infeasible_plan())
    monkeypatch.setattr(api, "roofline", lambda *_: empty)
    file = tmp_path / "roofs.svg"
    result = run("roofline", SCENARIO, "--out", file)
    assert result.exit_code == 1
    assert "No layout fits." in result.stdout
    assert not file.exists()
    result = run("roofline", SCENARIO, "--json")
    assert result.exit_code == 1
    assert json.loads(result.stdout)["status"] == "infeasible"


@pytest.mark.parametrize(
    ("args", "said"),
    [
        (["roofline"], "SCENARIO|TOPOLOGY"),
        (["roofline", "dgx-h10"], "did you mean 'dgx-h100'"),
        (["roofline", "llama3-8b-h100x9"], "did you mean 'llama3-8b-h100x8'"),
        (["roofline", "missing.yaml"], "missing.yaml"),
        (["roofline", "dgx-h100", "--out", "roofs.jpg"], ".svg, .png, .pdf"),
        (["roofline", "dgx-h100", "--out", "roofs"], "the file name has no ending"),
        (["roofline", "dgx-h100", "--set", "tiers.0.with=4"], "did you mean 'width'"),
        (["rooflin", "dgx-h100"], "did you mean 'roofline'"),
    ],
)
def test_bad_input_is_one_paragraph_and_exit_2(args, said, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert said in fails(run(*args))
