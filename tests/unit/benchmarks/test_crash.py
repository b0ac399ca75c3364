"""What is counted after a crash."""

from benchmarks.crash import aftermath
from benchmarks.topics import Notified


def test_lost_other_ids_and_repeats_are_distinguished():
    found = [
        Notified("one", 1, 1, "a"),
        Notified("one", 1, 1, "a"),
        Notified("one", 1, 1, "b"),
        Notified("two", 1, 1, "c"),
        Notified("two", 1, 2, "d"),
        Notified("two", 2, 2, "d"),
    ]
    counted = aftermath(6, found, 1.5)
    assert counted == (6, 2, 1, 1, 1.5)


def test_nothing_came():
    assert aftermath(3, [], 0.0) == (3, 3, 0, 0, 0.0)
