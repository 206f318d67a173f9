"""What other planners reach on the published runs (scenarios/published/peer_errors.yaml)."""

from functools import cache
from typing import Annotated

from annotated_types import Gt

from planner.inputs.files import data_root
from planner.inputs.quantities import Status
from planner.inputs.values import Strict, parse

PEERS = "scenarios/published/peer_errors.yaml"

Share = Annotated[float, Gt(0)]


class Peer(Strict):
    """Rows of a publication (of a model, of an accelerator) and the best peer's MAPE on them."""

    rows: str
    publication: str
    mape: Share
    model: str = ""
    accelerator: str = ""
    in_sample: bool = False


class Peers(Strict):
    """Where the figures come from, and the figures."""

    source: str
    status: Status
    best_by_source: tuple[Peer, ...]
    over_all_dense_rows: dict[str, Share]


@cache
def peers() -> Peers:
    """The figures that ship."""
    return parse((data_root() / PEERS).read_text("utf-8"), PEERS, Peers)
