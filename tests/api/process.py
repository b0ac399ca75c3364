"""An account for `proximity api` as a process."""

from datetime import UTC, datetime
from typing import Any

import httpx

from catalog.accounts import create_account
from catalog.database import Database
from catalog.inputs import AREAS, WRITE
from tests.servers.proximity import Command

EMAIL = "owner@harbour.example"
PASSWORD = "change-me-please"


async def sign_in(served: Command) -> dict[str, str]:
    """The headers of a new session of the account."""
    async with httpx.AsyncClient(base_url=served.url) as client:
        answer = await client.post("/v2/auth", json={"email": EMAIL, "password": PASSWORD})
    return {"x-service-key": EMAIL, "x-service-token": answer.json()["session"]["token"]}


async def make_account(database: Database, **other: Any) -> None:
    """The account that `sign_in` uses, with all permissions."""
    values: dict[str, Any] = {"email": EMAIL, "password": PASSWORD, "company": "Harbour Mall"}
    values |= {"permission": dict.fromkeys(AREAS, WRITE), "now": datetime.now(UTC)}
    await create_account(database, **values | other)
