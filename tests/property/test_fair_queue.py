"""The queue of calls and the room for them, compared with a plain model."""

from collections import Counter
from dataclasses import dataclass, field

from hypothesis import given
from hypothesis import strategies as st

from connectors.fair_queue import AdmissionControl, FairQueue

COMPANIES = 4
ALL = range(1, COMPANIES + 1)
company = st.integers(1, COMPANIES)
steps = st.lists(
    st.tuples(
        st.sampled_from(
            ["add", "add_first", "take", "take", "take", "take_of", "finish", "hold", "release"]
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
            getattr(queue, step)(of, number)
            plain.waiting[of].insert(0 if step == "add_first" else len(plain.waiting[of]), number)
        elif step == "take":
            _take(queue, plain)
        elif step == "take_of":
            has_one = bool(plain.waiting[of]) and plain.free > 0
            assert queue.take_of(of) == (plain.start(of) if has_one else None)
        elif step == "finish" and plain.running[of]:
            queue.finish(of)
            plain.running[of] -= 1
        elif step == "hold":
            queue.pause(of)
            plain.held.add(of)
        elif step == "release":
            queue.resume(of)
            plain.held.discard(of)
        assert queue.free == plain.free
        assert queue.waiting == sum(map(len, plain.waiting.values()))
        for each in ALL:
            assert queue.has_waiting(each) == bool(plain.waiting[each])


def _take(queue: FairQueue[int], plain: PlainQueue) -> None:
    may_start = {each for each in ALL if plain.may_start(each)}
    taken = queue.take()
    if taken is None:
        assert not may_start
        return
    company_id, item = taken
    assert company_id in may_start
    assert item == plain.start(company_id)


@given(st.lists(st.integers(1, 8), min_size=COMPANIES, max_size=COMPANIES), st.data())
def test_companies_take_turns(items: list[int], data: st.DataObject) -> None:
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


@given(most=st.integers(1, 60), calls=st.lists(st.tuples(st.booleans(), company), max_size=120))
def test_room_for_calls(most: int, calls: list[tuple[bool, int]]) -> None:
    """A company has room while it has fewer calls than there is room left for all."""
    admission, plain = AdmissionControl(most), Counter[int]()
    for arrives, of in calls:
        if arrives:
            fits = plain[of] < most - plain.total()
            assert admission.admit(of) == fits
            plain[of] += fits
        elif plain[of]:
            admission.leave(of)
            plain[of] -= 1
        assert (admission.total, admission.of(of)) == (plain.total(), plain[of])
        assert plain.total() <= most


@given(most=st.integers(2, 1000), hanging=st.integers(1, 8))
def test_a_company_leaves_half_of_the_room_to_others(most: int, hanging: int) -> None:
    admission, room = AdmissionControl(most), most
    for each in range(hanging):
        while admission.admit(each):
            pass
        room //= 2
        assert most - admission.total == room
