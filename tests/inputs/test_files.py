"""Finding shipped files and files of users."""

from pathlib import Path

import pytest

from planner.errors import InputError, UnknownNameError
from planner.inputs.files import data_root, names, resolve


def test_data_root_holds_the_shipped_folders() -> None:
    assert (data_root() / "topologies" / "accelerators").is_dir()


def test_names_are_sorted_stems() -> None:
    assert names("accelerator") == sorted(names("accelerator"))
    assert "h100-sxm-80gb" in names("accelerator")
    assert "h100-sxm-80gb" not in names("topology")


def test_name_resolves_from_any_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert resolve("topology", "dgx-h100").is_file()


@pytest.mark.parametrize("text", ["./a.yaml", "a.yaml", "sub/../a.yaml"])
def test_path_is_beside_the_referring_file_first(
    text: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "sub").mkdir()
    (tmp_path / "here").mkdir()
    (tmp_path / "here" / "sub").mkdir()
    for folder in (tmp_path, tmp_path / "here"):
        (folder / "a.yaml").touch()
    monkeypatch.chdir(tmp_path)
    beside = resolve("model", text, tmp_path / "here")
    assert beside.resolve() == tmp_path / "here" / "a.yaml"
    (tmp_path / "here" / "a.yaml").unlink()
    assert resolve("model", text, tmp_path / "here").resolve() == tmp_path / "a.yaml"


def test_unknown_name_has_near_match_and_all_names() -> None:
    with pytest.raises(UnknownNameError) as caught:
        resolve("topology", "dgx-h10")
    assert caught.value.nearest in ("dgx-h100", "dgx-h200")
    assert "gb200-nvl72" in str(caught.value)


def test_unknown_software_is_told_of_the_fallback() -> None:
    with pytest.raises(UnknownNameError) as caught:
        resolve("software", "megatron-cor")
    assert caught.value.nearest == "megatron-core"
    assert "`software: fallback` is for frameworks without a profile" in str(caught.value)
    with pytest.raises(UnknownNameError) as other:
        resolve("topology", "megatron-cor")
    assert "fallback" not in str(other.value)


@pytest.mark.parametrize("text", ["", "..", "x\0y", "./x\0y", "a/" + "b" * 5000])
def test_odd_names(text: str) -> None:
    with pytest.raises(InputError):
        resolve("model", text)
