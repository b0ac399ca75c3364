import pytest

from engine.cli.dead_letters.replayed import Settled


def again(settled: Settled) -> Settled:
    return Settled.read(settled.everything, settled.metadata)


def test_nothing_committed_is_nothing_settled() -> None:
    settled = Settled.read(-1, None)
    assert settled.start(None) == settled.start("malformed_json") == 0
    assert not settled.includes(0, "malformed_json")


def test_all_of_a_partition() -> None:
    settled = Settled()
    settled.advance(None, 5)
    settled = again(settled)
    assert settled.includes(4, "too_large")
    assert not settled.includes(5, "too_large")
    assert settled.start("too_large") == 5


def test_one_reason_leaves_the_others_open() -> None:
    settled = Settled()
    settled.advance(None, 2)
    settled.advance("malformed_json", 7)
    settled = again(settled)
    assert settled.includes(6, "malformed_json")
    assert not settled.includes(6, "invalid_field")
    assert (settled.start(None), settled.start("malformed_json")) == (2, 7)
    settled.advance(None, 8)
    assert settled.metadata == ""


def test_it_never_goes_back() -> None:
    settled = Settled(everything=9, by_reason={"too_large": 12})
    settled.advance(None, 3)
    settled.advance("too_large", 4)
    assert settled == Settled(everything=9, by_reason={"too_large": 12})


@pytest.mark.parametrize("metadata", ["", "not json", "[1]", '{"a": "b"}'])
def test_what_another_tool_wrote_beside_the_offset_is_ignored(metadata: str) -> None:
    assert Settled.read(3, metadata) == Settled(everything=3)
