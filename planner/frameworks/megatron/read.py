"""Megatron-LM arguments in the planner's words, with what Megatron does where they are silent."""

from __future__ import annotations

from dataclasses import dataclass
from math import prod
from typing import Any

from planner.frameworks.megatron import flags, rules
from planner.frameworks.megatron.model import num_experts, read_model
from planner.frameworks.megatron.stages import read_stages
from planner.frameworks.script import Interpretation, LaunchScript, integer_of
from planner.frameworks.target import target, text_of
from planner.problem.scenario import Scenario

NAME = "megatron"

DEFAULT_ORDER = "tp-cp-dp-pp"

ZERO_STAGES = {"no_shard": 0, "optim": 1, "optim_grads": 2, "optim_grads_params": 3}
"""What Megatron's FSDP shards, by its strategy."""


@dataclass(frozen=True, slots=True)
class Degrees:
    """Degrees that the arguments set, and the data parallelism that is left."""

    tp: int
    cp: int
    pp: int
    ep: int
    etp: int
    dp: int

    @classmethod
    def of(cls, script: LaunchScript, num_accelerators: int) -> Degrees:
        """The degrees of a script on so many accelerators."""
        names = target(NAME).names
        tp, cp, pp, ep = (script.degree(names[key]) for key in ("tp", "cp", "pp", "ep"))
        etp = script.integer(flags.EXPERT_TENSOR_SIZE, tp) or 1  # Megatron's default is tp
        return cls(tp, cp, pp, ep, etp, max(num_accelerators // (tp * cp * pp), 1))


def interpret_megatron(script: LaunchScript, scenario: Scenario) -> Interpretation:
    """What the arguments mean on the scenario's accelerators.

    Raises:
        InputError: a value is of the wrong kind.
    """
    result = Interpretation(script, DEFAULT_ORDER)
    table_values = read_table(result)
    result.rank_order = table_values["order"]
    degrees = Degrees.of(script, scenario.num_accelerators)
    for key in ("tp", "cp", "pp", "ep"):
        result.state(key, getattr(degrees, key), target(NAME).names[key])
    num_layers = read_model(result, scenario.model, table_values)
    read_stages(result, num_layers, degrees.pp)
    _read_sequence_parallelism(result, table_values, degrees.tp)
    _read_experts(result, scenario, table_values, degrees)
    _read_context_parallelism(result, degrees.cp)
    _read_sharding(result)
    _read_batch(result, degrees.dp)
    _read_recompute(result, scenario, table_values, num_layers)
    _read_precision(result, table_values)
    _read_overlap(result, scenario, degrees)
    _read_offload(result, degrees.pp)
    _check_order(result, degrees)
    return result


# ---------------------------------------------------------------- settings of the table


def read_table(result: Interpretation) -> dict[str, Any]:
    """Values of keys as the target's table reads them in the settings.

    Settings that mean the same as others, or nearly, are put in the table's words before; what
    only comes near is noted as an approximation.
    """
    script = result.script
    settings = script.values()
    # an older switch for what granularity selective is now
    if script.is_on(flags.RECOMPUTE_ACTIVATIONS):
        settings.setdefault(flags.RECOMPUTE_GRANULARITY, "selective")
    if settings.get(flags.RECOMPUTE_GRANULARITY) == "full":
        # which layers is read by _read_recomputed_layers
        settings |= {flags.RECOMPUTE_METHOD: "uniform", flags.RECOMPUTE_LAYERS: "1"}
    elif settings.get(flags.RECOMPUTE_GRANULARITY) == "selective":
        settings[flags.RECOMPUTE_MODULES] = _nearest_modules(result)
    if flags.FP8_FORMAT in settings:
        settings |= _nearest_fp8(result)
    # DeepEP and HybridEP, the two backends of flex, cost the planner the same
    if settings.get(flags.DISPATCHER) == "flex":
        settings[flags.FLEX_BACKEND] = "hybridep"
    # the table knows dropout of Megatron's usual rate or none
    rates = (flags.ATTENTION_DROPOUT, flags.HIDDEN_DROPOUT)
    dropout = any(_fraction(settings.get(name, "0.1")) for name in rates)
    settings |= dict.fromkeys(rates, "0.1" if dropout else "0.0")
    return target(NAME).read(settings)


def _fraction(value: Any) -> float:
    """A value as a number; what is none counts as Megatron's rate of dropout."""
    try:
        return float(value)
    except (TypeError, ValueError):
        return 0.1


def _nearest_modules(result: Interpretation) -> str:
    """The table's words for the modules that are recomputed, or for the most of them."""
    script = result.script
    given = {"core_attn"}  # Megatron's default
    if script.has(flags.RECOMPUTE_MODULES):
        given = set(script.settings[flags.RECOMPUTE_MODULES].value)
    codes = target(NAME).codes["recompute"].values()
    known = [str(c[flags.RECOMPUTE_MODULES]) for c in codes if flags.RECOMPUTE_MODULES in c]
    contained = [text for text in known if set(text.split()) <= given]
    nearest = max(contained, key=lambda text: len(text.split()), default="")
    if set(nearest.split()) != given:
        result.note_approximation(
            "recompute",
            f"modules {', '.join(sorted(given))} are judged as {nearest or 'none'}",
            flags.RECOMPUTE_MODULES,
            flags.RECOMPUTE_GRANULARITY,
        )
    return nearest


def _nearest_fp8(result: Interpretation) -> dict[str, Any]:
    """The table's settings for the FP8 recipe given; nothing for one that it does not have."""
    script = result.script
    recipe = script.text(flags.FP8_RECIPE, "delayed")
    if not script.has(flags.FP8_RECIPE):
        result.note_default("training.precision", f"{flags.FP8_RECIPE} is delayed")
    if recipe == "tensorwise":
        result.note_approximation(
            "training.precision",
            "scaling by tensor at once is judged as delayed scaling",
            flags.FP8_RECIPE,
        )
        recipe = "delayed"
    codes = target(NAME).codes["training.precision"].values()
    return next((dict(code) for code in codes if code.get(flags.FP8_RECIPE) == recipe), {})


# ---------------------------------------------------------------- degrees and what goes with them


def _read_sequence_parallelism(
    result: Interpretation, table_values: dict[str, Any], tp: int
) -> None:
    given = table_values["sp"] == "true"
    result.state("sp", given and tp > 1, flags.SEQUENCE_PARALLEL)
    if given and tp == 1:
        result.note_default(
            "sp",
            "Megatron turns sequence parallelism off without tensor parallelism",
            flags.SEQUENCE_PARALLEL,
        )


def _read_experts(
    result: Interpretation, scenario: Scenario, table_values: dict[str, Any], degrees: Degrees
) -> None:
    script = result.script
    experts = num_experts(script)
    if experts is not None:
        _check_experts_of_a_token(script, experts)
    dense = scenario.model.moe is None and experts is None
    if dense and degrees.ep == 1:
        return
    name = flags.EXPERT_TENSOR_SIZE
    result.state("etp", degrees.etp, name)
    if not script.has(name) and degrees.tp > 1:
        result.note_default(
            "etp", f"{degrees.etp}: without {name} Megatron takes the tensor-parallel size"
        )
    if degrees.ep > 1:
        dispatcher = table_values.get("dispatcher", "allgather")
        result.state("dispatcher", dispatcher, flags.DISPATCHER, flags.FLEX_BACKEND)
        if not script.has(flags.DISPATCHER):
            result.note_default("dispatcher", f"allgather: without {flags.DISPATCHER}")


def _check_experts_of_a_token(script: LaunchScript, experts: int) -> None:
    """Refuse fewer experts than a token visits, by default 2.

    One expert is a legal model of Megatron's with --moe-router-topk 1 and a softmax before it. With
    the default it starts, and stops in the first step: transformer_config.py does not compare the
    two numbers, and the router's torch.topk (moe_utils.py) cannot take 2 of 1 column.

    Raises:
        InputError: there are fewer.
    """
    name = target(NAME).names["model.moe.top_k"]
    top_k = script.integer(name, 2) or 2
    if top_k > experts and script.has(name):
        raise script.wrong(
            name, f"experts for every token are more than {flags.NUM_EXPERTS} {experts}",
            f"an integer from 1 to {experts}",
        )  # fmt: skip
    if top_k > experts:
        raise script.wrong(
            flags.NUM_EXPERTS,
            f"is fewer than the {top_k} experts of every token, the default of {name}",
            f"an integer >= {top_k}, or {name} 1 with {flags.PRE_SOFTMAX}",
        )


def _read_context_parallelism(result: Interpretation, cp: int) -> None:
    script, name, sizes = result.script, flags.CP_KIND, flags.CP_SIZES
    given = list(dict.fromkeys(script.settings[name].value)) if script.has(name) else ["p2p"]
    # the flag takes a kind for every layer: only one kind is modelled, the first that is known
    kinds = {code[name]: kind for kind, code in target(NAME).codes["cp_kind"].items()}
    if "a2a+p2p" in given and not script.has(sizes):
        result.refuse(rules.CP_SIZES_NEEDED, f"{name} a2a+p2p", _two_sizes(cp), cp=cp)
    if cp == 1:
        return
    known = next((kind for kind in given if kind in kinds), "p2p")
    if given != [known]:
        result.note_approximation("cp_kind", f"{' and '.join(given)} is judged as {known}", name)
    result.state("cp_kind", kinds[known], name)
    if kinds[known] == "hierarchical" and script.has(sizes):
        values = script.settings[sizes].value
        factors = [integer_of(size) or 0 for size in values]
        if prod(factors) != cp or len(factors) != 2:
            value = f"{sizes} {' '.join(map(str, values))}, cp={cp}"
            result.refuse(rules.CP_SIZES_MULTIPLY, value, _two_sizes(cp))
        else:
            result.state("cp_a2a", factors[0], sizes)


def _two_sizes(cp: int) -> list[str]:
    """Pairs of sizes whose product is cp, the largest inner ones."""
    inner = [value for value in (2, 4, 8) if cp % value == 0 and value < cp]
    return [f"{flags.CP_SIZES} {value} {cp // value}" for value in inner[-2:]]


def _read_sharding(result: Interpretation) -> None:
    script = result.script
    zero_stage = int(script.is_on(flags.DISTRIBUTED_OPTIMIZER))
    if script.is_on(flags.MEGATRON_FSDP):
        strategy = script.choice(flags.SHARDING_STRATEGY, tuple(ZERO_STAGES), "no_shard")
        zero_stage = ZERO_STAGES[strategy]
    elif script.is_on(flags.TORCH_FSDP):
        zero_stage = 3
    result.state(
        "zero_stage", zero_stage, flags.DISTRIBUTED_OPTIMIZER, flags.MEGATRON_FSDP,
        flags.TORCH_FSDP, flags.SHARDING_STRATEGY,
    )  # fmt: skip
    # the number of optimizer instances means copies only where an optimizer is sharded
    instances = target(NAME).names["dp_replicate"]
    if script.has(instances) and zero_stage:
        result.state("dp_replicate", script.integer(instances), instances)


def _check_order(result: Interpretation, degrees: Degrees) -> None:
    """Refuse pipelines inside data parallelism where degrees do not fit, with experts or not."""
    if result.rank_order == DEFAULT_ORDER:
        return
    tp, cp, etp, ep = degrees.tp, degrees.cp, degrees.etp, degrees.ep
    if not rules.fits_inside_dp(tp, cp, etp, ep):
        result.refuse(
            rules.PIPELINES_INSIDE_DP,
            f"{flags.PP_INSIDE_DP}, etp·ep={etp * ep}, tp·cp={tp * cp}",
            [f"without {flags.PP_INSIDE_DP}"],
        )


# ---------------------------------------------------------------- batches and precision


def _read_batch(result: Interpretation, dp: int) -> None:
    script, names = result.script, target(NAME).names
    micro, batch = names["mbs"], names["training.global_batch_size"]
    mbs = script.degree(micro)
    result.state("mbs", mbs, micro)
    if not script.has(micro):
        result.note_default("mbs", f"1: {micro} is not given (Megatron asks for it)")
    if script.has(batch):
        result.state("training.global_batch_size", script.integer(batch), batch)
    elif script.has(micro):
        result.state("training.global_batch_size", mbs * dp, batch)
        result.note_default(
            "training.global_batch_size",
            f"{mbs * dp}: without {batch} Megatron takes micro-batch times data parallelism",
        )
    length = names["training.sequence_length"]
    if script.has(length):
        result.state("training.sequence_length", script.integer(length), length)
    _check_evaluation(result, mbs, dp)


def _check_evaluation(result: Interpretation, mbs: int, dp: int) -> None:
    """Refuse batches of validation that do not divide: the run would fail after training."""
    script, batch_name = result.script, flags.EVAL_GLOBAL_BATCH
    if not script.has(batch_name) and not script.has(flags.EVAL_MICRO_BATCH):
        return
    batch = script.integer(batch_name, result.training.get("global_batch_size")) or mbs * dp
    micro = script.integer(flags.EVAL_MICRO_BATCH, mbs) or mbs
    if batch % (micro * dp):
        below = batch // (micro * dp) * micro * dp
        nearest = [value for value in (below, below + micro * dp) if value]
        result.refuse(
            rules.EVAL_BATCH_DIVIDES,
            f"{batch_name}={batch}, {flags.EVAL_MICRO_BATCH}={micro}, dp={dp}",
            [f"{batch_name}={value}" for value in nearest],
        )


def _read_precision(result: Interpretation, table_values: dict[str, Any]) -> None:
    if "training.precision" in table_values:
        result.state(
            "training.precision", table_values["training.precision"], flags.BF16, flags.FP16,
            flags.FP8_FORMAT, flags.FP8_RECIPE, flags.FP4_FORMAT, flags.FP4_RECIPE,
        )  # fmt: skip
    elif result.script.has(flags.NUM_LAYERS):
        result.note_approximation(
            "training.precision",
            f"without {flags.BF16} or {flags.FP16} Megatron trains in FP32, which is not modelled: "
            "judged in the scenario's precision",
        )


# ---------------------------------------------------------------- recompute


def _read_recompute(
    result: Interpretation, scenario: Scenario, table_values: dict[str, Any], num_layers: int
) -> None:
    result.state(
        "recompute", table_values["recompute"], flags.RECOMPUTE_ACTIVATIONS,
        flags.RECOMPUTE_GRANULARITY, flags.RECOMPUTE_METHOD, flags.RECOMPUTE_LAYERS,
        flags.RECOMPUTE_MODULES,
    )  # fmt: skip
    if result.script.text(flags.RECOMPUTE_GRANULARITY) == "full":
        _read_recomputed_layers(result, scenario, num_layers)


def _read_recomputed_layers(result: Interpretation, scenario: Scenario, num_layers: int) -> None:
    """State how many layers of every chunk are recomputed (block); note what is judged as all."""
    script = result.script
    method = script.text(flags.RECOMPUTE_METHOD, "uniform")
    layers = script.degree(flags.RECOMPUTE_LAYERS)
    fewest, most = _chunk_layers(result, num_layers)
    if method == "block" and layers >= most:
        return  # every layer, which is what recompute full is
    if method == "block" and layers <= fewest and _layers_count(scenario):
        result.state("recompute_layers", layers, flags.RECOMPUTE_LAYERS)
    elif (method, layers) != ("uniform", 1):
        result.note_approximation(
            "recompute",
            f"{flags.RECOMPUTE_METHOD} {method}, {flags.RECOMPUTE_LAYERS} {layers} is judged as "
            "recompute of every layer (uniform, 1)",
            flags.RECOMPUTE_METHOD,
            flags.RECOMPUTE_LAYERS,
        )


def _layers_count(scenario: Scenario) -> bool:
    """Whether recomputed layers can be counted: all are alike, and the profile has it."""
    model = scenario.model
    mixed = model.moe is not None and (model.moe.num_dense_layers or model.moe.layer_period > 1)
    alike = model.layer_pattern is None and not model.mtp_layers and not mixed
    return scenario.software.recompute_counts and alike


def _chunk_layers(result: Interpretation, num_layers: int) -> tuple[int, int]:
    """Layers of the chunks with the fewest and the most."""
    pp, vp = result.layout.get("pp", 1), result.layout.get("vp", 1)
    split = result.layout.get("stage_layers") or [num_layers // pp]
    # a split names stages of vp chunks each, or the chunks themselves
    chunks_each = 1 if len(split) == pp * vp else vp
    return min(split) // chunks_each, -(-max(split) // chunks_each)


# ---------------------------------------------------------------- overlap and offload


def _read_overlap(result: Interpretation, scenario: Scenario, degrees: Degrees) -> None:
    """State what runs beside computation; where an axis has no traffic, the software's habit."""
    script, habit = result.script, scenario.software.overlap
    reduces, gathers = script.is_on(flags.GRADIENT_OVERLAP), script.is_on(flags.PARAMETER_OVERLAP)
    stage_ranks = degrees.tp * degrees.cp * degrees.dp
    # experts' gradients travel too where fewer ranks share them than hold the dense layers
    moe = scenario.model.moe is not None
    edp = stage_ranks // (degrees.etp * degrees.ep) if moe else 1
    overlapped = {
        "tp": script.is_on(flags.TP_OVERLAP) if degrees.tp > 1 else "tp" in habit,
        "dp": reduces if max(degrees.dp * degrees.cp, edp) > 1 else "dp" in habit,
        "pp": (
            not script.is_on(flags.NO_PP_OVERLAP)
            if result.layout.get("vp", 1) > 1
            else "pp" in habit
        ),
        "ep": script.is_on(flags.EP_OVERLAP) and degrees.ep > 1,
    }
    result.state(
        "overlap", _joined(overlapped), flags.TP_OVERLAP, flags.GRADIENT_OVERLAP,
        flags.PARAMETER_OVERLAP, flags.NO_PP_OVERLAP, flags.EP_OVERLAP,
    )  # fmt: skip
    if reduces and not gathers and result.layout.get("zero_stage") and degrees.dp > 1:
        result.note_approximation(
            "overlap",
            f"gathering parameters is judged as overlapped too, though {flags.PARAMETER_OVERLAP} "
            "is not set",
            flags.GRADIENT_OVERLAP,
        )


def _joined(switches: dict[str, bool]) -> str:
    """The names of those that are on, as a layout writes them."""
    return "+".join(name for name, is_on in switches.items() if is_on) or "none"


def _read_offload(result: Interpretation, pp: int) -> None:
    """State what lives in the host's memory; Transformer Engine offloads whole layers, and only
    without a pipeline or recompute."""
    script = result.script
    by_layer = script.is_on(flags.OFFLOAD_LAYERS) or script.has(flags.OFFLOAD_LAYER_COUNT)
    by_module = script.is_on(flags.OFFLOAD_ACTIVATIONS)
    if by_layer and pp > 1:
        value = f"{flags.OFFLOAD_LAYERS}, pp={pp}"
        result.refuse(rules.OFFLOAD_NEEDS_ONE_STAGE, value, ["pp=1"])
    if by_layer and text_of(result.layout.get("recompute", "none")) != "none":
        result.refuse(rules.OFFLOAD_EXCLUDES_RECOMPUTE, flags.OFFLOAD_LAYERS, ["recompute=none"])
    # both modes keep activations with the host: a layout tells them apart by the profile's rules
    optimizer = script.is_on(flags.OFFLOAD_OPTIMIZER)
    result.state(
        "offload", _joined({"optimizer": optimizer, "activations": by_layer or by_module}),
        flags.OFFLOAD_OPTIMIZER, flags.OFFLOAD_LAYERS, flags.OFFLOAD_LAYER_COUNT,
        flags.OFFLOAD_ACTIVATIONS,
    )  # fmt: skip
    fraction = script.text(flags.OFFLOAD_FRACTION, "1.0")
    if optimizer and _fraction(fraction) < 1:
        result.note_approximation(
            "offload",
            f"{flags.OFFLOAD_FRACTION} {fraction} is judged as the whole optimizer",
            flags.OFFLOAD_FRACTION,
        )
