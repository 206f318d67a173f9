"""What hides behind what. Every function is non-decreasing in the traffic's seconds."""

from __future__ import annotations

import numpy as np

from planner.layout import Numeric


def beyond(busy: Numeric, budget: Numeric) -> Numeric:
    """Seconds of traffic that do not fit behind `budget` seconds of work."""
    return np.maximum(0.0, busy - budget)


def chunked(
    busy: Numeric, beyond_domain: Numeric, chunks: Numeric, budget: Numeric, enabled: Numeric
) -> Numeric:
    """Exposed seconds of traffic cut into `chunks` that pipeline with the matmul they feed.

    At least one chunk stays exposed, no more hides than `budget`, and what leaves the innermost
    domain (`beyond_domain` seconds) does not hide: the chunks are copies between its members.
    """
    exposed = np.maximum(np.maximum(busy / chunks, beyond_domain), busy - budget)
    return np.where(enabled, exposed, busy)
