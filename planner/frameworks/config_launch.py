"""DeepSpeed's JSON and accelerate's YAML in the planner's words: what they say of a layout."""

from __future__ import annotations

from typing import Any

from planner.frameworks.launch import Launch, Note, Understood
from planner.frameworks.target import Target, target
from planner.problem.scenario import Scenario

_PROGRAM_S = {
    "mbs": "1: the program's to choose, --layout mbs=... says it",
    "recompute": "none: the program's to choose, --layout recompute=full says it",
    "training": "the model, and what else is not said, are the scenario's",
}
"""What these files leave to the training program."""


def understand_deepspeed(launch: Launch, scenario: Scenario) -> Understood:
    """What a configuration of DeepSpeed means; the program decides the rest.

    Raises:
        InputError: a value is of the wrong kind.
    """
    to = target("deepspeed")
    read = to.read({name: setting.value for name, setting in launch.settings.items()})
    found = Understood(order=next(iter(to.orders)))
    for key in ("tp", "pp"):
        found.say(launch, key, launch.whole(to.names[key], 1), to.names[key])
    device = "zero_optimization.offload_optimizer.device"
    found.say(launch, "offload", read["offload"], device)
    stage = "zero_optimization.stage"
    found.say(launch, "zero_stage", launch.whole(stage, 0, least=0), stage)
    _deepspeed_batch(launch, scenario, found, to)
    if "pipeline.activation_checkpoint_interval" in launch.settings:
        found.say(launch, "recompute", read.get("recompute", "none"),
                  "pipeline.activation_checkpoint_interval")  # fmt: skip
    precision = read.get("training.precision")
    if precision:
        found.say(launch, "training.precision", precision, "bf16.enabled", "fp16.enabled")
    overlap = "zero_optimization.overlap_comm"
    if launch.has(overlap):
        # only what is exchanged in data parallelism is its to overlap
        found.say(launch, "overlap", "dp" if launch.on(overlap) else "none", overlap)
    found.defaults += [
        Note(key, text) for key, text in _PROGRAM_S.items() if key not in found.layout
    ]  # fmt: skip
    return found


def _deepspeed_batch(launch: Launch, scenario: Scenario, found: Understood, to: Target) -> None:
    """Of whole batch, micro-batch and accumulation two make the third; all three must agree."""
    names = to.names["training.global_batch_size"], to.names["mbs"], to.names["num_microbatches"]
    whole, micro, steps = (launch.whole(name) for name in names)
    dp = max(scenario.num_accelerators // (found.layout["tp"] * found.layout["pp"]), 1)
    if whole and micro and steps and whole != micro * steps * dp:
        found.refuse(
            "batch-divides", f"{to.version} runtime/config.py",
            f"{names[0]}={whole}, {names[1]}={micro}, {names[2]}={steps}, dp={dp}",
            "the batch is micro-batch times accumulation times data parallelism",
            (f"{names[0]}={micro * steps * dp}",),
        )  # fmt: skip
        return
    if micro is None and whole:
        micro = max(whole // ((steps or 1) * dp), 1)
        found.defaults.append(
            Note("mbs", f"{micro}: DeepSpeed derives {names[1]} from the others", None)
        )
    if micro is None:
        return
    found.say(launch, "mbs", micro, names[1])
    if whole is None and steps is not None:
        whole = micro * steps * dp
    if whole is not None:
        found.say(launch, "training.global_batch_size", whole, *names)


def understand_accelerate(launch: Launch, scenario: Scenario) -> Understood:
    """What a file of `accelerate launch` means; batches and sequences are the program's.

    Raises:
        InputError: a value is of the wrong kind, or it starts something else than FSDP2.
    """
    to = target("accelerate")
    found = Understood(order=next(iter(to.orders)))
    launch.choice("distributed_type", ("FSDP",), "FSDP")
    settings = {name: setting.value for name, setting in launch.settings.items()}
    read = to.read({name: _plain(value) for name, value in settings.items()})
    for key in ("tp", "cp", "dp_replicate"):
        found.say(launch, key, launch.whole(to.names[key], 1), to.names[key])
    shard = to.names["dp_shard"]
    used = found.layout["tp"] * found.layout["cp"] * found.layout["dp_replicate"]
    left = max(scenario.num_accelerators // used, 1)
    if not launch.has(shard):
        found.defaults.append(
            Note("dp_shard", f"{left}: FSDP shards over the processes that are left", None)
        )
    found.say(launch, "dp_shard", launch.whole(shard, left), shard)
    found.say(launch, "zero_stage", int(read.get("zero_stage", "3")),
              "fsdp_config.fsdp_reshard_after_forward")  # fmt: skip
    if found.layout["cp"] > 1:
        kinds = [name for code in to.codes["cp_kind"].values() for name in code]
        found.say(launch, "cp_kind", read.get("cp_kind", "all_gather"), *kinds)
    found.say(launch, "recompute", read.get("recompute", "none"),
              "fsdp_config.fsdp_activation_checkpointing")  # fmt: skip
    found.say(launch, "sp", False)
    if "training.precision" in read:
        found.say(launch, "training.precision", read["training.precision"], "mixed_precision")
    found.defaults += [Note(key, _PROGRAM_S[key]) for key in ("mbs", "training")]
    return found


def _plain(value: Any) -> Any:
    """Values that accelerate takes as text or not: 'true', 'FULL_SHARD'."""
    return value.lower() if isinstance(value, str) and value.lower() in ("true", "false") else value
