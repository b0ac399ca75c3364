"""No waiting call is lost, in any order of adding, pausing, taking, finishing and sweeping."""

from itertools import count

from hypothesis import given, settings
from hypothesis import strategies as st

from connectors.fair_queue import FairQueue

COMPANIES = 4
company = st.integers(1, COMPANIES)
steps = st.lists(
    st.one_of(
        st.tuples(st.just("add"), company),
        st.tuples(st.just("add_first"), company),
        st.tuples(st.just("take"), company),
        st.tuples(st.just("take_of"), company),
        st.tuples(st.just("pause"), company),
        st.tuples(st.just("resume"), company),
        st.tuples(st.just("finish"), company),
        st.tuples(st.just("sweep"), st.lists(st.booleans(), max_size=8)),
    ),
    max_size=60,
)


class Bookkeeping:
    """The queue, with a record of where each item must be."""

    def __init__(self, *, in_all: int, per_company: int) -> None:
        self.queue: FairQueue[int] = FairQueue(in_all=in_all, per_company=per_company)
        self.waiting: dict[int, int] = {}
        self.running: dict[int, int] = {}
        self.swept: set[int] = set()
        self._in_all = in_all
        self._numbers = count()

    def add(self, to: int, *, first: bool) -> None:
        number = next(self._numbers)
        (self.queue.add_first if first else self.queue.add)(to, number)
        self.waiting[number] = to

    def take(self) -> None:
        if (taken := self.queue.take()) is not None:
            self._begin(*taken)

    def take_of(self, of: int) -> None:
        if (item := self.queue.take_of(of)) is not None:
            self._begin(of, item)

    def finish(self, of: int) -> None:
        for item, company_id in list(self.running.items()):
            if company_id == of:
                del self.running[item]
                self.queue.finish(of)
                return

    def sweep(self, answers: list[bool]) -> None:
        """By a predicate whose result may change with each call, as that of a clock does."""
        next_answers = iter(answers)
        for item in self.queue.discard(lambda _item: next(next_answers, False)):
            del self.waiting[item]  # KeyError: it was not waiting, or it was given out twice
            self.swept.add(item)

    def check(self) -> None:
        assert self.queue.waiting == len(self.waiting)
        assert self.queue.free == self._in_all - len(self.running)

    def drain(self) -> None:
        """Run everything to the end: each waiting item must be taken."""
        for one in range(1, COMPANIES + 1):
            self.queue.resume(one)
        while self.waiting or self.running:
            before = len(self.waiting)
            self.take()
            if len(self.waiting) == before:
                assert self.running, f"lost: {sorted(self.waiting)}"
                self.finish(next(iter(self.running.values())))
        assert self.queue.take() is None
        assert list(self.queue.companies()) == []

    def _begin(self, company_id: int, item: int) -> None:
        assert self.waiting.pop(item) == company_id
        self.running[item] = company_id


@settings(max_examples=300, deadline=None)
@given(steps=steps, in_all=st.integers(1, 9), per_company=st.integers(1, 4))
def test_no_item_is_lost(
    steps: list[tuple[str, int | list[bool]]], in_all: int, per_company: int
) -> None:
    one = Bookkeeping(in_all=in_all, per_company=per_company)
    for what, of in steps:
        if isinstance(of, list):
            one.sweep(of)
        elif what in ("add", "add_first"):
            one.add(of, first=what == "add_first")
        elif what == "take":
            one.take()
        elif what in ("pause", "resume"):
            getattr(one.queue, what)(of)
        else:
            getattr(one, what)(of)
        one.check()
    one.drain()


def test_a_sweep_at_the_edge_of_a_second() -> None:
    """A clock that moves on between two readings: 25,000 calls that grow old as they are swept."""
    queue: FairQueue[int] = FairQueue(in_all=8, per_company=8)
    for number in range(25_000):
        queue.add(1, number)
    readings = count()

    def is_old(number: int) -> bool:
        return number < next(readings) / 2

    removed = queue.discard(is_old)
    left = []
    while (taken := queue.take()) is not None:
        left.append(taken[1])
        queue.finish(1)
    assert len(removed) + len(left) == 25_000
    assert {*removed, *left} == set(range(25_000))
