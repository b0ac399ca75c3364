"""Who reads what a command prints may go, as `head` does: no server is blamed for it."""

import asyncio

import pytest

from catalog.migrate import migrate
from engine.cli import tail as tailing
from engine.cli.application import run
from engine.cli.servers import open_migrated_database
from engine.process.settings_sources import load_settings


async def test_the_database_is_not_blamed(sqlite_url: str) -> None:
    await migrate(sqlite_url)
    with pytest.raises(BrokenPipeError):
        async with open_migrated_database(load_settings(database_url=sqlite_url)):
            raise BrokenPipeError


def test_redis_is_not_blamed(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    async def closed_output(*_of_tail: object) -> None:
        await asyncio.sleep(0)
        raise BrokenPipeError(32, "Broken pipe")

    monkeypatch.setenv("PROXIMITY_REDIS_URL", "redis://127.0.0.1:1")
    monkeypatch.setattr(tailing, "_follow", closed_output)
    # (typer ends the process by itself: status 1, without output.)
    with pytest.raises(SystemExit) as ended:
        run(["tail"])
    assert ended.value.code == 1
    assert capsys.readouterr().err == ""
