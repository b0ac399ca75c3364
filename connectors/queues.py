"""Whose turn it is: calls queue by company, and companies take turns. Pure."""

from collections import deque
from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass, field
from typing import Generic, TypeVar

Item = TypeVar("Item")


@dataclass(slots=True)
class _Company(Generic[Item]):
    waiting: deque[Item] = field(default_factory=deque)
    running: int = 0
    held: bool = False
    in_ring: bool = False


class FairQueue(Generic[Item]):
    """At most `in_all` items run, at most `per_company` of one company, companies in turn.

    When slots run short a company may run no more than it leaves free, and the last eighth of the
    slots is for companies that run nothing yet: though dozens hang, the next one finds a slot.
    A company that is held waits; its items keep their order.
    """

    def __init__(self, *, in_all: int, per_company: int) -> None:
        self.free = in_all
        self.waiting = 0
        self._per_company = per_company
        self._kept_back = in_all // 8
        self._companies: dict[int, _Company[Item]] = {}
        self._ring: deque[int] = deque()

    def add(self, company_id: int, item: Item) -> None:
        """Behind the company's others."""
        company = self._company(company_id)
        company.waiting.append(item)
        self.waiting += 1
        self._enter(company_id, company)

    def add_first(self, company_id: int, item: Item) -> None:
        """Before the company's others: it has waited elsewhere."""
        company = self._company(company_id)
        company.waiting.appendleft(item)
        self.waiting += 1
        self._enter(company_id, company)

    def take(self, but: Collection[int] = ()) -> tuple[int, Item] | None:
        """The next item to run, if one may, `but` none of these companies. Say `finished` when it
        has."""
        for _ in range(len(self._ring) if self.free else 0):
            company_id = self._ring.popleft()
            company = self._companies[company_id]
            company.in_ring = False
            if not self._is_ready(company):
                self._tidy(company_id, company)
                continue
            is_crowding = company.running and company.running >= self.free - self._kept_back
            if is_crowding or company_id in but:
                self._enter(company_id, company)
                continue
            return company_id, self._start(company_id, company)
        return None

    def take_of(self, company_id: int) -> Item | None:
        """The company's next item, also while it is held, if there is one and a slot."""
        company = self._companies.get(company_id)
        if company is None or not company.waiting or not self.free:
            return None
        return self._start(company_id, company)

    def finished(self, company_id: int) -> None:
        """An item that was taken has ended."""
        company = self._companies[company_id]
        company.running -= 1
        self.free += 1
        self._enter(company_id, company)
        self._tidy(company_id, company)

    def hold(self, company_id: int) -> None:
        """Let the company wait."""
        self._company(company_id).held = True

    def release(self, company_id: int) -> None:
        """Let it take its turns again."""
        company = self._companies.get(company_id)
        if company is not None:
            company.held = False
            self._enter(company_id, company)
            self._tidy(company_id, company)

    def has_waiting(self, company_id: int) -> bool:
        """Whether the company has an item that waits."""
        company = self._companies.get(company_id)
        return company is not None and bool(company.waiting)

    def discard(self, unwanted: Callable[[Item], bool]) -> list[Item]:
        """Take out the items that wait and are `unwanted`; the others keep their order."""
        gone: list[Item] = []
        for company_id, company in list(self._companies.items()):
            kept: deque[Item] = deque()
            for item in company.waiting:
                # Asked once an item: a clock that moves on may answer otherwise the next time.
                (gone if unwanted(item) else kept).append(item)
            self.waiting -= len(company.waiting) - len(kept)
            company.waiting = kept
            self._tidy(company_id, company)
        return gone

    def companies(self) -> Iterator[int]:
        """Those that have an item waiting or running, or are held."""
        return iter(self._companies)

    def _company(self, company_id: int) -> _Company[Item]:
        return self._companies.setdefault(company_id, _Company())

    def _is_ready(self, company: _Company[Item]) -> bool:
        return bool(company.waiting) and not company.held and company.running < self._per_company

    def _enter(self, company_id: int, company: _Company[Item]) -> None:
        if not company.in_ring and self._is_ready(company):
            company.in_ring = True
            self._ring.append(company_id)

    def _start(self, company_id: int, company: _Company[Item]) -> Item:
        item = company.waiting.popleft()
        company.running += 1
        self.free -= 1
        self.waiting -= 1
        self._enter(company_id, company)
        return item

    def _tidy(self, company_id: int, company: _Company[Item]) -> None:
        if not (company.waiting or company.running or company.held or company.in_ring):
            del self._companies[company_id]
