"""torchtitan's rules: on layouts, on the settings of a script, and on jobs to be launched."""

from __future__ import annotations

import numpy as np

from planner.frameworks.job import NOT_WRITTEN, Refusal
from planner.frameworks.rule import TORCH, TORCHTITAN, Rule, SettingsRule

# ---------------------------------------------------------------- on layouts, by id in profiles

LAYOUT_RULES = (
    Rule(
        "microbatches-fill-pipeline",
        "a pipeline needs at least pp micro-batches",
        TORCHTITAN,
        ("num_microbatches", "pp"),
        lambda ctx, x: x.num_microbatches >= np.asarray(x.pp),
    ),
)

# ---------------------------------------------------------------- on the settings of a script

LOCAL_BATCH_DIVIDES = SettingsRule(
    "local-batch-divides",
    "the local batch is a multiple of the micro-batch",
    "{version}; pytorch/torchtitan#775",
)
MICROBATCHES_FILL_PIPELINE = SettingsRule(
    "microbatches-fill-pipeline",
    "a pipeline needs at least pp micro-batches in a local batch, or it hangs",
    "{version}; pytorch/torchtitan#775, #784",
)
BATCH_DIVIDES = SettingsRule(
    "batch-divides",
    "the global batch is a multiple of the local batch times dp",
    "{version} train.py",
)

_PIPELINE = "torchtitan distributed/pipeline_parallel.py"

STAGE_MODULES_HOLD_MODEL = SettingsRule(
    "stage-layers",
    "the parts are a multiple of pp and hold the model's {num_layers} layers",
    _PIPELINE,
)
STAGES_EVEN = SettingsRule(
    "stages-even",
    "{num_layers} layers make stages that are a multiple of pp",
    _PIPELINE,
)
SCHEDULE_FITS_STAGES = SettingsRule(
    "schedule", "1F1B has one stage a rank, interleaved schedules two or more", _PIPELINE
)

# ---------------------------------------------------------------- on a job

REFUSALS = (
    Refusal(
        "sharded-dp-overlaps",
        "torchtitan always overlaps sharded data parallelism; expressible: dp in it",
        "torchtitan distributed/fsdp.py",
        lambda job: job.layout.dp_shard * job.layout.cp > 1 and not job.overlaps("dp"),
    ),
    Refusal(
        "sends-overlap",
        "torchtitan always overlaps pipeline sends; expressible: overlap with pp",
        TORCH,
        lambda job: job.layout.pp > 1 and not job.overlaps("pp"),
    ),
    Refusal(
        "no-expert-overlap",
        "torchtitan does not overlap dispatch and combine; expressible: no ep in it",
        "torchtitan 0.3 has no setting for it",
        lambda job: job.layout.ep > 1 and job.overlaps("ep"),
    ),
    Refusal(
        "no-cuda-graphs-in-pipelines",
        "torchtitan captures no pipeline in CUDA graphs; expressible: none of them",
        "torchtitan 0.3 trainer.py",
        lambda job: job.layout.pp > 1 and job.scenario.training.cuda_graphs != "none",
    ),
    Refusal(
        "stages-name-chunks",
        "stage_layers does not say how layers fall into {layout.vp} virtual stages; expressible: "
        "multiples of {layout.vp}, or the default split",
        NOT_WRITTEN,
        lambda job: job.layout.pp > 1 and job.chunk_layers() is None,
    ),
)
"""What torchtitan does not run, in either version."""
