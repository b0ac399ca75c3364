"""Claims that a process remembers."""

import pytest

from engine.trigger.claim_memory import ClaimMemory, RememberedClaims
from tests.unit.engine.test_compose import campaign as campaign_of


def remembering(most: int) -> RememberedClaims:
    return ClaimMemory(most).for_assignment()


def test_the_newest_claim_counts():
    held = remembering(10)
    held.remember("d", 1, 100.0)
    held.remember("d", 1, 90.0)
    held.remember("d", 2, 50.0)
    assert dict(held.of("d")) == {1: 100.0, 2: 50.0}
    assert dict(held.of("other")) == {}


def test_a_brief_claim_is_forgotten_in_time():
    held = remembering(10)
    held.remember("d", 1, 100.0, until=105.0)
    held.remember("d", 2, 100.0)
    held.forget_expired(104.9)
    assert 1 in held.of("d")
    held.forget_expired(105.0)
    assert dict(held.of("d")) == {2: 100.0}


def test_an_assignment_that_has_ended_holds_nothing():
    """Its worker may be garbage for hours before the collector finds it."""
    memory = ClaimMemory(10)
    ended, other = memory.for_assignment(), memory.for_assignment()
    for part in (ended, other):
        part.remember("old", 1, 100.0)
        part.grow_old()
    for part in (ended, other):
        part.remember("young", 1, 100.0, until=200.0)
    ended.close()
    ended.close()
    assert not ended.of("old")
    assert not ended.of("young")
    ended.forget_expired(300.0)
    assert memory.held == 2 * 4
    assert other.of("old")
    assert other.of("young")


def test_memory_is_bounded_and_keeps_those_received_last():
    held = remembering(100)
    for number in range(1000):
        held.remember(f"d{number}", 1, float(number))
        held.of("regular")
        held.remember("regular", 1, float(number))
    known = [number for number in range(1000) if held.of(f"d{number}")]
    assert 0 < len(known) <= 100
    assert known[-1] == 999
    assert dict(held.of("regular")) == {1: 999.0}


def devices_of(held: RememberedClaims, count: int) -> int:
    """How many of the devices have claims in memory."""
    return sum(bool(held.of(f"d{number}")) for number in range(count))


@pytest.mark.parametrize("most", [1, 2, 7, 63, 64, 200])
def test_as_many_claims_are_held_as_the_bound_says(most: int) -> None:
    held = remembering(most)
    for number in range(most):
        held.remember(f"d{number}", 1, 1.0)
    assert devices_of(held, most) == most
    held.remember(f"d{most}", 1, 1.0)
    assert devices_of(held, most + 1) == most - most // 64
    assert held.of(f"d{most}"), "the last one is not forgotten"


def test_devices_that_come_round_in_turn_are_mostly_known() -> None:
    """A memory that forgets the oldest would know none of them again, however few are too many."""
    held, known = remembering(1000), 0
    for lap in range(20):
        for number in range(1200):
            known += bool(held.of(f"d{number}"))
            held.remember(f"d{number}", 1, float(lap))
    assert known > 19 * 1200 / 3


def test_devices_that_stay_are_known_whoever_passes() -> None:
    """They are forgotten only if they were not detected since all claims became old."""
    held = remembering(1000)
    for number in range(100):
        held.remember(f"d{number}", 1, 1.0)
    forgotten = 0
    for passing in range(20_000):
        held.remember(f"passing {passing}", 1, 1.0)
        staying = f"d{passing % 100}"
        if not held.of(staying):
            forgotten += 1
            held.remember(staying, 1, 1.0)
    assert forgotten < 20_000 / 50


def test_of_many_claims_any_device_may_be_forgotten() -> None:
    """The memory has fewer devices than claims to forget, and still draws where it begins."""
    held = remembering(6400)
    for number in range(260):
        for campaign in range(1, 100):
            held.remember(f"d{number}", campaign, 1.0)
    forgotten = {number for number in range(260) if not held.of(f"d{number}")}
    assert forgotten, "there is room for 25,600, and these take 26,520"
    # By chance the first ones are drawn each time: once in some ten million runs.
    assert forgotten != set(range(len(forgotten)))


def test_all_partitions_forget() -> None:
    memory = ClaimMemory(1000)
    parts = [memory.for_assignment() for _ in range(4)]
    for part in parts:
        for number in range(250):
            part.remember(f"d{number}", 1, 1.0)
    for number in range(250, 300):
        parts[0].remember(f"d{number}", 1, 1.0)
    for part in parts[1:]:
        assert 200 < devices_of(part, 250) < 250


def test_of_brief_claims_half_of_the_bound_is_remembered():
    held = remembering(10)
    for number in range(5):
        held.remember(f"d{number}", 1, 1.0, until=9.0)
    assert held.of("d0")
    held.remember("d5", 1, 1.0, until=9.0)
    assert not held.of("d0")
    assert all(held.of(f"d{number}") for number in range(1, 6))


def test_the_smallest_memory_has_room_for_a_brief_claim():
    held = remembering(1)
    held.remember("d0", 1, 1.0, until=9.0)
    assert held.of("d0")


def test_a_new_claim_hides_none_of_an_older_generation():
    memory = ClaimMemory(100)
    held = memory.for_assignment()
    held.remember("d", 1, 100.0)
    held.grow_old()
    held.remember("d", 2, 200.0)
    assert dict(held.of("d")) == {1: 100.0, 2: 200.0}


def test_the_bound_is_that_of_the_process_whatever_its_partitions():
    memory = ClaimMemory(100)
    parts = [memory.for_assignment() for _ in range(50)]
    for number in range(2000):
        parts[number % 50].remember(f"d{number}", 1, float(number))
    assert sum(bool(part.of(f"d{n}")) for n in range(2000) for part in parts) <= 100


def test_a_device_takes_as_much_memory_as_three_claims():
    """So the bound is one of memory, however many claims each device has."""
    memory = ClaimMemory(100)
    part = memory.for_assignment()
    for campaign in range(1, 398):
        part.remember("one phone at many campaigns", campaign, 1.0)
    assert memory.held == len(part.of("one phone at many campaigns")) + 3 == 400
    for campaign in range(1, 3000):
        part.remember("one phone at many campaigns", campaign, 1.0)
        part.remember(f"phone {campaign}", campaign, 1.0)
    known = [len(part.of(f"phone {number}")) for number in range(3000)]
    assert sum(each + 3 for each in known if each) <= 400


def test_an_assignment_that_ends_leaves_room():
    memory = ClaimMemory(100)
    for _ in range(20):
        part = memory.for_assignment()
        for number in range(40):
            part.remember(f"d{number}", 1, 1.0, until=2.0 if number % 2 else None)
        part.forget_expired(3.0)
        part.close()
        part.close()
    assert memory.held == 0
    assert not memory._parts


HOURLY = campaign_of(id=1, delay=3600)
OTHER = campaign_of(id=2, delay=3600)
CALL = campaign_of(id=3, delay=3600, format="connector", content=None)


def having_read(claims: dict[int, float]) -> RememberedClaims:
    held = remembering(100)
    held.read("d", claims)
    assert held.was_read("d")
    return held


def test_a_read_claim_forbids_later_detections():
    held = having_read({1: 100.0})
    assert held.forbidding("d", [OTHER, HOURLY], 100.001) == {1: 100.0}


def test_a_claim_that_was_only_read_is_not_certain():
    """Its owner may wait behind the detection that it forbids, to be decided once more."""
    held = having_read({1: 100.0})
    assert held.forbidding("d", [HOURLY], 101.0)
    assert 1 not in held.of("d")
    assert not held.forbidding("d", [HOURLY], 100.0)


def test_a_read_claim_forbids_nothing_after_its_delay():
    held = having_read({1: 100.0})
    assert held.forbidding("d", [HOURLY], 3699.999)
    assert not held.forbidding("d", [HOURLY], 3700.0)


def test_a_read_claim_forbids_no_earlier_detection():
    held = having_read({1: 100.0})
    assert not held.forbidding("d", [HOURLY], 99.0)


def test_a_call_that_may_have_failed_is_requested_again():
    held = having_read({3: 100.0})
    assert not held.forbidding("d", [CALL], 101.0)


def test_an_answer_to_a_claim_counts_more_than_a_read_claim():
    held = having_read({1: 100.0})
    held.remember("d", 1, 100.0, until=105.0)
    held.forget_expired(105.0)
    assert not held.forbidding("d", [HOURLY], 101.0)
    held.remember("d", 1, 50.0)
    held.read("d", {1: 100.0})
    assert not held.forbidding("d", [HOURLY], 101.0)


def test_a_device_that_was_not_read_is_requested():
    held = remembering(100)
    held.remember("d", 1, 100.0)
    assert not held.was_read("d")
    assert not held.forbidding("d", [HOURLY], 101.0)
    assert not held.forbidding("unknown", [HOURLY], 101.0)


def test_read_claims_are_within_the_bound_and_are_read_again_once_forgotten():
    memory = ClaimMemory(100)
    part = memory.for_assignment()
    for number in range(300):
        part.read(f"d{number}", {1: 1.0, 2: 2.0})
        part.remember(f"d{number}", 2, 3.0)
    devices = [*part.young.values(), *part._old.values()]
    assert memory.held == sum(len(claims) + 3 for claims in devices) <= 4 * 100
    assert not part.was_read("d0")
    assert part.was_read("d299")


def test_claims_that_are_read_beside_known_ones_are_counted_once():
    memory = ClaimMemory(100)
    part = memory.for_assignment()
    part.remember("d", 1, 100.0)
    for _ in range(2):
        part.read("d", {1: 100.0, 2: 50.0})
        assert memory.held == len(part.of("d")) + 3
