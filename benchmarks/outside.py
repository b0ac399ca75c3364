"""Measures processes and consumer groups from outside, for products in any language."""

import contextlib
import os
import signal
import time
from collections.abc import Callable
from pathlib import Path

from confluent_kafka import ConsumerGroupTopicPartitions, KafkaException, TopicPartition
from confluent_kafka.admin import AdminClient

from benchmarks.publishing import QUIET
from benchmarks.topics import PARTITIONS

_PROC = Path("/proc")
_SECONDS = 60.0
_POLL_SECONDS = 0.01
_UTIME, _STIME, _PARENT = 11, 12, 1  # columns of /proc/pid/stat behind the name


class WaitedTooLongError(Exception):
    """A condition was not met in time; the message names it."""


def wait(done: Callable[[], bool], *, seconds: float, what: str) -> None:
    """Wait until `done()`. Raises WaitedTooLongError."""
    give_up = time.monotonic() + seconds
    while not done():
        if time.monotonic() > give_up:
            raise WaitedTooLongError(f"not within {seconds:.0f} s: {what}")
        time.sleep(_POLL_SECONDS)


def processor_seconds(pid: int) -> float:
    """The processor time of a process and its living children."""
    return sum(_ticks(each) for each in family(pid)) / os.sysconf("SC_CLK_TCK")


def peak_bytes(pid: int) -> int:
    """The sum of the peak memory of a process and of its living children."""
    return sum(_high_water(each) for each in family(pid))


def family(pid: int) -> list[int]:
    """The process and its living children."""
    children = [int(each.name) for each in _PROC.iterdir() if each.name.isdigit()]
    return [pid, *(each for each in children if (_stat(each) or [0, 0])[_PARENT] == pid)]


def send_signal(pid: int, what: signal.Signals) -> None:
    """Send a signal to the process and its children; each of them may be a group of its own."""
    for each in family(pid):
        with contextlib.suppress(ProcessLookupError):
            os.kill(each, what)


def _stat(pid: int) -> list[int]:
    """The numbers of /proc/<pid>/stat from the state on; empty for an ended process."""
    try:
        behind = (_PROC / str(pid) / "stat").read_text().rpartition(")")[2].split()
    except OSError:
        return []
    return [0, *(int(each) for each in behind[1:])]


def _ticks(pid: int) -> int:
    columns = _stat(pid)
    return columns[_UTIME] + columns[_STIME] if columns else 0


def _high_water(pid: int) -> int:
    try:
        lines = (_PROC / str(pid) / "status").read_text().splitlines()
    except OSError:
        return 0
    return sum(int(line.split()[1]) * 1024 for line in lines if line.startswith("VmHWM:"))


class GroupWatch:
    """A consumer group on one topic of PARTITIONS partitions."""

    def __init__(self, kafka: str, group: str, topic: str) -> None:
        self._admin = AdminClient({"bootstrap.servers": kafka, "log_level": QUIET})
        self._group = group
        self._places = [TopicPartition(topic, number) for number in range(PARTITIONS)]

    def committed(self) -> int:
        """The committed records of the topic."""
        requested = [ConsumerGroupTopicPartitions(self._group, self._places)]
        (future,) = self._admin.list_consumer_group_offsets(
            requested, request_timeout=_SECONDS
        ).values()
        found = future.result().topic_partitions
        return sum(max(place.offset, 0) for place in found)

    def has_members(self, count: int) -> bool:
        """Whether so many members share all partitions."""
        (future,) = self._admin.describe_consumer_groups(
            [self._group], request_timeout=_SECONDS
        ).values()
        try:
            members = [member.assignment for member in future.result().members]
        except KafkaException:
            # Brokers since 4.0 say so of a group that does not exist yet; its coordinator may be
            # in the making, too.
            return False
        held = [len(each.topic_partitions) for each in members if each is not None]
        return len(held) == count and min(held) > 0 and sum(held) >= PARTITIONS
