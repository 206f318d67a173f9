"""Where labels go so that they do not overlap: arithmetic on positions, no drawing."""

from __future__ import annotations

from collections.abc import Sequence

GLYPH_WIDTH = 0.58
"""Mean width of a character over the font's size, a little above that of DejaVu Sans."""


def text_inches(text: str, points: float) -> float:
    """Width of the longest line of a text, in inches."""
    return max((len(line) for line in text.splitlines()), default=0) * GLYPH_WIDTH * points / 72


def wrapped(text: str, width: float, points: float) -> str:
    """Text broken between words so that no line is wider than `width` inches, if that can be."""
    lines = []
    for line in text.split("\n"):
        current = ""
        for word in line.split(" "):
            longer = f"{current} {word}" if current else word
            if current and text_inches(longer, points) > width:
                lines.append(current)
                current = word
            else:
                current = longer
        lines.append(current)
    return "\n".join(lines)


def spread(positions: Sequence[float], gap: float) -> list[float]:
    """Positions at least `gap` apart, in their order, as close as possible to the given ones.

    Closest in the sense of least squares, by isotonic regression: after rank · gap is subtracted,
    positions must not fall, so runs that do are pooled into their mean.
    """
    order = sorted(range(len(positions)), key=lambda i: positions[i])
    pools: list[tuple[float, int]] = []  # mean and size
    for rank, i in enumerate(order):
        mean, size = positions[i] - rank * gap, 1
        while pools and pools[-1][0] > mean:
            other, number = pools.pop()
            mean, size = (mean * size + other * number) / (size + number), size + number
        pools.append((mean, size))
    fitted = [mean for mean, size in pools for _ in range(size)]
    moved = [0.0] * len(order)
    for rank, i in enumerate(order):
        moved[i] = fitted[rank] + rank * gap
    return moved


def rows(spans: Sequence[tuple[float, float]]) -> list[int]:
    """A row for each span (start, end), the lowest in which it overlaps none before it."""
    ends: list[float] = []
    chosen = [0] * len(spans)
    for i in sorted(range(len(spans)), key=lambda i: spans[i]):
        start, end = spans[i]
        row = next((r for r, last in enumerate(ends) if last <= start), len(ends))
        ends[row:] = [end, *ends[row + 1 :]]
        chosen[i] = row
    return chosen


def flags(starts: Sequence[tuple[float, float]]) -> list[int]:
    """A row for each flag (pole, width), the lowest free one; a flag extends right of its pole.

    It is above the flags whose poles it passes, so that no pole crosses a flag and none overlap.
    """
    chosen = [0] * len(starts)
    # from the right: whatever a flag passes has its row already
    order = sorted(range(len(starts)), key=lambda i: starts[i][0], reverse=True)
    for position, i in enumerate(order):
        pole, width = starts[i]
        passed = [chosen[j] for j in order[:position] if starts[j][0] <= pole + width]
        chosen[i] = 1 + max(passed, default=-1)
    return chosen
