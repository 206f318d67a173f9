"""accelerate's own file reader, launcher environment and mesh: JSON lines {yaml, ranks} in."""

from __future__ import annotations

import os
import tempfile
import warnings

warnings.simplefilter("ignore")
ANSWERS = os.fdopen(os.dup(1), "w")
os.dup2(2, 1)

import torch
from accelerate.commands.config.config_args import load_config_from_file
from accelerate.commands.launch import _validate_launch_command, launch_command_parser
from accelerate.parallelism_config import ParallelismConfig
from accelerate.utils.launch import prepare_multi_gpu_env
from answering import serve

HOST = ["--machine_rank", "0", "--main_process_ip", "127.0.0.1", "--main_process_port", "29500"]


def answer(job: dict) -> dict:
    with tempfile.NamedTemporaryFile("w", suffix=".yaml") as file:
        file.write(job["yaml"])
        file.flush()
        config = load_config_from_file(file.name)
        given = launch_command_parser().parse_args(["--config_file", file.name, *HOST, "train.py"])
        given, _, _ = _validate_launch_command(given)
    environment = {k: str(v) for k, v in prepare_multi_gpu_env(given).items()}
    before = dict(os.environ)
    os.environ.update(environment)
    try:
        parallel = ParallelismConfig()
        found = parallel._get_mesh()
    finally:
        os.environ.clear()
        os.environ.update(before)
    names, shape = found if found else ((), ())
    handler = parallel.cp_handler
    return {
        "file": {
            "num_machines": config.num_machines, "num_processes": config.num_processes,
            "mixed_precision": config.mixed_precision, "rdzv_backend": config.rdzv_backend,
            "distributed_type": str(config.distributed_type.value),
        },
        "environment": {k: v for k, v in environment.items() if k.startswith(("FSDP", "PARA"))},
        "sizes": {"tp": parallel.tp_size, "cp": parallel.cp_size,
                  "dp_shard": parallel.dp_shard_size, "dp_replicate": parallel.dp_replicate_size},
        "cp": None if handler is None else handler.cp_comm_strategy,
        "groups": groups(names, shape, job["ranks"]),
    }  # fmt: skip


def groups(names: tuple, shape: tuple, ranks: list[int]) -> dict:
    table = torch.arange(int(torch.tensor(shape).prod()) if shape else 1).reshape(shape)
    found: dict[str, dict] = {str(rank): {} for rank in ranks}
    for group, axes in {"tp": ["tp"], "cp": ["cp"], "shard": ["dp_shard", "cp"],
                        "replicate": ["dp_replicate"]}.items():  # fmt: skip
        kept = [names.index(axis) for axis in axes if axis in names]
        others = [i for i in range(len(shape)) if i not in kept]
        size = 1
        for i in kept:
            size *= shape[i]
        rows = table.permute(*others, *kept).reshape(-1, size).tolist()
        for rank in ranks:
            found[str(rank)][group] = sorted(next(r for r in rows if rank in r))
    return found


serve(answer, ANSWERS)
