"""The types of formulas that serve one layout and a table of many alike.

A formula reads numbers of one layout, or arrays with one element per row of a table, and returns
what it was given. Its results broadcast: a term that no row changes may stay one number.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

Numeric = float | NDArray[np.floating[Any]] | NDArray[np.integer[Any]]
"""A number, or an array of numbers: seconds, bytes, shares, counts."""

Integer = int | NDArray[np.integer[Any]]
"""A whole number, or an array of them: degrees, numbers of layers, positions in a table."""

Mask = NDArray[np.bool_]
"""An array of truth values (a numpy truth value too), which `~` negates."""

Boolean = bool | Mask
"""A truth value, or an array of them; `~` makes a whole number of a Python bool."""
