"""A session that ends is refused by every process within a second."""

import time

import httpx
import pytest

from catalog.accounts import set_active, set_password, set_permissions
from catalog.database import Database
from tests.acceptance.api.process import EMAIL, ApiProcess
from tests.acceptance.rig import Rig
from tests.servers.waiting import eventually

PROMISE = 1.0


@pytest.mark.parametrize("change", ["password", "disabled", "permission"])
async def test_a_revoked_session_stops_within_a_second(
    database: Database, processes: Rig, change: str
):
    both = [ApiProcess(processes), ApiProcess(processes)]
    for process in both:
        await process.until_ready()
    headers = await both[0].sign_in()
    async with httpx.AsyncClient(headers=headers) as client:

        async def statuses() -> set[int]:
            return {(await client.get(f"{p.url}/v2/region")).status_code for p in both}

        for _ in range(5):
            assert await statuses() == {200}
        if change == "password":
            await set_password(database, EMAIL, "quite another one")
        elif change == "disabled":
            await set_active(database, EMAIL, active=False)
        else:
            await set_permissions(database, EMAIL, {"region": 0})
        changed = time.monotonic()
        refused = {403} if change == "permission" else {401}

        async def stopped() -> bool:
            return await statuses() == refused

        await eventually(stopped, deadline=PROMISE, what="refused everywhere")
        print(f"refused after {time.monotonic() - changed:.3f} s")
