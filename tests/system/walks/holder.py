"""An account holder's client of the interface: HTTP, a session, and request bodies."""

from typing import Any, Self

import httpx

UUID = "f7826da6-4fa2-4e98-8024-bc5b71e0893e"


class Holder:
    """A client of the interface at `url`. It checks the status of every answer."""

    def __init__(self, url: str) -> None:
        self.url = url
        self._client = httpx.AsyncClient(base_url=f"{url}/v2", timeout=30, trust_env=False)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_error: object) -> None:
        await self._client.aclose()

    async def sign_in(self, email: str, password: str) -> None:
        """Sign in, and use the session from now on."""
        answer = await self.call("POST", "/auth", {"email": email, "password": password})
        token = answer["session"]["token"]
        self._client.headers.update({"x-service-key": email, "x-service-token": token})

    async def call(self, method: str, path: str, body: Any = None, *, status: int = 200) -> Any:
        """Call an operation. Returns the JSON of the answer."""
        answer = await self._client.request(method, path, json=body)
        assert answer.status_code == status, (method, path, answer.status_code, answer.text)
        return answer.json()

    async def get(self, path: str) -> Any:
        """Read a record or a list."""
        return await self.call("GET", path)

    async def post(self, path: str, body: Any) -> Any:
        """Create a record."""
        return await self.call("POST", path, body, status=201)


def beacon(minor: int) -> dict[str, Any]:
    """The body of a beacon."""
    triple = {"uuid": UUID, "major": 9, "minor": minor}
    return {"name": f"beacon {minor}", **triple, "active": True, "proximity": "near"}


def campaign(form: str, **other: Any) -> dict[str, Any]:
    """The body of a campaign that is always open."""
    return {
        "name": f"by {form}",
        "title": "Hello",
        "push": "See what is on",
        "format": form,
        "url": "https://pier.example/today",
        "cache": "day",
        "start": "2026-01-01T00:00:00+0100",
        "end": "2040-12-31T00:00:00+0100",
        "start_time": "00:00",
        "end_time": "24:00",
        "active": True,
        **dict.fromkeys(("monday", "tuesday", "wednesday", "thursday", "friday"), True),
        **dict.fromkeys(("saturday", "sunday"), True),
        **other,
    }
