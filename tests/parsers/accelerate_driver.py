"""accelerate's own file reader, launcher environment and mesh: JSON lines {yaml, ranks} in."""

from __future__ import annotations

import os
import tempfile

from answering import keep_stdout_for_answers, mesh_groups, serve

keep_stdout_for_answers()

import torch
from accelerate.commands.config.config_args import load_config_from_file
from accelerate.commands.launch import _validate_launch_command, launch_command_parser
from accelerate.parallelism_config import ParallelismConfig
from accelerate.utils.launch import prepare_multi_gpu_env

GROUPS = {
    "tp": ["tp"], "cp": ["cp"], "shard": ["dp_shard", "cp"], "replicate": ["dp_replicate"],
}  # fmt: skip
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
        built = parallel._get_mesh()
    finally:
        os.environ.clear()
        os.environ.update(before)
    axes, shape = built if built else ((), ())
    mesh = torch.arange(torch.Size(shape).numel()).reshape(shape)
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
        "groups": {str(rank): mesh_groups(mesh, axes, GROUPS, rank) for rank in job["ranks"]},
    }  # fmt: skip


serve(answer)
