"""Models: parameter counts by hand and as published, defaults, what is not costed yet."""

import pytest

from planner.errors import UnsupportedError
from planner.files import load, names, parse
from planner.problem.model import Model, require_costed


@pytest.fixture
def toy(texts: dict[str, str]) -> Model:
    return parse(texts["model.yaml"], "model.yaml", Model)


def test_parameters_by_hand(toy: Model) -> None:
    attention = 1024 * (1024 + 2 * 256) + 1024 * 1024
    mlp = 3 * 1024 * 4096
    assert toy.num_layer_parameters == attention + mlp + 2 * 1024
    assert toy.num_embedding_parameters == toy.num_head_parameters == 32000 * 1024
    assert toy.num_parameters == 4 * toy.num_layer_parameters + 2 * 32000 * 1024 + 1024


def test_parameters_of_the_gpt_form_by_hand(toy: Model) -> None:
    gpt = toy.replace(
        num_key_value_heads=16,
        gated_mlp=False,
        tied_embeddings=True,
        linear_bias=True,
        norm="layernorm",
        num_position_embeddings=2048,
    )
    layer = 12 * 1024**2 + 13 * 1024  # Megatron's 12 h² (1 + 13/(12 h))
    assert gpt.num_layer_parameters == layer
    assert gpt.num_parameters == 4 * layer + (32000 + 2048) * 1024 + 2 * 1024


def test_defaults_follow_the_heads(texts: dict[str, str]) -> None:
    text = texts["model.yaml"].replace("num_key_value_heads: 4\n", "")
    model = parse(text, "model.yaml", Model)
    assert (model.num_key_value_heads, model.head_dim) == (16, 64)


def test_given_head_dim_frees_hidden_size(texts: dict[str, str]) -> None:
    text = texts["model.yaml"].replace("1024", "1025") + "head_dim: 128\n"
    assert parse(text, "model.yaml", Model).head_dim == 128


@pytest.mark.parametrize(
    ("extra", "named"),
    [
        ("moe: {num_experts: 8, top_k: 2, expert_ffn_hidden_size: 64}", "moe"),
        (
            "mla: {kv_lora_rank: 64, qk_nope_head_dim: 64, qk_rope_head_dim: 32, v_head_dim: 64}",
            "mla",
        ),
        ("mtp_layers: 1", "mtp_layers"),
        ("sliding_window: 1024", "sliding_window"),
    ],
)
def test_valid_but_not_costed(extra: str, named: str, texts: dict[str, str]) -> None:
    model = parse(texts["model.yaml"] + extra + "\n", "model.yaml", Model)
    with pytest.raises(UnsupportedError, match=f"toy-model: the cost of {named}"):
        require_costed(model)


def test_dense_is_costed(toy: Model) -> None:
    require_costed(toy)


@pytest.mark.parametrize("name", names("model"))
def test_shipped_model_has_its_published_size(name: str) -> None:
    model = load(name, "model", Model)
    assert model.name == name
    if model.moe or model.mla or model.mtp_layers:
        return
    assert model.published_parameters is not None
    assert model.num_parameters == pytest.approx(model.published_parameters, rel=0.005)
