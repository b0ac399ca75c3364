"""Which test worker runs what: whole processes of the product on as many workers as there are
processors, and beside them one worker for the tests that mostly wait."""

import os

import pytest
from xdist.remote import Producer
from xdist.scheduler import LoadFileScheduling
from xdist.workermanage import WorkerController

from tests.servers.handles import DATABASE, KAFKA, REDIS

_BUSY = ("tests/system/",)


class BesideBusyFiles(LoadFileScheduling):  # type: ignore[misc]  # it has no types
    """A file a worker; the busy ones first, and no more of them at once than processors.

    Files with few tests come first, because those tests take long: else one of them is the end.
    """

    def _assign_work_unit(self, node: WorkerController) -> None:
        busy = int(node.gateway.id.removeprefix("gw")) < _processors()
        queue = self.workqueue
        first = min(queue, key=lambda file: (file.startswith(_BUSY) != busy, len(queue[file])))
        queue.move_to_end(first, last=False)
        super()._assign_work_unit(node)


def pytest_xdist_make_scheduler(config: pytest.Config, log: Producer) -> BesideBusyFiles | None:
    return BesideBusyFiles(config, log) if config.getvalue("dist") == "loadfile" else None


def pytest_xdist_auto_num_workers() -> int:
    """Servers that the environment names are shared, and tests empty them: one at a time then."""
    return 0 if {KAFKA, REDIS, DATABASE} & os.environ.keys() else _processors() + 1


def _processors() -> int:
    return os.cpu_count() or 1
