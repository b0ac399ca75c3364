"""The schema of this version in an empty database."""

import asyncio
import tempfile
from pathlib import Path

from sqlalchemy import make_url

from catalog.migrate import migrate

_sqlite: list[bytes] = []


async def make_schema(url: str) -> None:
    """What `migrate` does; a new file of SQLite is a copy of the first one, which takes no time."""
    parsed = make_url(url)
    file = Path(str(parsed.database))
    if parsed.get_backend_name() != "sqlite" or await asyncio.to_thread(file.exists):
        await migrate(url)
        return
    if not _sqlite:
        with tempfile.TemporaryDirectory() as directory:
            first = Path(directory) / "schema.sqlite3"
            await migrate(f"sqlite:///{first}")
            _sqlite.append(first.read_bytes())
    await asyncio.to_thread(file.write_bytes, _sqlite[0])
