"""torchtitan's own parser and device meshes, run without an accelerator.

Reads JSON lines {argv, world_size, ranks} (version 0.3) or {toml} (0.2) and answers {error}, or
{values, recompute, groups}: the config's values by their dotted names, and the meshes' groups.
"""

from __future__ import annotations

import dataclasses
import functools
import inspect
import logging
import tempfile

from answering import keep_stdout_for_answers, mesh_groups, serve

logging.disable(logging.CRITICAL)
keep_stdout_for_answers()

import torch.distributed as dist
import torchtitan.tools.utils

# a planned accelerator, not this machine's: low precision asks for it
torchtitan.tools.utils.has_cuda_capability = lambda *_: True
# help texts are read out of the sources for each job
inspect.getsource = functools.cache(inspect.getsource)
inspect.getsourcelines = functools.cache(inspect.getsourcelines)

from torch.testing._internal.distributed.fake_pg import FakeStore
from torchtitan.config.manager import ConfigManager
from torchtitan.distributed import ParallelDims

AXES = {"dense": ("pp", "dp_replicate", "dp_shard", "cp", "tp"),
        "sparse": ("pp", "dp_replicate", "efsdp", "ep")}  # fmt: skip
GROUPS = {
    "dense": {"tp": ["tp"], "cp": ["cp"], "pp": ["pp"], "shard": ["dp_shard", "cp"],
              "replicate": ["dp_replicate"]},
    "sparse": {"ep": ["ep"], "edp": ["efsdp"]},
}  # fmt: skip


def answer(job: dict) -> dict:
    if "toml" in job:
        with tempfile.NamedTemporaryFile("w", suffix=".toml") as file:
            file.write(job["toml"])
            file.flush()
            config = ConfigManager().parse_args([f"--job.config_file={file.name}"])
        return {"values": values(config)}
    config = ConfigManager().parse_args(job["argv"])
    recompute = config.activation_checkpoint
    return {
        "values": values(config),
        "recompute": None if recompute is None else type(recompute).__qualname__,
        "model": config.model_spec.flavor,
        "groups": groups(config, job["world_size"], job["ranks"]),
    }


def values(config) -> dict:
    settings = {}
    for section in ("training", "parallelism", "compile", "activation_checkpoint", "model", "loss"):
        owner = getattr(config, section, None)
        if dataclasses.is_dataclass(owner):
            for field in dataclasses.fields(owner):
                value = getattr(owner, field.name)
                if isinstance(value, str | int | float | bool | list | type(None)):
                    settings[f"{section}.{field.name}"] = value
    return settings


def groups(config, world_size: int, ranks: list[int]) -> dict:
    """Of each rank and group of the planner's table, the members on the built meshes."""
    dist.init_process_group("fake", store=FakeStore(), rank=0, world_size=world_size)
    try:
        dims = ParallelDims.from_config(config.parallelism, world_size)
        dims.build_mesh()
        members: dict[str, dict] = {str(rank): {} for rank in ranks}
        for mesh, named in GROUPS.items():
            built = dims._global_meshes[mesh]
            assert built.mesh_dim_names == AXES[mesh]
            for rank in ranks:
                members[str(rank)] |= mesh_groups(built.mesh, AXES[mesh], named, rank)
        return members
    finally:
        dist.destroy_process_group()


serve(answer)
