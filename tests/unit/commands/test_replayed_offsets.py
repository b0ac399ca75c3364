import pytest
from aiokafka.structs import OffsetAndMetadata

from engine.cli.dead_letters.replay import ReplayedOffsets


def again(replayed: ReplayedOffsets) -> ReplayedOffsets:
    return ReplayedOffsets.read(replayed.committed())


def test_nothing_committed_is_nothing_replayed() -> None:
    assert ReplayedOffsets.read(None) == ReplayedOffsets()
    replayed = ReplayedOffsets.read(OffsetAndMetadata(-1, ""))
    assert replayed.start(None) == replayed.start("malformed_json") == 0
    assert not replayed.includes(0, "malformed_json")


def test_all_of_a_partition() -> None:
    replayed = ReplayedOffsets()
    replayed.advance(None, 5)
    replayed = again(replayed)
    assert replayed.includes(4, "too_large")
    assert not replayed.includes(5, "too_large")
    assert replayed.start("too_large") == 5


def test_one_reason_leaves_the_others_open() -> None:
    replayed = ReplayedOffsets()
    replayed.advance(None, 2)
    replayed.advance("malformed_json", 7)
    replayed = again(replayed)
    assert replayed.includes(6, "malformed_json")
    assert not replayed.includes(6, "invalid_field")
    assert (replayed.start(None), replayed.start("malformed_json")) == (2, 7)
    replayed.advance(None, 8)
    assert replayed.committed().metadata == ""


def test_the_offset_never_decreases() -> None:
    replayed = ReplayedOffsets(everything=9, by_reason={"too_large": 12})
    replayed.advance(None, 3)
    replayed.advance("too_large", 4)
    assert replayed == ReplayedOffsets(everything=9, by_reason={"too_large": 12})


@pytest.mark.parametrize("metadata", ["", "not json", "[1]", '{"a": "b"}'])
def test_offset_metadata_of_another_tool_is_ignored(metadata: str) -> None:
    assert ReplayedOffsets.read(OffsetAndMetadata(3, metadata)) == ReplayedOffsets(everything=3)
