"""The progress of a command where there is no terminal."""

import io

from engine.cli.progress import PlainProgress, shown_progress


def lines_of(total: int | None, updates: list[tuple[float, int, int | None]]) -> list[str]:
    """What is printed; `updates` are the second, the count, and the part of the total."""
    now = 0.0
    stream = io.StringIO()
    progress = PlainProgress(stream, "read", "records", lambda: now)
    progress.expect(total)
    for second, count, done in updates:
        now = second
        progress.update(count, done)
    return stream.getvalue().splitlines()


def test_a_line_every_five_seconds() -> None:
    found = lines_of(8000, [(1, 100, None), (5, 1000, None), (9, 1500, None), (10, 2000, None)])
    assert found == ["read 1,000 records (200/s, 12%)", "read 2,000 records (200/s, 25%)"]


def test_the_total_may_be_unknown_or_counted_in_something_else() -> None:
    assert lines_of(None, [(5, 10, 400)]) == ["read 10 records (2/s)"]
    assert lines_of(0, [(5, 10, 0)]) == ["read 10 records (2/s)"]
    assert lines_of(800, [(5, 10, 400)]) == ["read 10 records (2/s, 50%)"]


def test_a_file_gets_lines_and_a_terminal_gets_a_bar() -> None:
    with shown_progress(io.StringIO(), "read", "records") as progress:
        assert type(progress) is PlainProgress
    terminal = io.StringIO()
    terminal.isatty = lambda: True  # type: ignore[method-assign]
    with shown_progress(terminal, "read", "records") as progress:
        progress.expect(20_000)
        progress.update(10_000)
    assert "10,000 records" in terminal.getvalue()
    assert "50%" in terminal.getvalue()
