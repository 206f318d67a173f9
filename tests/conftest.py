"""What all tests share: bytecode is kept, and a parser that is not set up is skipped at once."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator

import pytest

from tests.parsers.harness import folder


def pytest_configure() -> None:
    """Where the environment writes no bytecode each worker would compile all tests anew, and each
    `planner` that a test starts all of the package: a tenth of the suite."""
    sys.dont_write_bytecode = False
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)


def pytest_runtest_setup(item: pytest.Item) -> None:
    """Before fixtures draw hundreds of plans to ask a parser about."""
    if item.get_closest_marker("parsers"):
        folder(".")


@pytest.fixture
def no_search() -> Iterator[None]:
    """Scripts are checked without the search for a better layout."""
    from planner.advise import check

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(check, "_better", lambda found: None)
        yield
