"""Optional libraries that reports need: the messages where one is not installed."""

from __future__ import annotations

from planner.errors import PlannerError


def require_matplotlib() -> None:
    """Refuse to draw where the drawing library is missing.

    Raises:
        PlannerError: matplotlib is not installed.
    """
    try:
        # the part that is needed first: a broken installation shows here
        import matplotlib.figure  # noqa: F401
    except ImportError as error:
        raise PlannerError(
            f"pictures need matplotlib ({error}): pip install 'parallelism-planner[plot]', "
            "or parallelism-planner[report] with web pages"
        ) from None


def require_jinja2() -> None:
    """Refuse to write a page where the template library is missing.

    Raises:
        PlannerError: Jinja2 is not installed.
    """
    try:
        import jinja2  # noqa: F401
    except ImportError as error:
        raise PlannerError(
            f"web pages need Jinja2 ({error}): pip install 'parallelism-planner[report]'"
        ) from None
