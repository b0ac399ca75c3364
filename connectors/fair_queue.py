"""Shares a process's slots for calls in flight, and its room for calls, among companies. Pure."""

from collections import Counter, deque
from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass, field
from typing import Generic, TypeVar

Item = TypeVar("Item")


@dataclass(slots=True)
class _Company(Generic[Item]):
    waiting: deque[Item] = field(default_factory=deque)
    running: int = 0
    is_paused: bool = False
    in_ring: bool = False


class FairQueue(Generic[Item]):
    """Gives out at most `in_all` slots, at most `per_company` to one company, companies in turn.

    When slots run short, a company may use no more slots than are free. The last eighth of the
    slots is for companies that use none yet, so a company finds a slot even while the services of
    dozens of companies hang. The items of a held company wait and keep their order.
    """

    def __init__(self, *, in_all: int, per_company: int) -> None:
        self.free = in_all
        self.waiting = 0
        self._per_company = per_company
        self._reserved = in_all // 8
        self._companies: dict[int, _Company[Item]] = {}
        self._ring: deque[int] = deque()

    def add(self, company_id: int, item: Item) -> None:
        """Queue the item behind the company's others."""
        company = self._company(company_id)
        company.waiting.append(item)
        self.waiting += 1
        self._enter(company_id, company)

    def add_first(self, company_id: int, item: Item) -> None:
        """Queue the item before the company's others, because it is a retry and has waited."""
        company = self._company(company_id)
        company.waiting.appendleft(item)
        self.waiting += 1
        self._enter(company_id, company)

    def take(self, but: Collection[int] = ()) -> tuple[int, Item] | None:
        """The next item to run, or None without an item or a free slot. Skips the companies `but`.

        `finish` frees the slot.
        """
        for _ in range(len(self._ring) if self.free else 0):
            company_id = self._ring.popleft()
            company = self._companies[company_id]
            company.in_ring = False
            if not self._is_ready(company):
                self._forget_if_idle(company_id, company)
                continue
            is_crowding = company.running and company.running >= self.free - self._reserved
            if is_crowding or company_id in but:
                self._enter(company_id, company)
                continue
            item = self._start(company)
            self._enter(company_id, company)
            return company_id, item
        return None

    def take_of(self, company_id: int) -> Item | None:
        """The next item of a company, paused or not; None without an item or a free slot."""
        company = self._companies.get(company_id)
        if company is None or not company.waiting or not self.free:
            return None
        return self._start(company)

    def finish(self, company_id: int) -> None:
        """An item that was taken has ended: its slot is free."""
        company = self._companies[company_id]
        company.running -= 1
        self.free += 1
        self._enter(company_id, company)
        self._forget_if_idle(company_id, company)

    def pause(self, company_id: int) -> None:
        """Take no items of the company until `resume`."""
        self._company(company_id).is_paused = True

    def resume(self, company_id: int) -> None:
        company = self._companies.get(company_id)
        if company is not None:
            company.is_paused = False
            self._enter(company_id, company)
            self._forget_if_idle(company_id, company)

    def has_waiting(self, company_id: int) -> bool:
        company = self._companies.get(company_id)
        return company is not None and bool(company.waiting)

    def discard(self, unwanted: Callable[[Item], bool]) -> list[Item]:
        """Remove the waiting items for which `unwanted(item)` is true; the order stays."""
        removed: list[Item] = []
        for company in self._companies.values():
            remaining: deque[Item] = deque()
            for item in company.waiting:
                # `unwanted` may read a clock, so a second call could give another answer.
                (removed if unwanted(item) else remaining).append(item)
            self.waiting -= len(company.waiting) - len(remaining)
            company.waiting = remaining
        return removed

    def companies(self) -> Iterator[int]:
        """The companies that have an item waiting or running, or are paused."""
        return iter(self._companies)

    def _company(self, company_id: int) -> _Company[Item]:
        return self._companies.setdefault(company_id, _Company())

    def _is_ready(self, company: _Company[Item]) -> bool:
        return (
            bool(company.waiting) and not company.is_paused and company.running < self._per_company
        )

    def _enter(self, company_id: int, company: _Company[Item]) -> None:
        if not company.in_ring and self._is_ready(company):
            company.in_ring = True
            self._ring.append(company_id)

    def _start(self, company: _Company[Item]) -> Item:
        item = company.waiting.popleft()
        company.running += 1
        self.free -= 1
        self.waiting -= 1
        return item

    def _forget_if_idle(self, company_id: int, company: _Company[Item]) -> None:
        if not (company.waiting or company.running or company.is_paused or company.in_ring):
            del self._companies[company_id]


class AdmissionControl:
    """Bounds the unfinished calls of each company and of all companies.

    A company may have at most as many calls as there is free room (the dynamic threshold of
    Choudhury and Hahne). So a company whose service hangs leaves half of the room that it found.
    """

    def __init__(self, most: int) -> None:
        self.total = 0
        self._most = most
        self._of: Counter[int] = Counter()

    def admit(self, company_id: int) -> bool:
        """Count one more call of the company, if there is room for it."""
        if self._of[company_id] >= self._most - self.total:
            return False
        self._of[company_id] += 1
        self.total += 1
        return True

    def leave(self, company_id: int) -> None:
        """A call of the company has ended."""
        self.total -= 1
        self._of[company_id] -= 1
        if not self._of[company_id]:
            del self._of[company_id]

    def of(self, company_id: int) -> int:
        """How many calls the company has."""
        return self._of[company_id]
