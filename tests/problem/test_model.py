"""Models: parameter counts by hand and as published, defaults."""

import pytest

from planner.files import load, names, parse
from planner.problem.model import Model


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


@pytest.mark.parametrize("name", names("model"))
def test_shipped_model_has_its_published_size(name: str) -> None:
    """Within 0.5 %; Grok-1's counts the layers alone."""
    model = load(name, "model", Model)
    assert model.name == name
    found = model.num_parameters
    if name == "grok-1":
        found -= model.num_embedding_parameters
        assert int(found / 1e9) == 314
    assert model.published_parameters is not None
    assert found == pytest.approx(float(model.published_parameters), rel=0.005)


SPARSE = [name for name in names("model") if load(name, "model", Model).published_active_parameters]


@pytest.mark.parametrize("name", SPARSE)
def test_shipped_model_has_its_published_active_size(name: str) -> None:
    """Sources round to two digits, and count the embedding, or not (gpt-oss: its card does not)."""
    model = load(name, "model", Model)
    published = float(model.published_active_parameters or 0)
    most = model.num_active_parameters
    least = most - model.num_embedding_parameters
    if name.startswith("gpt-oss"):
        assert least == pytest.approx(published, rel=0.005)
    elif name == "nemotron-3-nano":  # 3.580, and 3.228 without the embedding
        assert f"{most:.1e}" == f"{published:.1e}" and f"{least:.1e}" == "3.2e+09"
    else:
        assert 0.995 * least <= published <= 1.005 * most
        assert most == pytest.approx(published, rel=0.02)


def test_every_shipped_model_with_experts_has_an_active_size() -> None:
    """But for Grok-1, whose source gives a quarter of the weights."""
    sparse = {name for name in names("model") if load(name, "model", Model).moe}
    assert sparse - {"grok-1"} == set(SPARSE)
    assert len(sparse) >= 10
