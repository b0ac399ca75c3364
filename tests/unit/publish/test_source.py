import os
from pathlib import Path

import pytest

from engine.cli.publish import source as source_module
from engine.cli.publish.source import InputFaultError, Lines, Source, numbered_lines, opened


async def all_lines(source: Source) -> Lines:
    return [line async for lines in numbered_lines(source) for line in lines]


async def test_lines_are_numbered_and_lose_their_ends_only(tmp_path: Path) -> None:
    file = tmp_path / "a.jsonl"
    file.write_bytes(b" one \r\n\ntwo\nthree")
    with opened(file) as source:
        assert source.size == 17
        assert await all_lines(source) == [(1, b" one "), (2, b""), (3, b"two"), (4, b"three")]


async def test_lines_across_blocks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(source_module, "BLOCK", 5)
    file = tmp_path / "a.jsonl"
    written = [b"x" * (n % 13) for n in range(200)]
    file.write_bytes(b"\n".join(written) + b"\n")
    with opened(file) as source:
        assert await all_lines(source) == list(enumerate(written, start=1))


async def test_an_endless_line_is_a_fault(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(source_module, "LONGEST_LINE", 1000)
    file = tmp_path / "a.jsonl"
    file.write_bytes(b"short\n" + b"x" * 2000)
    with (
        opened(file) as source,
        pytest.raises(InputFaultError, match=r"a\.jsonl:2: longer than 1000 bytes"),
    ):
        await all_lines(source)


async def test_a_pipe_is_read_as_it_comes() -> None:
    out, into = os.pipe()
    with Source(os.fdopen(out, "rb", buffering=0), "pipe") as source:
        assert source.size is None
        lines = numbered_lines(source)
        os.write(into, b"one\ntw")
        assert await anext(lines) == [(1, b"one")]
        os.write(into, b"o\n")
        assert await anext(lines) == [(2, b"two")]
        os.close(into)
        assert [each async for each in lines] == []
