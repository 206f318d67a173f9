"""Commands and figures of the pages in docs/ and of the README are those of the program."""

import re
import shlex
import shutil
from pathlib import Path

import pytest
from click.testing import CliRunner

from planner import api
from planner.cli import main

ROOT = Path(__file__).parent.parent
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
LAYOUT = "tp=8,cp=2,pp=4"


def commands() -> list[str]:
    found = []
    for page in PAGES:
        for block in re.findall(r"```sh\n(.*?)```", page.read_text("utf-8"), re.DOTALL):
            found += [line for line in block.splitlines() if line.startswith("planner ")]
    return found


@pytest.mark.parametrize("command", commands())
def test_every_command_works(command: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)  # what it writes is no part of the checkout
    shutil.copytree(ROOT / "docs" / "samples", tmp_path, dirs_exist_ok=True)  # what users bring
    result = CliRunner().invoke(main, shlex.split(command)[1:])
    assert result.exit_code == 0, result.output


def test_pictures_exist() -> None:
    for page in PAGES:
        for name in re.findall(r"!\[[^]]*\]\(([^)]+)\)", page.read_text("utf-8")):
            assert (page.parent / name).is_file(), name


@pytest.mark.parametrize(
    ("topology", "lives"),
    [
        ("dgx-h100", {"tp": "nvlink", "cp": "leaf", "pp": "leaf"}),
        ("gb200-nvl72", {"tp": "nvlink", "cp": "nvlink", "pp": "spine"}),
        ("h100-ethernet", {"tp": "nvlink", "cp": "leaf", "pp": "leaf"}),
    ],
)
def test_intensity_orders_tp_dp_cp_pp_on_three_clusters(
    topology: str, lives: dict[str, str]
) -> None:
    scenario = api.load_scenario("llama3-70b-h100x1024", {"topology": topology})
    groups = api.evaluate(scenario, LAYOUT).groups
    intensity = {name: group.intensity or 0.0 for name, group in groups.items()}
    assert sorted(intensity, key=lambda name: intensity[name]) == ["tp", "shard", "cp", "pp"]
    assert {name: list(groups[name].tiers)[-1] for name in lives} == lives


def test_gathering_parameters_pulls_dp_down_to_tp() -> None:
    overrides = {"software": "torchtitan"}
    scenario = api.load_scenario("llama3-70b-h100x1024", overrides)
    groups = api.evaluate(scenario, LAYOUT + ",zero_stage=3").groups
    tp, shard = groups["tp"].intensity, groups["shard"].intensity
    assert tp is not None and shard is not None
    assert 0.5 < shard / tp < 2


def test_experts_of_deepseek_v3_live_inside_a_rack() -> None:
    """As docs/experts.md says, and NVIDIA's published layout has it: ep32 pp2 mbs2."""
    best = api.plan(api.load_scenario("deepseek-v3-gb300x256"))
    assert best.layout is not None
    assert {key: best.layout[key] for key in ("tp", "ep", "pp", "mbs", "recompute")} == {
        "tp": 1, "ep": 32, "pp": 2, "mbs": 2, "recompute": "mla_up_proj",
    }  # fmt: skip
    assert list(best.groups["ep"].tiers) == ["nvlink"]
    intensity = {name: group.intensity or 0.0 for name, group in best.groups.items()}
    assert min(intensity, key=lambda name: intensity[name]) == "ep"
    assert best.step_seconds == pytest.approx(12.0, rel=0.01)
