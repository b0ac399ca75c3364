"""What the alternatives share: where the servers are, the catalog, and how the time is taken."""

import json
import os
import resource
import sys
import time
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

SERVERS = os.environ["BENCH_KAFKA"]
REDIS = os.environ["BENCH_REDIS"]
DETECTIONS = os.environ["BENCH_DETECTIONS"]
NOTIFICATIONS = os.environ["BENCH_NOTIFICATIONS"]
GROUP = os.environ["BENCH_GROUP"]
MAX_AGE = float(os.environ["BENCH_MAX_AGE"])
LIFETIME = 300
BATCH = 5000
NEAR_ENOUGH = ("immediate", "near", "far")


def campaigns_by_beacon() -> dict[tuple[str, int, int], list[dict[str, Any]]]:
    """The campaigns of each beacon."""
    found: dict[tuple[str, int, int], list[dict[str, Any]]] = {}
    for each in json.loads(Path(os.environ["BENCH_CATALOG"]).read_text(encoding="utf-8")):
        found.setdefault((each["uuid"], each["major"], each["minor"]), []).append(each)
    return found


def written(epoch: float) -> str:
    """An instant as notifications write it."""
    return datetime.fromtimestamp(int(epoch), UTC).strftime("%Y-%m-%dT%H:%M:%S+0000")


def notification(
    id_: str, detection: dict[str, Any], campaign: dict[str, Any], at: float
) -> dict[str, Any]:
    """The message of a campaign that fires."""
    fields: dict[str, Any] = campaign["fields"]
    return fields | {
        "id": id_,
        "proximity": detection["proximity"],
        "device": detection["device"],
        "detected_at": written(at),
        "triggered_at": written(time.time()),
        "expires_at": written(at + LIFETIME),
    }


class Stopwatch:
    """From the first tenth of the records to the last one; prints the result as a line of JSON."""

    def __init__(self) -> None:
        self.wanted = int(sys.argv[1])
        self.done = 0
        self._first = 0
        self._notifications = 0
        if int(sys.argv[2]) >= 0:
            os.sched_setaffinity(0, {int(sys.argv[2])})

    def note(self, records: int, notifications: int) -> None:
        """A batch is done: decided, published, acknowledged, committed."""
        self.done += records
        self._notifications += notifications
        if self.done >= self.wanted // 10 and not self._first:
            self._first = self.done
            self._begin, self._processor = time.perf_counter(), time.process_time()
        if self.done >= self.wanted:
            self._print()

    def _print(self) -> None:
        result = {
            "records": self.done - self._first,
            "seconds": time.perf_counter() - self._begin,
            "seconds_processor": time.process_time() - self._processor,
            "notifications": self._notifications,
            "peak_bytes": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024,
        }
        print(json.dumps(result))
