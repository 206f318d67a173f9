"""Paths that are no file, bombs, and references that lead elsewhere: the errors of every reader."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from planner.errors import InputError, PlannerError
from planner.inputs.values import load
from planner.problem.scenario import Scenario
from tests.fuzz.guard import guarded
from tests.fuzz.mutate import BOMBS
from tests.fuzz.readers import READERS, Reader

BY_PATH = [reader for reader in READERS if not reader.name.startswith("--")]


def every(readers):
    return pytest.mark.parametrize("reader", readers, ids=lambda reader: reader.name)


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    return tmp_path


def _none(folder: Path) -> Path:
    return folder / "none.yaml"


def _folder(folder: Path) -> Path:
    (folder / "folder.yaml").mkdir()
    return folder / "folder.yaml"


def _pipe(folder: Path) -> Path:
    os.mkfifo(folder / "pipe.yaml")
    return folder / "pipe.yaml"


def _loop(folder: Path) -> Path:
    (folder / "loop.yaml").symlink_to(folder / "loop.yaml")
    return folder / "loop.yaml"


def _dangling(folder: Path) -> Path:
    (folder / "link.yaml").symlink_to(folder / "gone.yaml")
    return folder / "link.yaml"


def _empty(folder: Path) -> Path:
    (folder / "empty.yaml").touch()
    return folder / "empty.yaml"


def _long(folder: Path) -> Path:
    return folder / ("a" * 5000 + ".yaml")


def _nul(folder: Path) -> Path:
    return folder / "a\0b.yaml"


def _device(folder: Path) -> Path:
    return Path("/dev/zero")


ODD = (_none, _folder, _pipe, _loop, _dangling, _empty, _long, _nul, _device)


@every([reader for reader in BY_PATH if reader.name != "script"])
@pytest.mark.parametrize("odd", ODD, ids=lambda odd: odd.__name__)
def test_odd_paths_are_refused(reader: Reader, odd, folder: Path) -> None:
    path = odd(folder)
    with guarded(folder), pytest.raises(InputError) as error:
        reader.read(path)
    assert "\n" not in str(error.value) and "\0" not in str(error.value)


@every([reader for reader in BY_PATH if reader.name != "script"])
def test_a_link_to_a_file_is_the_file(reader: Reader, folder: Path) -> None:
    sample = reader.samples[0]
    link = folder / sample.name
    link.symlink_to(sample)
    assert type(reader.read(link)) is type(reader.read(sample))


@pytest.mark.slow
@every(READERS)
@pytest.mark.parametrize("bomb", BOMBS, ids=range(len(BOMBS)))
def test_bombs_are_refused_at_once(reader: Reader, bomb: str, folder: Path) -> None:
    path = folder / reader.samples[0].name
    path.write_text(bomb, "utf-8")
    with guarded(folder), pytest.raises(PlannerError) as error:
        reader.read(path)
    assert len(str(error.value)) < 4000


@pytest.mark.parametrize(
    "name",
    ["../secret", "../secret.txt", "/etc/passwd", "/dev/zero", "/dev/stdin", "a/../../secret",
     "../secret\0.yaml", "~/secret", "file:///etc/passwd"],
)  # fmt: skip
@pytest.mark.parametrize("key", ["model", "topology", "software"])
def test_references_lead_to_no_other_kind_of_file(key: str, name: str, folder: Path) -> None:
    """What stands in another file is never opened, so no message can quote it."""
    inside = folder / "inside"
    inside.mkdir()
    (folder / "secret").write_text("password: 1234")
    (folder / "secret.txt").write_text("password: 1234")
    scenario = inside / "scenario.yaml"
    text = {"model": "llama3-8b", "topology": "dgx-h100", "software": "megatron-core"} | {key: name}
    scenario.write_text("\n".join(f'{k}: "{v}"'.replace("\0", "\\0") for k, v in text.items()))
    with guarded(inside), pytest.raises(InputError) as error:
        load(scenario, "scenario", Scenario)
    assert "1234" not in str(error.value) and "root:" not in str(error.value)


def test_messages_spell_out_what_a_terminal_would_obey() -> None:
    error = InputError("is no key", key="\x1b[2J\x07", path="a\x1bb.yaml", value="x")
    assert "\x1b" not in str(error) and "\\x1b[2J\\x07" in str(error)


def test_messages_are_short_however_long_the_input() -> None:
    text = "x" * 10**6
    assert len(str(InputError(text, key=text, path=text, allowed=text, nearest=text))) < 4000
