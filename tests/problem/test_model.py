"""Models: parameter counts by hand and as published, defaults."""

import pytest

from planner.errors import InputError
from planner.inputs.files import names
from planner.inputs.values import load, parse
from planner.problem.blocks import DENSE, MoE
from planner.problem.model import Model


@pytest.fixture
def toy(texts: dict[str, str]) -> Model:
    return parse(texts["model.yaml"], "model.yaml", Model)


def test_parameters_by_hand(toy: Model) -> None:
    attention = 1024 * (1024 + 2 * 256) + 1024 * 1024
    mlp = 3 * 1024 * 4096
    assert toy.num_parameters_of(DENSE) == attention + mlp + 2 * 1024
    assert toy.num_embedding_parameters == toy.num_head_parameters == 32000 * 1024
    assert toy.num_parameters == 4 * toy.num_parameters_of(DENSE) + 2 * 32000 * 1024 + 1024


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
    assert gpt.num_parameters_of(DENSE) == layer
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


# ---------------------------------------------------------------- biases and norms


def test_biases_of_single_matrices_add_up_to_all_of_them(toy: Model) -> None:
    every = toy.replace(biases=("qkv", "attention_output", "mlp"))
    assert every.num_parameters == toy.replace(linear_bias=True).num_parameters
    qkv = toy.replace(biases=("qkv",)).num_parameters - toy.num_parameters
    assert qkv == 4 * (1024 + 2 * 256)
    head = toy.replace(biases=("head",), linear_bias=True)
    assert head.num_parameters - toy.replace(linear_bias=True).num_parameters == 32000


def test_norms_of_a_layer_by_hand(toy: Model) -> None:
    """Two, four or one, of a scale each, and a shift in LayerNorm."""
    for norm, parts in (("rmsnorm", 1), ("layernorm", 2)):
        counts = {
            kind: toy.replace(norm=norm, block_norms=kind).num_parameters_of(DENSE)
            for kind in ("before", "around", "shared")
        }
        assert counts["around"] - counts["before"] == 2 * parts * 1024
        assert counts["before"] - counts["shared"] == parts * 1024


def test_norms_of_queries_and_keys_have_shifts_in_layernorm(toy: Model) -> None:
    for norm, parts in (("rmsnorm", 1), ("layernorm", 2)):
        plain = toy.replace(norm=norm)
        more = plain.replace(qk_norm=True).num_parameters - plain.num_parameters
        assert more == 4 * 2 * parts * 64


def test_experts_of_qwen2_and_gpt_oss_by_hand(toy: Model) -> None:
    moe = MoE(num_experts=8, top_k=2, expert_ffn_hidden_size=512, num_shared_experts=1)
    plain = toy.replace(moe=moe)
    gated = toy.replace(
        moe=moe.replace(shared_expert_gate=True, shared_expert_ffn_hidden_size=2000)
    )
    assert gated.num_parameters - plain.num_parameters == 4 * (3 * 1024 * (2000 - 512) + 1024)
    router = plain.replace(biases=("router",), attention_sinks=True)
    assert router.num_parameters - plain.num_parameters == 4 * (8 + 16)


@pytest.mark.parametrize(
    ("lines", "key", "said"),
    [
        ("biases: [qkv, qkv]", "biases", "qkv is given twice"),
        ("biases: [mlp]\nlinear_bias: true", "biases", "has its bias from linear_bias"),
        ("biases: [router]", "biases", "a model without experts has no router"),
        ("biases: [keys]", "biases.0", "'keys' is not known here"),
        ("block_norms: after", "block_norms", "'after' is not known here"),
        ("block_norms: shared\nlayer_pattern: '*-*-'", "block_norms", "share no norm"),
        (
            "biases: [qkv]\nmla: {kv_lora_rank: 8, qk_nope_head_dim: 8, qk_rope_head_dim: 8, "
            "v_head_dim: 8}",
            "biases", "latent attention's qkv are not counted",
        ),
        (
            "moe: {num_experts: 2, top_k: 1, expert_ffn_hidden_size: 8, shared_expert_gate: true}",
            "moe.shared_expert_gate", "there are no shared experts",
        ),
    ],
)  # fmt: skip
def test_biases_and_norms_without_a_place(
    texts: dict[str, str], lines: str, key: str, said: str
) -> None:
    with pytest.raises(InputError) as caught:
        parse(f"{texts['model.yaml']}{lines}\n", "model.yaml", Model)
    assert caught.value.key == key and said in caught.value.message
