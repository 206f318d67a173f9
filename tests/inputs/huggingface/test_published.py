"""Published configurations: parameters as published, none of their keys without a meaning.

Numbers are those that Hugging Face shows of a checkpoint's safetensors ("Safetensors: Model size",
`total_parameters` of the API), which count a tied matrix once, unless said otherwise.
"""

from __future__ import annotations

import pytest

from planner.frameworks.import_model import import_model
from planner.problem.model import Model
from tests.inputs.huggingface.configs import PUBLISHED

EXACT: dict[str, tuple[int, str]] = {
    # file → parameters, whose
    "llama-2-7b": (6_738_415_616, "meta-llama/Llama-2-7b-hf"),
    "llama-3-8b": (8_030_261_248, "meta-llama/Meta-Llama-3-8B"),
    "llama-3-70b": (70_553_706_496, "meta-llama/Meta-Llama-3-70B"),
    "llama-3.1-405b": (405_853_388_800, "meta-llama/Llama-3.1-405B"),
    "llama-3.2-1b": (1_235_814_400, "meta-llama/Llama-3.2-1B"),
    "llama-3.2-3b": (3_212_749_824, "meta-llama/Llama-3.2-3B"),
    "tinyllama-1.1b": (1_100_048_384, "TinyLlama/TinyLlama-1.1B-Chat-v1.0"),
    "mistral-7b-v0.1": (7_241_732_096, "mistralai/Mistral-7B-v0.1"),
    "mistral-nemo-12b": (12_247_782_400, "mistralai/Mistral-Nemo-Base-2407"),
    "mixtral-8x7b": (46_702_792_704, "mistralai/Mixtral-8x7B-v0.1"),
    "mixtral-8x22b": (140_620_634_112, "mistralai/Mixtral-8x22B-v0.1"),
    "qwen2.5-0.5b": (494_032_768, "Qwen/Qwen2.5-0.5B"),
    "qwen2.5-7b": (7_615_616_512, "Qwen/Qwen2.5-7B"),
    "qwen2.5-72b": (72_706_203_648, "Qwen/Qwen2.5-72B"),
    "qwen1.5-moe-a2.7b": (14_315_784_192, "Qwen/Qwen1.5-MoE-A2.7B"),
    "qwen3-0.6b": (596_049_920, "Qwen/Qwen3-0.6B, all parameters as peft prints them"),
    "qwen3-8b": (8_190_735_360, "Qwen/Qwen3-8B"),
    "qwen3-30b-a3b": (30_532_122_624, "Qwen/Qwen3-30B-A3B"),
    "qwen3-235b-a22b": (235_093_634_560, "Qwen/Qwen3-235B-A22B"),
    "deepseek-v2-lite": (15_706_484_224, "deepseek-ai/DeepSeek-V2-Lite"),
    "deepseek-v2": (235_741_434_880, "deepseek-ai/DeepSeek-V2"),
    "gpt-oss-20b": (20_914_757_184, "openai/gpt-oss-20b, in 16 bits (its card: 20.91 billion)"),
    "gpt-oss-120b": (116_829_156_672, "openai/gpt-oss-120b, in 16 bits (its card: 116.83)"),
    "gpt2": (124_439_808, "openai-community/gpt2"),
    "gpt2-xl": (1_557_611_200, "openai-community/gpt2-xl"),
    "gpt-neox-20b": (20_554_567_680, "EleutherAI/gpt-neox-20b model card"),
    "pythia-6.9b": (6_857_302_016, "EleutherAI/pythia-6.9b model card"),
    "gemma-2b": (2_506_172_416, "google/gemma-2b"),
    "gemma-7b": (8_537_680_896, "google/gemma-7b"),
    "gemma-2-9b": (9_241_705_984, "google/gemma-2-9b"),
    "gemma-2-27b": (27_227_128_320, "google/gemma-2-27b"),
    "gemma-3-1b": (999_885_952, "google/gemma-3-1b-pt"),
    # 4,300,079,472 in all, less 416,866,032 of the vision tower and 2,950,272 of its projector
    "gemma-3-4b": (3_880_263_168, "google/gemma-3-4b-pt, text model"),
    "phi-1_5": (1_418_270_720, "microsoft/phi-1_5"),
    "phi-2": (2_779_683_840, "microsoft/phi-2"),
    "phi-3-mini-4k": (3_821_079_552, "microsoft/Phi-3-mini-4k-instruct"),
    "phi-3-medium-4k": (13_960_238_080, "microsoft/Phi-3-medium-4k-instruct"),
    "phi-4": (14_659_507_200, "microsoft/phi-4"),
    "phi-3.5-moe": (41_873_153_344, "microsoft/Phi-3.5-MoE-instruct"),
    "falcon-7b": (6_921_720_704, "tiiuae/falcon-7b, all parameters as peft prints them"),
    "falcon-40b": (41_303_293_952, "tiiuae/falcon-40b"),
    "falcon-rw-1b": (1_311_625_216, "tiiuae/falcon-rw-1b"),
}  # fmt: skip

ROUNDED: dict[str, tuple[float, str]] = {
    # 671,026,419,200 in other counts: with the 58 · 256 offsets that balance experts
    "deepseek-v3": (671e9, "arXiv 2412.19437; without the prediction layer"),
    "qwen2-57b-a14b": (57.41e9, "Qwen/Qwen2-57B-A14B"),
    "kimi-k2": (1.026e12, "moonshotai/Kimi-K2-Instruct: 1,026 billion"),
}

ACTIVE: dict[str, tuple[float, int, bool, str]] = {
    # active parameters in billions, digits they are given with, with the embedding or not, whose
    "mixtral-8x7b": (12.9, 3, True, "mistral.ai, Mixtral of experts"),
    "mixtral-8x22b": (39, 2, True, "mistral.ai, Cheaper, better, faster, stronger"),
    "qwen1.5-moe-a2.7b": (2.7, 2, True, "Qwen/Qwen1.5-MoE-A2.7B"),
    "qwen2-57b-a14b": (14, 2, True, "arXiv 2407.10671"),
    "qwen3-235b-a22b": (22, 2, True, "arXiv 2505.09388"),
    "deepseek-v2": (21, 2, True, "arXiv 2405.04434"),
    "deepseek-v3": (37, 2, False, "arXiv 2412.19437"),
    "gpt-oss-20b": (3.61, 3, False, "arXiv 2508.10925, table 1"),
    "gpt-oss-120b": (5.13, 3, False, "arXiv 2508.10925, table 1"),
    "kimi-k2": (32, 2, False, "moonshotai/Kimi-K2-Instruct"),
    "phi-3.5-moe": (6.6, 2, True, "microsoft/Phi-3.5-MoE-instruct"),
}


def model_of(name: str) -> Model:
    return import_model(PUBLISHED / f"{name}.json").model


def test_there_are_enough_of_every_family() -> None:
    assert len(EXACT) + len(ROUNDED) >= 25
    kept = {path.stem for path in PUBLISHED.glob("*.json")}
    assert kept == set(EXACT) | set(ROUNDED) | {"falcon-180b"}  # of which below


@pytest.mark.parametrize("name", EXACT)
def test_exact_counts_are_met_exactly(name: str) -> None:
    assert model_of(name).num_parameters == EXACT[name][0]


@pytest.mark.parametrize("name", ROUNDED)
def test_rounded_counts_are_met_within_half_a_percent(name: str) -> None:
    found = import_model(PUBLISHED / f"{name}.json", parameters=ROUNDED[name][0])
    assert found.agrees
    assert found.model.num_parameters == pytest.approx(ROUNDED[name][0], rel=0.005)


def test_deepseek_v3_lacks_only_what_has_no_gradient() -> None:
    assert 671_026_419_200 - model_of("deepseek-v3").num_parameters == 58 * 256


@pytest.mark.parametrize("name", ACTIVE)
def test_active_counts_to_the_digits_given(name: str) -> None:
    billions, digits, embedded, _ = ACTIVE[name]
    model = model_of(name)
    found = model.num_active_parameters - (not embedded) * model.num_embedding_parameters
    assert f"{found / 1e9:.{digits}g}" == f"{billions:.{digits}g}"


def test_active_counts_that_sources_cut_off() -> None:
    """2.4 and 3.3 billion: 2.45 without the embedding, and 3.35."""
    lite = model_of("deepseek-v2-lite")
    assert 2.4e9 < lite.num_active_parameters - lite.num_embedding_parameters < 2.5e9
    assert 3.3e9 < model_of("qwen3-30b-a3b").num_active_parameters < 3.4e9


def test_a_stated_count_that_counts_a_matrix_twice_is_explained() -> None:
    """tiiuae/falcon-180B's files hold the tied matrix twice: 179.5 billion."""
    found = import_model(PUBLISHED / "falcon-180b.json", parameters=179_522_565_120)
    assert not found.agrees and not found.is_wrong
    assert found.causes == ("the stated count has a matrix of its own for the LM head (tied here)",)


@pytest.mark.parametrize("name", [*EXACT, *ROUNDED])
def test_every_key_is_understood(name: str) -> None:
    assert import_model(PUBLISHED / f"{name}.json").unknown == ()
