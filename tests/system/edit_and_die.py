"""Makes one edit through the ORM and dies with its commit. Run by test_catalog_edit.

Arguments: database URL; `activate` or `deactivate` and a campaign's id, `delete` and a beacon's id,
or `add`, a venue's id, a tag's id and a minor. Prints the time of the commit.
"""

import asyncio
import os
import sys
import time

from sqlalchemy.ext.asyncio import AsyncSession

from catalog.database import open_database
from catalog.models import Beacon, Campaign, Tag
from tests.system.world import UUIDS


async def _edit(session: AsyncSession, what: str, numbers: list[int]) -> None:
    if what in ("activate", "deactivate"):
        (await session.get_one(Campaign, numbers[0])).active = what == "activate"
    elif what == "delete":
        await session.delete(await session.get_one(Beacon, numbers[0]))
    else:
        venue, tag, minor = numbers
        session.add(
            Beacon(
                venue_id=venue,
                name="new",
                uuid=UUIDS[0],
                major=0,
                minor=minor,
                active=True,
                proximity="far",
                tags=[await session.get_one(Tag, tag)],
            )
        )


async def _main(url: str, what: str, numbers: list[int]) -> None:
    database = open_database(url)
    async with database.write.begin() as session:
        await _edit(session, what, numbers)
    print(time.time(), flush=True)
    os._exit(0)


if __name__ == "__main__":
    asyncio.run(_main(sys.argv[1], sys.argv[2], [int(number) for number in sys.argv[3:]]))
