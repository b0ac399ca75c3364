"""The records that a worker takes next: as many fetches as fit."""

from collections import deque
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from engine.kafka.partition_worker import next_batch


@given(st.lists(st.integers(1, 9), min_size=1, max_size=30), st.integers(1, 20))
def test_batches_keep_the_order_and_are_as_large_as_they_may_be(
    sizes: list[int], most: int
) -> None:
    numbers = iter(range(sum(sizes)))
    fetches: list[Any] = [[next(numbers) for _ in range(size)] for size in sizes]
    queue, batches = deque(fetches), list[Any]()
    while queue:
        fetched = queue[0]
        batches.append(batch := next_batch(queue, most))
        assert len(batch) <= most or batch == fetched
        assert not queue or len(batch) + len(queue[0]) > most
    assert [each for batch in batches for each in batch] == list(range(sum(sizes)))
    assert [len(each) for each in fetches] == sizes, "the fetches are not changed"
