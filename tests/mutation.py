"""A pytest plugin for mutation testing (`make mutate`), which tests/conftest.py adds.

mutmut tests each change of the code in a fork of a process that has run all tests. A value that was
cached before the fork hides the change, so each run begins with empty caches.
"""

import sys
from functools import _lru_cache_wrapper

from rules import schedule

_PACKAGES = ("rules", "connectors", "engine")


def pytest_sessionstart() -> None:
    for name, module in list(sys.modules.items()):
        if name.partition(".")[0] in _PACKAGES:
            for value in vars(module).values():
                if isinstance(value, _lru_cache_wrapper):
                    value.cache_clear()
    schedule._shared.clear()
