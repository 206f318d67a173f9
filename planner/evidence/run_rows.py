"""A published run as a scenario and a layout, or the named reason why it cannot be costed.

Nothing that a source leaves open is guessed, but for the network: an unknown NIC takes the part's
usual fabric. What a row says in words is read by the tables below.
"""

import re
from dataclasses import dataclass
from functools import cache
from math import prod
from typing import Any

from planner.evidence.parts import accelerator_named
from planner.evidence.published_runs import PublishedRun, UnscorableError
from planner.evidence.run_models import has_experts, model_of
from planner.evidence.run_software import profile_of
from planner.inputs.quantities import Figure
from planner.inputs.values import load
from planner.layouts.layout import Layout
from planner.problem.hardware import Accelerator
from planner.problem.precision import TrainingPrecision
from planner.problem.scenario import Scenario
from planner.problem.software import Software
from planner.problem.topology import Topology
from planner.problem.training import CudaGraphs, Training

FULL_TASKS = (None, "pretrain")
"""A row's tasks in which every parameter is trained."""

RECOMPUTES = {
    "none": "none",
    "selective": "selective",
    "selective(core_attn)": "selective",
    "selective(op)": "operators",
    "selective layer": "alternate",
    "full": "full",
    "full (uniform)": "full",
    "selective(mla_up_proj)": "mla_up_proj",
    # the dense layers' MLP, three layers of a DeepSeek
    "selective(mlp)": "none",
    "selective(mla_up_proj+mlp)": "mla_up_proj",
    "selective(act+norm)": "act_norm",
    "selective(layernorm+moe_act)": "act_norm",
    "selective(layernorm+moe)": "moe",
}
"""A row's recompute → a layout's."""

COUNTED = re.compile(r"full, block method, (\d+) layer\(s\) per stage")
"""A row's recompute by count."""

PRECISIONS: tuple[tuple[str, TrainingPrecision], ...] = (
    ("mxfp8", "mxfp8"),
    ("nvfp4", "nvfp4"),
    ("fp8-blockwise", "fp8-blockwise"),
    ("fp8-rowwise", "fp8-rowwise"),
    ("fp8", "fp8"),
    ("fp16", "fp16"),
    ("bf16", "bf16"),
)
"""How a row's dtype begins → a training's precision; FP8 scaled per tensor where none is said."""

ATTENTIONS = {
    "flash": ("flash-v1", "flash"),
    "flash(sdpa)": ("flash-v2", "flash"),
    "flash(te)": ("flash",),
    "flash(te/cudnn fused)": ("flash",),
    "flash(cudnn)": ("flash",),
    "flash-v1": ("flash-v1",),
    "flash-v2": ("flash-v2",),
    "flash-v3": ("flash-v3",),
    "naive": ("naive",),
    "naive(torch)": ("naive",),
    "naive(fused softmax)": ("fused-softmax",),
}
"""A row's attention → backends that mean it; the first one the accelerator has figures for is
costed. Flash attention without a version is the first one's kernels: the sources that do not name
one are of mid-2023 (llm-foundry's Triton kernels, InternEvo's flash-attn 1)."""

MOST_SELECTIVE_HFU = 1.2
"""HFU over MFU beyond which more than attention's core ran again: whole layers make it 4/3, the
core alone less than 1.1 (Korthikanti et al. 2022, table 5)."""

OVERLAP_FLAGS = {
    "tp": ("tp_comm_overlap(userbuffers)", "tp_comm_overlap", "tp_overlap", "tp", "async_tp"),
    "dp": ("grad_sync", "grad_reduce", "overlap_grad_reduce", "dp_bucketed_overlap"),
    "pp": ("p2p",),
    "ep": ("moe_a2a_overlap",),
}
"""Axis → a row's flags that say whether its traffic runs beside computation."""


@dataclass(frozen=True, slots=True)
class Job:
    """A published run in the planner's values."""

    run: PublishedRun
    scenario: Scenario
    layout: Layout
    fill: tuple[int, ...]  # ranks (innermost), then domains in use, of each tier's domains
    assumed_network: bool  # the job leaves a scale-up domain over a NIC that no source names


def job_of(run: PublishedRun) -> Job:
    """Return the scenario and layout of a row.

    Raises:
        UnscorableError: the row lacks what a prediction needs, or nothing shipped stands for it.
    """
    if run.task not in FULL_TASKS:
        raise UnscorableError(f"task '{run.task}' may freeze parameters, which is not costed")
    num_accelerators = _known(run.n_gpus, "n_gpus")
    model = model_of(run)
    accelerator = accelerator_of(run)
    software = profile_of(run)
    layout = layout_of(run, software)
    if model.layer_pattern and layout.vp > 1:
        raise UnscorableError("virtual stages of a layer pattern")
    topology = topology_of(run, accelerator, num_accelerators)
    scenario = Scenario(
        model=model,
        topology=topology,
        num_accelerators=num_accelerators,
        training=training_of(run, accelerator),
        software=software,
    )
    leaves = num_accelerators > topology.widths[0]
    return Job(
        run=run,
        scenario=scenario,
        layout=layout,
        fill=fill_of(topology.widths, num_accelerators),
        assumed_network=leaves and run.nic_gbps_per_gpu is None,
    )


def _known(value: int | None, field: str) -> int:
    if value is None:
        raise UnscorableError(f"{field} unknown")
    return value


# ---------------------------------------------------------------- training


def training_of(run: PublishedRun, accelerator: Accelerator) -> Training:
    """Return the row's job, on an attention backend that the accelerator has figures for."""
    dtype = (run.dtype or "unknown").casefold()
    precision = next((known for start, known in PRECISIONS if dtype.startswith(start)), None)
    if precision is None:
        raise UnscorableError(f"dtype '{run.dtype}' not costed" if run.dtype else "dtype unknown")
    if run.attention is None:
        raise UnscorableError("attention unknown")
    meant = ATTENTIONS.get(run.attention.casefold())
    if meant is None:
        raise UnscorableError(f"attention '{run.attention}' not costed")
    backend = next((name for name in meant if name in accelerator.attention), None)
    if backend is None:
        raise UnscorableError(f"no {meant[0]} attention figures for {accelerator.name}")
    training = Training(
        sequence_length=_known(run.seq_len, "seq_len"),
        batch=_known(run.gbs, "gbs"),
        precision=precision,
        optimizer="adam",
        attention=backend,
        cuda_graphs=_cuda_graphs(run),
        **_routing(run),
    )
    if training.peak_key not in accelerator.gemm:
        raise UnscorableError(f"no {training.peak_key} matmul figures for {accelerator.name}")
    return training


GRAPHS: dict[object, CudaGraphs] = {"full_iteration": "full", "transformer_engine": "partial"}
"""A preset's implementation of CUDA graphs → how much of a step they hold."""


def _cuda_graphs(run: PublishedRun) -> CudaGraphs:
    """What a preset captures: a whole iteration, parts by Transformer Engine, or nothing."""
    facts = _preset(run)
    if any("full_iteration" in str(name) for name in facts.get("helpers", ())):
        return "full"
    return GRAPHS.get(facts.get("cuda_graph_impl"), "none")


def _preset(run: PublishedRun) -> dict[str, Any]:
    facts = _flag(run, "preset_facts")
    return facts if isinstance(facts, dict) else {}


BALANCED = ("force-balanced", "fake balanced", "tokendrop", "capacity factor")
"""In a row's routing: every rank's experts get as many rows as any other's."""


def _routing(run: PublishedRun) -> dict[str, Any]:
    routing = str((run.moe or {}).get("routing", ""))
    even = run.moe is None or any(word in routing for word in BALANCED)
    return {"expert_load_variation": 0.0} if even else {}


# ---------------------------------------------------------------- hardware


def accelerator_of(run: PublishedRun) -> Accelerator:
    """Return the shipped part of the row's gpu, else of its gpu_family."""
    if run.gpu is None:
        raise UnscorableError("gpu unknown")
    for name in (run.gpu, run.gpu_family):
        part = accelerator_named(name) if name else None
        if part:
            return part
    raise UnscorableError(f"accelerator '{run.gpu}' not shipped")


def topology_of(run: PublishedRun, accelerator: Accelerator, num_accelerators: int) -> Topology:
    """Return the part's usual cluster with the row's NIC and scale-up domain, wide enough."""
    if accelerator.usual_topology is None:
        raise UnscorableError(f"no usual topology for {accelerator.name}")
    return _topology(
        accelerator.usual_topology,
        run.gpus_per_nvlink_domain,
        run.nic_gbps_per_gpu,
        num_accelerators,
    )


@cache
def _usual(name: str) -> Topology:
    return load(name, "topology", Topology)


@cache
def _topology(
    usual: str, domain: int | None, nic_gbits: float | None, num_accelerators: int
) -> Topology:
    topology = _usual(usual)
    network = [tier for tier in topology.tiers if tier.fabric.kind == "network"]
    if domain and domain != topology.widths[0]:
        topology = topology.with_scale_up_width(domain)
    if nic_gbits and any(tier.bytes_per_second != nic_gbits * 1e9 / 8 for tier in network):
        rate = Figure(nic_gbits * 1e9 / 8, "the published run's NIC", "datasheet")
        topology = topology.with_network(rate)
    *inner, outer = topology.tiers
    needed = -(-num_accelerators // prod(tier.width for tier in inner))
    if needed > outer.width:
        topology = topology.replace(tiers=(*inner, outer.replace(width=needed)))
    return topology


def fill_of(widths: tuple[int, ...], num_accelerators: int) -> tuple[int, ...]:
    """Return how many children of each tier's domains a job uses.

    The fullest equal filling where it leaves no domain half empty (256 of racks of 72: 64 each);
    otherwise domains are filled one after another.
    """
    fill, rest = [], num_accelerators
    for width in widths:
        fits = (size for size in range(min(width, rest), 0, -1) if rest % size == 0)
        used = next(fits)
        if 2 * used < min(width, rest):
            return widths
        fill.append(used)
        rest //= used
    return tuple(fill) if rest == 1 else widths


# ---------------------------------------------------------------- layout


def layout_of(run: PublishedRun, software: Software) -> Layout:
    """Return the row's layout; degrees must multiply to its GPUs."""
    tp, cp, pp, dp, mbs = (
        _known(getattr(run, field), field) for field in ("tp", "cp", "pp", "dp", "mbs")
    )
    if tp * cp * pp * dp != run.n_gpus:
        raise UnscorableError("tp·cp·pp·dp differs from n_gpus")
    vp = 1 if pp == 1 and run.vp is None else _known(run.vp, "vp")
    if vp > 1 and pp == 1:
        raise UnscorableError("virtual stages without a pipeline")
    recompute, recompute_layers = _recompute(run)
    if tp > 1 and run.sp is None:
        raise UnscorableError("sp unknown")
    zero_stage = _known(run.zero_stage, "zero_stage")
    dp_shard = _shard_group(run, tp * cp, dp) if zero_stage else dp
    ep = _known(run.ep, "ep") if has_experts(run) else 1
    etp = (run.etp or 1) if has_experts(run) else 1
    if tp * cp * dp_shard % (ep * etp):
        raise UnscorableError("etp·ep does not divide tp·cp·dp")
    return Layout(
        tp=tp,
        cp=cp,
        pp=pp,
        dp_shard=dp_shard,
        dp_replicate=dp // dp_shard,
        ep=ep,
        etp=etp,
        dispatcher=_dispatcher(run),
        vp=vp,
        mbs=mbs,
        num_microbatches=_num_microbatches(run, dp, mbs),
        zero_stage=zero_stage,
        sp=bool(run.sp) and tp > 1,
        recompute=recompute,
        recompute_layers=recompute_layers,
        cp_kind="a2a" if _flag(run, "cp_comm_type") == "a2a" else software.cp_kinds[0],
        overlap=_overlap(run, software),
    )


def _recompute(run: PublishedRun) -> tuple[str, int]:
    """Return the row's recompute and, if it counts them, its layers of a chunk; where its HFU says
    that whole layers ran again, they did."""
    if run.recompute is None:
        raise UnscorableError("recompute unknown")
    counted = COUNTED.fullmatch(run.recompute)
    if counted:
        return "full", int(counted[1])
    recompute = RECOMPUTES.get(run.recompute.casefold())
    if recompute is None:
        raise UnscorableError(f"recompute '{run.recompute}' not costed")
    hfu, mfu = run.measured.hfu, run.measured.mfu
    if recompute == "selective" and hfu and mfu and hfu / mfu > MOST_SELECTIVE_HFU:
        return "full", 0
    return recompute, 0


def _flag(run: PublishedRun, name: str) -> object:
    """What a row says of a name, itself or through its preset."""
    found = (run.overlap or {}).get(name)
    return found if found is not None or name == "preset_facts" else _preset(run).get(name)


DISPATCHERS = {
    "a2a": "alltoall", "deepep": "flex", "hybridep": "flex", "flex": "flex",
}  # fmt: skip
"""A row's dispatcher → a layout's."""


def _dispatcher(run: PublishedRun) -> str:
    """The dispatcher a row or its preset names, else all-to-all."""
    for name in ("dispatcher", "moe_flex_dispatcher_backend", "moe_token_dispatcher_type"):
        found = DISPATCHERS.get(str(_flag(run, name)).casefold())
        if found and (run.ep or 1) > 1:
            return found
    return "alltoall"


def _num_microbatches(run: PublishedRun, dp: int, mbs: int) -> int:
    if run.gbs is None:
        raise UnscorableError("gbs unknown")
    count, rest = divmod(run.gbs, dp * mbs)
    if rest:
        raise UnscorableError("gbs is not a multiple of dp·mbs")
    if run.grad_accum not in (None, count):
        raise UnscorableError("gbs differs from dp·mbs·grad_accum")
    return count


def _shard_group(run: PublishedRun, inner: int, dp: int) -> int:
    """Return dp_shard: all of dp, the ZeRO-1 group the row names, or HSDP's share of a node."""
    group = _flag(run, "zero1_group_size")
    size = dp
    if isinstance(group, int):
        size = min(group, dp)
    elif _flag(run, "sharding") == "HSDP":
        size = min(
            max(1, _known(run.gpus_per_nvlink_domain, "gpus_per_nvlink_domain") // inner), dp
        )
    if dp % size:
        raise UnscorableError("shard group does not divide dp")
    return size


def _overlap(run: PublishedRun, software: Software) -> str:
    """Return the software's overlaps, but for axes whose flag the row states."""
    on = []
    for axis, flags in OVERLAP_FLAGS.items():
        if axis == "ep" and not has_experts(run):
            continue
        stated = [value for name in flags if isinstance(value := _flag(run, name), bool)]
        # exchanges with experts overlap only where a preset says so
        if stated[0] if stated else axis in software.overlap and axis != "ep":
            on.append(axis)
    return "+".join(on) or "none"
