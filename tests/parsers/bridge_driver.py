"""Megatron-Bridge's ConfigContainer with stand-ins for what needs a GPU: tier 2.

Reads JSON lines {overrides, world_size, model} and answers {error} or {values}: the overrides
applied as its own scripts do, validated, and read back by their dotted names.
"""

from __future__ import annotations

import importlib
import importlib.abc
import importlib.machinery
import logging
import os
import sys
import types
import typing
from pathlib import Path

import typing_extensions
from answering import keep_stdout_for_answers, serve

logging.disable(logging.CRITICAL)
keep_stdout_for_answers()
typing.override = typing_extensions.override
os.environ["CUDA_DEVICE_MAX_CONNECTIONS"] = "1"

STAND_INS = (
    "transformer_engine", "apex", "nvidia_resiliency_ext", "flash_attn", "mamba_ssm",
    "causal_conv1d", "wandb", "nvtx", "modelopt", "open_clip", "diffusers", "fla",
    "multistorageclient",
)  # fmt: skip
BARE = ("", ".models", ".diffusion", ".models.hybrid", ".models.gpt", ".models.conversion",
        ".models.hf_pretrained")  # fmt: skip
"""Packages whose own code would import every model there is."""

PROVIDERS = {"GPTModelProvider": "gpt_provider", "T5ModelProvider": "t5_provider"}


class Anything(type):
    """A class that has every attribute, another such class."""

    def __getattr__(cls, name: str) -> type:
        if name.startswith("__"):
            raise AttributeError(name)
        return anything(name)

    def __or__(cls, other: object) -> object:
        return typing.Any

    __ror__ = __or__


def anything(name: str) -> type:
    return Anything(name, (), {"__init__": lambda self, *args, **named: None})


class StandIn(types.ModuleType):
    __path__: typing.ClassVar[list] = []
    __version__ = "2.11.0"

    def __getattr__(self, name: str) -> type:
        if name.startswith("__"):
            raise AttributeError(name)
        return anything(name)


class Finder(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] in STAND_INS or name.startswith("megatron.energon"):
            return importlib.machinery.ModuleSpec(name, self, is_package=True)
        return None

    def create_module(self, spec):
        return StandIn(spec.name)

    def exec_module(self, module):
        pass


class Models(types.ModuleType):
    def __getattr__(self, name: str) -> type:
        if name in PROVIDERS:
            return getattr(importlib.import_module(f"{self.__name__}.{PROVIDERS[name]}"), name)
        if name.startswith("__"):
            raise AttributeError(name)
        return anything(name)


sys.meta_path.insert(0, Finder())
for below in BARE:
    name = f"megatron.bridge{below}"
    package = (Models if below == ".models" else types.ModuleType)(name)
    package.__path__ = [str(Path(os.environ["BRIDGE_ROOT"], *name.split(".")))]
    sys.modules[name] = package

import torch
from megatron.bridge.models.gpt_provider import GPTModelProvider
from megatron.bridge.training import config as bridge
from megatron.bridge.training.comm_overlap import CommOverlapConfig
from megatron.bridge.training.utils.omegaconf_utils import (
    apply_overrides,
    create_omegaconf_dict_config,
)
from omegaconf import OmegaConf


def base(model: dict) -> bridge.ConfigContainer:
    """A recipe of the plan's model, with nothing of its layout."""
    return bridge.ConfigContainer(
        model=GPTModelProvider(**model),
        train=bridge.TrainingConfig(micro_batch_size=1, global_batch_size=64, train_iters=10),
        optimizer=bridge.OptimizerConfig(lr=1e-4, min_lr=1e-5),
        ddp=bridge.DistributedDataParallelConfig(),
        scheduler=bridge.SchedulerConfig(lr_warmup_iters=1, lr_decay_iters=10),
        dataset=bridge.MockGPTDatasetConfig(
            seq_length=model["seq_length"], random_seed=1, reset_position_ids=False,
            reset_attention_mask=False, eod_mask_loss=False,
        ),
        logger=bridge.LoggerConfig(),
        tokenizer=bridge.TokenizerConfig(tokenizer_type="NullTokenizer", vocab_size=32000),
        checkpoint=bridge.CheckpointConfig(),
        dist=bridge.DistributedInitConfig(),
        comm_overlap=CommOverlapConfig(tp_comm_overlap=False),
    )  # fmt: skip


def answer(job: dict) -> dict:
    major = job["capability"]
    torch.cuda.get_device_properties = lambda *_: types.SimpleNamespace(major=major, minor=0)
    torch.cuda.get_device_capability = lambda *_: (major, 0)
    os.environ["WORLD_SIZE"], os.environ["RANK"] = str(job["world_size"]), "0"
    config = base(job["model"])
    plain, excluded = create_omegaconf_dict_config(config)
    merged = OmegaConf.merge(plain, OmegaConf.create(job["overrides"]))
    apply_overrides(config, OmegaConf.to_container(merged, resolve=True), excluded)
    bridge.runtime_config_update(config)
    config.validate()
    values = {}
    for table, keys in job["overrides"].items():
        owner = getattr(config, table)
        for key in keys if isinstance(keys, dict) else ():
            value = getattr(owner, key, None)
            kept = isinstance(value, str | int | float | bool | list | type(None))
            values[f"{table}.{key}"] = value if kept else str(value)
    return {"values": values, "data_parallel_size": config.data_parallel_size}


serve(answer)
