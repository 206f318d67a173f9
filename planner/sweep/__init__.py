"""Sweeps: many scenarios planned in batch, on one machine or a Dask cluster.

found = run_sweep("sweep.yaml", "results")
found = read_sweep("results")
found.frame().pivot(index="num_accelerators", columns="training.sequence_length", values="mfu")
"""

from planner.sweep.read import Sweep, read_sweep
from planner.sweep.run import Progress, run_sweep

__all__ = ["Progress", "Sweep", "read_sweep", "run_sweep"]
