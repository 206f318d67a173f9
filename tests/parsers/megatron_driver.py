"""Megatron-LM's own parser and group construction, run without an accelerator.

Reads a JSON line {argv, world_size, capability, ranks} and answers with one: {error}, or {args,
config, groups} with every group that the framework made, by name, and what its ranks read back.
Runs under the environment of `setup.sh`, never under the project's own.
"""

from __future__ import annotations

import argparse
import ast
import functools
import inspect
import os
import sys
import types
import typing

import typing_extensions
from answering import keep_stdout_for_answers, serve

keep_stdout_for_answers()
typing.override = typing_extensions.override  # Python 3.12's, which megatron-core imports
os.environ.setdefault("CUDA_DEVICE_MAX_CONNECTIONS", "1")

import torch
import torch.distributed as dist
from megatron.core import (
    parallel_state,
    utils,
)
from megatron.core.transformer.enums import LayerType
from megatron.core.transformer.transformer_block import get_num_layers_to_build
from megatron.training import arguments
from packaging.version import Version
from torch.testing._internal.distributed.fake_pg import FakeStore

ONLY_HERE = (
    "--transformer-impl", "local", "--no-rope-fusion", "--no-gradient-accumulation-fusion",
    "--lr", "1e-4", "--train-iters", "10", "--no-persist-layer-norm",
    "--tokenizer-type", "NullTokenizer",
)  # fmt: skip
"""What a machine without Transformer Engine needs, and what a job adds of its own."""

PROPERTIES = ("num_layers", "hidden_size", "num_attention_heads")


# the parser is made anew for each job and reads its help out of the sources each time
inspect.getsource = functools.cache(inspect.getsource)
ast.parse = functools.cache(ast.parse)
utils.get_te_version = lambda: Version("2.11.0")  # FP8 is Transformer Engine's, which needs a GPU


def pretend(capability: tuple[int, int]) -> None:
    """Let the framework believe that it runs on the planned accelerator."""
    torch.cuda.get_device_capability = lambda *_: capability
    torch.cuda.get_device_properties = lambda *_: types.SimpleNamespace(
        major=capability[0], minor=capability[1]
    )


def answer(job: dict) -> dict:
    pretend(tuple(job.get("capability", (9, 0))))
    os.environ["WORLD_SIZE"], os.environ["RANK"] = str(job["world_size"]), "0"
    sys.argv = ["pretrain_gpt.py", *job["argv"], *ONLY_HERE]
    args = arguments.parse_args()
    arguments.validate_args(args, {})
    config = arguments.core_transformer_config_from_args(args)
    found = {
        "args": plain(vars(args)),
        "config": plain(vars(config)),
        "layout": stages(config),
        "moe_layers": moe_layers(config),
        "num_microbatches": args.global_batch_size
        // (args.micro_batch_size * args.data_parallel_size),
        "read": read_back(args, job["argv"]),
    }
    if job.get("ranks") is not None:
        found["groups"] = groups(args, job["ranks"])
    return found


@functools.cache
def all_flags() -> argparse.ArgumentParser:
    return arguments.add_megatron_arguments(argparse.ArgumentParser(allow_abbrev=False))


def read_back(args, argv: list[str]) -> dict:
    """Of every flag given: the attribute it sets, what a switch sets it to, its value now."""
    parser, found = all_flags(), {}
    for flag in (word for word in argv if word.startswith("--")):
        action = parser._option_string_actions[flag]
        found[flag] = [action.dest, action.const, plain({"": getattr(args, action.dest)})[""]]
    return found


def moe_layers(config) -> int:
    freq = config.moe_layer_freq
    if config.num_moe_experts is None:
        return 0
    return sum(freq) if isinstance(freq, list) else -(-config.num_layers // freq)


def plain(values: dict) -> dict:
    kept = (str, int, float, bool, type(None))
    return {
        key: value if isinstance(value, kept) else [str(v) for v in value]
        if isinstance(value, list | tuple) else str(value)
        for key, value in values.items()
    }  # fmt: skip


def stages(config) -> list | None:
    """Decoder layers of every chunk, in model order, as the framework splits them."""
    if config.pipeline_model_parallel_layout is not None:
        by_rank = config.pipeline_model_parallel_layout.layout
        return [
            sum(layer is LayerType.decoder for layer in chunks[chunk])
            for chunk in range(len(by_rank[0]))
            for chunks in by_rank
        ]
    pp, vp = config.pipeline_model_parallel_size, config.virtual_pipeline_model_parallel_size
    return [
        get_num_layers_to_build(config, vp_stage=chunk if vp else None, pp_rank=rank)
        for chunk in range(vp or 1)
        for rank in range(pp)
    ]


def groups(args, ranks: list[int]) -> dict:
    """The groups of these ranks, by the names of the planner's rank table."""
    found: dict[str, dict] = {}
    for rank in ranks:
        dist.init_process_group("fake", store=FakeStore(), rank=rank, world_size=args.world_size)
        try:
            parallel_state.initialize_model_parallel(
                args.tensor_model_parallel_size,
                args.pipeline_model_parallel_size,
                args.virtual_pipeline_model_parallel_size,
                context_parallel_size=args.context_parallel_size,
                expert_model_parallel_size=args.expert_model_parallel_size,
                num_distributed_optimizer_instances=args.num_distributed_optimizer_instances,
                expert_tensor_parallel_size=args.expert_tensor_parallel_size,
                order="tp-cp-ep-pp-dp" if args.use_tp_pp_dp_mapping else "tp-cp-ep-dp-pp",
                create_gloo_process_groups=False,
            )
            members = {
                "tp": parallel_state.get_tensor_model_parallel_group(),
                "cp": parallel_state.get_context_parallel_group(),
                "pp": parallel_state.get_pipeline_model_parallel_group(),
                "dp": parallel_state.get_data_parallel_group(),
                "shard": parallel_state.get_data_parallel_group(
                    with_context_parallel=True, partial_data_parallel=True
                ),
                "ep": parallel_state.get_expert_model_parallel_group(),
                "etp": parallel_state.get_expert_tensor_parallel_group(),
                "edp": parallel_state.get_expert_data_parallel_group(
                    partial_expert_data_parallel=True
                ),
            }
            found[str(rank)] = {
                name: sorted(dist.get_process_group_ranks(group)) for name, group in members.items()
            }
        finally:
            parallel_state.destroy_model_parallel()
            dist.destroy_process_group()
    return found


serve(answer)
