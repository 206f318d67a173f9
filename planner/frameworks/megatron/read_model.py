"""The model that Megatron-LM arguments describe, with Megatron's defaults."""

from __future__ import annotations

import re
from typing import Any

from planner.frameworks.launch import Launch, Note, Understood
from planner.frameworks.target import target
from planner.problem.model import Model

SIZES = ("num_layers", "hidden_size", "ffn_hidden_size", "num_attention_heads", "vocab_size")
SWITCHES = ("gated_mlp", "tied_embeddings", "linear_bias", "dropout", "qk_norm")
GROUPS = "--group-query-attention"
FREQUENCY = "--moe-layer-freq"
SHARED = "--moe-shared-expert-intermediate-size"
GATE = "--moe-shared-expert-gate"
QKV_BIAS = "--add-qkv-bias"
POSITIONS, ROTARY = "--position-embedding-type", "--use-rotary-position-embeddings"


def read_model(launch: Launch, model: Model, found: Understood, read: dict[str, Any]) -> int:
    """Keys of a model that the script says; its number of layers.

    model: says what the script does not. Only a script that gives layers and hidden size describes
    a model: then what it leaves out has Megatron's defaults.
    """
    names = target("megatron").names
    for key in SIZES:
        if launch.has(names[f"model.{key}"]):
            found.say(launch, f"model.{key}", launch.whole(names[f"model.{key}"]),
                      names[f"model.{key}"])  # fmt: skip
    whole = launch.has("--num-layers") and launch.has("--hidden-size")
    if whole:
        _defaults(launch, found, read, model)
    if launch.has("--num-experts") or (whole and model.moe is not None):
        _experts(launch, found, model)
    if launch.on("--multi-latent-attention"):
        for key, name in names.items():
            if key.startswith("model.mla.") and launch.has(name):
                found.say(launch, key, launch.whole(name), name)
    return int(found.model.get("num_layers", model.num_layers))


def _defaults(launch: Launch, found: Understood, read: dict[str, Any], model: Model) -> None:
    names, table = target("megatron").names, target("megatron").codes
    given = found.model
    hidden = given.get("hidden_size", model.hidden_size)
    heads = given.get("num_attention_heads", model.num_attention_heads)
    for key in SWITCHES:
        flags = sorted({name for code in table[f"model.{key}"].values() for name in code})
        found.say(launch, f"model.{key}", read[f"model.{key}"] == "true", *flags)
    found.say(launch, "model.norm", read.get("model.norm", "layernorm"), "--normalization")
    if "ffn_hidden_size" not in given:
        wide = int(4 * hidden * 2 / 3 / 64) * 64 if given["gated_mlp"] else 4 * hidden
        found.say(launch, "model.ffn_hidden_size", wide)
    if not launch.on("--multi-latent-attention"):
        query, kv = names["model.num_key_value_heads"], heads
        if launch.on(GROUPS):
            kv = launch.whole(query, 1) or 1
        elif launch.has(query):
            found.defaults.append(
                Note("model.num_key_value_heads", f"{heads}: without {GROUPS} Megatron leaves "
                     f"{query} aside", launch.line(query))
            )  # fmt: skip
        found.say(launch, "model.num_key_value_heads", kv, GROUPS, query)
        channels = names["model.head_dim"]
        default = model.head_dim if heads == model.num_attention_heads and (
            hidden == model.hidden_size and hidden % heads
        ) else max(hidden // heads, 1)  # fmt: skip
        found.say(launch, "model.head_dim", launch.whole(channels, default), channels)
    rotary = launch.on(ROTARY) or launch.text(POSITIONS, "learned_absolute") != "learned_absolute"
    longest = launch.whole("--max-position-embeddings", model.num_position_embeddings, 0)
    found.say(launch, "model.num_position_embeddings", 0 if rotary else longest, POSITIONS, ROTARY)
    biased = launch.on(QKV_BIAS) and not given["linear_bias"]
    found.say(launch, "model.biases", ("qkv",) if biased else (), QKV_BIAS)
    mtp = names["model.mtp_layers"]
    found.say(launch, "model.mtp_layers", launch.whole(mtp, 0, 0), mtp)


def _experts(launch: Launch, found: Understood, model: Model) -> None:
    names = target("megatron").names
    keys = {key: names[f"model.moe.{key}"] for key in ("num_experts", "top_k")}
    experts = launch.whole(keys["num_experts"])
    if experts is None:
        found.say(launch, "model.moe.num_experts", None, "--num-layers")
        return
    found.say(launch, "model.moe.num_experts", experts, keys["num_experts"])
    found.say(launch, "model.moe.top_k", launch.whole(keys["top_k"], 2), keys["top_k"])
    wide = names["model.moe.expert_ffn_hidden_size"]
    usual = found.model.get("ffn_hidden_size", model.ffn_hidden_size)
    size = launch.whole(wide, usual) or usual
    found.say(launch, "model.moe.expert_ffn_hidden_size", size, wide)
    shared = launch.whole(SHARED, 0, 0) or 0
    if shared % size:
        found.otherwise.append(
            Note("model.moe.num_shared_experts", f"{SHARED} {shared} is judged as "
                 f"{-(-shared // size)} experts of {size}", launch.line(SHARED))
        )  # fmt: skip
    found.say(launch, "model.moe.num_shared_experts", -(-shared // size), SHARED)
    if launch.has(GATE):
        found.say(launch, "model.moe.shared_expert_gate", launch.on(GATE), GATE)
    _pattern(launch, found, int(found.model.get("num_layers", model.num_layers)))


def _pattern(launch: Launch, found: Understood, num_layers: int) -> None:
    """Which layers have experts: every n-th, or a Python list of 0 and 1 as Megatron takes it."""
    text = launch.text(FREQUENCY, "1").replace(" ", "")
    layers = layer_pattern(text, num_layers)
    dense = layers.index(1) if layers and 1 in layers else 0
    period = next((p for p in range(1, num_layers + 1)
                   if layers and sum(layers) == (num_layers - dense) // p), None)  # fmt: skip
    if not layers or period is None:
        found.otherwise.append(
            Note("model.moe", f"{FREQUENCY} {text} is not read: judged as the scenario's",
                 launch.line(FREQUENCY))
        )  # fmt: skip
        return
    leading = layers == [0] * dense + [1] * (num_layers - dense)
    if not leading:  # every n-th layer: the planner counts periods from the first layer
        dense = 0
        period = next((p for p in range(1, num_layers + 1) if num_layers // p == sum(layers)), None)
        if period is None:
            found.otherwise.append(
                Note("model.moe", f"{FREQUENCY} {text} is judged as the scenario's",
                     launch.line(FREQUENCY))
            )  # fmt: skip
            return
    found.say(launch, "model.moe.num_dense_layers", dense, FREQUENCY)
    found.say(launch, "model.moe.layer_period", 1 if leading else period, FREQUENCY)


def layer_pattern(text: str, num_layers: int) -> list[int] | None:
    """1 for layers with experts: of '2' (every second) or '([0]*3+[1]*58)'; None: neither."""
    if text.isascii() and text.isdecimal() and len(text) < 5 and int(text):
        return [int(i % int(text) == 0) for i in range(num_layers)]
    pattern = _list(text)
    return pattern if pattern is not None and len(pattern) == num_layers else None


def _list(text: str) -> list[int] | None:
    """A sum of lists of 0 and 1 and of their multiples; brackets around sums."""
    if len(text) > 4000:
        return None
    tokens = re.findall(r"\[[01](?:,[01])*\]|\(|\)|\+|\*\d{1,4}", text)
    if "".join(tokens) != text:
        return None
    stack: list[list[int]] = [[]]
    last: list[int] = []
    for token in tokens:
        if token[0] == "[":
            last = [int(bit) for bit in re.findall("[01]", token)]
        elif token == "(":
            stack.append([])
            last = []
        elif token == ")":
            if len(stack) < 2:
                return None
            last = stack.pop() + last
        elif token == "+":
            stack[-1], last = stack[-1] + last, []
        else:
            last = last * int(token[1:])
        if len(last) + sum(map(len, stack)) > 100_000:
            return None
    return stack[0] + last if len(stack) == 1 else None
