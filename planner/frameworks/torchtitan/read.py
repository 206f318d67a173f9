"""torchtitan's arguments and TOML in the planner's words, with torchtitan's defaults."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

from planner.frameworks.script import Interpretation, LaunchScript
from planner.frameworks.target import Target, target
from planner.frameworks.torchtitan import rules
from planner.frameworks.torchtitan.versions import CONVERTERS, VERSIONS, Version
from planner.layouts.keys import KEYS, V_SHAPED
from planner.problem.scenario import Scenario

NEAREST_SCHEDULES = {"GPipe": "1f1b", "LoopedBFS": "interleaved"}
"""Schedules of torchtitan that are not modelled, and what they are judged as."""

LOCAL_BATCH, SEQUENCE_LENGTH = 8, 2048
"""torchtitan's defaults, config/configs.py."""


@dataclass(frozen=True, slots=True)
class _Inputs:
    """What settings are read with: the target's table, what it reads in them, and degrees."""

    to: Target
    version: Version
    table_values: dict[str, Any]
    tp: int
    cp: int
    pp: int
    ep: int

    @classmethod
    def of(cls, script: LaunchScript) -> _Inputs:
        to = target(script.target)
        settings = script.values()
        converters = settings.get(CONVERTERS)
        if isinstance(converters, list):  # the table has the one converter of a precision
            settings[CONVERTERS] = " ".join(map(str, converters))
        tp, cp, pp, ep = (script.degree(to.names[key]) for key in ("tp", "cp", "pp", "ep"))
        return cls(to, VERSIONS[to.name], to.read(settings), tp, cp, pp, ep)


def interpret_torchtitan(script: LaunchScript, scenario: Scenario) -> Interpretation:
    """What the settings mean on the scenario's accelerators.

    Raises:
        InputError: a value is of the wrong kind.
    """
    given = _Inputs.of(script)
    result = Interpretation(script, next(iter(given.to.orders)))
    for key in ("tp", "cp", "pp", "ep"):
        result.state(key, getattr(given, key), given.to.names[key])
    _read_data_parallelism(result, given, scenario.num_accelerators)
    _read_model(result, given)
    _read_batch(result, given)
    if given.pp > 1:
        _read_stages(result, given, scenario.model.num_layers)
    _read_companions(result, given)
    _read_options(result, given)
    _read_compilation(result, given)
    return result


def _read_data_parallelism(result: Interpretation, given: _Inputs, num_accelerators: int) -> None:
    script, names = result.script, given.to.names
    replicate = script.degree(names["dp_replicate"])
    result.state("dp_replicate", replicate, names["dp_replicate"])
    shard = script.integer(names["dp_shard"], -1, minimum=-1)
    if shard == 0:
        raise script.wrong(names["dp_shard"], "is of the wrong kind", "-1, or an integer >= 1")
    if shard == -1 or shard is None:  # torchtitan's default
        shard = max(num_accelerators // (given.tp * given.cp * given.pp * replicate), 1)
        result.note_default(
            "dp_shard", f"{shard}: {names['dp_shard']} -1 takes the accelerators that are left"
        )
    result.state("dp_shard", shard, names["dp_shard"])


def _read_model(result: Interpretation, given: _Inputs) -> None:
    """State the shipped model that names of torchtitan's registry mean, and the precision."""
    codes, registered = given.to.codes, given.table_values.get("registry")
    if registered is not None:
        # of 0.3 'llama3-8b mxfp8', of 0.2 'llama3-8b'
        name, _, precision = str(registered).partition(" ")
        settings = codes["registry"][registered]
        result.state("model_name", name, *settings)
        if precision:
            result.state("training.precision", precision, next(iter(settings)))
    if "training.precision" in codes:
        precision = given.table_values["training.precision"]
        names = sorted(given.to.settings_of("training.precision"))
        result.state("training.precision", precision, *names)


# ---------------------------------------------------------------- batches


def _read_batch(result: Interpretation, given: _Inputs) -> None:
    """State batches. A local batch is all that a rank passes at once; in a pipeline it is cut into
    micro-batches."""
    script, pp = result.script, given.pp
    name, micro = given.version.local_batch, given.to.names["mbs"]
    local = script.integer(name, LOCAL_BATCH) or LOCAL_BATCH
    if not script.has(name):
        result.note_default("mbs", f"{LOCAL_BATCH}: without {name}")
    # without a pipeline there is nothing to cut, and the micro-batch setting is ignored
    mbs = script.degree(micro) if pp > 1 else local
    version = given.to.version
    if pp > 1 and local % mbs:
        nearest = [f"{name}={max(local // mbs, 1) * mbs}"]
        value = f"{name}={local}, {micro}={mbs}"
        result.refuse(rules.LOCAL_BATCH_DIVIDES, value, nearest, version=version)
    if pp > 1 and local // mbs < pp:
        value = f"{name}={local}, {micro}={mbs}, pp={pp}"
        nearest = [f"{name}={pp * mbs}"]
        result.refuse(rules.MICROBATCHES_FILL_PIPELINE, value, nearest, version=version)
    result.state("mbs", mbs, *((micro, name) if pp > 1 else (name,)))
    _read_global_batch(result, given, local)
    length = given.to.names["training.sequence_length"]
    result.state("training.sequence_length", script.integer(length, SEQUENCE_LENGTH), length)
    if not script.has(length):
        result.note_default("training.sequence_length", f"{SEQUENCE_LENGTH}: without {length}")


def _read_global_batch(result: Interpretation, given: _Inputs, local: int) -> None:
    """State the global batch: the local batch times dp, or in a pipeline a multiple of that."""
    name, local_name = given.to.names["training.global_batch_size"], given.version.local_batch
    dp = result.layout["dp_shard"] * result.layout["dp_replicate"]
    batch = result.script.integer(name, -1, minimum=-1)
    if batch == 0:  # torchtitan takes the usual batch for a negative one alone
        raise result.script.wrong(name, "is no batch", "an integer >= 1, or -1 for the usual one")
    if batch is None or batch < 1:
        batch = local * dp
        result.note_default(
            "training.global_batch_size",
            f"{batch}: without {name} torchtitan takes the local batch times data parallelism",
        )
    elif given.pp > 1 and batch % (local * dp):
        nearest = [f"{name}={max(batch // (local * dp), 1) * local * dp}"]
        value = f"{name}={batch}, {local_name}={local}, dp={dp}"
        result.refuse(rules.BATCH_DIVIDES, value, nearest, version=given.to.version)
    elif given.pp > 1 and batch != local * dp:
        result.note_approximation(
            "num_microbatches",
            f"{batch // (local * dp)} passes through the pipeline a step are judged as one long "
            "one",
            name,
            local_name,
        )
    result.state("training.global_batch_size", batch, name)


# ---------------------------------------------------------------- pipeline stages


def _read_stages(result: Interpretation, given: _Inputs, num_layers: int) -> None:
    """State schedule, virtual stages, and layers of stages where modules are listed."""
    script, version, pp = result.script, given.version, given.pp
    codes = given.to.codes["schedule"]
    known = {str(code[version.schedule]): schedule for schedule, code in codes.items()}
    name = script.choice(version.schedule, (*known, *NEAREST_SCHEDULES), "1F1B")
    schedule = known.get(name) or NEAREST_SCHEDULES[name]
    if name in NEAREST_SCHEDULES:
        result.note_approximation("schedule", f"{name} is judged as {schedule}", version.schedule)
    result.state("schedule", schedule, version.schedule)
    vp: int | None = 1 if schedule == "1f1b" else 2  # torchtitan's default
    if script.has(version.stage_modules):
        vp = _read_stage_modules(result, given, schedule, num_layers)
    elif script.has(version.layers_per_stage):
        chunks = -(-num_layers // script.degree(version.layers_per_stage))
        vp = chunks // pp
        if chunks % pp:
            value = f"{version.layers_per_stage}={script.text(version.layers_per_stage)}, pp={pp}"
            result.refuse(rules.STAGES_EVEN, value, num_layers=num_layers)
            vp = None
    if vp is None:
        return
    if (schedule == "1f1b") != (vp == 1):
        result.refuse(rules.SCHEDULE_FITS_STAGES, f"{name}, {vp} stages a rank")
    result.state("vp", vp, version.schedule, version.stage_modules, version.layers_per_stage)


def _read_stage_modules(
    result: Interpretation, given: _Inputs, schedule: str, num_layers: int
) -> int | None:
    """State the layers of stages that lists of modules make; virtual stages of a rank.

    None: the lists do not fall on the ranks, or hold other layers than the model's.
    """
    name, pp = given.version.stage_modules, given.pp
    layers = [count_layers(modules) for modules in result.script.settings[name].value]
    if not layers or len(layers) % pp or sum(layers) != num_layers:
        value = f"{name}: {len(layers)} parts, {sum(layers)} layers, pp={pp}"
        result.refuse(rules.STAGE_MODULES_HOLD_MODEL, value, num_layers=num_layers)
        return None
    rounds = [layers[start : start + pp] for start in range(0, len(layers), pp)]
    if schedule in V_SHAPED:  # the second chunk of each rank lies on the way back
        rounds[1::2] = [chunks[::-1] for chunks in rounds[1::2]]
    by_rank = list(zip(*rounds, strict=True))
    alike = all(len(set(chunks)) == 1 for chunks in by_rank)
    stages = [sum(chunks) for chunks in by_rank]
    result.state("stage_layers", stages if alike or schedule in V_SHAPED else layers, name)
    return len(rounds)


def count_layers(modules: Any) -> int:
    """Transformer layers among the modules of a stage, a list or names joined by commas."""
    names = modules if isinstance(modules, list) else str(modules).split(",")
    return sum(re.fullmatch(r"layers\.\d+", str(name).strip()) is not None for name in names)


# ---------------------------------------------------------------- companions


def _read_companions(result: Interpretation, given: _Inputs) -> None:
    """State what goes with the degrees: sharding, recompute, overlap."""
    script, to, version = result.script, given.to, given.version
    values = {**to.defaults, **given.table_values}
    result.state("sp", given.tp > 1 and values.get("sp") == "true", *to.settings_of("sp"))
    result.state("zero_stage", int(values["zero_stage"]), *to.settings_of("zero_stage"))
    if given.cp > 1:
        kind = values.get("cp_kind", "all_gather")
        result.state("cp_kind", kind, *to.settings_of("cp_kind"))
    if given.ep > 1:
        result.state("dispatcher", values.get("dispatcher", "alltoall"))
    names = sorted(to.settings_of("recompute"))
    if not any(map(script.has, names)):
        default = to.defaults["recompute"]
        result.note_default("recompute", f"{default}: torchtitan's selective, without a choice")
    result.state("recompute", values["recompute"], *names)
    overlaps_tp = script.is_on(version.async_tp) and given.tp > 1
    result.state("overlap", "tp+dp+pp" if overlaps_tp else "dp+pp", version.async_tp)


def _read_options(result: Interpretation, given: _Inputs) -> None:
    """State the keys with a usual value that the table has a setting of."""
    script, to = result.script, given.to
    for key, name in to.options().items():
        default = int(to.defaults.get(key, KEYS[key].default))
        if not script.has(name):
            result.note_default(key, f"{default}: without {name}")
        result.state(key, script.integer(name, default, minimum=1), name)


def _read_compilation(result: Interpretation, given: _Inputs) -> None:
    """The profile that compiled or eager code means, and CUDA graphs where the version has them."""
    script, name = result.script, given.version.compile
    result.software = "torchtitan" if script.is_on(name) else "torchtitan-eager"
    if not script.is_on(name):
        result.note_default("software", f"torchtitan-eager: without {name} nothing is compiled")
    switch = given.version.no_cuda_graphs
    if switch is not None:
        graphs = "none" if script.is_on(switch) or given.pp > 1 else "full"
        result.state("training.cuda_graphs", graphs, switch)
