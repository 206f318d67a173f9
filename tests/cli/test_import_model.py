"""`planner import model`, as a user runs it; and a config.json as a scenario's model."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from planner import api
from planner.cli import main
from planner.errors import InputWarning
from planner.inputs.values import load
from planner.problem.model import Model
from tests.inputs.huggingface.configs import PUBLISHED, published


def run(*arguments: str | Path) -> Result:
    return CliRunner().invoke(main, ["import", "model", *map(str, arguments)])


def config(folder: Path, name: str = "llama-3-8b", **keys: Any) -> Path:
    (folder / "config.json").write_text(json.dumps(published(name) | keys))
    return folder / "config.json"


def test_the_file_it_writes_is_a_model(tmp_path: Path) -> None:
    out = tmp_path / "new" / "mine.yaml"
    found = run(PUBLISHED / "mixtral-8x7b.json", "--out", out, "--name", "mine")
    assert found.exit_code == 0, found.output
    assert found.stderr == f"wrote {out}\n"
    assert "counted  46,702,792,704 (46.70 billion)" in found.stdout
    assert "active   12,879,925,248 (12.88 billion)" in found.stdout
    model = load(out, "model", Model)
    assert (model.name, model.num_parameters) == ("mine", 46_702_792_704)
    planned = CliRunner().invoke(
        main, ["evaluate", "llama3-8b-h100x8", "--set", f"model={out}", "--layout", "tp=8,ep=8"]
    )
    assert "mine on 8" in planned.stdout


def test_json_is_one_document(tmp_path: Path) -> None:
    found = run(PUBLISHED / "gemma-2-9b.json", "--json", "--parameters", "9.24B")
    document = json.loads(found.stdout)
    assert found.exit_code == 0 and found.stderr == ""
    assert document["parameters"] == 9_241_705_984
    assert document["stated_parameters"] == 9.24e9
    assert document["difference_fraction"] == pytest.approx(9_241_705_984 / 9.24e9 - 1)
    assert document["model"]["block_norms"] == "around"
    same = api.import_model(PUBLISHED / "gemma-2-9b.json", parameters="9.24B")
    assert document | {"path": same.path} == json.loads(json.dumps(same.to_document()))


@pytest.mark.parametrize(
    ("stated", "code", "said"),
    [
        ("8030261248", 0, "+0.00 %: they agree"),
        ("8.1B", 0, "-0.86 %: more than 0.5 %"),
        ("8.3B", 1, "-3.25 %: more than 0.5 %; something is wrong"),
        ("7.505B", 1, "one matrix for embedding and LM head"),
    ],
)  # fmt: skip
def test_a_stated_count_decides_the_exit_code(
    stated: str, code: int, said: str, tmp_path: Path
) -> None:
    out = tmp_path / "model.yaml"
    found = run(PUBLISHED / "llama-3-8b.json", "--parameters", stated, "--out", out)
    assert found.exit_code == code and said in found.stdout
    assert load(out, "model", Model).num_parameters == 8_030_261_248  # written all the same


def test_what_is_not_understood_is_said_on_stderr_and_in_the_report(tmp_path: Path) -> None:
    path = config(tmp_path, residual_multiplier=0.22)
    found = run(path)
    assert found.exit_code == 0
    assert found.stderr == (f"planner: warning: {path}: not understood: residual_multiplier\n")
    assert "Not understood" in found.stdout and "it may change the model" in found.stdout


def test_a_report_says_what_was_read_what_was_not_and_what_is_rough() -> None:
    found = run(PUBLISHED / "gemma-3-4b.json").stdout
    for said in (
        "a window of 1,024 tokens in 29 layers", "norms around blocks",
        "262208, transformers' default", "left aside: mm_tokens_per_image, vision_config",
    ):  # fmt: skip
        assert said in " ".join(found.split())
    found = run(PUBLISHED / "deepseek-v3.json").stdout
    assert "prediction layers  11,610,067,968 more" in found


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["nowhere.json"], "nowhere.json: cannot be read"),
        ([], "Missing argument 'FILE...'"),
        (["{config}", "--parameters", "much"], "'much' is no number of parameters"),
        (["{config}", "--set", "zork=1"], "--set zork=1: zork: unknown key"),
        (["{config}", "--name", ""], "name"),
    ],
)  # fmt: skip
def test_mistakes_are_answered(arguments: list[str], said: str, tmp_path: Path) -> None:
    path = str(config(tmp_path))
    found = run(*(argument.replace("{config}", path) for argument in arguments))
    if said == "name":
        assert found.exit_code == 0  # an empty name is text like any other
        return
    assert found.exit_code == 2 and said in found.stderr
    assert "Traceback" not in found.output


def test_subjects_are_answered_with_the_nearest() -> None:
    found = CliRunner().invoke(main, ["import", "modle"])
    assert found.exit_code == 2 and "did you mean 'model'?" in found.stderr


# ---------------------------------------------------------------- a scenario's model


def test_a_scenario_may_name_a_configuration(tmp_path: Path) -> None:
    config(tmp_path)
    (tmp_path / "job.yaml").write_text(
        "model: ./config.json\ntopology: dgx-h100\nnum_accelerators: 8\n"
        "training: {sequence_length: 8192, global_batch_size: 64, precision: bf16, "
        "optimizer: adam}\n"
    )
    scenario = api.load_scenario(tmp_path / "job.yaml")
    assert scenario.model.num_parameters == 8_030_261_248
    shorter = api.load_scenario(tmp_path / "job.yaml", {"model.num_layers": "16"})
    assert shorter.model.num_layers == 16


def test_unknown_keys_of_a_scenario_s_configuration_are_warned_of(tmp_path: Path) -> None:
    path = config(tmp_path, residual_multiplier=0.22)
    with pytest.warns(InputWarning, match="not understood: residual_multiplier"):
        api.load_scenario("llama3-8b-h100x8", {"model": str(path)})
    arguments = ["evaluate", "llama3-8b-h100x8", "--set", f"model={path}", "--layout", "tp=8"]
    found = CliRunner().invoke(main, [*arguments, "--json"])
    assert found.exit_code == 0
    assert found.stderr == f"planner: warning: {path}: not understood: residual_multiplier\n"
    json.loads(found.stdout)


def test_errors_point_into_the_configuration(tmp_path: Path) -> None:
    path = config(tmp_path, num_key_value_heads=5)
    found = CliRunner().invoke(main, ["plan", "llama3-8b-h100x8", "--set", f"model={path}"])
    assert found.exit_code == 2
    assert f"{path}:1:" in found.stderr
    assert "num_key_value_heads: num_attention_heads 32 is not a multiple" in found.stderr
    path.write_text('{"model_type": "llama", "model_type": "llama"}')
    found = CliRunner().invoke(main, ["plan", "llama3-8b-h100x8", "--set", f"model={path}"])
    assert "model_type: the key is given twice, first on line 1" in found.stderr
