"""DeepSpeed's own configuration and rank topology: JSON lines {config, pp, tp, dp, ranks} in."""

from __future__ import annotations

import os

from answering import keep_stdout_for_answers, serve

os.environ["DS_ACCELERATOR"] = "cpu"
keep_stdout_for_answers()

import deepspeed.comm
from deepspeed.runtime.config import DeepSpeedConfig
from deepspeed.runtime.pipe.topology import PipeModelDataParallelTopology

deepspeed.comm.get_rank = lambda *_: 0


class DataParallel:
    """What the configuration asks of a model-parallel unit."""

    def __init__(self, size: int) -> None:
        self.size = size

    def get_data_parallel_world_size(self) -> int:
        return self.size


def answer(job: dict) -> dict:
    config = DeepSpeedConfig(job["config"], mpu=DataParallel(job["dp"]))
    zero = config.zero_config
    ranks = PipeModelDataParallelTopology(num_pp=job["pp"], num_mp=job["tp"], num_dp=job["dp"])
    lists = {"tp": "model", "shard": "data", "pp": "pipe"}
    return {
        "values": {
            "train_batch_size": config.train_batch_size,
            "train_micro_batch_size_per_gpu": config.train_micro_batch_size_per_gpu,
            "gradient_accumulation_steps": config.gradient_accumulation_steps,
            "zero_optimization.stage": int(zero.stage),
            "zero_optimization.overlap_comm": zero.overlap_comm,
            "bf16.enabled": config.bfloat16_config.enabled,
            "fp16.enabled": config.float16_config.enabled,
            "tensor_parallel.autotp_size": config.tensor_parallel_config.autotp_size,
            "pipeline.stages": config.pipeline["stages"],
            "pipeline.partition": config.pipeline["partition"],
            "pipeline.activation_checkpoint_interval": config.pipeline[
                "activation_checkpoint_interval"
            ],
        },
        "groups": {group: ranks.get_axis_comm_lists(axis) for group, axis in lists.items()},
    }


serve(answer)
