"""The modules that Cython compiles: where they are missing, their tests are left out."""

import importlib
from typing import Any

from tests.servers.missing import ServerMissingError, skipping


def compiled(module: str) -> Any:
    """The compiled module; a skip (or a failure, where servers are required) if there is none."""
    with skipping("C compiler", instead="REQUIRE_COMPILED=1, and install again to see why"):
        try:
            return importlib.import_module(module)
        except ImportError as error:
            raise ServerMissingError(f"{module} is not compiled") from error
