"""DATABASE_URL with a private authority: libpq's names work, and what cannot work is one line."""

from collections.abc import Iterator
from pathlib import Path

import pytest
import trustme
from sqlalchemy import text

from catalog.database import open_database
from engine.cli.application import run
from tests.servers.missing import DATABASE, skipping
from tests.servers.postgres import TlsPostgresServer
from tests.servers.process import started


@pytest.fixture(scope="module")
def postgres() -> Iterator[TlsPostgresServer]:
    with skipping("PostgreSQL", instead=DATABASE), started(TlsPostgresServer) as server:
        yield server


@pytest.fixture
def other_authority(tmp_path: Path) -> Path:
    file = tmp_path / "other.pem"
    trustme.CA().cert_pem.write_to_path(file)
    return file


@pytest.mark.parametrize(
    "query",
    [
        "sslmode=verify-full&sslrootcert={ca}",
        "sslmode=require&sslrootcert={ca}",
        "sslrootcert={ca}",
        "ssl=require",
        "sslmode=verify-full&sslrootcert={ca}&application_name=mine&target_session_attrs=any",
    ],
)
async def test_tls_is_spoken(postgres: TlsPostgresServer, query: str) -> None:
    database = open_database(postgres.url(query.format(ca=postgres.authority)))
    try:
        async with database.read() as session:
            found = await session.execute(
                text("SELECT ssl FROM pg_stat_ssl WHERE pid = pg_backend_pid()")
            )
            assert found.scalar_one() is True
    finally:
        await database.close()


@pytest.mark.parametrize("query", ["sslmode=require&sslrootcert={other}", "sslrootcert={other}"])
def test_an_authority_that_is_named_is_used(
    postgres: TlsPostgresServer,
    other_authority: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    query: str,
) -> None:
    url = postgres.url(query.format(other=other_authority))
    monkeypatch.setenv("PROXIMITY_DATABASE_URL", url)
    assert run(["migrate"]) == 1
    error = capsys.readouterr().err
    assert error.count("\n") == 1, error
    assert "certificate verify failed" in error.lower()
