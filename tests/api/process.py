"""`proximity api` as a process, and an account in its database."""

from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import httpx

from catalog.accounts import create_account
from catalog.database import Database
from catalog.inputs import ALL_PERMISSIONS
from tests.servers.process import free_ports
from tests.system.rig import Command, Rig

EMAIL = "owner@harbour.example"
PASSWORD = "change-me-please"


class ApiProcess:
    """A running process. `url` is its base, without /v2."""

    def __init__(self, rig: Rig, **settings: str) -> None:
        metrics_port = free_ports()
        ports = {"API_PORT": str(metrics_port + 1), "API_METRICS_PORT": str(metrics_port)}
        self.url = f"http://127.0.0.1:{metrics_port + 1}"
        self.command: Command = rig.start("api", **ports, **settings)
        self.command.port = metrics_port

    async def until_ready(self) -> "ApiProcess":
        """Wait until it serves."""
        await self.command.until_ready()
        return self

    async def sign_in(self) -> dict[str, str]:
        """The headers of a new session of the account."""
        async with httpx.AsyncClient(base_url=self.url) as client:
            body = {"email": EMAIL, "password": PASSWORD}
            answer = await client.post("/v2/auth", json=body)
        return {"x-service-key": EMAIL, "x-service-token": answer.json()["session"]["token"]}


async def make_account(database: Database, **other: Any) -> None:
    """The account that `sign_in` uses, with all permissions."""
    values: dict[str, Any] = {"email": EMAIL, "password": PASSWORD, "permission": ALL_PERMISSIONS}
    values |= {"company": "Harbour Mall", "now": datetime.now(UTC)}
    await create_account(database, **values | other)


def api_rig(directory: Path, database_url: str, redis_url: str, **more: str) -> Rig:
    """Starts processes on these stores."""
    environment: Mapping[str, str] = {
        "DATABASE_URL": database_url,
        "REDIS_URL": redis_url,
        "SECRET_KEY": "a passphrase of the test",
        "LOG_FORMAT": "json",
        "METRICS_HOST": "127.0.0.1",
        **more,
    }
    return Rig(directory, environment)
