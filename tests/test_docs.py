"""Commands and figures of the pages in docs/ and of the README are those of the program."""

import contextlib
import importlib.util
import io
import re
import shlex
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType

import pytest
from click.testing import CliRunner

from planner import api
from planner.cli import main
from planner.layouts.keys import KEYS

ROOT = Path(__file__).parent.parent
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
LAYOUT = "tp=8,cp=2,pp=4"
BLOCK = re.compile(r'^```(\w+)(?: title="([^"]+)")?\n(.*?)^```', re.DOTALL | re.MULTILINE)
INSTALL = "python3 -m pip install"


@dataclass(frozen=True)
class Step:
    """A command of a page, or a file that it shows; a Python file is run too."""

    page: str
    kind: str
    text: str
    file: str | None = None

    def run(self) -> None:
        """In the current folder."""
        if self.file is not None:
            assert Path(self.file).name == self.file, f"{self.file} leaves the page's folder"
            Path(self.file).write_text(self.text, "utf-8")
        if self.kind == "python" and self.file is not None:
            with contextlib.redirect_stdout(io.StringIO()):
                exec(compile(self.text, self.file, "exec"), {"__name__": "__main__"})
        if self.kind == "sh":
            result = CliRunner().invoke(main, shlex.split(self.text)[1:])
            assert result.exit_code == 0, f"{self.text}\n{result.output}"


def steps(page: Path) -> list[Step]:
    """Commands (`\\` at a line's end joins it to the next) and named files of a page, in order."""
    found = []
    for kind, file, text in BLOCK.findall(page.read_text("utf-8")):
        if file:
            found.append(Step(page.name, kind, text, file))
        elif kind == "sh":
            lines = text.replace("\\\n", " ").splitlines()
            found += [Step(page.name, kind, line) for line in lines if line.startswith("planner ")]
            others = [line for line in lines if line and not line.startswith("planner ")]
            assert all(line.startswith(INSTALL) for line in others), f"{page.name}: {others}"
    return found


STORIES = {
    page.name: found for page in PAGES for found in [steps(page)] if any(s.file for s in found)
}
"""Pages with files: their steps run in order, in one folder."""

OF_EXPERTS = "planner plan deepseek-v3-gb300x256"
"""Seconds of search: run where its plan is looked at too."""

COMMANDS = [
    step for page in PAGES if page.name not in STORIES for step in steps(page)
    if step.text != OF_EXPERTS
]  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize("command", COMMANDS, ids=lambda step: f"{step.page}: {step.text}")
def test_every_command_works(
    command: Step, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)  # what it writes is no part of the checkout
    shutil.copytree(ROOT / "docs" / "samples", tmp_path, dirs_exist_ok=True)  # what users bring
    command.run()


@pytest.mark.slow
@pytest.mark.parametrize("page", STORIES)
def test_every_page_with_files_can_be_followed(
    page: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    for step in STORIES[page]:
        step.run()


def test_start_installs_as_the_readme_does() -> None:
    """CI runs the README's first block in an empty environment."""
    readme, start = (ROOT / "README.md", ROOT / "docs" / "index.md")
    (first, *_), (other, *_) = (
        re.findall(r"```(?:sh|bash)\n(.*?)```", page.read_text("utf-8"), re.DOTALL)
        for page in (readme, start)
    )
    assert first == other


def test_start_ends_in_a_launch_script(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for step in STORIES["index.md"]:
        step.run()
    script = Path("launch/job.sbatch").read_text("utf-8")
    assert script.startswith("#!") and "srun" in script
    assert subprocess.run(["bash", "-n", "launch/job.sbatch"], check=False).returncode == 0
    assert Path("launch/megatron-args.sh").is_file()


# ---------------------------------------------------------------- the site


def hooks() -> ModuleType:
    spec = importlib.util.spec_from_file_location("docs_hooks", ROOT / "docs" / "hooks.py")
    assert spec is not None and spec.loader is not None
    found = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(found)
    return found


def test_every_command_is_in_the_reference() -> None:
    page = hooks().commands_page()
    for name in ("plan", "evaluate", "calibrate runs", "validate kernels", "export", "check"):
        assert f"## planner {name}\n" in page
    for path, command in hooks()._commands(main, ("planner",)):
        assert f"## {' '.join(path)}\n" in page
        for parameter in command.params:
            assert all(option in page for option in parameter.opts if option.startswith("-"))


@pytest.mark.parametrize("kind", ["scenario", "topology", "model"])
def test_every_key_is_in_the_reference(kind: str) -> None:
    page = hooks()._kind(kind, "")
    keys = {
        key
        for part in (api.schema(kind), *api.schema(kind)["$defs"].values())
        for key in part.get("properties", {})
    }
    whole = hooks().files_page()
    assert {key for key in api.schema(kind)["properties"] if f"| `{key}` |" not in page} == set()
    assert {key for key in keys if f"| `{key}` |" not in whole} == set()


def test_every_layout_key_is_in_the_reference() -> None:
    page = hooks().pages()["reference/layout-keys.md"]
    rows = [line for line in page.splitlines() if line.startswith("| `")]
    assert len(rows) == len(KEYS)
    for row, key in zip(rows, KEYS.values(), strict=True):
        assert row.startswith(f"| `{key.name}` | {key.meaning} | ")
        assert row.count(" | ") == 4


@pytest.mark.slow
def test_the_site_is_built_without_a_warning(tmp_path: Path) -> None:
    """Links, anchors, pages left out of the nav: mkdocs counts each as an error."""
    pytest.importorskip("mkdocs", reason="python3 -m pip install '.[docs]'")
    done = subprocess.run(
        [sys.executable, "-m", "mkdocs", "build", "--strict", "-q", "-d", str(tmp_path)],
        cwd=ROOT, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr + done.stdout
    for name in ("index.html", "concepts/index.html", "reference/files/index.html"):
        text = (tmp_path / name).read_text("utf-8")
        assert "<h1" in text
        assert not re.search(r'(?:src|href)="https?://(?!squidfunk)', text.split("</head>")[0])


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


@pytest.mark.slow
def test_experts_of_deepseek_v3_live_inside_a_rack(monkeypatch: pytest.MonkeyPatch) -> None:
    """As docs/experts.md says, and NVIDIA's published layout has it: ep32 pp2 mbs2."""
    (command,) = (step for step in steps(ROOT / "docs" / "experts.md") if step.text == OF_EXPERTS)
    found, search = [], api.plan
    monkeypatch.setattr(api, "plan", lambda *given: found.append(search(*given)) or found[-1])
    command.run()
    (best,) = found
    assert best.layout is not None
    assert {key: getattr(best.layout, key) for key in ("tp", "ep", "pp", "mbs", "recompute")} == {
        "tp": 1, "ep": 32, "pp": 2, "mbs": 2, "recompute": "mla_up_proj",
    }  # fmt: skip
    assert list(best.groups["ep"].tiers) == ["nvlink"]
    intensity = {name: group.intensity or 0.0 for name, group in best.groups.items()}
    assert min(intensity, key=lambda name: intensity[name]) == "ep"
    assert best.step_seconds == pytest.approx(12.0, rel=0.01)
