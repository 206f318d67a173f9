"""Which program made a result: its version, and a digest of its code and tables."""

import hashlib
from functools import cache
from pathlib import Path

import planner
from planner.cost.prediction_intervals import SHIPPED
from planner.inputs.files import data_root


@cache
def program_version() -> str:
    """The version and a digest of the sources, so that no result outlives the code that made it.

    Topologies, models and software are in a plan's inputs already; prediction intervals are not.
    """
    home = Path(planner.__file__).parent
    paths = sorted(path for path in home.rglob("*.py") if "_data" not in path.parts)
    # in a checkout the version number stays the same while the code changes
    digest = hashlib.sha256()
    for path in (*paths, data_root() / SHIPPED):
        digest.update(path.name.encode() + b"\0" + path.read_bytes() + b"\0")
    return f"{planner.__version__}+{digest.hexdigest()[:12]}"
