"""torchtitan's flags and TOML in the planner's words, with torchtitan's defaults."""

from __future__ import annotations

import re
from typing import Any

from planner.frameworks.launch import Launch, Note, Understood
from planner.frameworks.target import Target, target
from planner.layouts.layout import V_SHAPED
from planner.problem.scenario import Scenario

UNMODELLED = {"GPipe": "1f1b", "LoopedBFS": "interleaved"}
"""Schedules of torchtitan that are not modelled, and what they are judged as."""

LOCAL_BATCH = 8
"""torchtitan's default, config/configs.py."""


def understand_torchtitan(launch: Launch, scenario: Scenario) -> Understood:
    """What the settings mean on the scenario's accelerators.

    Raises:
        InputError: a value is of the wrong kind.
    """
    to = target(launch.target)
    dash = "--" if launch.target == "torchtitan" else ""
    settings = {name: setting.value for name, setting in launch.settings.items()}
    converters = settings.get("model.converters")
    if isinstance(converters, list):
        settings["model.converters"] = " ".join(map(str, converters))
    read = to.read(settings)
    found = Understood(order=next(iter(to.orders)))
    degrees = {key: launch.whole(to.names[key], 1) or 1 for key in ("tp", "cp", "pp", "ep")}
    for key, degree in degrees.items():
        found.say(launch, key, degree, to.names[key])
    _data(launch, scenario, found, to, degrees)
    num_layers = _model(launch, scenario, found, read, to)
    _batch(launch, found, to, degrees["pp"], dash)
    if degrees["pp"] > 1:
        _stages(launch, found, to, num_layers, degrees["pp"])
    _companions(launch, found, to, read, degrees, dash)
    return found


def _data(
    launch: Launch, scenario: Scenario, found: Understood, to: Target, degrees: dict[str, int]
) -> None:
    shard, replicate = to.names["dp_shard"], to.names["dp_replicate"]
    copies = launch.whole(replicate, 1) or 1
    found.say(launch, "dp_replicate", copies, replicate)
    parts = launch.whole(shard, -1, least=-1)
    if parts == -1 or parts is None:
        used = degrees["tp"] * degrees["cp"] * degrees["pp"] * copies
        parts = max(scenario.num_accelerators // used, 1)
        found.defaults.append(
            Note("dp_shard", f"{parts}: {shard} -1 takes the accelerators that are left", None)
        )
    found.say(launch, "dp_shard", parts, shard)


def _model(
    launch: Launch, scenario: Scenario, found: Understood, read: dict[str, Any], to: Target
) -> int:
    """The shipped model that the registry names mean, and its layers."""
    given = read.get("registry")
    if given is not None:
        name, _, precision = str(given).partition(" ")
        found.model_name = name
        first = next(iter(to.codes["registry"][given]))
        found.say(launch, "model_name", name, *to.codes["registry"][given])
        found.layout.pop("model_name")
        if precision:
            found.say(launch, "training.precision", precision, first)
    if "training.precision" in to.codes:
        keys = {name for code in to.codes["training.precision"].values() for name in code}
        found.say(launch, "training.precision", read["training.precision"], *sorted(keys))
    return scenario.model.num_layers


def _batch(launch: Launch, found: Understood, to: Target, pp: int, dash: str) -> None:
    """A local batch is all a rank passes at once; in pipelines it is cut into micro-batches."""
    name, micro = f"{dash}training.local_batch_size", to.names["mbs"]
    local = launch.whole(name, LOCAL_BATCH) or LOCAL_BATCH
    if not launch.has(name):
        found.defaults.append(Note("mbs", f"{LOCAL_BATCH}: without {name}", None))
    mbs = (launch.whole(micro, 1) or 1) if pp > 1 else local
    if pp > 1 and local % mbs:
        found.refuse("local-batch-divides", f"{to.version}; pytorch/torchtitan#775",
                     f"{name}={local}, {micro}={mbs}",
                     "the local batch is a multiple of the micro-batch",
                     (f"{name}={max(local // mbs, 1) * mbs}",))  # fmt: skip
    if pp > 1 and local // mbs < pp:
        found.refuse("microbatches-fill-pipeline", f"{to.version}; pytorch/torchtitan#775, #784",
                     f"{name}={local}, {micro}={mbs}, pp={pp}",
                     "a pipeline needs at least pp micro-batches in a local batch, or it hangs",
                     (f"{name}={pp * mbs}",))  # fmt: skip
    found.say(launch, "mbs", mbs, *((micro, name) if pp > 1 else (name,)))
    dp = found.layout["dp_shard"] * found.layout["dp_replicate"]
    batch = to.names["training.global_batch_size"]
    whole = launch.whole(batch, -1, least=-1)
    if whole is None or whole < 1:
        whole = local * dp
        found.defaults.append(
            Note("training.global_batch_size", f"{whole}: without {batch} torchtitan takes the "
                 "local batch times data parallelism", None)
        )  # fmt: skip
    elif pp > 1 and whole != local * dp:
        if whole % (local * dp):
            found.refuse("batch-divides", f"{to.version} train.py", f"{batch}={whole}, "
                         f"{name}={local}, dp={dp}",
                         "the global batch is a multiple of the local batch times dp",
                         (f"{batch}={max(whole // (local * dp), 1) * local * dp}",))  # fmt: skip
        else:
            found.otherwise.append(
                Note("num_microbatches", f"{whole // (local * dp)} passes through the pipeline a "
                     "step are judged as one long one", launch.line(batch, name))
            )  # fmt: skip
    found.say(launch, "training.global_batch_size", whole, batch)
    length = to.names["training.sequence_length"]
    found.say(launch, "training.sequence_length", launch.whole(length, 2048), length)
    if not launch.has(length):
        found.defaults.append(Note("training.sequence_length", f"2048: without {length}", None))


def _stages(launch: Launch, found: Understood, to: Target, num_layers: int, pp: int) -> None:
    dash = "--" if to.name == "torchtitan" else ""
    name = f"{dash}parallelism.pipeline_parallel_schedule"
    codes = {str(code[name]): kind for kind, code in to.codes["schedule"].items()}
    said = launch.choice(name, (*codes, *UNMODELLED), "1F1B")
    schedule = codes.get(said) or UNMODELLED[said]
    each = f"{dash}parallelism.module_fqns_per_model_part"
    per_stage = f"{dash}parallelism.pipeline_parallel_layers_per_stage"
    single = schedule == "1f1b"
    vp = 1 if single else 2
    if said in UNMODELLED:
        found.otherwise.append(
            Note("schedule", f"{said} is judged as {schedule}", launch.line(name))
        )
    found.say(launch, "schedule", schedule, name)
    if launch.has(each):
        parts = [layers_of_part(part) for part in launch.settings[each].value]
        if not parts or len(parts) % pp or sum(parts) != num_layers:
            found.refuse(
                "stage-layers", "torchtitan distributed/pipeline_parallel.py",
                f"{each}: {len(parts)} parts, {sum(parts)} layers, pp={pp}",
                f"the parts are a multiple of pp and hold the model's {num_layers} layers",
            )  # fmt: skip
            return
        vp = len(parts) // pp
        held = [parts[i * pp : (i + 1) * pp] for i in range(vp)]
        if schedule in V_SHAPED:  # the second chunk of each rank lies on the way back
            held[1::2] = [chunks[::-1] for chunks in held[1::2]]
        even = all(len(set(rank)) == 1 for rank in zip(*held, strict=True))
        layers = [sum(rank) for rank in zip(*held, strict=True)]
        layers = layers if even or schedule in V_SHAPED else parts
        found.say(launch, "stage_layers", layers, each)
    elif launch.has(per_stage):
        chunks = -(-num_layers // (launch.whole(per_stage) or 1))
        if chunks % pp:
            found.refuse("stages-even", "torchtitan distributed/pipeline_parallel.py",
                         f"{per_stage}={launch.text(per_stage)}, pp={pp}",
                         f"{num_layers} layers make stages that are a multiple of pp")  # fmt: skip
            return
        vp = chunks // pp
    if single != (vp == 1):
        found.refuse("schedule", "torchtitan distributed/pipeline_parallel.py",
                     f"{said}, {vp} stages a rank",
                     "1F1B has one stage a rank, interleaved schedules two or more")  # fmt: skip
    found.say(launch, "vp", vp, name, each, per_stage)


def layers_of_part(part: Any) -> int:
    """Transformer layers of one part, a list of module names or names joined by commas."""
    names = part if isinstance(part, list) else str(part).split(",")
    return sum(re.fullmatch(r"layers\.\d+", str(name).strip()) is not None for name in names)


def _companions(
    launch: Launch, found: Understood, to: Target, read: dict[str, Any], degrees: dict[str, int],
    dash: str,
) -> None:  # fmt: skip
    modern = bool(dash)
    sp = [name for code in to.codes["sp"].values() for name in code]
    found.say(launch, "sp", degrees["tp"] > 1 and read.get("sp") == "true", *sp)
    zero = list(to.codes["zero_stage"]["3"])
    found.say(launch, "zero_stage", int(read.get("zero_stage", "3")), *zero)
    if degrees["cp"] > 1:
        kinds = [name for code in to.codes["cp_kind"].values() for name in code]
        found.say(launch, "cp_kind", read.get("cp_kind", "all_gather"), *kinds)
    if degrees["ep"] > 1:
        found.say(launch, "dispatcher", read.get("dispatcher", "alltoall"))
    kinds = sorted({name for code in to.codes["recompute"].values() for name in code})
    default = "operators" if modern else "alternate"
    if not any(map(launch.has, kinds)):
        found.defaults.append(
            Note("recompute", f"{default}: torchtitan's selective, without a choice", None)
        )
    found.say(launch, "recompute", read.get("recompute", default), *kinds)
    section = f"{dash}compile" if modern else "parallelism"
    asynchronous = f"{section}.enable_async_tensor_parallel"
    axes = ("tp", "dp", "pp") if launch.on(asynchronous) and degrees["tp"] > 1 else ("dp", "pp")
    found.say(launch, "overlap", "+".join(axes), asynchronous)
    _compiled(launch, found, dash)
    if modern:
        name = "--training.disable_cuda_graphs"
        graphs = "none" if launch.on(name) or degrees["pp"] > 1 else "full"
        found.say(launch, "training.cuda_graphs", graphs, name)


def _compiled(launch: Launch, found: Understood, dash: str) -> None:
    name = f"{dash}compile.enable"
    if launch.on(name):
        found.software = "torchtitan"
        return
    found.software = "torchtitan-eager"
    found.defaults.append(
        Note("software", f"torchtitan-eager: without {name} nothing is compiled", None)
    )
