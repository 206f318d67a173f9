"""Imported models: round trips, counts that are stated, indexes, scripts."""

from __future__ import annotations

import json
from pathlib import Path
from random import Random
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from planner import api
from planner.errors import InputError
from planner.frameworks.import_model import INDEX, import_model
from planner.frameworks.imported_model import (
    CLOSE_FRACTION,
    WRONG_FRACTION,
    model_yaml,
    read_count,
)
from planner.frameworks.job import Job, reasons_of
from planner.frameworks.megatron.rules import MODEL_REFUSALS
from planner.inputs.documents import from_plain
from planner.inputs.files import names
from planner.inputs.huggingface.convert import convert
from planner.inputs.values import from_tree, load, parse
from planner.layouts.layout import Layout
from planner.problem.model import Model
from planner.problem.scenario import load_scenario
from tests.inputs.huggingface.configs import PUBLISHED, TYPES, published, random_config

LLAMA = 8_030_261_248


def folder(path: Path, name: str = "llama-3-8b", **keys: Any) -> Path:
    config = published(name) | keys
    (path / "config.json").write_text(json.dumps(config))
    return path


def index(path: Path, **metadata: Any) -> Path:
    document = {"metadata": metadata, "weight_map": {"lm_head.weight": "a.safetensors"}}
    (path / INDEX).write_text(json.dumps(document))
    return path / INDEX


# ---------------------------------------------------------------- round trips


@settings(max_examples=150, suppress_health_check=[HealthCheck.too_slow])
@given(st.integers(0, 2**32), st.sampled_from(TYPES))
def test_configuration_to_model_to_file_to_model(seed: int, kind: str) -> None:
    tree = convert(from_plain(random_config(Random(seed), kind), "a/config.json")).tree
    model = from_tree(tree, Model, {})
    text = model_yaml(model, ["a remark\nof two lines \x07"])
    again = parse(text, "model.yaml", Model)
    assert again == model and again.num_parameters == model.num_parameters
    assert model_yaml(again, ["a remark\nof two lines \x07"]) == text


@given(st.text(), st.text())
def test_any_name_and_source_come_back(name: str, source: str) -> None:
    model = load("llama3-8b", "model", Model).replace(name=name, source=source)
    try:
        text = model_yaml(model)
        text.encode()
    except UnicodeEncodeError:
        return  # halves of surrogate pairs are no text
    assert parse(text, "model.yaml", Model) == model


@st.composite
def head_sizes(draw: st.DrawFn) -> dict[str, int]:
    """Sizes of attention; the hidden size need be no multiple of the heads."""
    heads = draw(st.integers(1, 40))
    hidden = draw(st.one_of(st.integers(1, 400), st.just(heads * 8)))
    usual = max(hidden // heads, 1)
    return {
        "hidden_size": hidden,
        "num_attention_heads": heads,
        "num_key_value_heads": draw(st.sampled_from([n for n in range(1, 41) if heads % n == 0])),
        "head_dim": draw(st.one_of(st.integers(1, 64), st.just(usual))),
    }


@given(sizes=head_sizes(), channels=st.booleans())
def test_any_imported_sizes_come_back(
    sizes: dict[str, int], channels: bool, tmp_path_factory: pytest.TempPathFactory
) -> None:
    path = tmp_path_factory.mktemp("sizes")
    flags = (
        "--num-layers 2 --vocab-size 64 --group-query-attention --hidden-size {hidden_size} "
        "--num-attention-heads {num_attention_heads} --num-query-groups {num_key_value_heads}"
    ) + " --kv-channels {head_dim}" * channels
    arguments = script(path, text="python x.py " + flags.format(**sizes))
    for found in (import_model(folder(path, **sizes)), import_model(arguments)):
        assert parse(found.to_yaml(), "model.yaml", Model) == found.model


@pytest.mark.parametrize("name", names("model"))
def test_shipped_models_come_back(name: str) -> None:
    model = load(name, "model", Model)
    assert parse(model_yaml(model), "model.yaml", Model) == model


@pytest.mark.parametrize("path", sorted(PUBLISHED.glob("*.json")), ids=lambda path: path.stem)
def test_published_configurations_come_back(path: Path) -> None:
    found = import_model(path)
    assert parse(found.to_yaml(), "model.yaml", Model) == found.model
    json.dumps(found.to_document(), allow_nan=False)


SHIPPED = {
    "llama3-8b": "llama-3-8b", "llama3-70b": "llama-3-70b", "llama3-405b": "llama-3.1-405b",
    "llama2-7b": "llama-2-7b", "mixtral-8x7b": "mixtral-8x7b", "qwen3-30b-a3b": "qwen3-30b-a3b",
    "qwen3-235b-a22b": "qwen3-235b-a22b", "deepseek-v2": "deepseek-v2",
    "deepseek-v3": "deepseek-v3", "gpt-oss-20b": "gpt-oss-20b", "gpt-oss-120b": "gpt-oss-120b",
}  # fmt: skip


@pytest.mark.parametrize("name", SHIPPED)
def test_imported_models_are_the_shipped_ones(name: str) -> None:
    shipped = load(name, "model", Model)
    found = import_model(PUBLISHED / f"{SHIPPED[name]}.json").model
    same = ("name", "source", "published_parameters", "published_active_parameters")
    assert found.replace(**{key: getattr(shipped, key) for key in same}) == shipped


def test_an_imported_model_is_planned_like_the_shipped_one(tmp_path: Path) -> None:
    found = import_model(PUBLISHED / "llama-3-8b.json", name="llama3-8b")
    (tmp_path / "model.yaml").write_text(found.to_yaml())
    paths = (str(tmp_path / "model.yaml"), str(PUBLISHED / "llama-3-8b.json"), "llama3-8b")
    steps = {
        api.plan(api.load_scenario("llama3-8b-h100x8", {"model": path})).step_seconds
        for path in paths
    }
    assert len(steps) == 1


# ---------------------------------------------------------------- counts that are stated


@pytest.mark.parametrize(
    ("text", "number"),
    [
        ("8030261248", LLAMA), ("8_030_261_248", LLAMA), ("8,030,261,248", LLAMA),
        ("70.6B", 70.6e9), ("70.6 b", 70.6e9), ("124M", 124e6), ("1.5T", 1.5e12), ("12k", 12e3),
    ],
)  # fmt: skip
def test_counts_as_people_write_them(text: str, number: float) -> None:
    assert read_count(text) == pytest.approx(number, rel=1e-12)


@pytest.mark.parametrize(
    "text", ["", "0", "-7B", "7BB", "NaN", "inf", "1e9", "7 B x", "1" * 30, "٣"]
)
def test_what_is_no_count(text: str) -> None:
    with pytest.raises(InputError) as caught:
        read_count(text)
    assert caught.value.key == "--parameters"


def test_a_count_that_agrees_is_written_into_the_file() -> None:
    found = import_model(PUBLISHED / "llama-3-8b.json", parameters="8.03B")
    assert found.agrees and not found.is_wrong and found.causes == ()
    figure = found.model.published_parameters
    assert figure is not None
    assert (float(figure), figure.source) == (8.03e9, "--parameters 8.03B")
    assert import_model(PUBLISHED / "llama-3-8b.json").model.published_parameters is None


@pytest.mark.parametrize(
    ("off", "agrees", "wrong"),
    [(0.4, True, False), (-0.4, True, False), (0.6, False, False), (1.9, False, False),
     (2.1, False, True), (-2.1, False, True)],
)  # fmt: skip
def test_limits_of_a_difference(off: float, agrees: bool, wrong: bool) -> None:
    found = import_model(PUBLISHED / "llama-3-8b.json", parameters=LLAMA / (1 + off / 100))
    assert (found.agrees, found.is_wrong) == (agrees, wrong)
    assert found.difference_fraction == pytest.approx(off / 100)
    assert (found.model.published_parameters is None) is not agrees
    assert bool(found.causes) is not agrees
    assert (CLOSE_FRACTION, WRONG_FRACTION) == (0.005, 0.02)


CAUSES = {
    # configuration, stated, what is said
    ("gemma-2b", 2_506_172_416 + 256_000 * 2048): "a matrix of its own for the LM head",
    ("llama-3.2-1b", 1_235_814_400 - 128_256 * 2048): "leaves the embedding out",
    ("llama-3-8b", LLAMA - 128_256 * 4096): "one matrix for embedding and LM head",
    ("mixtral-8x7b", 12_900_000_000): "that of active parameters",
    ("llama-3-8b", LLAMA + 2 * 10_000 * 4096): "a vocabulary of 138,256 (here 128,256)",
    ("gemma-3-4b", 4_300_079_472): "the parts left aside",
    ("llama-3-8b", 7_000_000_001): "nothing simple explains it",
}


@pytest.mark.parametrize("case", CAUSES, ids=lambda case: f"{case[0]}-{case[1]}")
def test_causes_of_a_difference(case: tuple[str, int]) -> None:
    name, stated = case
    found = import_model(PUBLISHED / f"{name}.json", parameters=stated)
    assert any(CAUSES[case] in cause for cause in found.causes), found.causes
    assert "counted" in found.to_yaml().splitlines()[1]


def test_the_index_beside_a_configuration_is_compared(tmp_path: Path) -> None:
    index(folder(tmp_path, torch_dtype="bfloat16"), total_size=2 * LLAMA)
    found = import_model(tmp_path)
    assert found.stated is not None
    assert (found.stated.parameters, found.agrees) == (LLAMA, True)
    assert found.stated.source.endswith("over 2 bytes of bfloat16")
    assert found.model.published_parameters == LLAMA
    index(tmp_path, total_size=1, total_parameters=LLAMA)
    found = import_model([tmp_path / "config.json", tmp_path / INDEX])
    assert found.stated is not None and found.stated.parameters == LLAMA
    assert import_model(tmp_path, parameters="9B").is_wrong  # what the caller says comes first


def test_more_layers_than_any_model_has_are_refused_before_they_are_made(tmp_path: Path) -> None:
    script = tmp_path / "train.sh"
    script.write_text("torchrun p.py --num-layers 999999999 --hidden-size 64 --num-experts 8")
    with pytest.raises(InputError, match=r"--num-layers.*<= 1024"):
        import_model(script)


def test_prediction_layers_may_be_in_the_count(tmp_path: Path) -> None:
    model = load("deepseek-v3", "model", Model)
    whole = model.num_parameters + model.num_prediction_parameters
    index(folder(tmp_path, "deepseek-v3"), total_parameters=whole)
    found = import_model(tmp_path)
    assert found.with_prediction and found.agrees
    assert found.model.published_parameters is None  # which is of the main model


@pytest.mark.parametrize(
    ("keys", "metadata", "why"),
    [
        ({"quantization_config": {}}, {"total_size": 5}, "quantised numbers"),
        ({"torch_dtype": "int8"}, {"total_size": 5}, "dtype is int8"),
        ({}, {}, "neither total_parameters nor total_size"),
    ],
)  # fmt: skip
def test_an_index_without_a_count_is_said(
    tmp_path: Path, keys: dict[str, Any], metadata: dict[str, Any], why: str
) -> None:
    index(folder(tmp_path, **keys), **metadata)
    found = import_model(tmp_path)
    assert found.stated is None
    assert any(why in remark.text for remark in found.notes["approximate"])


def test_an_index_of_nonsense_is_refused(tmp_path: Path) -> None:
    index(folder(tmp_path), total_size="much")
    with pytest.raises(InputError) as caught:
        import_model(tmp_path)
    assert caught.value.key == "metadata.total_size"


# ---------------------------------------------------------------- files


def test_what_is_no_file_of_a_model(tmp_path: Path) -> None:
    only = index(tmp_path, total_size=1)
    wrong = {"a.json": "{}", "b.json": "[1]", "c.json": '{"model_type": "llama"', "d.sh": "echo x",
             "e.sh": "", "f.json": '{"hidden_size": 1}'}  # fmt: skip
    for name, text in wrong.items():
        (tmp_path / name).write_text(text)
        with pytest.raises(InputError):
            import_model(tmp_path / name)
    with pytest.raises(InputError, match="0 files describe a model"):
        import_model(only)
    with pytest.raises(InputError, match="2 files describe a model"):
        import_model([PUBLISHED / "gpt2.json", PUBLISHED / "gpt2-xl.json"])
    with pytest.raises(InputError, match="cannot be read"):
        import_model(tmp_path / "nowhere" / "config.json")
    (tmp_path / "g.json").write_bytes(b"\xff\xfe{")
    with pytest.raises(InputError, match="UTF-8"):
        import_model(tmp_path / "g.json")


def test_keys_may_be_set(tmp_path: Path) -> None:
    found = import_model(PUBLISHED / "llama-3-8b.json", changes={"tied_embeddings": "true"})
    assert found.model.num_parameters == LLAMA - 128_256 * 4096
    with pytest.raises(InputError, match="unknown key"):
        import_model(PUBLISHED / "llama-3-8b.json", changes={"tied": "true"})


# ---------------------------------------------------------------- Megatron-LM

SCRIPT = """\
#!/bin/bash
LAYERS=${LAYERS:-28}
ARGS=(
  --num-layers $LAYERS --hidden-size 3584 --ffn-hidden-size 18944 --num-attention-heads 28
  --group-query-attention --num-query-groups 4 --swiglu --normalization RMSNorm
  --disable-bias-linear --add-qkv-bias --untie-embeddings-and-output-weights
  --position-embedding-type rope --attention-dropout 0 --hidden-dropout 0 --lr 1e-4
)
torchrun pretrain_gpt.py "${ARGS[@]}" --tensor-model-parallel-size 8 %s
"""


def script(path: Path, more: str = "--vocab-size 152064", text: str = SCRIPT) -> Path:
    (path / "run.sh").write_text(text % more if "%s" in text else text)
    return path / "run.sh"


def test_arguments_say_the_model_that_the_configuration_says(tmp_path: Path) -> None:
    found = import_model(script(tmp_path))
    same = import_model(PUBLISHED / "qwen2.5-7b.json").model
    assert found.model.replace(name=same.name, source=same.source) == same
    assert "--lr" in found.ignored["training, data, layout"]
    fewer = import_model(script(tmp_path), variables={"LAYERS": "4"})
    assert fewer.model.num_layers == 4


def test_arguments_without_a_vocabulary_ask_for_it(tmp_path: Path) -> None:
    with pytest.raises(InputError) as caught:
        import_model(script(tmp_path, ""))
    assert caught.value.key == "--vocab-size" and "--set vocab_size=N" in str(caught.value)
    found = import_model(script(tmp_path, ""), changes={"vocab_size": "152064"})
    assert found.model.num_parameters == 7_615_616_512


def test_silent_arguments_have_megatron_s_defaults(tmp_path: Path) -> None:
    """GPT: biases, LayerNorm, learned positions, 4 h, tied, dropout."""
    text = (
        "python pretrain_gpt.py --num-layers 12 --hidden-size 768 --num-attention-heads 12 "
        "--vocab-size 50257 --max-position-embeddings 1024 --seq-length 1024"
    )
    found = import_model(script(tmp_path, text=text))
    gpt2 = import_model(PUBLISHED / "gpt2.json").model
    assert found.model.replace(name=gpt2.name, source=gpt2.source) == gpt2
    assert "ffn_hidden_size" in [remark.key for remark in found.notes["defaults"]]


def test_arguments_of_experts_and_latent_attention(tmp_path: Path) -> None:
    text = (
        "python x.py --num-layers 27 --hidden-size 2048 --ffn-hidden-size 10944 "
        "--vocab-size 102400 --num-attention-heads 16 --swiglu --disable-bias-linear "
        "--normalization RMSNorm --untie-embeddings-and-output-weights "
        "--position-embedding-type rope --attention-dropout 0 --hidden-dropout 0 "
        "--num-experts 64 --moe-router-topk 6 "
        "--moe-ffn-hidden-size 1408 --moe-shared-expert-intermediate-size 2816 "
        "--moe-layer-freq '([0]*1+[1]*26)' --multi-latent-attention --kv-lora-rank 512 "
        "--qk-head-dim 128 --qk-pos-emb-head-dim 64 --v-head-dim 128"
    )
    found = import_model(script(tmp_path, text=text)).model
    lite = import_model(PUBLISHED / "deepseek-v2-lite.json").model
    assert found.num_parameters == lite.num_parameters
    assert found.moe == lite.moe and found.mla == lite.mla
    short = text.replace("--kv-lora-rank 512", "")
    with pytest.raises(InputError, match="kv_lora_rank: this key is missing"):
        import_model(script(tmp_path, text=short))


@pytest.mark.parametrize(
    ("more", "key", "said"),
    [
        ("--vocab-size 10 --hybrid-override-pattern M*M", "--hybrid-override-pattern", "by hand"),
        ("--vocab-size 10 --window-size 4096,0", "--window-size", "by hand"),
        ("--vocab-size x", "--vocab-size", "wrong kind"),
        ("--vocab-size 10 --num-query-groups 5", "--num-query-groups", "not a multiple"),
    ],
)  # fmt: skip
def test_arguments_that_cannot_be_said(tmp_path: Path, more: str, key: str, said: str) -> None:
    with pytest.raises(InputError) as caught:
        import_model(script(tmp_path, more))
    assert key in str(caught.value.key) and said in str(caught.value)
    assert caught.value.line == (5 if "groups" in key else 9)


def test_a_wrong_key_that_is_set_is_not_the_script_s(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="not a multiple") as caught:
        import_model(script(tmp_path), changes={"num_key_value_heads": "5"})
    assert caught.value.path == "--set num_key_value_heads=5" and caught.value.line is None


def test_scripts_of_others_have_no_dimensions(tmp_path: Path) -> None:
    text = "torchrun -m torchtitan.train --parallelism.tensor_parallel_degree 2"
    with pytest.raises(InputError, match="no dimensions of a model"):
        import_model(script(tmp_path, text=text))


def model_refusals(name: str) -> list[str]:
    scenario = load_scenario("llama3-8b-h100x8", {"training.sequence_length": "1024"})
    model = import_model(PUBLISHED / f"{name}.json").model
    return reasons_of(MODEL_REFUSALS, Job(scenario.replace(model=model), Layout(), ()))


def test_what_megatron_cannot_express_is_refused_by_name() -> None:
    refused = {
        "gemma-2-9b": "norms around blocks", "phi-2": "norms shared blocks",
        "gpt-oss-20b": "attention sinks", "qwen1.5-moe-a2.7b": "gates of shared experts",
        "phi-3.5-moe": "biases to qkv, attention_output, head not alone",
    }  # fmt: skip
    for name, said in refused.items():
        assert any(said in reason for reason in model_refusals(name)), name
    for name in ("qwen2.5-7b", "llama-3-8b"):
        assert model_refusals(name) == []
