"""What each architecture's `config.json` says as keys of a model file: one table per family.

Keys on the left are the model file's, those on the right the configuration's; defaults are those
of the classes of transformers 5.x, which leave out of a file what equals them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from planner.inputs.documents import Node
from planner.inputs.huggingface.config import Config, Default

Value = Node | int | bool | str | None | tuple[str, ...] | Mapping[str, object]
Maker = Callable[[Config], Value]
"""Makes the value of one key of a model file."""

SeveralMaker = Callable[[Config], Mapping[str, Value]]
"""Makes several keys that depend on each other."""

ALL_OF_LAYERS = ("qkv", "attention_output", "mlp")
"""The matrices of a layer that may have biases, which `linear_bias` gives them together."""

_DENSE_BETWEEN = "dense layers between those with experts cannot be planned"


@dataclass(frozen=True, slots=True)
class Family:
    """An architecture.

    Attributes:
        types: its `model_type`s.
        classes: how its classes' names begin.
        keys: a model file's keys, and how each is made.
        several: makers of keys that depend on each other.
        remarks: what is costed roughly of every model of it, by subject.
    """

    types: tuple[str, ...]
    classes: tuple[str, ...]
    keys: Mapping[str, Maker]
    several: tuple[SeveralMaker, ...] = ()
    remarks: Mapping[str, str] | None = None


# ---------------------------------------------------------------- single keys


def size(*keys: str, default: Default | Callable[[Config], Node | int] = None) -> Maker:
    """Return the maker of an integer from 1."""
    return lambda config: config.integer(*keys, default=default)


def flag(key: str, default: bool = False) -> Maker:
    """Return the maker of true or false."""
    return lambda config: config.flag(key, default)


def fixed(value: bool | str) -> Maker:
    """Return the maker of a value that every model of the family has."""
    return lambda config: value


def heads(config: Config) -> Node:
    """Return the number of heads of queries."""
    return config.integer("num_attention_heads", "n_head")


def dropout(*keys: str, usual: float = 0.0) -> Maker:
    """Return the maker of whether attention or a residual path has dropout."""
    return lambda config: sum(config.number(key, default=usual) for key in keys) > 0


def times_hidden(factor: int, *keys: str) -> Callable[[Config], int]:
    """Return the maker of a multiple of the hidden size."""
    return lambda config: factor * number_of(config.integer(*keys))


def number_of(node: Node) -> int:
    """Return the value of an integer of the file."""
    assert isinstance(node.value, int)
    return node.value


# ---------------------------------------------------------------- several keys


def biases(always: tuple[str, ...] = (), **flags: tuple[bool, tuple[str, ...]]) -> SeveralMaker:
    """Return the maker of the matrices with biases.

    Args:
        always: matrices that have one in every model of the family.
        flags: keys that are true or false → (default, matrices that have one where it is true).
    """

    def make(config: Config) -> Mapping[str, Value]:
        matrices = list(always)
        key = "biases"
        for name, (default, more) in flags.items():
            if config.flag(name, default):
                matrices += more
                key = name
        linear = set(ALL_OF_LAYERS) <= set(matrices)
        rest = [matrix for matrix in matrices if not (linear and matrix in ALL_OF_LAYERS)]
        values: dict[str, Value] = {}
        if rest:
            values["biases"] = config.placed(tuple(config.placed(m, key) for m in rest), key)
        if linear:
            values["linear_bias"] = True
        return values

    return make


WINDOW_KEYS = {"max_window_layers", "sliding_window_pattern", "_sliding_window_pattern"}


def windows(
    window: int | None = None,
    layers: Callable[[int, Config], bool] = lambda i, config: True,
    switch: str | None = None,
) -> SeveralMaker:
    """Return the maker of attention to a window.

    Args:
        window: its default size in tokens.
        layers: whether layer i attends to it, where `layer_types` does not say.
        switch: the key that must be true for it.

    The maker raises an InputError where `layer_types` contradicts the switch or has other types.
    """

    def make(config: Config) -> Mapping[str, Value]:
        config.used |= WINDOW_KEYS
        count = number_of(config.integer("num_hidden_layers"))
        node = config.node("sliding_window")
        listed = config.items("layer_types", str)
        marks = None if listed is None else _marks(*listed, count)
        if switch is not None and not config.flag(switch):
            if marks is not None and any(marks):
                assert listed is not None
                raise listed[0].error(
                    f"sliding attention, and {switch} is not true",
                    allowed="full_attention alone, or the flag",
                )
            return {}
        if node is None and "sliding_window" in config.values and marks is None:
            return {}
        if node is None and window is None and not (marks and any(marks)):
            return {}
        tokens = config.integer("sliding_window", default=window)
        if marks is None:
            marks = [layers(i, config) for i in range(min(count, 10_000))]
        if not any(marks):
            return {}
        if all(marks):
            return {"sliding_window": tokens}
        return {"sliding_window": tokens, "num_windowed_layers": sum(marks)}

    return make


def _marks(layer_types: Node, types: list[object], count: int) -> list[bool]:
    """Return which layers attend to a window."""
    for item in layer_types.items:
        if item.value not in ("sliding_attention", "full_attention"):
            raise item.error(
                f"{item.value} layers cannot be planned",
                allowed="full_attention, sliding_attention",
            )
    if len(types) != count:
        raise layer_types.error(f"{len(types)} types for {count} layers", allowed=f"{count} items")
    return [layer_type == "sliding_attention" for layer_type in types]


def every_second(i: int, config: Config) -> bool:
    """Whether a layer is the first of two."""
    return i % 2 == 0


def all_but_every_nth(i: int, config: Config) -> bool:
    """Whether a layer is any but the last of every `sliding_window_pattern` layers."""
    keys = ("sliding_window_pattern", "_sliding_window_pattern")
    return (i + 1) % number_of(config.integer(*keys, default=6)) > 0


def upper_layers(i: int, config: Config) -> bool:
    """Whether a layer is one of those from `max_window_layers` on."""
    return i >= number_of(config.integer("max_window_layers", default=28, least=0))


def experts(
    count: tuple[str, ...], top: tuple[str, ...], width: str, *several: SeveralMaker
) -> SeveralMaker:
    """Return the maker of experts.

    Args:
        count, top, width: keys of how many there are, how many a token visits, and their size.
        several: makers of further keys of a model file's `moe`.
    """

    def make(config: Config) -> Mapping[str, Value]:
        moe: dict[str, object] = {
            "num_experts": config.integer(*count),
            "top_k": config.integer(*top),
            "expert_ffn_hidden_size": config.integer(width),
        }
        for maker in several:
            moe |= maker(config)
        return {"moe": moe}

    return make


def every_nth_sparse(config: Config) -> Mapping[str, Value]:
    """Return which layers have experts: the last of every `decoder_sparse_step`, without
    `mlp_only_layers`.

    Raises:
        InputError: dense layers between those with experts.
    """
    step = config.integer("decoder_sparse_step", default=1)
    listed = config.items("mlp_only_layers", int)
    period: dict[str, Value] = {"layer_period": step} if number_of(step) > 1 else {}
    if listed is None or not listed[1]:
        return period
    node, dense = listed
    if period or sorted(dense, key=str) != sorted(range(len(dense)), key=str):
        raise node.error(
            _DENSE_BETWEEN, allowed="the first layers, 0, 1, 2 …, with decoder_sparse_step 1"
        )
    return {"num_dense_layers": len(dense)}


def first_dense(config: Config) -> Mapping[str, Value]:
    """Return how many dense layers come first; all others have experts.

    Raises:
        InputError: dense layers between those with experts.
    """
    step = config.integer("moe_layer_freq", default=1)
    if number_of(step) != 1:
        raise step.error(_DENSE_BETWEEN, allowed="1")
    return {"num_dense_layers": config.integer("first_k_dense_replace", default=0, least=0)}


def shared_like_others(config: Config) -> Mapping[str, Value]:
    """Return shared experts, of the routed ones' size."""
    return {"num_shared_experts": config.integer("n_shared_experts", default=0, least=0)}


def one_gated_shared(config: Config) -> Mapping[str, Value]:
    """Return one shared expert of another size than the routed ones, behind a gate."""
    return {
        "num_shared_experts": 1,
        "shared_expert_ffn_hidden_size": config.integer("shared_expert_intermediate_size"),
        "shared_expert_gate": True,
    }


def latent(config: Config) -> Mapping[str, Value]:
    """Return latent attention; queries have full rank where `q_lora_rank` is null."""
    names = ("kv_lora_rank", "qk_nope_head_dim", "qk_rope_head_dim", "v_head_dim")
    mla: dict[str, object] = {name: config.integer(name) for name in names}
    if config.node("q_lora_rank") is not None:
        mla["q_lora_rank"] = config.integer("q_lora_rank")
    width = sum(number_of(config.integer(name)) for name in names[1:3])
    for key in ("head_dim", "qk_head_dim"):
        config.node(key)  # newer files repeat one of the widths above, or their sum
    return {"mla": mla, "head_dim": config.placed(width, "qk_nope_head_dim")}


def falcon_heads(config: Config) -> Mapping[str, Value]:
    """Return key/value heads, which older files give as one or all, and how many norms the blocks
    side by side have."""
    parallel, single = config.flag("parallel_attn", True), config.flag("multi_query", True)
    newer = config.flag("new_decoder_architecture")
    config.used |= {"num_kv_heads", "n_head_kv"}
    norms = config.node("num_ln_in_parallel_attn")
    number = 1 + newer if norms is None else config.integer("num_ln_in_parallel_attn").value
    kv: Value = config.placed(1, "multi_query") if single else heads(config)
    if newer:
        kv = config.integer("num_kv_heads", "n_head_kv", default=heads)
    shared = parallel and number != 2
    return {"num_key_value_heads": kv, "block_norms": "shared" if shared else "before"}


# ---------------------------------------------------------------- families

USUAL: Mapping[str, Maker] = {
    "num_layers": size("num_hidden_layers"),
    "hidden_size": size("hidden_size"),
    "ffn_hidden_size": size("intermediate_size"),
    "num_attention_heads": size("num_attention_heads"),
    "vocab_size": size("vocab_size"),
    "gated_mlp": fixed(True),
    "norm": fixed("rmsnorm"),
    "tied_embeddings": flag("tie_word_embeddings"),
    "dropout": dropout("attention_dropout"),
}
GROUPED = {"num_key_value_heads": size("num_key_value_heads", default=heads)}


def _hidden_over_heads(config: Config) -> int:
    return number_of(config.integer("hidden_size")) // max(number_of(heads(config)), 1)


def own_head_dim(config: Config) -> Value:
    """Return the elements of a head, None where the file does not give them."""
    return None if config.node("head_dim") is None else config.integer("head_dim")


LLAMA = {**USUAL, **GROUPED, "head_dim": own_head_dim}
GEMMA = {**LLAMA, "head_dim": size("head_dim", default=256),
         "tied_embeddings": flag("tie_word_embeddings", True)}  # fmt: skip
LAYERNORM = {"gated_mlp": fixed(False), "norm": fixed("layernorm")}
ATTENTION = ("qkv", "attention_output")
PER_TOKEN = ("num_experts_per_tok",)
OF_EXPERTS = {
    "ffn_hidden_size": size(
        "intermediate_size", default=lambda config: config.integer("moe_intermediate_size")
    )
}
DEEPSEEK = (
    experts(("n_routed_experts",), PER_TOKEN, "moe_intermediate_size", first_dense,
            shared_like_others),
    latent,
    biases(attention_bias=(False, ATTENTION)),
)  # fmt: skip

FAMILIES: tuple[Family, ...] = (
    Family(("llama",), ("Llama",), LLAMA,
           (biases(attention_bias=(False, ATTENTION), mlp_bias=(False, ("mlp",))),)),
    Family(("mistral",), ("Mistral",), LLAMA, (windows(4096),)),
    Family(("mixtral",), ("Mixtral",), LLAMA,
           (experts(("num_local_experts",), PER_TOKEN, "intermediate_size"), windows())),
    Family(("qwen2",), ("Qwen2",), LLAMA,
           (biases(("qkv",)), windows(4096, upper_layers, "use_sliding_window"))),
    Family(("qwen2_moe",), ("Qwen2Moe",), {**LLAMA, **OF_EXPERTS},
           (biases(qkv_bias=(True, ("qkv",))),
            windows(4096, upper_layers, "use_sliding_window"),
            experts(("num_experts",), PER_TOKEN, "moe_intermediate_size", every_nth_sparse,
                    one_gated_shared))),
    Family(("qwen3",), ("Qwen3",),
           {**LLAMA, "head_dim": size("head_dim", default=128), "qk_norm": fixed(True)},
           (biases(attention_bias=(False, ATTENTION)),
            windows(4096, upper_layers, "use_sliding_window"))),
    Family(("qwen3_moe",), ("Qwen3Moe",),
           {**LLAMA, **OF_EXPERTS, "head_dim": size("head_dim", default=_hidden_over_heads),
            "qk_norm": fixed(True)},
           (biases(attention_bias=(False, ATTENTION)),
            windows(4096, upper_layers, "use_sliding_window"),
            experts(("num_experts",), PER_TOKEN, "moe_intermediate_size", every_nth_sparse))),
    Family(("deepseek_v2",), ("DeepseekV2",), {**USUAL, **GROUPED}, DEEPSEEK),
    Family(("deepseek_v3", "kimi_k2"), ("DeepseekV3",),
           {**USUAL, **GROUPED,
            "mtp_layers": lambda c: c.integer("num_nextn_predict_layers", default=0, least=0)},
           DEEPSEEK,
           {"e_score_correction_bias": "the offset that balances experts has no gradient: it is "
            "no parameter here"}),
    Family(("gpt_oss",), ("GptOss",),
           {**LLAMA, "head_dim": size("head_dim", default=64), "attention_sinks": fixed(True),
            "clamped_activation": fixed(True)},
           (biases(("mlp", "router"), attention_bias=(True, ATTENTION)),
            windows(128, every_second),
            experts(("num_local_experts",), ("num_experts_per_tok", "experts_per_token"),
                    "intermediate_size"))),
    Family(("gpt2",), ("GPT2",),
           {**LAYERNORM, "num_layers": size("n_layer"), "hidden_size": size("n_embd"),
            "num_attention_heads": size("n_head"), "vocab_size": size("vocab_size"),
            "ffn_hidden_size": size("n_inner", default=times_hidden(4, "n_embd")),
            "num_position_embeddings": size("n_positions", "n_ctx"),
            "tied_embeddings": flag("tie_word_embeddings", True),
            "dropout": dropout("attn_pdrop", "resid_pdrop", usual=0.1)},
           (biases(ALL_OF_LAYERS),)),
    Family(("gpt_neox",), ("GPTNeoX",),
           {**USUAL, **LAYERNORM, "dropout": dropout("attention_dropout", "hidden_dropout")},
           (biases(("mlp",), attention_bias=(True, ATTENTION)),)),
    Family(("gemma",), ("Gemma",), GEMMA, (biases(attention_bias=(False, ATTENTION)),)),
    Family(("gemma2",), ("Gemma2",), {**GEMMA, "block_norms": fixed("around")},
           (biases(attention_bias=(False, ATTENTION)), windows(4096, every_second))),
    Family(("gemma3_text",), ("Gemma3",),
           {**GEMMA, "block_norms": fixed("around"), "qk_norm": fixed(True),
            "num_attention_heads": size("num_attention_heads", default=8),
            "num_key_value_heads": size("num_key_value_heads", default=4),
            "vocab_size": size("vocab_size", default=262_208)},
           (biases(attention_bias=(False, ATTENTION)), windows(4096, all_but_every_nth))),
    Family(("phi",), ("Phi",),
           {**USUAL, **GROUPED, **LAYERNORM, "block_norms": fixed("shared"),
            "qk_norm": flag("qk_layernorm"),
            "dropout": dropout("attention_dropout", "resid_pdrop")},
           (biases((*ALL_OF_LAYERS, "head")),),
           {"parallel blocks": "attention and the feed-forward block are costed one after the "
            "other, not side by side"}),
    Family(("phi3",), ("Phi3",),
           {**LLAMA, "dropout": dropout("attention_dropout", "resid_pdrop")},
           (biases(attention_bias=(False, ATTENTION)), windows())),
    Family(("phimoe",), ("Phimoe", "PhiMoE"), {**LLAMA, "norm": fixed("layernorm")},
           (biases(attention_bias=(False, ATTENTION), lm_head_bias=(False, ("head",))),
            windows(),
            experts(("num_local_experts",), PER_TOKEN, "intermediate_size"))),
    Family(("falcon", "RefinedWeb", "RefinedWebModel"), ("Falcon", "RW"),
           {**LAYERNORM, "num_layers": size("num_hidden_layers", "n_layer"),
            "hidden_size": size("hidden_size"), "num_attention_heads": heads,
            "vocab_size": size("vocab_size"),
            "ffn_hidden_size": size("ffn_hidden_size", default=times_hidden(4, "hidden_size")),
            "tied_embeddings": flag("tie_word_embeddings", True),
            "dropout": dropout("attention_dropout", "hidden_dropout")},
           (biases(bias=(False, ALL_OF_LAYERS)), falcon_heads)),
)  # fmt: skip

BY_TYPE: Mapping[str, Family] = {name: family for family in FAMILIES for name in family.types}
