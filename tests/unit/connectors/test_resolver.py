"""Look-ups: one thread and one result for each name; no name waits for another."""

import asyncio
import threading
from collections import Counter
from collections.abc import Sequence

import pytest

from connectors.resolver import CachingResolver, resolving_company
from tests.servers.waiting import eventually


class Server:
    """A name server in whose hands it lies when a name is answered."""

    def __init__(self) -> None:
        self.requested: Counter[str] = Counter()
        self.release = threading.Event()

    def look_up(self, host: str) -> Sequence[str]:
        self.requested[host] += 1
        if host.startswith("slow"):
            self.release.wait(20)
        if host.startswith("missing"):
            raise OSError("no such host")
        return [f"{host} {self.requested[host]}"]


async def test_all_who_ask_wait_for_one_look_up() -> None:
    server = Server()
    names = CachingResolver(look_up=server.look_up)
    requests = [asyncio.create_task(names("slow", 80)) for _ in range(50)]
    await eventually(lambda: server.requested["slow"])
    assert await names("quick", 80) == ["quick 1"]
    requests[0].cancel()
    server.release.set()
    answers = await asyncio.gather(*requests, return_exceptions=True)
    assert isinstance(answers[0], asyncio.CancelledError)
    assert answers[1:] == [["slow 1"]] * 49
    assert server.requested["slow"] == 1


async def look_up_as(company_id: int, names: CachingResolver, host: str) -> Sequence[str]:
    resolving_company.set(company_id)
    return await names(host, 80)


async def test_names_that_hang_keep_no_other_waiting() -> None:
    server = Server()
    names = CachingResolver(look_up=server.look_up)
    hanging = [
        asyncio.create_task(look_up_as(number, names, f"slow {number} {name}"))
        for number in range(15)
        for name in range(4)
    ]
    await eventually(lambda: len(server.requested) == 60)
    assert await look_up_as(99, names, "quick") == ["quick 1"]
    server.release.set()
    await asyncio.gather(*hanging)


async def test_a_company_has_few_names_looked_up_at_once() -> None:
    server = Server()
    names = CachingResolver(look_up=server.look_up)
    hanging = [asyncio.create_task(look_up_as(1, names, f"slow {number}")) for number in range(4)]
    await eventually(lambda: len(server.requested) == 4)
    with pytest.raises(OSError, match="too many names"):
        await look_up_as(1, names, "slow 5")
    waiting = asyncio.create_task(look_up_as(1, names, "slow 1"))
    assert await look_up_as(2, names, "quick") == ["quick 1"]
    server.release.set()
    assert await waiting == ["slow 1 1"]
    await asyncio.gather(*hanging)
    assert await look_up_as(1, names, "quick 2") == ["quick 2 1"]


async def test_the_process_has_no_more_threads_than_it_may() -> None:
    """While all threads hang, a look-up waits until its own deadline and takes no thread."""
    server = Server()
    names = CachingResolver(look_up=server.look_up, threads=8)
    before = threading.active_count()
    hanging = [asyncio.create_task(names(f"slow {number}", 80)) for number in range(100)]
    await eventually(lambda: len(server.requested) == 8)
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.05):
            await names("quick", 80)
    assert threading.active_count() - before <= 8
    server.release.set()
    await asyncio.gather(*hanging)
    assert await names("quick", 80) == ["quick 1"]


@pytest.mark.parametrize(("remember", "looked_up"), [(60.0, 1), (0.0, 2)])
async def test_an_answer_is_remembered_for_a_while(remember: float, looked_up: int) -> None:
    server = Server()
    names = CachingResolver(look_up=server.look_up, cache_seconds=remember)
    assert [await names("a", 80), await names("a", 443)] == [["a 1"], [f"a {looked_up}"]]


async def test_a_failure_is_remembered_too() -> None:
    server = Server()
    names = CachingResolver(look_up=server.look_up)
    for _ in range(3):
        with pytest.raises(OSError, match="no such host"):
            await names("missing", 80)
    assert server.requested["missing"] == 1
