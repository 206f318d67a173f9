"""sbatch --test-only under a lone slurmctld in a folder of its own, in namespaces of its own.

Reads JSON lines {script, topology, nodes, gpus}, topology being {switch or block: hosts in it};
answers {rc, said} for each, in order. Jobs of one cluster are asked of one controller.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from itertools import groupby
from pathlib import Path

ROOT = Path(os.environ["SLURM_ROOT"])

CONF = """ClusterName=parsers
SlurmctldHost=slurm(127.0.0.1)
SlurmUser=root
SlurmctldPort=16817
AuthType=auth/none
CredType=cred/none
StateSaveLocation=/var/spool/slurmctld
SlurmctldPidFile=/run/slurmctld.pid
ProctrackType=proctrack/linuxproc
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
GresTypes=gpu
ResumeProgram=/bin/true
SuspendProgram=/bin/true
SuspendTime=300
TopologyPlugin=topology/{plugin}
NodeName=n[1-{nodes}] CPUs=64 RealMemory=100000 Gres=gpu:{gpus} State=CLOUD
PartitionName=all Nodes=ALL Default=YES MaxTime=INFINITE State=UP
"""

RUN = r"""
hostname slurm
rm -rf /var/spool/slurmctld; mkdir -p /var/spool/slurmctld
slurmctld -c -D > /var/log/slurmctld.out 2>&1 &
for _ in $(seq 100); do scontrol ping 2>/dev/null | grep -q "is UP" && break; sleep 0.1; done
scontrol ping | grep -q "is UP" || { cat /var/log/slurmctld.out >&2; exit 9; }
for job in /root/jobs/*; do
  said=$(sbatch --test-only "$job" 2>&1 < /dev/null)
  printf '%s %s\n' "$?" "$(echo "$said" | tr '\n' ' ')"
done
"""


def topology(kind: str, size: int, nodes: int) -> str:
    parts = [(i, min(i + size, nodes + 1) - 1) for i in range(1, nodes + 1, size)]
    if kind == "block":
        lines = [f"BlockName=b{i} Nodes=n[{a}-{b}]" for i, (a, b) in enumerate(parts)]
        return "\n".join([*lines, f"BlockSizes={size}", ""])
    lines = [f"SwitchName=s{i} Nodes=n[{a}-{b}]" for i, (a, b) in enumerate(parts)]
    return "\n".join([*lines, f"SwitchName=top Switches=s[0-{len(parts) - 1}]", ""])


def asked(cluster: tuple, scripts: list[str]) -> list[dict]:
    kind, size, nodes, gpus = cluster
    etc, jobs = ROOT / "etc/slurm", ROOT / "root/jobs"
    plugin = "block" if kind == "block" else "tree"
    for folder in (etc, jobs):
        folder.mkdir(parents=True, exist_ok=True)
    for old in jobs.iterdir():
        old.unlink()
    (etc / "slurm.conf").write_text(CONF.format(plugin=plugin, nodes=nodes, gpus=gpus))
    (etc / "gres.conf").write_text(f"NodeName=n[1-{nodes}] Name=gpu Count={gpus}\n")
    (etc / "topology.conf").write_text(topology(kind, size, nodes))
    (ROOT / "etc/hosts").write_text("127.0.0.1 localhost slurm\n")
    for number, script in enumerate(scripts):
        (jobs / f"{number:05}").write_text(script)
    done = subprocess.run(
        ["unshare", "--mount", "--uts", "--pid", "--fork", "--kill-child",
         f"--mount-proc={ROOT}/proc", "chroot", str(ROOT), "/bin/bash", "-c", RUN],
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    answers = [line.split(" ", 1) for line in done.stdout.splitlines()]
    return [{"rc": int(rc), "said": said} for rc, said in answers]


def main() -> None:
    jobs = [json.loads(line) for line in sys.stdin]
    clusters = [(*job["topology"], job["nodes"], job["gpus"]) for job in jobs]
    for cluster, members in groupby(range(len(jobs)), key=lambda i: clusters[i]):
        for answer in asked(cluster, [jobs[i]["script"] for i in members]):
            print(json.dumps(answer), flush=True)


main()
