"""What `planner sweep` costs and survives.

    python benchmarks/sweep.py speed [--workers 2] [--sample 20]
    python benchmarks/sweep.py dask
    python benchmarks/sweep.py kills [--number 20]

speed: a sweep of 1,000 points, its memory and CPU over time, and the same points one by one as a
loop of `planner plan` (a sample of them). dask: the same rows from a Dask LocalCluster of two
processes, one of which is killed on the way. kills: the sweep killed with SIGKILL at random
moments until it is done; its rows against those of an undisturbed run.

Needs the extra `dask` (its psutil reads memory and CPU).
"""

from __future__ import annotations

import argparse
import json
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil

from planner.sweep import Progress, Sweep, read_sweep, run_sweep
from planner.sweep.rows import without_timing

BASE = """\
model: llama3-8b
topology: dgx-h100
num_accelerators: 128
training: {sequence_length: 4096, global_batch_size: 512, precision: bf16, optimizer: adam}
"""

LARGE = """\
base: base.yaml
axes:
  model: [llama2-7b, llama2-13b, llama2-70b, llama3-8b, llama3-70b]
  topology: [dgx-a100, dgx-h100, dgx-h200, dgx-b200, h100-ethernet]
  num_accelerators: {from: 128, to: 2048, times: 2}
  training.sequence_length: {from: 4096, to: 32768, times: 2}
  training.global_batch_size: [512, 1024]
"""

KEEP_FREED = {"MALLOC_TRIM_THRESHOLD_": str(2**30), "MALLOC_MMAP_THRESHOLD_": str(2**28)}
"""For Dask's workers, which otherwise give every freed array back to the system."""

SMALL = """\
base: base.yaml
axes:
  num_accelerators: {from: 8, to: 128, times: 2}
  training.sequence_length: {from: 2048, to: 16384, times: 2}
  training.global_batch_size: [128, 256, 512]
"""


def main() -> None:
    """Run the benchmark that is named."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    what = parser.add_subparsers(dest="what", required=True)
    speed_options = what.add_parser("speed")
    speed_options.add_argument("--workers", type=int, default=2)
    speed_options.add_argument("--sample", type=int, default=20)
    speed_options.add_argument("--out")
    what.add_parser("dask").add_argument("--out", help="of a speed run, to compare with")
    what.add_parser("kills").add_argument("--number", type=int, default=20)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        if given.what == "speed":
            speed(Path(folder), given.workers, given.sample, given.out)
        elif given.what == "dask":
            dask(Path(folder), given.out)
        else:
            kills(Path(folder), given.number)


def written(folder: Path, sweep: str) -> Path:
    """The file of a sweep, in one folder with its base."""
    (folder / "base.yaml").write_text(BASE)
    (folder / "sweep.yaml").write_text(sweep)
    return folder / "sweep.yaml"


def command(*words: object) -> list[str]:
    """A command line of the planner, as a process's arguments."""
    return [sys.executable, "-c", "from planner.cli import main; main()", *map(str, words)]


# ---------------------------------------------------------------- speed


def speed(folder: Path, workers: int, sample: int, kept: str | None) -> None:
    """Points a second of a sweep, and of a loop of `planner plan` over a sample of them."""
    out = Path(kept) if kept else folder / "out"
    sweep = written(folder, LARGE)
    started = time.perf_counter()
    words = command("sweep", sweep, "--out", out, "--workers", workers)
    with subprocess.Popen(words, stdout=subprocess.DEVNULL) as process:
        samples = list(watched(process))
        assert process.wait() == 0
    wall = time.perf_counter() - started
    found = read_sweep(out)
    print(f"{found.num_points} points {dict(found.counts)} in {wall:.1f} s with {workers} workers")
    print_memory(samples)
    print_cpu(samples, workers, wall)
    rows = [row for row in found.rows if row["status"] != "failed"]
    used = os.times()
    before = used.children_user + used.children_system
    chosen = random.Random(0).sample(rows, min(sample, len(rows)))
    started = time.perf_counter()
    for row in chosen:
        pairs = [w for axis in found.axes for w in ("--set", f"{axis}={json.dumps(row[axis])}")]
        words = command("plan", folder / "base.yaml", *pairs, "--json")
        assert subprocess.run(words, stdout=subprocess.DEVNULL, check=False).returncode in (0, 1)
    one = (time.perf_counter() - started) / len(chosen)
    rate, cpu = found.num_points / wall, samples[-1].cpu_seconds
    used = os.times()
    one_cpu = (used.children_user + used.children_system - before) / len(chosen)
    print(f"sweep {rate:.2f} points/s, loop of `planner plan` {1 / one:.3f} ({len(chosen)} points)")
    print(f"ratio {rate * one:.2f}")
    print(
        f"CPU seconds a point: sweep {cpu / found.num_points:.3f}, loop {one_cpu:.3f}; "
        f"ratio {one_cpu * found.num_points / cpu:.2f}, with {workers} workers for the one loop "
        f"{workers * one_cpu * found.num_points / cpu:.2f}"
    )


@dataclass(frozen=True)
class Usage:
    """What a sweep uses, so many seconds after its start.

    sweep: its main process; workers: its children. waited_seconds: what the workers waited for a
    CPU.
    """

    seconds: float
    sweep_rss_bytes: int
    worker_rss_bytes: Mapping[int, int]
    workers_cpu_seconds: float
    sweep_cpu_seconds: float
    waited_seconds: float

    @property
    def cpu_seconds(self) -> float:
        """Of the sweep and its workers."""
        return self.workers_cpu_seconds + self.sweep_cpu_seconds


def waited_seconds(pid: int) -> float:
    """Seconds that a process could have run and others did (Linux: /proc/PID/schedstat)."""
    return int(Path(f"/proc/{pid}/schedstat").read_text().split()[1]) / 1e9


def watched(process: subprocess.Popen[bytes]) -> Iterator[Usage]:
    """What the sweep uses, four times a second until it ends."""
    started, sweep = time.perf_counter(), psutil.Process(process.pid)
    # by process, and kept when it ends: a worker's seconds count for the rest of the sweep
    cpu: dict[int, float] = {}
    waited: dict[int, float] = {}
    while process.poll() is None:
        try:
            rss = {}
            for child in sweep.children(recursive=True):
                if child.ppid() != sweep.pid or child.num_threads() > 1:  # not the fork server
                    rss[child.pid] = child.memory_info().rss
                times = child.cpu_times()
                cpu[child.pid] = times.user + times.system
                waited[child.pid] = waited_seconds(child.pid)
            times = sweep.cpu_times()
            yield Usage(
                seconds=time.perf_counter() - started,
                sweep_rss_bytes=sweep.memory_info().rss,
                worker_rss_bytes=rss,
                workers_cpu_seconds=sum(cpu.values()),
                sweep_cpu_seconds=times.user + times.system,
                waited_seconds=sum(waited.values()),
            )
        except (psutil.Error, OSError):
            pass  # it ended between two of these calls
        time.sleep(0.25)


def print_memory(samples: list[Usage]) -> None:
    """Memory at five moments of the sweep."""
    print("RSS, MB: after     sweep   workers")
    for moment in (0.1, 0.25, 0.5, 0.75, 0.97):
        usage = samples[int(moment * (len(samples) - 1))]
        workers = " ".join(f"{size / 2**20:7.1f}" for size in usage.worker_rss_bytes.values())
        print(f"  {usage.seconds:12.0f} s {usage.sweep_rss_bytes / 2**20:9.1f} {workers}")


def print_cpu(samples: list[Usage], workers: int, wall: float) -> None:
    """The workers' CPU seconds over all that there were, start and end included; on a machine that
    others use, the same with what they waited for a CPU."""
    last, available = samples[-1], workers * wall
    used, waited = last.workers_cpu_seconds, last.waited_seconds
    print(
        f"CPU: workers {used:.1f} s, sweep {last.sweep_cpu_seconds:.1f} s; workers / ({workers} × "
        f"{wall:.1f} s) = {used / available:.1%}, with {waited:.1f} s of waiting for a CPU "
        f"{(used + waited) / available:.1%}; load average {os.getloadavg()[0]:.1f} on "
        f"{os.cpu_count()} CPUs"
    )


# ---------------------------------------------------------------- the same rows


def same_rows(one: Sweep, other: Sweep) -> bool:
    """Whether two sweeps gave the same rows, times aside."""
    return [without_timing(row) for row in one.rows] == [without_timing(row) for row in other.rows]


def dask(folder: Path, compared: str | None) -> None:
    """The rows of a cluster of which a worker is killed, against those of the process pool."""
    from distributed import LocalCluster

    sweep = written(folder, LARGE if compared else SMALL)
    plain = read_sweep(compared) if compared else run_sweep(sweep, folder / "plain", workers=2)
    killed: list[int] = []
    options: dict[str, Any] = {"processes": True, "dashboard_address": None}
    os.environ.update(KEEP_FREED)
    with LocalCluster(n_workers=2, threads_per_worker=1, **options) as cluster:

        def tell(progress: Progress) -> None:
            if progress.done >= progress.total // 2 and not killed:
                killed.append(next(iter(cluster.workers.values())).pid)
                os.kill(killed[0], signal.SIGKILL)

        started = time.perf_counter()
        address = cluster.scheduler_address
        found = run_sweep(sweep, folder / "dask", scheduler=address, tell=tell)
        wall = time.perf_counter() - started
    print(f"{found.num_points} points {dict(found.counts)} in {wall:.1f} s; killed {len(killed)}")
    print(f"rows identical to the process pool's: {same_rows(plain, found)}")


def kills(folder: Path, number: int) -> None:
    """The rows of a sweep that is killed so many times, against those of an undisturbed run."""
    sweep = written(folder, SMALL)
    started = time.perf_counter()
    plain = run_sweep(sweep, folder / "plain", workers=2)
    wall = time.perf_counter() - started
    draw, out, rows_before, repeated = random.Random(number), folder / "killed", {}, 0
    moments = []
    for _ in range(number):
        words = command("sweep", sweep, "--out", out, "--workers", 2)
        with subprocess.Popen(
            words, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        ) as process:
            moments.append(draw.uniform(0.2, 1.0 + 2 * wall / number))
            time.sleep(moments[-1])
            workers = psutil.Process(process.pid).children(recursive=True)
            process.kill()
        _, alive = psutil.wait_procs(workers, timeout=5)
        assert not alive, f"workers outlive the sweep: {alive}"
        if (out / "sweep.sqlite").is_file():
            rows = {row["key"]: row for row in read_sweep(out).rows}
            repeated += sum(rows.get(key) != row for key, row in rows_before.items())
            rows_before = rows
    print(f"{number} kills after {', '.join(f'{m:.2f}' for m in moments)} s")
    print(f"rows after them: {len(rows_before)} of {plain.num_points}; changed or lost: {repeated}")
    found = run_sweep(sweep, out, workers=2)
    numbers = [row["point"] for row in found.rows]
    print(f"complete: {numbers == list(range(plain.num_points))}")
    print(f"equal to an undisturbed run: {same_rows(plain, found)}")


if __name__ == "__main__":
    main()
