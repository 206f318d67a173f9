"""Megatron-LM's arguments of a model, written and read with Megatron's defaults.

Dimensions, attention (also latent), experts, prediction layers. What of a model cannot be written
is in `rules.MODEL_REFUSALS`.
"""

from __future__ import annotations

import re
from typing import Any

from planner.frameworks.job import Job
from planner.frameworks.megatron.flags import (
    EXPERT_FREQUENCY,
    GROUP_QUERY_ATTENTION,
    GROUPED_GEMM,
    HIDDEN_SIZE,
    LATENT_ATTENTION,
    MAX_POSITIONS,
    NORMALIZATION,
    NUM_EXPERTS,
    NUM_LAYERS,
    POSITION_EMBEDDING,
    PRE_SOFTMAX,
    QKV_BIAS,
    ROTARY,
    SHARED_EXPERT_GATE,
    SHARED_EXPERT_SIZE,
)
from planner.frameworks.script import Interpretation, LaunchScript
from planner.frameworks.target import Settings, Target, target
from planner.problem.blocks import MoE
from planner.problem.model import Model

SIZES = ("num_layers", "hidden_size", "ffn_hidden_size", "num_attention_heads", "vocab_size")
SWITCHES = ("gated_mlp", "tied_embeddings", "linear_bias", "dropout", "qk_norm")

WRITTEN = (
    "num_layers", "hidden_size", "ffn_hidden_size", "num_attention_heads", "head_dim", "vocab_size",
    "norm", *SWITCHES,
)  # fmt: skip
"""Keys of a model that are written for every model, in this order."""

EXPERTS = ("num_experts", "top_k", "expert_ffn_hidden_size")
LATENT = ("q_lora_rank", "kv_lora_rank", "qk_nope_head_dim", "qk_rope_head_dim", "v_head_dim")

LEARNED = "learned_absolute"
"""Megatron's default of position embeddings: all others are rotary to the planner."""

MAX_FREQUENCY_CHARACTERS, MAX_PATTERN_LAYERS = 4000, 100_000
"""Of a --moe-layer-freq, and of what it makes; longer ones are not read."""


# ---------------------------------------------------------------- writing


def model_settings(job: Job, to: Target) -> Settings:
    """The model and its sequence."""
    model, training = job.scenario.model, job.scenario.training
    keys = [f"model.{name}" for name in WRITTEN]
    settings = job.settings(to, *keys, "training.sequence_length")
    if model.num_key_value_heads != model.num_attention_heads:
        settings[GROUP_QUERY_ATTENTION] = True
        settings |= job.settings(to, "model.num_key_value_heads")
    settings[MAX_POSITIONS] = max(training.sequence_length, model.num_position_embeddings)
    settings[POSITION_EMBEDDING] = LEARNED if model.num_position_embeddings > 0 else "rope"
    if model.biases == ("qkv",):
        settings[QKV_BIAS] = True
    if model.moe is not None:
        settings |= job.settings(to, *(f"model.moe.{name}" for name in EXPERTS))
        settings |= _expert_settings(model, model.moe)
    if model.mla is not None:
        settings[LATENT_ATTENTION] = True
        settings |= job.settings(to, *(f"model.mla.{name}" for name in LATENT))
    if model.mtp_layers:
        settings |= job.settings(to, "model.mtp_layers")
    return settings


def _expert_settings(model: Model, moe: MoE) -> Settings:
    settings: Settings = {GROUPED_GEMM: True}
    if moe.top_k == 1:  # after top-k the softmax of one logit would be 1
        settings[PRE_SOFTMAX] = True
    if moe.num_shared_experts:
        settings[SHARED_EXPERT_SIZE] = model.shared_ffn_hidden_size
    # Megatron counts every n-th layer from the first on, the planner from the n-th: so a list
    dense = model.num_layers - model.num_moe_layers
    if dense and moe.layer_period == 1:
        settings[EXPERT_FREQUENCY] = f"([0]*{dense}+[1]*{model.num_moe_layers})"
    elif dense:
        rest = model.num_layers - moe.layer_period * model.num_moe_layers
        period = f"([0]*{moe.layer_period - 1}+[1])*{model.num_moe_layers}"
        settings[EXPERT_FREQUENCY] = period + (f"+[0]*{rest}" if rest else "")
    return settings


# ---------------------------------------------------------------- reading


def read_model(result: Interpretation, model: Model, table_values: dict[str, Any]) -> int:
    """State the keys of a model that the script has; return its number of layers.

    model: has what the script does not. Only a script with layers and hidden size describes a
    model: then what it leaves out has Megatron's defaults. table_values: what the target's table
    reads in the settings.
    """
    script, names = result.script, target("megatron").names
    for key in SIZES:
        name = names[f"model.{key}"]
        if script.has(name):
            result.state(f"model.{key}", script.integer(name), name)
    describes = script.has(NUM_LAYERS) and script.has(HIDDEN_SIZE)
    if describes:
        _read_defaults(result, model, table_values)
    if script.has(NUM_EXPERTS) or (describes and model.moe is not None):
        _read_experts(result, model)
    if script.is_on(LATENT_ATTENTION):  # its sizes count for nothing without it
        for key, name in names.items():
            if key.startswith("model.mla.") and script.has(name):
                result.state(key, script.integer(name), name)
    return int(result.model.get("num_layers", model.num_layers))


def _read_defaults(result: Interpretation, model: Model, table_values: dict[str, Any]) -> None:
    """State what a described model has, given or by default."""
    script, to = result.script, target("megatron")
    for key in (f"model.{name}" for name in SWITCHES):
        result.state(key, table_values[key] == "true", *sorted(to.settings_of(key)))
    result.state("model.norm", table_values.get("model.norm", "layernorm"), NORMALIZATION)
    hidden = result.model.get("hidden_size", model.hidden_size)
    if "ffn_hidden_size" not in result.model:
        ffn_size = 4 * hidden
        if result.model["gated_mlp"]:  # as large as two matrices, in multiples of 64
            ffn_size = int(4 * hidden * 2 / 3 / 64) * 64
        if not ffn_size:
            name = to.names["model.ffn_hidden_size"]
            raise script.wrong(
                HIDDEN_SIZE,
                f"is too small: {name}, rounded down to a multiple of 64, is 0",
                f"an integer >= 24, or {name} given",
            )
        result.state("model.ffn_hidden_size", ffn_size)
    if not script.is_on(LATENT_ATTENTION):  # which has heads of its own sizes
        _read_heads(result, model, hidden)
    rotary = script.is_on(ROTARY) or script.text(POSITION_EMBEDDING, LEARNED) != LEARNED
    positions = script.integer(MAX_POSITIONS, model.num_position_embeddings, 0)
    result.state(
        "model.num_position_embeddings", 0 if rotary else positions, POSITION_EMBEDDING, ROTARY
    )
    # with biases everywhere the flag adds nothing
    biased = script.is_on(QKV_BIAS) and not result.model["linear_bias"]
    result.state("model.biases", ("qkv",) if biased else (), QKV_BIAS)
    predictions = to.names["model.mtp_layers"]
    result.state("model.mtp_layers", script.integer(predictions, 0, 0), predictions)


def _read_heads(result: Interpretation, model: Model, hidden: int) -> None:
    """State key/value heads and the size of a head."""
    script, names = result.script, target("megatron").names
    heads = result.model.get("num_attention_heads", model.num_attention_heads)
    groups, kv_heads = names["model.num_key_value_heads"], heads
    if script.is_on(GROUP_QUERY_ATTENTION):
        kv_heads = script.degree(groups)
    elif script.has(groups):
        result.note_default(
            "model.num_key_value_heads",
            f"{heads}: without {GROUP_QUERY_ATTENTION} Megatron leaves {groups} aside",
            groups,
        )
    result.state("model.num_key_value_heads", kv_heads, GROUP_QUERY_ATTENTION, groups)
    channels = names["model.head_dim"]
    same_sizes = heads == model.num_attention_heads and hidden == model.hidden_size
    own_size = same_sizes and hidden % heads  # a head size that the scenario's model must give
    size = script.integer(channels, model.head_dim if own_size else max(hidden // heads, 1))
    result.state("model.head_dim", size, channels)


def num_experts(script: LaunchScript) -> int | None:
    """Experts of a layer; None of a dense model, which Megatron also makes of --num-experts 0."""
    return script.integer(NUM_EXPERTS, minimum=0) or None


def _read_experts(result: Interpretation, model: Model) -> None:
    script, names = result.script, target("megatron").names
    experts = num_experts(script)
    if experts is None:
        # a described model without experts is dense, though the scenario's has some
        stating = NUM_EXPERTS if script.has(NUM_EXPERTS) else NUM_LAYERS
        result.state("model.moe.num_experts", None, stating)
        return
    result.state("model.moe.num_experts", experts, NUM_EXPERTS)
    top_k, width = names["model.moe.top_k"], names["model.moe.expert_ffn_hidden_size"]
    result.state("model.moe.top_k", script.integer(top_k, 2), top_k)
    usual = result.model.get("ffn_hidden_size", model.ffn_hidden_size)
    size = script.integer(width, usual) or usual
    result.state("model.moe.expert_ffn_hidden_size", size, width)
    shared = script.integer(SHARED_EXPERT_SIZE, 0, 0) or 0
    shared_experts = -(-shared // size)
    if shared % size:
        result.note_approximation(
            "model.moe.num_shared_experts",
            f"{SHARED_EXPERT_SIZE} {shared} is judged as {shared_experts} experts of {size}",
            SHARED_EXPERT_SIZE,
        )
    result.state("model.moe.num_shared_experts", shared_experts, SHARED_EXPERT_SIZE)
    if script.has(SHARED_EXPERT_GATE):
        gated = script.is_on(SHARED_EXPERT_GATE)
        result.state("model.moe.shared_expert_gate", gated, SHARED_EXPERT_GATE)
    _read_expert_layers(result, int(result.model.get("num_layers", model.num_layers)))


def _read_expert_layers(result: Interpretation, num_layers: int) -> None:
    """State which layers have experts: every n-th, or all behind the first dense ones."""
    text = result.script.text(EXPERT_FREQUENCY, "1").replace(" ", "")
    layers = expert_layers(text, num_layers)
    dense = layers.index(1) if layers and 1 in layers else 0
    if not layers or _period(sum(layers), num_layers - dense) is None:
        result.note_approximation(
            "model.moe",
            f"{EXPERT_FREQUENCY} {text} is not read: judged as the scenario's",
            EXPERT_FREQUENCY,
        )
        return
    period: int | None = 1
    if layers != [0] * dense + [1] * (num_layers - dense):
        # the planner counts periods from the first layer on
        dense, period = 0, _period(sum(layers), num_layers)
    if period is None:
        result.note_approximation(
            "model.moe",
            f"{EXPERT_FREQUENCY} {text} is judged as the scenario's",
            EXPERT_FREQUENCY,
        )
        return
    result.state("model.moe.num_dense_layers", dense, EXPERT_FREQUENCY)
    result.state("model.moe.layer_period", period, EXPERT_FREQUENCY)


def _period(with_experts: int, num_layers: int) -> int | None:
    """The least n of which every n-th of some layers makes so many with experts, or None."""
    return next((n for n in range(1, num_layers + 1) if num_layers // n == with_experts), None)


def expert_layers(text: str, num_layers: int) -> list[int] | None:
    """1 for layers with experts: of '2' (every second) or '([0]*3+[1]*58)'; None: neither."""
    if text.isascii() and text.isdecimal() and len(text) < 5 and int(text):
        return [int(i % int(text) == 0) for i in range(num_layers)]
    pattern = _evaluated(text)
    return pattern if pattern is not None and len(pattern) == num_layers else None


def _evaluated(text: str) -> list[int] | None:
    """The list that Python makes of a sum of lists of 0 and 1 and of their multiples; None: not
    such a sum."""
    if len(text) > MAX_FREQUENCY_CHARACTERS:
        return None
    tokens = re.findall(r"\[[01](?:,[01])*\]|\(|\)|\+|\*\d{1,4}", text)
    if "".join(tokens) != text:
        return None
    sums: list[list[int]] = [[]]  # of every open bracket, the outermost first
    last: list[int] = []  # what a multiple would repeat
    for token in tokens:
        if token[0] == "[":
            last = [int(bit) for bit in re.findall("[01]", token)]
        elif token == "(":
            sums.append([])
            last = []
        elif token == ")":
            if len(sums) < 2:
                return None
            last = sums.pop() + last
        elif token == "+":
            sums[-1], last = sums[-1] + last, []
        else:
            last = last * int(token[1:])
        if len(last) + sum(map(len, sums)) > MAX_PATTERN_LAYERS:
            return None
    return sums[0] + last if len(sums) == 1 else None
