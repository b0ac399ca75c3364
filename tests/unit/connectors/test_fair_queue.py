"""Which company's call is next."""

from collections import Counter

import pytest

from connectors.fair_queue import AdmissionControl, FairQueue


def queue(*, in_all: int = 100, per_company: int = 100) -> FairQueue[str]:
    return FairQueue(in_all=in_all, per_company=per_company)


def take_all(one: FairQueue[str]) -> list[str]:
    taken = []
    while (next_ := one.take()) is not None:
        taken.append(next_[1])
    return taken


def test_companies_take_turns() -> None:
    one = queue()
    for item in ("a1", "a2", "a3"):
        one.add(1, item)
    for item in ("b1", "b2"):
        one.add(2, item)
    assert take_all(one) == ["a1", "b1", "a2", "b2", "a3"]


def test_ten_thousand_of_one_company_do_not_delay_another() -> None:
    one = queue(in_all=512, per_company=32)
    for number in range(10_000):
        one.add(1, f"a{number}")
    assert len(take_all(one)) == 32
    one.add(2, "b")
    assert take_all(one) == ["b"]


def test_a_company_runs_at_most_its_share_and_continues_when_a_call_ends() -> None:
    one = queue(per_company=2)
    for item in ("a1", "a2", "a3"):
        one.add(1, item)
    assert take_all(one) == ["a1", "a2"]
    one.finish(1)
    assert take_all(one) == ["a3"]


def test_in_all_no_more_than_there_are_slots() -> None:
    one = queue(in_all=3)
    for company in range(10):
        one.add(company, f"{company}")
    assert take_all(one) == ["0", "1", "2"]
    assert one.take_of(5) is None
    one.finish(1)
    assert take_all(one) == ["3"]


@pytest.mark.parametrize("at_once", [False, True])
@pytest.mark.parametrize("hanging", [1, 3, 16, 70])
def test_though_many_hang_the_next_company_finds_a_slot(hanging: int, at_once: bool) -> None:
    one = queue(in_all=512, per_company=32)
    taken: list[str] = []
    for company in range(hanging):
        for number in range(100):
            one.add(company, f"{company}-{number}")
        taken += [] if at_once else take_all(one)
    taken += take_all(one)
    running = Counter(item.partition("-")[0] for item in taken)
    assert len(running) == hanging
    assert sum(running.values()) < 512
    one.add(9999, "healthy")
    assert take_all(one) == ["healthy"]


def test_a_company_that_is_held_waits_and_keeps_its_order() -> None:
    one = queue()
    one.pause(1)
    for item in ("a1", "a2"):
        one.add(1, item)
    one.add(2, "b1")
    assert take_all(one) == ["b1"]
    one.add_first(1, "a0")
    assert one.take_of(1) == "a0"
    assert take_all(one) == []
    one.resume(1)
    assert take_all(one) == ["a1", "a2"]


def test_discarded_items_do_not_run() -> None:
    one = queue()
    for number in range(6):
        one.add(number % 2, f"{number}")
    assert sorted(one.discard(lambda item: int(item) < 3)) == ["0", "1", "2"]
    assert one.waiting == 3
    assert sorted(take_all(one)) == ["3", "4", "5"]


def test_nothing_is_left_of_companies_that_are_done() -> None:
    one = queue()
    for company in range(50):
        one.add(company, "x")
    for company in range(50):
        one.take()
        one.finish(company)
    one.add(1, "y")
    one.discard(lambda _item: True)
    one.take()
    one.pause(3)
    one.resume(3)
    assert list(one.companies()) in ([], [1])
    assert (one.free, one.waiting) == (100, 0)


def test_a_company_alone_may_hold_half_of_all() -> None:
    intake = AdmissionControl(1000)
    assert sum(intake.admit(1) for _ in range(2000)) == 500


@pytest.mark.parametrize("hanging", [1, 9, 99])
def test_however_many_hang_there_is_room_for_the_next(hanging: int) -> None:
    intake = AdmissionControl(10_000)
    for _ in range(10_000):
        for company in range(hanging):
            intake.admit(company)
    room = 10_000 - intake.total
    assert room >= 10_000 // (hanging + 1) - hanging
    assert intake.admit(9999)


def test_room_is_released() -> None:
    intake = AdmissionControl(2)
    assert [intake.admit(1), intake.admit(1)] == [True, False]
    intake.leave(1)
    assert (intake.total, intake.of(1)) == (0, 0)
    assert intake.admit(1)
