"""A browser without scripts: it keeps cookies, and sends forms as a browser does."""

import re
from datetime import UTC, date, datetime, timedelta
from html.parser import HTMLParser
from typing import Any, NamedTuple, Self

import httpx
from fastapi.routing import APIRoute

from api.console.routes import ROUTERS
from catalog.models import Device, Statistic
from engine.redis.figures import BeaconMinute, CompanyDay, FigureStore, RecentDetectionStore
from tests.api.harness import Harness, Headers

SITE = "http://api"
_PARAMETER = re.compile(r"\{(\w+)(?::\w+)?\}")
NOW = datetime.now(UTC)
_VOID = {"meta", "link", "input", "img", "br", "hr", "rect", "line", "circle", "image"}


class SeenPage(HTMLParser):
    """A page as a browser has it before scripts run."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.texts: list[str] = []
        self._open: list[str] = []
        self.feed(text)
        self.close()

    @property
    def text(self) -> str:
        """The visible text."""
        return " ".join(" ".join(self.texts).split())

    def links(self) -> set[str]:
        """The targets of its links."""
        return {found["href"] or "" for tag, found in self.tags if tag == "a"}

    def field(self, name: str) -> str | None:
        """The value of the input with this name."""
        fields = [found for tag, found in self.tags if tag == "input" and found.get("name") == name]
        return fields[0].get("value") if fields else None

    def action(self, ending: str) -> str:
        """The path below /console of the form whose address ends so."""
        actions = {found.get("action") or "" for tag, found in self.tags if tag == "form"}
        (action,) = [each for each in actions if each.endswith(ending)]
        return action.removeprefix("/console")

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        assert len(dict(attrs)) == len(attrs), f"an attribute twice: {tag} {attrs}"
        # (Without it, a browser sends the text with its spaces joined.)
        assert tag != "option" or "value" in dict(attrs)
        self.tags.append((tag, dict(attrs)))
        if tag not in _VOID:
            self._open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        if tag not in _VOID:
            assert self._open, f"{tag} ends, and nothing is open"
            assert self._open.pop() == tag

    def handle_data(self, data: str) -> None:
        if data.strip():
            self.texts.append(data)


class Visitor:
    """Holds the session of an account, as after signing in."""

    def __init__(self, api: Harness, headers: Headers) -> None:
        self.headers = headers
        self.api = api
        self.client = httpx.AsyncClient(
            transport=httpx.ASGITransport(api.app),
            base_url=SITE,
            cookies={"proximity_session": headers["x-service-token"]},
        )

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.client.aclose()

    async def get(self, path: str, status: int = 200, accept_language: str = "") -> SeenPage:
        """A page of the console."""
        headers = {"accept-language": accept_language}
        answer = await self.client.get(f"/console{path}", headers=headers)
        assert answer.status_code == status, f"{path}: {answer.status_code} {answer.text}"
        return SeenPage(answer.text)

    async def post(self, path: str, fields: dict[str, Any]) -> httpx.Response:
        """A form of one of its pages."""
        origin = {"origin": SITE, "sec-fetch-site": "same-origin"}
        return await self.client.post(f"/console{path}", data=fields, headers=origin)

    async def read(self, path: str) -> Any:
        """What the interface has stored."""
        return await self.api.read(path, self.headers)

    async def made(self, path: str, body: dict[str, Any]) -> int:
        """The number of a record that was created through the interface."""
        created = await self.api.call("POST", path, self.headers, body)
        assert created.status_code == 201, created.text
        return int(created.json()["id"])


async def device_of(visitor: Visitor, udid: str, **facts: str) -> int:
    """The number of a new device of the visitor's company."""
    company = await visitor.api.company_of(visitor.headers)
    made = Device(company_id=company, udid=udid, **facts, create_on=NOW, update_on=NOW)
    await visitor.api.add(made)
    return made.id


async def decided(visitor: Visitor, sums: dict[str, int], back: int = 0) -> None:
    """Add to the sums of triggers for a day, `back` days ago."""
    company, day = await visitor.api.company_of(visitor.headers), datetime.now(UTC).date()
    store = FigureStore(redis=visitor.api.stores.redis, prefix="proximity:", deadline=10.0)
    await store.add({CompanyDay(company, day - timedelta(days=back)): sums})


async def detected(visitor: Visitor, venue: int, counts: dict[int, int]) -> None:
    """Add detections of this minute at beacons of a venue."""
    minute = int(datetime.now(UTC).timestamp() // 60)
    store = RecentDetectionStore(redis=visitor.api.stores.redis, prefix="proximity:", deadline=10.0)
    await store.add({BeaconMinute(venue, each, minute): n for each, n in counts.items()})


def statistic(day: date, kind: str, ref: int, venue: int, figures: tuple[int, int, int]) -> Any:
    """A row with these detections, devices and notifications."""
    values = dict(zip(("detections", "devices", "notifications"), figures, strict=True))
    return Statistic(day=day, kind=kind, ref=ref, venue_id=venue, **values)


class ConsoleAddress(NamedTuple):
    """A method, and the template of a path below /console."""

    method: str
    path: str

    def __str__(self) -> str:
        return f"{self.method} {self.path}"

    def filled(self, **ids: int) -> str:
        """The path with ids in it."""
        return _PARAMETER.sub(lambda found: str(ids[found[1]]), self.path)


def addresses() -> list[ConsoleAddress]:
    """All addresses that need a session."""
    return [
        ConsoleAddress(method, route.path)
        for router in ROUTERS
        for route in router.routes
        if isinstance(route, APIRoute) and route.path != "/sign-in"
        for method in route.methods or ()
    ]
