"""A pytest plugin for mutation testing (`make mutate`), which tests/conftest.py adds.

mutmut tests each change of the code in a fork of a process that has run all tests. A value that was
cached before hides the change, so each test begins with empty caches. This also lets mutmut see
which tests reach a function.
"""

import sys
from functools import _lru_cache_wrapper

from rules import schedule

_PACKAGES = ("rules", "connectors", "engine")
_caches: list["_lru_cache_wrapper[object]"] = []


def pytest_collection_finish() -> None:
    """Find the caches of all modules that the tests have imported."""
    _caches[:] = [
        value
        for name, module in list(sys.modules.items())
        if name.partition(".")[0] in _PACKAGES
        for value in vars(module).values()
        if isinstance(value, _lru_cache_wrapper)
    ]


def pytest_runtest_setup() -> None:
    for cache in _caches:
        cache.cache_clear()
    schedule._shared.clear()
