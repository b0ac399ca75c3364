"""Text from strangers neither controls a terminal nor runs as a formula in a spreadsheet."""

import asyncio
import csv
import json
from datetime import UTC, datetime
from pathlib import Path

import pytest
from sqlalchemy import update

from catalog.database import Database
from catalog.models import AuditEntry, Company, Statistic, Venue
from engine.cli import application as cli
from tests.integration.commands.proximity import Proximity
from tests.servers.http_service import replying, serving

TODAY = datetime.now(UTC).date()
ESCAPES = "\x1b]0;owned\x07\x1b[2J\x9b31m\u202e"
FORMULA = '=HYPERLINK("http://example.org";"here")'


async def fill(database: Database) -> None:
    """Figures of two venues whose names were stored before names were checked."""
    async with database.write.begin() as session:
        company = (await session.get_one(Company, 1)).id
        for name in ("sheet", "terminal"):
            venue = Venue(company_id=company, name=name, address="-", active=True)
            session.add(venue)
            await session.flush()
            session.add(
                Statistic(
                    day=TODAY,
                    kind="venue",
                    ref=venue.id,
                    venue_id=venue.id,
                    detections=1,
                    devices=1,
                    notifications=0,
                )
            )
        session.add(
            AuditEntry(
                company_id=company,
                create_on=datetime.now(UTC),
                account_id=1,
                email="owner@harbour.example",
                request=ESCAPES,
                action="edit",
                kind="venue",
                ref=1,
                before={"name": "x"},
                after={"name": ESCAPES},
            )
        )
    async with database.engine.begin() as connection:
        for name, stored in (("sheet", FORMULA), ("terminal", ESCAPES)):
            await connection.execute(update(Venue).where(Venue.name == name).values(name=stored))


def harmless(output: str) -> bool:
    return all(character.isprintable() or character == "\n" for character in output)


async def test_commands(
    database: Database,
    sqlite_url: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
):
    await fill(database)
    monkeypatch.setenv("PROXIMITY_DATABASE_URL", sqlite_url)
    sheet = tmp_path / "figures.csv"
    shown = {}
    for arguments in (
        ("statistics",),
        ("statistics", "--csv", "-"),
        ("statistics", "--csv", str(sheet)),
        ("audit",),
        ("audit", "--json", "--company", "Harbour Mall"),
        ("statistics", "--company", "1\x1b[2J"),
        ("audit", "--company", "\x1b[2J"),
    ):
        await asyncio.to_thread(cli.run, list(arguments))
        output, errors = capsys.readouterr()
        assert harmless(output + errors), arguments
        shown[arguments] = output
    _, *rows = csv.reader(sheet.read_text().splitlines())
    assert len(rows) == 2
    assert not [cell for row in rows for cell in row if cell.startswith(("=", "+", "-", "@"))]
    assert any(FORMULA in cell for row in rows for cell in row)
    assert "owned" in shown["statistics",]
    (entry,) = map(json.loads, shown["audit", "--json", "--company", "Harbour Mall"].splitlines())
    assert entry["after"]["name"] == ESCAPES


async def test_a_reply_of_a_service_is_escaped(database: Database, sqlite_url: str, tmp_path: Path):
    """Its headers and its body reach the screen of `connector test`."""
    key = "a passphrase of the test"
    command = Proximity(
        tmp_path,
        "127.0.0.1:1",
        "unused.",
        PROXIMITY_DATABASE_URL=sqlite_url,
        PROXIMITY_SECRET_KEY=key,
        PROXIMITY_CONNECTOR_ALLOW_NETWORKS="127.0.0.0/8",
    )
    reply = {"title": ESCAPES, "push": ESCAPES, "format": "html", "html": ESCAPES}
    for body in (reply, ESCAPES.encode()):
        async with serving(replying(200, body)) as service:
            connector = {
                "name": "c",
                "url": service.url("/"),
                "method": "POST",
                "auth": "header",
                "parameters": [],
            }
            document = {"companies": [{"name": "Harbour Mall", "connector": connector}]}
            file = command.write("catalog.json", json.dumps(document).encode())
            loaded = await asyncio.to_thread(command, "catalog", "load", file)
            assert "Harbour" not in loaded.stderr, loaded.stderr
            done = await asyncio.to_thread(command, "connector", "test", "Harbour Mall")
            assert "status 200" in done.stdout, done.stderr
            assert harmless(done.stdout + done.stderr)
