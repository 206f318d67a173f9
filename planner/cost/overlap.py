"""What hides behind what. Every function is non-decreasing in the traffic's seconds."""

from __future__ import annotations

import numpy as np

from planner.layouts.layout import Numeric


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


EXCHANGE_SHARE = 0.15
"""Of the multiprocessors, what an exchange that runs beside kernels takes (DeepEP: 20 to 24 of 132;
HybridEP: 16 to 32 of 148)."""


def beside(busy: Numeric, budget: Numeric) -> Numeric:
    """Seconds that an exchange adds which runs beside `budget` seconds of work of other tokens.

    What hides still takes its share of the multiprocessors from that work.
    """
    return busy - (1.0 - EXCHANGE_SHARE) * np.minimum(busy, budget)
