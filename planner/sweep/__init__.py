"""Sweeps: many scenarios planned in batch, on one machine or a Dask cluster.

results = run_sweep("sweep.yaml", "results")
results = read_sweep("results")
results.frame().pivot(index="num_accelerators", columns="training.sequence_length", values="mfu")

points    the scenarios of a sweep file
run       plans them: tasks (what a worker does) on workers (processes, or a Dask cluster)
store     the folder of a sweep: results in SQLite as they come
results   what a folder holds, as rows
rows      a plan as a row
export    rows as CSV, JSON lines and Parquet
version   which program made a result
"""

from planner.sweep.results import Sweep, read_sweep
from planner.sweep.run import Progress, run_sweep

__all__ = ["Progress", "Sweep", "read_sweep", "run_sweep"]
