"""What differs between the two versions of torchtitan that are written and read, side by side.

Settings that a key maps to differ in the tables, torchtitan.yaml (0.3, arguments) and
torchtitan-toml.yaml (0.2, a TOML file); those that need code are here.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Version:
    """One version, by the name of its target.

    schedule, stage_modules, layers_per_stage, local_batch, compile, async_tp: its names of
    settings. no_cuda_graphs: what switches them off; None: it has none. head_module: the name of
    the LM head. model_settings: those that name a model, in words.
    """

    target: str
    schedule: str
    stage_modules: str
    layers_per_stage: str
    local_batch: str
    compile: str
    async_tp: str
    no_cuda_graphs: str | None
    head_module: str
    model_settings: str


ARGUMENTS = Version(
    target="torchtitan",
    schedule="--parallelism.pipeline_parallel_schedule",
    stage_modules="--parallelism.module_fqns_per_model_part",
    layers_per_stage="--parallelism.pipeline_parallel_layers_per_stage",
    local_batch="--training.local_batch_size",
    compile="--compile.enable",
    async_tp="--compile.enable_async_tensor_parallel",
    no_cuda_graphs="--training.disable_cuda_graphs",
    head_module="lm_head",
    model_settings="--module and --config",
)

TOML = Version(
    target="torchtitan-toml",
    schedule="parallelism.pipeline_parallel_schedule",
    stage_modules="parallelism.module_fqns_per_model_part",
    layers_per_stage="parallelism.pipeline_parallel_layers_per_stage",
    local_batch="training.local_batch_size",
    compile="compile.enable",
    async_tp="parallelism.enable_async_tensor_parallel",
    no_cuda_graphs=None,
    head_module="output",
    model_settings="model.name and model.flavor",
)

VERSIONS: Mapping[str, Version] = {version.target: version for version in (ARGUMENTS, TOML)}

CONVERTERS = "model.converters"
"""Of 0.2: what changes the model's modules, a list."""
