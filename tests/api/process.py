"""An account for `proximity api` as a process."""

from datetime import UTC, datetime
from typing import Any

import httpx
from sqlalchemy import select

from catalog.database import Database
from catalog.inputs import AREAS, WRITE
from catalog.models import Account, Company
from catalog.passwords import hash_password
from tests.servers.proximity import Command

EMAIL = "owner@harbour.example"
PASSWORD = "change-me-please"


async def sign_in(served: Command) -> dict[str, str]:
    """The headers of a new session of the account."""
    async with httpx.AsyncClient(base_url=served.url) as client:
        answer = await client.post("/v2/auth", json={"email": EMAIL, "password": PASSWORD})
    return {"x-service-key": EMAIL, "x-service-token": answer.json()["session"]["token"]}


async def make_account(
    database: Database, company: str = "Harbour Mall", email: str = EMAIL, password: str = PASSWORD
) -> None:
    """An account with all permissions; by default the one that `sign_in` uses."""
    now, levels = datetime.now(UTC), dict.fromkeys(AREAS, WRITE)
    values = {"email": email, "password_hash": hash_password(password), "permission": levels}
    async with database.write.begin() as session:
        found = await session.scalar(select(Company).where(Company.name == company))
        owner = found or Company(name=company, create_on=now)
        session.add(Account(company=owner, create_on=now, **values))


async def edit_account(database: Database, email: str, **values: Any) -> None:
    """Set columns of an account, as the commands do."""
    async with database.write.begin() as session:
        account = (await session.scalars(select(Account).where(Account.email == email))).one()
        for name, value in values.items():
            setattr(account, name, value)
