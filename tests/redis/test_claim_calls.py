"""The script calls of requests: each is bounded, together they are what was asked."""

from hypothesis import given
from hypothesis import strategies as st

from engine.redis.claims import REQUEST_BYTES, DeviceRequests, calls_of_requests

MOST_TAKEN, MOST_READ = 2000, 32

# The number of requests of each device, and whether its claims are read.
devices = st.lists(
    st.tuples(st.sampled_from([1, 2, 40, 1999, 2000, 2001, 4100]), st.booleans()), max_size=12
)
small = st.lists(st.tuples(st.integers(1, 3), st.booleans()), max_size=120)


def asked(made: list[tuple[int, bool]]) -> list[DeviceRequests]:
    return [
        DeviceRequests(
            f"phone {number}",
            b"".join(each.to_bytes(REQUEST_BYTES, "big") for each in range(count)),
            is_read,
        )
        for number, (count, is_read) in enumerate(made)
    ]


@given(devices | small, st.booleans())
def test_each_call_is_bounded_and_nothing_is_left_out(
    made: list[tuple[int, bool]], clustered: bool
) -> None:
    requested = asked(made)
    calls = list(calls_of_requests(requested, clustered=clustered))
    for call in calls:
        assert 0 < sum(len(part.packed) for _, part in call) <= MOST_TAKEN * REQUEST_BYTES
        assert sum(part.read for _, part in call) <= MOST_READ
    for number, device in enumerate(requested):
        own = [part for call in calls for position, part in call if position == number]
        assert {part.udid for part in own} == {device.udid}
        assert b"".join(part.packed for part in own) == device.packed
        assert sum(part.read for part in own) == device.read


def test_a_call_is_no_smaller_than_it_must_be() -> None:
    """Each costs Redis and the process time of its own."""
    read, unread = asked([(1, True)] * 320), asked([(1, False)] * 320)
    assert [len(call) for call in calls_of_requests(read, clustered=False)] == [32] * 10
    assert [len(call) for call in calls_of_requests(unread, clustered=False)] == [320]
