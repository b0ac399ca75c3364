"""Disturbances of a run: a campaign is edited through the interface; processes stop and die."""

import asyncio
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import count, cycle

import httpx

from benchmarks.installation.estate import EMAIL, PASSWORD, campaign_edit
from benchmarks.installation.running import Installation
from tests.acceptance.rig import Command
from tests.servers.waiting import eventually

_EDIT_SECONDS = 1.0
_ANSWER = 15.0
_READY, _STOPPED = 120.0, 60.0
ROLES = ("trigger", "recorder", "connector", "api")


@dataclass
class Editing:
    """Edits of the edited campaign, one a second. `answered` has the times of success by
    title; `refused` the other answers."""

    answered: dict[str, float] = field(default_factory=dict)
    refused: list[str] = field(default_factory=list)

    async def run(self, installation: Installation) -> None:
        """Edit until cancelled, by any process of the interface that answers."""
        estate = installation.estate
        path = f"/v2/lieu/{estate.venue}/campaign/{estate.edited}"
        headers = await self._sign_in(installation)
        async with httpx.AsyncClient(timeout=_ANSWER, headers=headers) as client:
            for number, name in zip(count(1), cycle(("api b", "api a")), strict=False):
                title = f"edit {number}"
                answer = await self._edit(installation, client, name, path, title)
                if answer.is_success:
                    self.answered[title] = time.time()
                else:
                    self.refused.append(f"{title}: {answer.status_code} {answer.text[:200]}")
                await asyncio.sleep(_EDIT_SECONDS)

    async def _edit(
        self, place: Installation, client: httpx.AsyncClient, name: str, path: str, title: str
    ) -> httpx.Response:
        body = campaign_edit(title)
        while True:
            try:
                answer = await client.put(f"{_url(place, name)}{path}", json=body)
                if answer.status_code != httpx.codes.SERVICE_UNAVAILABLE:
                    return answer
            except httpx.TransportError:  # it is stopping, or dead
                pass
            name = "api a"
            await asyncio.sleep(0.1)

    async def _sign_in(self, installation: Installation) -> dict[str, str]:
        async with httpx.AsyncClient(timeout=_ANSWER) as client:
            body = {"email": EMAIL, "password": PASSWORD}
            answer = await client.post(f"{_url(installation, 'api a')}/v2/auth", json=body)
        token = answer.raise_for_status().json()["session"]["token"]
        return {"x-service-key": EMAIL, "x-service-token": token}


@dataclass
class Restarts:
    """One process after the other, of these roles, is stopped or killed, and started again.
    `done` has when, and what; `failed` those that did not stop well."""

    seconds: float
    roles: Sequence[str] = ROLES
    done: list[tuple[float, str]] = field(default_factory=list)
    failed: list[str] = field(default_factory=list)

    async def run(self, installation: Installation) -> None:
        """Restart processes until cancelled; a restart is never interrupted."""
        for number, role in enumerate(cycle(self.roles)):
            await asyncio.sleep(self.seconds)
            is_killed = number // len(self.roles) % 2 == 1
            await asyncio.shield(self._restart(installation, f"{role} b", is_killed=is_killed))

    async def _restart(self, installation: Installation, name: str, *, is_killed: bool) -> None:
        process = installation.processes[name]
        self.done.append((time.time(), f"{name} {'killed' if is_killed else 'stopped'}"))
        if is_killed:
            process.kill()
        else:
            await self._stop(name, process)
        started = installation.start(name, name.partition(" ")[0])
        await eventually(started.is_ready, deadline=_READY, what=f"ready, see {started.log}")

    async def _stop(self, name: str, process: Command) -> None:
        try:
            await process.stop(_STOPPED)
        except Exception as error:  # a status that is not 0, or too late: it is reported at the end
            self.failed.append(f"{name}: {str(error)[:500]}")
            process.kill()


def _url(installation: Installation, name: str) -> str:
    return f"http://127.0.0.1:{installation.processes[name].port + 1}"
