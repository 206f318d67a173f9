"""Megatron-LM arguments in the planner's words, with what Megatron does where they are silent."""

from __future__ import annotations

from math import prod
from typing import Any

from planner.frameworks.launch import Launch, Note, Understood, whole_number
from planner.frameworks.megatron.read_model import read_model
from planner.frameworks.megatron.read_stages import read_stages
from planner.frameworks.target import Target, target, text_of
from planner.problem.scenario import Scenario

SOURCE = "megatron-core 0.19.2 arguments.py"
STRATEGIES = {"no_shard": 0, "optim": 1, "optim_grads": 2, "optim_grads_params": 3}
STRATEGY = "--data-parallel-sharding-strategy"
GRANULARITY, METHOD = "--recompute-granularity", "--recompute-method"
MODULES, LAYERS = "--recompute-modules", "--recompute-num-layers"
FORMAT, RECIPE = "--fp8-format", "--fp8-recipe"
DISPATCHER, BACKEND = "--moe-token-dispatcher-type", "--moe-flex-dispatcher-backend"


def understand_megatron(launch: Launch, scenario: Scenario) -> Understood:
    """What the arguments mean on the scenario's accelerators.

    Raises:
        InputError: a value is of the wrong kind.
    """
    to = target("megatron")
    found, read = read_settings(launch)
    found.order = read["order"]
    degrees = {key: launch.whole(to.names[key], 1) or 1 for key in ("tp", "cp", "pp", "ep")}
    for key, degree in degrees.items():
        found.say(launch, key, degree, to.names[key])
    num_layers = read_model(launch, scenario.model, found, read)
    read_stages(launch, num_layers, degrees["pp"], found)
    _sequence(launch, found, read, degrees["tp"])
    _experts(launch, scenario, found, read, degrees)
    _context(launch, found, degrees["cp"])
    _states(launch, found, to)
    dp = max(scenario.num_accelerators // (degrees["tp"] * degrees["cp"] * degrees["pp"]), 1)
    _batch(launch, found, dp)
    found.say(launch, "recompute", read["recompute"], "--recompute-activations", GRANULARITY,
              METHOD, LAYERS, MODULES)  # fmt: skip
    if launch.text(GRANULARITY) == "full":
        _first_layers(launch, scenario, found, num_layers)
    _precision(launch, found, read)
    _overlap(launch, scenario, found, degrees, dp)
    _offload(launch, found, degrees["pp"])
    _order(launch, found, degrees)
    return found


def _order(launch: Launch, found: Understood, degrees: dict[str, int]) -> None:
    """With pp inside dp the experts' data-parallel degree must be the others', also without any."""
    if found.order == "tp-cp-dp-pp":
        return
    etp = launch.whole("--expert-tensor-parallel-size", degrees["tp"]) or 1
    of_experts, others = etp * degrees["ep"], degrees["tp"] * degrees["cp"]
    if of_experts != others:
        found.refuse(
            "pp-inside-dp", "megatron-core 0.19.2 core/parallel_state.py",
            f"--use-tp-pp-dp-mapping, etp·ep={of_experts}, tp·cp={others}",
            "pipelines are placed inside data parallelism only where etp·ep is tp·cp",
            ("without --use-tp-pp-dp-mapping",),
        )  # fmt: skip


def read_settings(launch: Launch) -> tuple[Understood, dict[str, Any]]:
    """What the target's table says of the settings, and a place for what they mean.

    Raises:
        InputError: a value is of the wrong kind.
    """
    to = target("megatron")
    settings, found = _plain(launch, to, Understood(order="tp-cp-dp-pp"))
    return found, to.read(settings)


def _plain(launch: Launch, to: Target, found: Understood) -> tuple[dict[str, Any], Understood]:
    """Settings as the target's table writes them."""
    settings = {name: setting.value for name, setting in launch.settings.items()}
    if launch.on("--recompute-activations"):
        settings.setdefault(GRANULARITY, "selective")
    if settings.get(GRANULARITY) == "full":
        settings |= {METHOD: "uniform", LAYERS: "1"}  # how many layers is read apart
    elif settings.get(GRANULARITY) == "selective":
        settings[MODULES] = _modules(launch, to, found)
    if FORMAT in settings:
        settings |= _low_precision(launch, to, found)
    if settings.get(DISPATCHER) == "flex":
        settings[BACKEND] = "hybridep"
    drops = ("--attention-dropout", "--hidden-dropout")
    dropout = any(_share(settings.get(name, "0.1")) for name in drops)
    settings |= dict.fromkeys(drops, "0.1" if dropout else "0.0")
    return settings, found


def _share(value: Any) -> float:
    try:
        return float(value)
    except (TypeError, ValueError):
        return 0.1


def _first_layers(launch: Launch, scenario: Scenario, found: Understood, num_layers: int) -> None:
    """Of every chunk the first layers alone (block); what is not counted so is said."""
    method, layers = launch.text(METHOD, "uniform"), launch.whole(LAYERS, 1) or 1
    fewest, most = _chunk_layers(found, num_layers)
    if method == "block" and layers >= most:
        return
    if method == "block" and layers <= fewest and _counts(scenario):
        found.say(launch, "recompute_layers", layers, LAYERS)
    elif (method, layers) != ("uniform", 1):
        found.otherwise.append(
            Note("recompute", f"{METHOD} {method}, {LAYERS} {layers} is judged as every layer run "
                 "again (uniform, 1)", launch.line(METHOD, LAYERS))
        )  # fmt: skip


def _counts(scenario: Scenario) -> bool:
    """Whether layers run again can be counted: all are alike, and the profile has it."""
    model = scenario.model
    mixed = model.moe is not None and (model.moe.num_dense_layers or model.moe.layer_period > 1)
    alike = model.layer_pattern is None and not model.mtp_layers and not mixed
    return scenario.software.recompute_counts and alike


def _chunk_layers(found: Understood, num_layers: int) -> tuple[int, int]:
    """Layers of the chunks with the fewest and the most."""
    pp, vp = found.layout.get("pp", 1), found.layout.get("vp", 1)
    split = found.layout.get("stage_layers") or [num_layers // pp]
    each = 1 if len(split) == pp * vp else vp
    return min(split) // each, -(-max(split) // each)


def _modules(launch: Launch, to: Target, found: Understood) -> str:
    """The table's words for the modules that run again, or for most of them."""
    given = set(launch.settings[MODULES].value if launch.has(MODULES) else ["core_attn"])
    codes = [
        str(code[MODULES]) for code in to.codes["recompute"].values() if MODULES in code
    ]  # fmt: skip
    inside = [text for text in codes if set(text.split()) <= given]
    best = max(inside, key=lambda text: len(text.split()), default="")
    if set(best.split()) != given:
        found.otherwise.append(
            Note("recompute", f"modules {', '.join(sorted(given))} are judged as "
                 f"{best or 'none'}", launch.line(MODULES, GRANULARITY))
        )  # fmt: skip
    return best


def _low_precision(launch: Launch, to: Target, found: Understood) -> dict[str, Any]:
    recipe = launch.text(RECIPE, "delayed")
    if not launch.has(RECIPE):
        found.defaults.append(Note("training.precision", f"{RECIPE} is delayed", None))
    if recipe == "tensorwise":
        found.otherwise.append(
            Note("training.precision", "scaling by tensor at once is judged as delayed scaling",
                 launch.line(RECIPE))
        )  # fmt: skip
        recipe = "delayed"
    codes = to.codes["training.precision"].values()
    return next((dict(code) for code in codes if code.get(RECIPE) == recipe), {})


def _sequence(launch: Launch, found: Understood, read: dict[str, Any], tp: int) -> None:
    asked = read["sp"] == "true"
    found.say(launch, "sp", asked and tp > 1, "--sequence-parallel")
    if asked and tp == 1:
        found.defaults.append(
            Note("sp", "Megatron turns sequence parallelism off without tensor parallelism",
                 launch.line("--sequence-parallel"))
        )  # fmt: skip


def _experts(
    launch: Launch, scenario: Scenario, found: Understood, read: dict[str, Any],
    degrees: dict[str, int],
) -> None:  # fmt: skip
    name = "--expert-tensor-parallel-size"
    without = scenario.model.moe is None and not launch.has("--num-experts")
    if without and degrees["ep"] == 1:
        return
    etp = launch.whole(name, degrees["tp"]) or 1
    found.say(launch, "etp", etp, name)
    if not launch.has(name) and degrees["tp"] > 1:
        found.defaults.append(
            Note("etp", f"{etp}: without {name} Megatron takes the tensor-parallel size", None)
        )
    if degrees["ep"] > 1:
        kind = read.get("dispatcher", "allgather")
        found.say(launch, "dispatcher", kind, DISPATCHER, BACKEND)
        if not launch.has(DISPATCHER):
            found.defaults.append(Note("dispatcher", f"allgather: without {DISPATCHER}", None))


def _context(launch: Launch, found: Understood, cp: int) -> None:
    name, sizes = "--cp-comm-type", "--hierarchical-context-parallel-sizes"
    kinds = list(dict.fromkeys(launch.settings[name].value)) if launch.has(name) else ["p2p"]
    codes = {code[name]: kind for kind, code in target("megatron").codes["cp_kind"].items()}
    if "a2a+p2p" in kinds and not launch.has(sizes):
        found.refuse(
            "cp-hierarchical-sizes", f"{SOURCE}; NVIDIA-NeMo/Megatron-Bridge#2665",
            f"{name} a2a+p2p", f"needs {sizes}, whose product is cp={cp}; without it ranks train "
            "without context parallelism", _two_factors(sizes, cp),
        )  # fmt: skip
    if cp == 1:
        return
    known = next((kind for kind in kinds if kind in codes), "p2p")
    if kinds != [known]:
        found.otherwise.append(
            Note("cp_kind", f"{' and '.join(kinds)} is judged as {known}", launch.line(name))
        )
    found.say(launch, "cp_kind", codes[known], name)
    if codes[known] == "hierarchical" and launch.has(sizes):
        factors = [whole_number(size) or 0 for size in launch.settings[sizes].value]
        if prod(factors) != cp or len(factors) != 2:
            found.refuse("cp-hierarchical-sizes", SOURCE,
                         f"{sizes} {' '.join(map(str, launch.settings[sizes].value))}, cp={cp}",
                         "two sizes, whose product is cp", _two_factors(sizes, cp))  # fmt: skip
        else:
            found.say(launch, "cp_a2a", factors[0], sizes)


def _two_factors(sizes: str, cp: int) -> tuple[str, ...]:
    inner = [value for value in (2, 4, 8) if cp % value == 0 and value < cp]
    return tuple(f"{sizes} {value} {cp // value}" for value in inner[-2:])


def _states(launch: Launch, found: Understood, to: Target) -> None:
    zero, name = int(launch.on("--use-distributed-optimizer")), to.names["dp_replicate"]
    if launch.on("--use-megatron-fsdp"):
        zero = STRATEGIES[launch.choice(STRATEGY, tuple(STRATEGIES), "no_shard")]
    elif launch.on("--use-torch-fsdp2"):
        zero = 3
    found.say(launch, "zero_stage", zero, "--use-distributed-optimizer", "--use-megatron-fsdp",
              "--use-torch-fsdp2", STRATEGY)  # fmt: skip
    if launch.has(name) and zero:
        found.say(launch, "dp_replicate", launch.whole(name), name)


def _batch(launch: Launch, found: Understood, dp: int) -> None:
    names = target("megatron").names
    micro, batch = names["mbs"], names["training.global_batch_size"]
    mbs = launch.whole(micro, 1) or 1
    found.say(launch, "mbs", mbs, micro)
    if not launch.has(micro):
        found.defaults.append(Note("mbs", f"1: {micro} is not given (Megatron asks for it)", None))
    if launch.has(batch):
        found.say(launch, "training.global_batch_size", launch.whole(batch), batch)
    elif launch.has(micro):
        found.say(launch, "training.global_batch_size", mbs * dp, batch)
        found.defaults.append(
            Note("training.global_batch_size", f"{mbs * dp}: without {batch} Megatron takes "
                 "micro-batch times data parallelism", None)
        )  # fmt: skip
    length = names["training.sequence_length"]
    if launch.has(length):
        found.say(launch, "training.sequence_length", launch.whole(length), length)
    _evaluation(launch, found, mbs, dp)


def _evaluation(launch: Launch, found: Understood, mbs: int, dp: int) -> None:
    """Batches of validation divide too, or the run fails after training."""
    names = "--eval-global-batch-size", "--eval-micro-batch-size"
    if not any(map(launch.has, names)):
        return
    whole = launch.whole(names[0], found.training.get("global_batch_size")) or mbs * dp
    micro = launch.whole(names[1], mbs) or mbs
    if whole % (micro * dp):
        below = whole // (micro * dp) * micro * dp
        near = [value for value in (below, below + micro * dp) if value]
        found.refuse(
            "eval-batch-divides", f"{SOURCE}; NVIDIA-NeMo/Megatron-Bridge#1697",
            f"{names[0]}={whole}, {names[1]}={micro}, dp={dp}",
            "validation's global batch is a multiple of its micro-batch times dp",
            tuple(f"{names[0]}={value}" for value in near),
        )  # fmt: skip


def _precision(launch: Launch, found: Understood, read: dict[str, Any]) -> None:
    names = ("--bf16", "--fp16", FORMAT, RECIPE, "--fp4-format", "--fp4-recipe")
    if "training.precision" in read:
        found.say(launch, "training.precision", read["training.precision"], *names)
    elif launch.has("--num-layers"):
        found.otherwise.append(
            Note("training.precision", "without --bf16 or --fp16 Megatron trains in FP32, which is "
                 "not modelled: judged in the scenario's precision", None)
        )  # fmt: skip


def _overlap(
    launch: Launch, scenario: Scenario, found: Understood, degrees: dict[str, int], dp: int
) -> None:
    """What runs beside computation; where an axis has no traffic, the software's habit."""
    habit, vp = scenario.software.overlap, found.layout.get("vp", 1)
    reduce, gather = launch.on("--overlap-grad-reduce"), launch.on("--overlap-param-gather")
    # experts' gradients travel too where fewer ranks share them than hold the dense part
    etp = launch.whole("--expert-tensor-parallel-size", degrees["tp"]) or 1
    replicas = degrees["tp"] * degrees["cp"] * dp // (etp * degrees["ep"])
    replicas = replicas if scenario.model.moe is not None else 1
    on = {
        "tp": launch.on("--tp-comm-overlap") if degrees["tp"] > 1 else "tp" in habit,
        "dp": reduce if max(dp * degrees["cp"], replicas) > 1 else "dp" in habit,
        "pp": not launch.on("--no-overlap-p2p-communication") if vp > 1 else "pp" in habit,
        "ep": launch.on("--overlap-moe-expert-parallel-comm") and degrees["ep"] > 1,
    }
    found.say(
        launch, "overlap", "+".join(axis for axis, is_on in on.items() if is_on) or "none",
        "--tp-comm-overlap", "--overlap-grad-reduce", "--overlap-param-gather",
        "--no-overlap-p2p-communication", "--overlap-moe-expert-parallel-comm",
    )  # fmt: skip
    if reduce and not gather and found.layout.get("zero_stage") and dp > 1:
        found.otherwise.append(
            Note("overlap", "gathering parameters is judged as overlapped too, though "
                 "--overlap-param-gather is not set", launch.line("--overlap-grad-reduce"))
        )  # fmt: skip


def _offload(launch: Launch, found: Understood, pp: int) -> None:
    """What lives with the host; Transformer Engine's way for activations knows one stage alone."""
    layered, fine = launch.on("--cpu-offloading"), launch.on("--fine-grained-activation-offloading")
    layered = layered or launch.has("--cpu-offloading-num-layers")
    source = "megatron-core 0.19.2 transformer_config.py"
    if layered and pp > 1:
        found.refuse("offload-needs-one-stage", source, f"--cpu-offloading, pp={pp}",
                     "offloading activations to the host needs pp=1", ("pp=1",))  # fmt: skip
    if layered and text_of(found.layout.get("recompute", "none")) != "none":
        found.refuse("offload-excludes-recompute", source, "--cpu-offloading",
                     "offloading activations excludes recompute", ("recompute=none",))  # fmt: skip
    kinds = {"optimizer": launch.on("--optimizer-cpu-offload"), "activations": layered or fine}
    found.say(
        launch, "offload", "+".join(kind for kind, is_on in kinds.items() if is_on) or "none",
        "--optimizer-cpu-offload", "--cpu-offloading", "--cpu-offloading-num-layers",
        "--fine-grained-activation-offloading",
    )  # fmt: skip
    fraction = "--optimizer-offload-fraction"
    if kinds["optimizer"] and _share(launch.text(fraction, "1.0")) < 1:
        found.otherwise.append(
            Note("offload", f"{fraction} {launch.text(fraction)} is judged as the whole optimizer",
                 launch.line(fraction))
        )  # fmt: skip
