"""What the alternatives share: where the servers are, the catalog, and how the time is taken."""

import json
import os
import signal
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, NamedTuple

import orjson

from benchmarks.peak import peak_bytes

SERVERS = os.environ["BENCH_KAFKA"]
REDIS = os.environ["BENCH_REDIS"]
DETECTIONS = os.environ["BENCH_DETECTIONS"]
NOTIFICATIONS = os.environ["BENCH_NOTIFICATIONS"]
GROUP = os.environ["BENCH_GROUP"]
MAX_AGE = float(os.environ["BENCH_MAX_AGE"])
LIFETIME = 300
PARTITIONS = 4
BATCH = 5000
NEAR_ENOUGH = ("immediate", "near", "far")


Campaigns = Mapping[tuple[str, int, int], Sequence[dict[str, Any]]]


class Wanted(NamedTuple):
    """A claim to ask for, and what makes the notification if it is granted."""

    claim: str
    id: str
    key: bytes
    seen: dict[str, Any]
    campaign: dict[str, Any]
    at: float

    @property
    def delay(self) -> int:
        """Seconds for which the claim forbids another."""
        return int(self.campaign["delay"])

    def notification(self) -> bytes:
        """The message, written."""
        return orjson.dumps(notification(self.id, self.seen, self.campaign, self.at))


def wanted(
    campaigns: Campaigns, origin: tuple[int, int], key: bytes, value: bytes, now: float
) -> Iterator[Wanted]:
    """What a detection asks for. `origin` is its partition and offset."""
    seen = orjson.loads(value)
    at = datetime.fromisoformat(seen["detected_at"]).timestamp()
    place = (seen["uuid"].lower(), int(seen["major"]), int(seen["minor"]))
    for campaign in campaigns.get(place, ()):
        recent, near = abs(now - at) <= MAX_AGE, seen["proximity"] in NEAR_ENOUGH
        if recent and near and campaign["start"] <= at <= campaign["end"]:
            number = campaign["fields"]["campaign"]["id"]
            claim = f"claim:{number}:{seen['device']['udid']}"
            id_ = f"{origin[0]}-{origin[1]}-{number}"
            yield Wanted(claim, id_, key, seen, campaign, at)


def campaigns_by_beacon() -> Campaigns:
    """The campaigns of each beacon."""
    found: dict[tuple[str, int, int], list[dict[str, Any]]] = {}
    for each in json.loads(Path(os.environ["BENCH_CATALOG"]).read_text(encoding="utf-8")):
        found.setdefault((each["uuid"], each["major"], each["minor"]), []).append(each)
    return found


def stop_on_sigterm() -> None:
    """SIGTERM ends the loop as an exception does, so that its consumer leaves the group."""
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))


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
            "peak_bytes": peak_bytes(),
        }
        print(json.dumps(result))
