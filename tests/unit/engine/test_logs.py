"""Libraries that repeat themselves are heard once in a while."""

import logging

from engine.process.logs import RepeatFilter


def record(name: str, message: str, *values: object) -> logging.LogRecord:
    return logging.LogRecord(name, logging.ERROR, "file", 1, message, values, None)


def test_a_librarys_repeats_are_dropped_for_a_while():
    now = 0.0
    repeats = RepeatFilter(clock=lambda: now)
    assert repeats.filter(record("uvicorn", "node %s is away", 1))
    assert not repeats.filter(record("uvicorn", "node %s is away", 2))
    assert repeats.filter(record("uvicorn", "something else"))
    now = 10.0
    assert repeats.filter(record("uvicorn", "node %s is away", 1))


def test_kafkas_client_is_heard_less_often():
    """It has a dozen sentences for a broker that is away."""
    now = 0.0
    repeats = RepeatFilter(clock=lambda: now)
    assert repeats.filter(record("aiokafka.conn", "node %s is away", 1))
    now = 119.0
    assert not repeats.filter(record("aiokafka.conn", "node %s is away", 2))
    now = 120.0
    assert repeats.filter(record("aiokafka.conn", "node %s is away", 1))


def test_our_own_lines_all_pass():
    repeats = RepeatFilter(clock=lambda: 0.0)
    assert all(repeats.filter(record("engine.trigger.pipeline", "the same")) for _ in range(3))
