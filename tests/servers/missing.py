"""When a real server or a compiled module cannot be had: a plain skip, or a failure where it is
required."""

import contextlib
import importlib
import os
from collections.abc import Iterator
from typing import Any

import pytest

# Each names a server to use instead of starting one.
KAFKA, REDIS, DATABASE = (f"PROXIMITY_TEST_{name}" for name in ("KAFKA", "REDIS", "DATABASE"))
REQUIRE = "PROXIMITY_TEST_REQUIRE_SERVERS"


class ServerMissingError(Exception):
    """The machine cannot run this server; the message says what is lacking and how to get it."""


@contextlib.contextmanager
def skipping(server: str, *, instead: str) -> Iterator[None]:
    """Turn ServerMissingError into a skip (or a failure); `instead` names the variable to set."""
    try:
        yield
    except ServerMissingError as error:
        reason = f"no real {server}: {error}; or set {instead}"
    else:
        return
    if os.environ.get(REQUIRE) == "1":
        pytest.fail(reason, pytrace=False)
    pytest.skip(reason)


def compiled(module: str) -> Any:
    """The compiled module; a skip (or a failure, where servers are required) if there is none."""
    with skipping("C compiler", instead="REQUIRE_COMPILED=1, and install again to see why"):
        try:
            return importlib.import_module(module)
        except ImportError as error:
            raise ServerMissingError(f"{module} is not compiled") from error
