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
    """Requests whose positions count through all devices."""
    found, before = list[DeviceRequests](), 0
    for number, (count, _) in enumerate(made):
        positions = list(range(before, before + count))
        packed = b"".join(each.to_bytes(REQUEST_BYTES, "big") for each in positions)
        found.append(DeviceRequests(f"phone {number}", positions, packed))
        before += count
    return found


@given(devices | small, st.booleans())
def test_each_call_is_bounded_and_nothing_is_left_out(
    made: list[tuple[int, bool]], clustered: bool
) -> None:
    requested = asked(made)
    read = {each.udid for each, (_, is_read) in zip(requested, made, strict=True) if is_read}
    calls = list(calls_of_requests(requested, read, clustered=clustered))
    for call in calls:
        assert 0 < sum(len(each.positions) for each in call) <= MOST_TAKEN
        assert sum(each.udid in read for each in call) <= MOST_READ
    parts = [part for call in calls for part in call]
    for device in requested:
        own = [part for part in parts if part.udid == device.udid]
        assert [place for part in own for place in part.positions] == device.positions
        assert b"".join(part.packed for part in own) == device.packed
    assert len(parts) >= len(requested)


def test_a_call_is_no_smaller_than_it_must_be() -> None:
    """Each costs Redis and the process time of its own."""
    many = asked([(1, True)] * 320)
    read = {each.udid for each in many}
    assert [len(call) for call in calls_of_requests(many, read, clustered=False)] == [32] * 10
    assert [len(call) for call in calls_of_requests(many, (), clustered=False)] == [320]
