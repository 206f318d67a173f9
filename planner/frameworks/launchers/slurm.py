"""A plan as an sbatch script: one task for each accelerator, placed as planned and checked.

    sbatch job.sbatch python3 pretrain_gpt.py --data-path ...

Ranks are put on hosts by srun, in blocks, or from a host file where no order of the framework's
places them as planned. Before the program starts, a step looks where every rank landed.
"""

from __future__ import annotations

import re

from planner.clusters.slurm_hostlist import compressed
from planner.frameworks.job import Job
from planner.frameworks.launchers.framework import environment_lines, framework_arguments
from planner.frameworks.launchers.hosts import Hosts, RankMap, hosts_of
from planner.frameworks.target import target
from planner.frameworks.text import commented, file_text, stamp

FILE_NAME = "job.sbatch"


def export_slurm(job: Job) -> dict[str, str]:
    """The script, by its name.

    Raises:
        ExportError: the framework cannot express the plan, or hosts do not hold it evenly.
    """
    arguments, hosts = framework_arguments(job), hosts_of(job)
    lines = [
        "#!/bin/bash",
        *commented(stamp(job, target("slurm"))),
        f"# use: sbatch {FILE_NAME} PROGRAM [ARGUMENT...]",
        *_options(job, hosts),
        "# shellcheck disable=SC2016  # what the tasks expand",
        "set -euo pipefail",
        f'if (($# == 0)); then echo "usage: sbatch {FILE_NAME} PROGRAM [ARGUMENT...]" >&2; '
        "exit 2; fi",
        *environment_lines(job, hosts),
        *arguments.lines,
        *_placement(arguments.ranks, hosts),
        *_check_and_launch(hosts, arguments.words),
    ]
    return {FILE_NAME: file_text(lines)}


def _options(job: Job, hosts: Hosts) -> list[str]:
    """The #SBATCH lines: nothing of the user's text but safe characters of the model's name."""
    name = re.sub(r"[^A-Za-z0-9._-]+", "-", job.scenario.model.name).strip("-.") or "job"
    options = {
        "job-name": f"planner-{name[:60]}",
        "nodes": hosts.number,
        "ntasks-per-node": hosts.ranks_each,
        "gpus-per-node": hosts.ranks_each,
    }
    # named nodes are taken as they are; else ask for hosts of one domain, or near under switches
    if hosts.names:
        options["nodelist"] = compressed(hosts.names)
    elif hosts.in_domain > 1:
        options["segment"] = hosts.in_domain
    elif hosts.under_switch and hosts.under_switch < hosts.number:
        options["switches"] = -(-hosts.number // hosts.under_switch)
    return [*(f"#SBATCH --{key}={value}" for key, value in options.items()), "#SBATCH --exclusive"]


def _placement(ranks: RankMap, hosts: Hosts) -> list[str]:
    """The hosts in order, the host of every rank, and a host file where blocks do not do."""
    lines = [
        f"readonly RANKS={hosts.number * hosts.ranks_each} PER_HOST={hosts.ranks_each}",
        *_host_lines(hosts),
        "# the planned host of each rank, by its number: places are filled in the plan's order",
        "host_of_rank() {",
        '  awk -v ranks="$RANKS" -v each="$PER_HOST" '
        f"-v factors='{' '.join(map(str, ranks.factors))}' "
        f"-v strides='{' '.join(map(str, ranks.strides))}' 'BEGIN {{",
        '    n = split(factors, f, " "); split(strides, s, " ")',
        "    for (p = 0; p < ranks; p++) {",
        "      rest = p; r = 0",
        "      for (i = 1; i <= n; i++) { r += rest % f[i] * s[i]; rest = int(rest / f[i]) }",
        "      host[r] = int(p / each)",
        "    }",
        "    for (r = 0; r < ranks; r++) print host[r]",
        "  }'",
        "}",
        "mapfile -t planned < <(host_of_rank)",
    ]
    if ranks.is_identity and list(hosts.names) == sorted(hosts.names):
        return [*lines, 'place=(--distribution=block --ntasks-per-node="$PER_HOST")']
    return [
        *lines,
        "# blocks in Slurm's order of hosts do not place the ranks as planned: a host for each",
        "SLURM_HOSTFILE=$(mktemp)",
        "export SLURM_HOSTFILE",
        "trap 'rm -f \"$SLURM_HOSTFILE\"' EXIT",
        'for host in "${planned[@]}"; do echo "${hosts[host]}"; done > "$SLURM_HOSTFILE"',
        "unset SLURM_NTASKS_PER_NODE SLURM_TASKS_PER_NODE  # they would contradict the file",
        "place=(--distribution=arbitrary)",
    ]


def _host_lines(hosts: Hosts) -> list[str]:
    """The hosts in the order of places: those of the plan, or those of the job as they come."""
    given = 'mapfile -t hosts < <(scontrol show hostnames "$SLURM_JOB_NODELIST")'
    if not hosts.names:
        return [
            given,
            f'((${{#hosts[@]}} == {hosts.number})) || {{ echo "planned for {hosts.number} hosts, '
            'got ${#hosts[@]}" >&2; exit 1; }',
        ]
    return [
        "# the plan's nodes, in the order of its places",
        f"hosts=({' '.join(hosts.names)})",
        'if ! diff <(printf "%s\\n" "${hosts[@]}" | sort) '
        '<(scontrol show hostnames "$SLURM_JOB_NODELIST" | sort) >&2; then',
        '  echo "the job has other nodes than planned (< planned, > given)" >&2',
        "  exit 1",
        "fi",
    ]


def _check_and_launch(hosts: Hosts, arguments: str) -> list[str]:
    together = hosts.in_domain if hosts.in_domain > 1 else hosts.under_switch or 1
    return [
        f"# every rank on its host, and each {together} hosts in a row under one switch or block",
        "check_places() {",
        "  local rank host first seen=0",
        "  local -A above=()",
        "  while read -r name nodes; do",
        '    while read -r host; do above[$host]=$name; done < <(scontrol show hostnames "$nodes")',
        "  done < <(scontrol show topology 2> /dev/null |",
        "    sed -nE 's/^(SwitchName=[^ ]+) Level=0 .*Nodes=([^ ]+).*/\\1 \\2/p; "
        "s/^(BlockName=[^ ]+) .*Nodes=([^ ]+).*/\\1 \\2/p')",
        "  while read -r rank host; do",
        '    [[ $host == "${hosts[planned[rank]]}" ]] || {',
        '      echo "rank $rank is on $host, planned on ${hosts[planned[rank]]}" >&2',
        "      return 1",
        "    }",
        "    seen=$((seen + 1))",
        f"  done < <({_step('bash -c ' + _QUOTED_WHERE)})",
        '  ((seen == RANKS)) || { echo "$seen of $RANKS ranks answered" >&2; return 1; }',
        "  ((${#above[@]})) || {",
        '    echo "Slurm reports no topology: not checked that hosts are near each other" >&2',
        "    return 0",
        "  }",
        f"  for ((i = 0; i < ${{#hosts[@]}}; i += {together})); do",
        f'    for host in "${{hosts[@]:i:{together}}}"; do',
        "      first=${hosts[i]}",
        '      [[ ${above[$host]:-} == "${above[$first]:-}" ]] || {',
        '        echo "$host (${above[$host]:-}) and $first (${above[$first]:-}) are planned" \\',
        '          "together" >&2',
        "        return 1",
        "      }",
        "    done",
        "  done",
        "}",
        "check_places",
        "",
        "MASTER_ADDR=${hosts[planned[0]]} MASTER_PORT=${MASTER_PORT:-29500}",
        "export MASTER_ADDR MASTER_PORT",
        f'{_step("bash -c " + _QUOTED_RUN)} planner "$@"{arguments}',
    ]


def _step(command: str) -> str:
    return f'srun --ntasks="$RANKS" "${{place[@]}}" {command}'


_QUOTED_WHERE = "'echo \"$SLURM_PROCID $SLURMD_NODENAME\"'"
_QUOTED_RUN = (
    "'export RANK=$SLURM_PROCID LOCAL_RANK=$SLURM_LOCALID WORLD_SIZE=$SLURM_NTASKS; exec \"$@\"'"
)
