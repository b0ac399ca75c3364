"""The queue of calls, compared with a plain model."""

from collections import Counter
from dataclasses import dataclass, field
from functools import partial

import pytest
from hypothesis import given
from hypothesis import strategies as st

from connectors.schedule import FairQueue


def queue(*, in_all: int = 100, per_company: int = 100) -> FairQueue[str]:
    return FairQueue(in_all=in_all, per_company=per_company)


def take_all(one: FairQueue[str]) -> list[str]:
    taken = []
    while (next_ := one.take()) is not None:
        taken.append(next_[1])
    return taken


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


COMPANIES = 4
ALL = range(1, COMPANIES + 1)
company = st.integers(1, COMPANIES)
steps = st.lists(
    st.tuples(
        st.sampled_from(
            [
                "add",
                "add_first",
                "take",
                "take",
                "take",
                "take_of",
                "finish",
                "hold",
                "release",
                "discard",
            ]
        ),
        company,
    ),
    min_size=12,
    max_size=60,
)


@dataclass
class PlainQueue:
    """The promises of FairQueue in a plain and slow form: no ring, no bookkeeping."""

    in_all: int
    per_company: int
    waiting: dict[int, list[int]] = field(default_factory=lambda: {c: [] for c in ALL})
    running: Counter[int] = field(default_factory=Counter)
    held: set[int] = field(default_factory=set)

    @property
    def free(self) -> int:
        return self.in_all - self.running.total()

    def may_start(self, company_id: int) -> bool:
        """It has an item and is not held; it uses no more than its slots, nor than it leaves free
        beside the eighth that is kept for companies that use none.
        """
        mine = self.running[company_id]
        return (
            bool(self.waiting[company_id])
            and company_id not in self.held
            and self.free > 0
            and mine < self.per_company
            and (mine == 0 or mine < self.free - self.in_all // 8)
        )

    def start(self, company_id: int) -> int:
        self.running[company_id] += 1
        return self.waiting[company_id].pop(0)


@given(
    steps=steps,
    waiting=st.lists(st.integers(0, 10), min_size=COMPANIES, max_size=COMPANIES),
    in_all=st.sampled_from([1, 3, 7, 8, 14, 16]),
    per_company=st.integers(2, 12),
)
def test_the_queue_returns_what_its_model_allows(
    steps: list[tuple[str, int]], waiting: list[int], in_all: int, per_company: int
) -> None:
    queue: FairQueue[int] = FairQueue(in_all=in_all, per_company=per_company)
    plain = PlainQueue(in_all, per_company)
    steps = [("add", of) for of in ALL for _ in range(waiting[of - 1])] + steps
    for number, (step, of) in enumerate(steps):
        if step in ("add", "add_first"):
            queue.add(of, number, first=step == "add_first")
            plain.waiting[of].insert(0 if step == "add_first" else len(plain.waiting[of]), number)
        elif step == "take":
            _take_both(queue, plain)
        elif step == "take_of":
            has_one = bool(plain.waiting[of]) and plain.free > 0
            assert queue.take_of(of) == (plain.start(of) if has_one else None)
        elif step == "finish" and plain.running[of]:
            queue.finish(of)
            plain.running[of] -= 1
        elif step == "hold":
            queue.pause(of)
            plain.held.add(of)
        elif step == "discard":
            unwanted = plain.waiting[of][::2]
            # (A predicate is asked once for each item: it may read a clock.)
            asked = Counter[int]()
            removed = queue.discard(partial(_is_unwanted, asked, unwanted))
            assert sorted(removed) == sorted(unwanted)
            plain.waiting[of] = [item for item in plain.waiting[of] if item not in unwanted]
        elif step == "release":
            queue.resume(of)
            plain.held.discard(of)
        assert queue.free == plain.free
        for each in ALL:
            assert queue.paused().get(each, bool(plain.waiting[each])) == bool(plain.waiting[each])


def _is_unwanted(asked: Counter[int], unwanted: list[int], item: int) -> bool:
    asked[item] += 1
    assert asked[item] == 1
    return item in unwanted


def _take_both(queue: FairQueue[int], plain: PlainQueue) -> None:
    may_start = {each for each in ALL if plain.may_start(each)}
    taken = queue.take()
    if taken is None:
        assert not may_start
        return
    company_id, item = taken
    assert company_id in may_start
    assert item == plain.start(company_id)


@given(st.lists(st.integers(1, 8), min_size=COMPANIES, max_size=COMPANIES), st.data())
def test_none_starts_a_second_call_first(items: list[int], data: st.DataObject) -> None:
    """While several companies wait none starts a second call before the others start one more."""
    queue: FairQueue[int] = FairQueue(in_all=100, per_company=100)
    order = data.draw(st.permutations([each for each in ALL for _ in range(items[each - 1])]))
    for number, company_id in enumerate(order):
        queue.add(company_id, number)
    left, started = Counter(order), Counter[int]()
    while (taken := queue.take()) is not None:
        started[taken[0]] += 1
        left[taken[0]] -= 1
        queue.finish(taken[0])
        waiting = [started[each] for each in ALL if left[each]]
        assert not waiting or max(waiting) - min(waiting) <= 1
    assert left.total() == 0
