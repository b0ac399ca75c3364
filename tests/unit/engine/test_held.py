"""Claims that a process remembers."""

from engine.state.held import HeldClaims


def test_the_newest_claim_counts():
    held = HeldClaims(10)
    held.hold("d", 1, 100.0)
    held.hold("d", 1, 90.0)
    held.hold("d", 2, 50.0)
    assert dict(held.of("d")) == {1: 100.0, 2: 50.0}
    assert dict(held.of("other")) == {}


def test_a_brief_claim_is_forgotten_in_time():
    held = HeldClaims(10)
    held.hold("d", 1, 100.0, until=105.0)
    held.hold("d", 2, 100.0)
    held.expire(104.9)
    assert 1 in held.of("d")
    held.expire(105.0)
    assert dict(held.of("d")) == {2: 100.0}


def test_memory_is_bounded_and_keeps_those_heard_of_last():
    held = HeldClaims(100)
    for number in range(1000):
        held.hold(f"d{number}", 1, float(number))
        held.of("regular")
        held.hold("regular", 1, float(number))
    known = [number for number in range(1000) if held.of(f"d{number}")]
    assert 0 < len(known) <= 100
    assert known[-1] == 999
    assert dict(held.of("regular")) == {1: 999.0}


def test_an_older_generation_is_still_known():
    held = HeldClaims(4)
    held.hold("a", 1, 1.0)
    held.hold("b", 1, 2.0)
    held.hold("c", 1, 3.0)
    assert dict(held.of("a")) == {1: 1.0}
