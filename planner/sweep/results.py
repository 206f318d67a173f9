"""The results of a sweep, read back from its folder."""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from planner.errors import InputError
from planner.planning.plan import Plan
from planner.sweep.rows import Cells, columns_of
from planner.sweep.store import read, read_plan
from planner.sweep.tasks import unpacked

if TYPE_CHECKING:
    import pandas as pd


@dataclass(frozen=True)
class Sweep:
    """The finished points of a sweep.

    axes: the dotted keys that change from point to point. rows: one flat mapping per finished
    point, in the order of the points, all with the same keys: point, key, the axes (values as
    written), status (optimal, feasible, infeasible, unknown, failed), reason, model, topology,
    software, num_accelerators, the plan's figures, layout (in short) and layout.*, time.* in
    seconds, peak_bytes, memory_verdict, wall_seconds (of planning). An axis with the name of a
    column takes its place. num_points: how many points there are, finished or not.
    """

    name: str
    folder: Path
    axes: list[str]
    rows: list[Cells]
    num_points: int

    @property
    def counts(self) -> Counter[str]:
        """Rows by status."""
        return Counter(row["status"] for row in self.rows)

    def plan(self, point: int) -> Plan:
        """The plan of a point.

        Raises:
            InputError: the point is not finished, or failed and has no plan.
        """
        data = read_plan(self.folder, point)
        if data is None:
            row = next(row for row in self.rows if row["point"] == point)
            raise InputError(
                f"point {point} failed and has no plan: {row['reason']}",
                path=str(self.folder), value=point, allowed="a point that did not fail",
            )  # fmt: skip
        return Plan.from_document(unpacked(data), f"{self.folder}: point {point}")

    def frame(self) -> pd.DataFrame:
        """The rows as a pandas frame, a column for each of their keys.

        Raises:
            InputError: pandas is not installed.
        """
        try:
            import pandas as pd
        except ImportError:
            raise InputError(
                "needs the library pandas", allowed="pip install 'parallelism-planner[frames]'"
            ) from None
        return pd.DataFrame(self.rows)

    def to_document(self) -> dict[str, Any]:
        """The sweep as JSON values."""
        return {
            "name": self.name,
            "axes": self.axes,
            "num_points": self.num_points,
            "counts": dict(self.counts),
            "rows": self.rows,
        }


def read_sweep(folder: str | Path) -> Sweep:
    """The sweep that was last run into a folder, even while it runs.

    Raises:
        InputError: there is no sweep, or its file is of another program or version.
    """
    kept = read(Path(folder))
    columns = columns_of(kept.rows)
    return Sweep(
        name=kept.about["name"],
        folder=Path(folder),
        axes=json.loads(kept.about["axes"]),
        rows=[{name: row.get(name) for name in columns} for row in kept.rows],
        num_points=kept.num_points,
    )
