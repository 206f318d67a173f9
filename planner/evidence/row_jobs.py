"""A published row as a scenario and a layout, or the reason why it cannot be predicted.

What a source leaves open is not guessed, with two exceptions, both counted: a row with an unknown
NIC gets the network of the accelerator's usual cluster, and a row of a framework without a profile
gets software fallback. The latter count in no fit and in no error but their own. Which keys are
read, and what their words mean, is data in `row_keys`.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from math import prod
from typing import Any

from planner.cost.offload import RESIDENT_LAYERS
from planner.evidence.published_runs import PublishedRun, UnscorableError
from planner.evidence.row_keys import (
    ATTENTIONS,
    BALANCED,
    CAPACITY,
    COUNTED_RECOMPUTE,
    DISPATCHER_FLAGS,
    DISPATCHERS,
    EAGER_NORM,
    ETP_IS_TP,
    FULL_GRAPH,
    FULL_TASKS,
    GRADIENT_BYTES,
    GRAPHS,
    MAX_SELECTIVE_HFU,
    MEGATRON_BASED,
    OVERLAP_FLAGS,
    PRECISIONS,
    RECOMPUTES,
    UNCOMPILED,
)
from planner.evidence.row_models import has_experts, model_of
from planner.evidence.shipped_names import accelerator_named, shipped_profile, software_named
from planner.inputs.quantities import Figure
from planner.inputs.values import load
from planner.layouts.layout import Layout
from planner.problem.hardware import Accelerator, AttentionBackend
from planner.problem.precision import RECIPES
from planner.problem.scenario import Scenario
from planner.problem.software import FALLBACK, Software
from planner.problem.topology import Topology
from planner.problem.training import CudaGraphs, Training


@dataclass(frozen=True, slots=True)
class Job:
    """A published run in the planner's values.

    fill: how many children the job uses in each domain of a tier, innermost first.
    assumed_network: the job leaves a scale-up domain over a NIC that no source names.
    """

    run: PublishedRun
    scenario: Scenario
    layout: Layout
    fill: tuple[int, ...]
    assumed_network: bool

    @property
    def assumed_software(self) -> bool:
        """Whether no profile stands for the row's framework, so that it has the fallback's."""
        return self.scenario.software.name == FALLBACK


def job_of(run: PublishedRun) -> Job:
    """The scenario and layout of a row.

    Raises:
        UnscorableError: the row lacks what a prediction needs, or nothing shipped stands for it.
    """
    if run.task not in FULL_TASKS:
        raise UnscorableError(f"task '{run.task}' may freeze parameters, which is not costed")
    num_accelerators = _known(run.n_gpus, "n_gpus")
    model = model_of(run)
    accelerator = accelerator_of(run)
    software = software_of(run)
    layout = layout_of(run, software)
    if layout.offload != "none" and accelerator.host is None:
        raise UnscorableError(f"no host figures for {accelerator.name}")
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
    leaves_domain = num_accelerators > topology.widths[0]
    return Job(
        run=run,
        scenario=scenario,
        layout=layout,
        fill=fill_of(topology.widths, num_accelerators),
        assumed_network=leaves_domain and run.nic_gbps_per_gpu is None,
    )


def _known(value: int | None, key: str) -> int:
    if value is None:
        raise UnscorableError(f"{key} unknown")
    return value


def _preset(run: PublishedRun) -> dict[str, Any]:
    """What the row's preset of its framework sets, as the source of the preset says it."""
    facts = (run.overlap or {}).get("preset_facts")
    return facts if isinstance(facts, dict) else {}


def _flag(run: PublishedRun, name: str) -> object:
    """What the row says of a flag, itself or else through its preset; None where neither does."""
    stated = (run.overlap or {}).get(name)
    return stated if stated is not None else _preset(run).get(name)


# ---------------------------------------------------------------- software


def software_of(run: PublishedRun) -> Software:
    """The profile of the row's framework, or of what it ran without: compiler or fused norms; with
    the bytes of gradients, weights and optimizer states that the row gives.

    That of FALLBACK if no framework is named, or none of the shipped profiles stands for it.
    """
    software = software_named(run.framework) if run.framework else None
    software = software or shipped_profile(FALLBACK)
    if (run.overlap or {}).get("torch_compile") is False and software.name in UNCOMPILED:
        return shipped_profile(UNCOMPILED[software.name])
    eager_norm = EAGER_NORM in (run.notes or "").casefold() or software.eager_norm
    gradients, states, primary = (
        _flag(run, key) for key in ("grad_reduce_in_bf16", "optimizer_bytes", "fp8_param_gather")
    )
    return _profile_of(
        software.name,
        eager_norm,
        GRADIENT_BYTES[gradients] if isinstance(gradients, bool) else None,
        float(states) if isinstance(states, int | float) else None,
        primary if isinstance(primary, bool) else None,
    )


@cache
def _profile_of(
    name: str,
    eager_norm: bool,
    gradient_bytes: float | None,
    optimizer_bytes: float | None,
    low_precision_parameters: bool | None,
) -> Software:
    """A shipped profile with what a row says otherwise; None where it says nothing."""
    profile = shipped_profile(name)
    changes: dict[str, Any] = {"eager_norm": eager_norm}
    if gradient_bytes is not None:
        changes["gradient_bytes"] = _stated(gradient_bytes)
    if optimizer_bytes is not None:
        changes["optimizer_bytes"] = _stated(optimizer_bytes)
    if low_precision_parameters is not None:
        cast = tuple(name for name in RECIPES if name not in ("bf16", "fp16"))
        changes["low_precision_parameters"] = cast if low_precision_parameters else ()
    return profile.replace(**changes)


def _stated(value: float) -> Figure:
    return Figure(value, "the published run", "datasheet")


# ---------------------------------------------------------------- training


def training_of(run: PublishedRun, accelerator: Accelerator) -> Training:
    """The row's training job, on an attention backend that the accelerator has figures for.

    Raises:
        UnscorableError: precision, attention or sizes are unknown, or the accelerator has no
            figures for them.
    """
    dtype = (run.dtype or "unknown").casefold()
    precision = next((known for start, known in PRECISIONS if dtype.startswith(start)), None)
    if precision is None:
        raise UnscorableError(f"dtype '{run.dtype}' not costed" if run.dtype else "dtype unknown")
    training = Training(
        attention=_attention(run, accelerator),
        sequence_length=_known(run.seq_len, "seq_len"),
        batch=_known(run.gbs, "gbs"),
        precision=precision,
        optimizer="adam",
        cuda_graphs=_cuda_graphs(run),
        **_expert_load(run),
    )
    if training.peak_key not in accelerator.gemm:
        raise UnscorableError(f"no {training.peak_key} matmul figures for {accelerator.name}")
    return training


def _attention(run: PublishedRun, accelerator: Accelerator) -> AttentionBackend:
    if run.attention is None:
        raise UnscorableError("attention unknown")
    backends = ATTENTIONS.get(run.attention.casefold())
    if backends is None:
        raise UnscorableError(f"attention '{run.attention}' not costed")
    backend = next((name for name in backends if name in accelerator.attention), None)
    if backend is None:
        raise UnscorableError(f"no {backends[0]} attention figures for {accelerator.name}")
    return backend


def _cuda_graphs(run: PublishedRun) -> CudaGraphs:
    """What the preset captures: a whole iteration, modules or layers of it, or nothing."""
    facts = _preset(run)
    if any(FULL_GRAPH in str(name) for name in facts.get("helpers", ())):
        return "full"
    graphs = GRAPHS.get(facts.get("cuda_graph_impl"), "none")
    whole = graphs != "none" and FULL_GRAPH in str(facts.get("cuda_graph_scope"))
    return "full" if whole else graphs


def _expert_load(run: PublishedRun) -> dict[str, Any]:
    """The field of `Training` for unevenly loaded experts, where the row says that they are even.

    A dense model has no experts to load unevenly; else the default stands for a real router.

    Raises:
        UnscorableError: experts are padded to more or less than an even share.
    """
    routing = str((run.moe or {}).get("routing", "")).casefold()
    capacity = CAPACITY.search(routing)
    if capacity and float(capacity[1]) != 1.0:
        raise UnscorableError(f"experts' capacity of {capacity[1]} not costed")
    even = run.moe is None or any(word in routing for word in BALANCED)
    return {"expert_load_variation": 0.0} if even else {}


# ---------------------------------------------------------------- hardware


def accelerator_of(run: PublishedRun) -> Accelerator:
    """The shipped accelerator type of the row's `gpu`, else of its `gpu_family`.

    Raises:
        UnscorableError: neither is shipped.
    """
    if run.gpu is None:
        raise UnscorableError("gpu unknown")
    for name in (run.gpu, run.gpu_family):
        accelerator = accelerator_named(name) if name else None
        if accelerator:
            return accelerator
    raise UnscorableError(f"accelerator '{run.gpu}' not shipped")


def topology_of(run: PublishedRun, accelerator: Accelerator, num_accelerators: int) -> Topology:
    """The accelerator's usual cluster with the row's NIC and scale-up domain, wide enough.

    Raises:
        UnscorableError: the accelerator has no usual cluster.
    """
    if accelerator.usual_topology is None:
        raise UnscorableError(f"no usual topology for {accelerator.name}")
    return _topology(
        accelerator.usual_topology,
        run.gpus_per_nvlink_domain,
        run.nic_gbps_per_gpu,
        num_accelerators,
    )


@cache
def _usual_topology(name: str) -> Topology:
    return load(name, "topology", Topology)


@cache
def _topology(
    usual: str, domain_width: int | None, nic_gbit_per_second: float | None, num_accelerators: int
) -> Topology:
    topology = _usual_topology(usual)
    network = [tier for tier in topology.tiers if tier.fabric.kind == "network"]
    if domain_width and domain_width != topology.widths[0]:
        topology = topology.with_scale_up_width(domain_width)
    if nic_gbit_per_second:
        bytes_per_second = nic_gbit_per_second * 1e9 / 8
        if any(tier.bytes_per_second != bytes_per_second for tier in network):
            rate = Figure(bytes_per_second, "the published run's NIC", "datasheet")
            topology = topology.with_network(rate)
    # published jobs are larger than some of the usual clusters: the outermost switch takes more
    *inner, outer = topology.tiers
    needed = -(-num_accelerators // prod(tier.width for tier in inner))
    if needed > outer.width:
        topology = topology.replace(tiers=(*inner, outer.replace(width=needed)))
    return topology


def fill_of(widths: tuple[int, ...], num_accelerators: int) -> tuple[int, ...]:
    """How many children a job uses in each domain of a tier, innermost first.

    All domains of a tier are filled alike, as full as that allows, if no domain is left half empty
    (256 accelerators in racks of 72 are 64 in each of 4); else the full widths, one domain after
    another.
    """
    fill, remaining = [], num_accelerators
    for width in widths:
        largest = min(width, remaining)
        used = next(size for size in range(largest, 0, -1) if remaining % size == 0)
        if 2 * used < largest:
            return widths
        fill.append(used)
        remaining //= used
    return tuple(fill) if remaining == 1 else widths


# ---------------------------------------------------------------- layout


def layout_of(run: PublishedRun, software: Software) -> Layout:
    """The row's layout; its degrees must multiply to the row's accelerators.

    Raises:
        UnscorableError: a degree is unknown, or degrees do not fit each other.
    """
    tp, cp, pp, dp, mbs = (
        _known(getattr(run, key), key) for key in ("tp", "cp", "pp", "dp", "mbs")
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
    dp_shard = _shard_degree(run, tp * cp, dp) if zero_stage else dp
    ep = _known(run.ep, "ep") if has_experts(run) else 1
    etp = _expert_tensor_degree(run, software, tp, tp * cp * dp_shard // ep)
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
        offload=_offload(run, pp),
        cp_kind="a2a" if _flag(run, "cp_comm_type") == "a2a" else software.cp_kinds[0],
        overlap=_overlap(run, software),
    )


def _expert_tensor_degree(run: PublishedRun, software: Software, tp: int, ranks: int) -> int:
    """etp: the row's, else the framework's default unless it contradicts the row's other degrees.

    ranks: those that share one stage's copy of an expert, tp·cp·dp / ep.
    """
    if not has_experts(run):
        return 1
    if run.etp is not None:
        return run.etp
    unnamed = software.name == FALLBACK and MEGATRON_BASED.search((run.framework or "").casefold())
    is_tp = software.name in ETP_IS_TP or unnamed
    return tp if is_tp and ranks % tp == 0 else 1


def _recompute(run: PublishedRun) -> tuple[str, int]:
    """The row's recompute and, if it counts them, the recomputed layers of a chunk.

    Selective recompute is read as full where the row's own HFU says that whole layers were
    recomputed: some sources call both selective.
    """
    if run.recompute is None:
        raise UnscorableError("recompute unknown")
    counted = COUNTED_RECOMPUTE.fullmatch(run.recompute)
    if counted:
        return "full", int(counted[1])
    recompute = RECOMPUTES.get(run.recompute.casefold())
    if recompute is None:
        raise UnscorableError(f"recompute '{run.recompute}' not costed")
    hfu, mfu = run.measured.hfu, run.measured.mfu
    if recompute == "selective" and hfu and mfu and hfu / mfu > MAX_SELECTIVE_HFU:
        return "full", 0
    return recompute, 0


def _offload(run: PublishedRun, pp: int) -> str:
    """What a layout says of activations that the row offloads to the host: those of nearly all
    layers of a stage, or none."""
    if _flag(run, "activation_offload"):
        raise UnscorableError("offload of some modules' activations not costed")
    layers = _flag(run, "cpu_offloading_num_layers")
    if not layers:
        return "none"
    resident = -(-(run.n_layers or 0) // pp) - layers if isinstance(layers, int) else None
    if not run.n_layers or resident is None or resident > RESIDENT_LAYERS:
        raise UnscorableError("offload of some layers' activations not costed")
    return "activations"


def _dispatcher(run: PublishedRun) -> str:
    for flag in DISPATCHER_FLAGS:
        dispatcher = DISPATCHERS.get(str(_flag(run, flag)).casefold())
        if dispatcher and (run.ep or 1) > 1:
            return dispatcher
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


def _shard_degree(run: PublishedRun, tp_cp: int, dp: int) -> int:
    """dp_shard: all of dp, or the ZeRO-1 group the row names, or what HSDP leaves of a node."""
    group = _flag(run, "zero1_group_size")
    degree = dp
    if isinstance(group, int):
        degree = min(group, dp)
    elif _flag(run, "sharding") == "HSDP":
        node = _known(run.gpus_per_nvlink_domain, "gpus_per_nvlink_domain")
        degree = min(max(1, node // tp_cp), dp)
    if dp % degree:
        raise UnscorableError("shard group does not divide dp")
    return degree


def _overlap(run: PublishedRun, software: Software) -> str:
    """The software's overlaps, except for axes whose flag the row states."""
    overlapped = []
    for axis, flags in OVERLAP_FLAGS.items():
        if axis == "ep" and not has_experts(run):
            continue
        stated = [value for name in flags if isinstance(value := _flag(run, name), bool)]
        # dispatch and combine overlap only where a row or its preset says so: it is off by default
        # in the frameworks that can do it
        if stated[0] if stated else axis in software.overlap and axis != "ep":
            overlapped.append(axis)
    return "+".join(overlapped) or "none"
