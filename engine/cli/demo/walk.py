"""The demo's data (its catalog, the readings of the library, a customer's service), and what came
of them: messages are counted as a push sender would."""

import asyncio
import csv
import gzip
import json
import threading
import time
import zlib
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from datetime import datetime, timedelta
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from importlib.resources import files
from typing import Any, NamedTuple
from zoneinfo import ZoneInfo

import msgspec
import typer

from catalog.database import open_database
from catalog.models import WEEKDAYS
from engine.cli.catalog import update_index, write_catalog
from engine.cli.output import REASON_WORDS, count_of, print_table, say
from engine.cli.publish import Item
from engine.cli.replay.catalogs import ReplayedCatalog, read_catalog
from engine.kafka.messages import CampaignReference, Detection, KnownDevice, ReceivedDevice
from engine.kafka.topic_reader import open_topic_reader, partitions_of
from engine.kafka.topics import Topics
from engine.process.metrics import Metrics
from engine.process.settings import Settings
from rules.model import Reason
from rules.schedule import Schedule

ZONE = ZoneInfo("Europe/Madrid")
# Fits the library (data/README.md): -59 dBm at 1 m, and 27 dB less for each tenfold distance.
PATH_LOSS_EXPONENT = 2.7
_KEY = "demo"
_PATH = "/loans"
_BOOKS = ("Don Quijote", "La Regenta", "Tirant lo Blanc", "Middlemarch", "Hopscotch")


def demo_document(
    now: datetime,
    *,
    connector: str = "https://library.example/loans",
    password: str = "of no account",  # noqa: S107
) -> dict[str, Any]:
    """The catalog's document for a demo that runs at `now` (aware).

    `connector` is the url of the customer's service, `password` that of the account.
    """
    text = files("engine.cli.demo").joinpath("data/catalog.json").read_text(encoding="utf-8")
    local = now.astimezone(ZONE)
    midnight = local.replace(hour=0, minute=0, second=0, microsecond=0)
    values = {"connector": connector, "password": password}
    for name, days in (("a_month_ago", -30), ("last_week", -7), ("next_week", 7)):
        values[name] = f"{midnight + timedelta(days=days):%Y-%m-%dT%H:%M:%S%z}"
    values["in_a_month"] = f"{midnight + timedelta(days=30):%Y-%m-%dT%H:%M:%S%z}"
    for name, hours in (("in_two_hours", 2), ("in_four_hours", 4)):
        values[name] = f"{local + timedelta(hours=hours):%H:%M}"
    for name, value in values.items():
        text = text.replace(f"{{{name}}}", value)
    # Every weekday but today and tomorrow: the demo may run over midnight.
    near = {local.weekday(), (local.weekday() + 1) % 7}
    for number, day in enumerate(WEEKDAYS):
        closed = "false" if number in near else "true"
        text = text.replace(f'"{day}": "{{not_today}}"', f'"{day}": {closed}')
    document: dict[str, Any] = json.loads(text)
    return document


async def load_demo_catalog(settings: Settings, document: dict[str, Any]) -> ReplayedCatalog:
    """Load `document` as `catalog load` does, and read it. Raises LoadError, SQLAlchemyError,
    RedisError."""
    database = open_database(settings.database_url.get_secret_value())
    try:
        await write_catalog(settings, database, msgspec.json.encode(document))
        await update_index(settings, database)
        return await read_catalog(database, "demo")
    finally:
        await database.close()


def load_readings(document: dict[str, Any]) -> list[Item]:
    """The readings in recorded order, as detections of the beacons in the demo's `document`.

    Each has the second of its walk as its time; all walks start at once.
    """
    (venue,) = document["companies"][0]["venues"]
    beacons = {str(beacon["minor"]): beacon for beacon in venue["beacons"]}
    data = files("engine.cli.demo").joinpath("data/detections.csv.gz").read_bytes()
    items = []
    for row in csv.DictReader(gzip.decompress(data).decode().splitlines()):
        udid, beacon = f"{row['phone']}-walk-{row['walk']}", beacons[row["beacon"]]
        detection = Detection(
            uuid=beacon["uuid"],
            major=beacon["major"],
            minor=beacon["minor"],
            rssi=int(row["rssi"]),
            device=ReceivedDevice(udid=udid, name="Android", model=row["phone"]),
        )
        items.append(Item(udid.encode(), msgspec.json.encode(detection), float(row["seconds"])))
    return items


def load_arrivals(document: dict[str, Any], readings: list[Item]) -> list[Item]:
    """A position on the square and a scan of the QR code at the door, of each phone of `readings`.

    They are made up; all come before the walks.
    """
    return [
        Item(key, msgspec.json.encode(signal | {"device": {"udid": key.decode()}}), 0.0)
        for key in sorted({item.key for item in readings if item.key is not None})
        for signal in arrival(document)
    ]


def arrival(document: dict[str, Any]) -> list[dict[str, Any]]:
    """A position and a scan in the demo's `document`, without a device."""
    (company,) = document["companies"]
    (venue,), (application,) = company["venues"], company["applications"]
    (square,), (code,) = venue["geofences"], venue["qrcodes"]
    position = {name: square[name] for name in ("latitude", "longitude")} | {"accuracy": 15.0}
    key = {"api_key": application["api_key"]}
    return [
        {"position": position} | key,
        {"tag": {"kind": "qrcode", "value": code["value"]}} | key,
    ]


class _Library(BaseHTTPRequestHandler):
    """The library's computer: the service that the connector role calls."""

    def do_POST(self) -> None:  # as the base class calls it
        body = self.rfile.read(int(self.headers.get("content-length", 0)))
        if self.path != _PATH or self.headers.get("x-library-key") != _KEY:
            self.send_error(403, "the header x-library-key is missing or wrong")
            return
        answer = msgspec.json.encode(loans(json.loads(body)["device"]["udid"]))
        self.send_response(200)
        self.send_header("content-type", "application/json")
        self.send_header("content-length", str(len(answer)))
        self.end_headers()
        self.wfile.write(answer)

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002
        """Print nothing: the demo's display is on the same terminal."""


@contextmanager
def library_service() -> Iterator[str]:
    """A small customer's service on a free port of loopback; gives the url for the connector."""
    with ThreadingHTTPServer(("127.0.0.1", 0), _Library) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True)
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_port}{_PATH}"
        finally:
            server.shutdown()
            thread.join()


def loans(udid: str) -> dict[str, Any]:
    """The book that the reader with the device has on loan; the same for the same device."""
    book = _BOOKS[zlib.crc32(udid.encode()) % len(_BOOKS)]
    push = f"{book} is due tomorrow."
    return {"title": "Your loans", "push": push, "format": "html", "html": f"<p>{push}</p>"}


class _Firing(msgspec.Struct):
    """The fields that notifications and connector calls share."""

    id: str
    campaign: CampaignReference
    device: KnownDevice


class MessageReceiver:
    """Receives the engine's messages, as a push sender would, and counts them.

    `sends` and `phones` are by campaign id; `first` has each campaign's first notification.
    `on_notification` is called for each notification.
    """

    def __init__(self, settings: Settings) -> None:
        self.sends: Counter[int] = Counter()
        self.phones: defaultdict[int, set[str]] = defaultdict(set)
        self.first: dict[int, bytes] = {}
        self.on_notification: Callable[[bytes], None] = lambda _: None
        self._settings = settings
        self._topics = Topics.of(settings)
        self._received: set[str] = set()
        self._open_calls: set[str] = set()

    async def run(self) -> None:
        """Receive until cancelled. Raises KafkaError."""
        topics = self._topics
        names = (topics.notifications, topics.connector_calls, topics.dead_letters)
        partitions = await partitions_of(self._settings, names)
        async with open_topic_reader(self._settings, missing="skip") as reader:
            async for records in reader.follow(dict.fromkeys(partitions, 0)):
                for record in records:
                    self._take(record.topic, record.value or b"")

    def has_all(self, published: int) -> bool:
        """Whether so many notifications are received, and every customer's call is answered."""
        return len(self._received) >= published and self._open_calls <= self._received

    def _take(self, topic: str, value: bytes) -> None:
        try:
            firing = msgspec.json.decode(value, type=_Firing)
        except msgspec.DecodeError:
            return  # a dead letter of another topic
        if topic == self._topics.connector_calls:
            self._open_calls.add(firing.id)
        elif topic == self._topics.dead_letters:
            self._open_calls.discard(firing.id)
        elif firing.id not in self._received:
            self._received.add(firing.id)
            self.sends[firing.campaign.id] += 1
            self.phones[firing.campaign.id].add(firing.device.udid)
            self.first.setdefault(firing.campaign.id, value)
            self.on_notification(value)


async def cancelled(task: "asyncio.Task[None]") -> None:
    """Cancel the task, and wait for its end."""
    task.cancel()
    await asyncio.wait([task])


class EngineFigures(NamedTuple):
    """The engine's counts so far; `latency` is the mean in seconds."""

    detections: Mapping[str, int]
    throttled: int
    published: int
    latency: float

    @property
    def decided(self) -> int:
        """The number of decided detections."""
        return sum(self.detections.values())

    @property
    def counted(self) -> int:
        """The detections that SQL counts: those at active places of active venues."""
        at_no_place = list(Reason)[: list(Reason).index(Reason.NO_CAMPAIGN)]
        return self.decided - sum(self.detections.get(reason, 0) for reason in at_no_place)


def read_figures(metrics: Metrics) -> EngineFigures:
    """The figures in the metrics of this process."""
    sample = metrics.registry.get_sample_value
    latency = "proximity_detection_to_notification_seconds"
    return EngineFigures(
        detections=_by_label(metrics.detections, "reason"),
        throttled=_by_label(metrics.decisions, "reason").get("throttled", 0),
        published=sum(_by_label(metrics.notifications, "format").values()),
        latency=(sample(f"{latency}_sum") or 0.0) / max(1.0, sample(f"{latency}_count") or 0.0),
    )


def _by_label(counter: Any, label: str) -> dict[str, int]:
    samples = [s for family in counter.collect() for s in family.samples]
    counts = ((s.labels[label], round(s.value)) for s in samples if s.name.endswith("_total"))
    return {name: count for name, count in counts if count}


def print_summary(
    catalog: ReplayedCatalog, receiver: MessageReceiver, figures: EngineFigures
) -> None:
    """Print one notification, what was detected, and what fired or did not, and why."""
    campaigns = catalog.campaigns
    # Of the connector campaign if it has one: its content is from the customer's service.
    example = next(
        (id_ for id_ in receiver.first if campaigns[id_].format == "connector"),
        next(iter(receiver.first)),
    )
    say("A notification, as a push sender gets it:")
    typer.echo(msgspec.json.format(receiver.first[example]).decode())
    by_count = sorted(figures.detections.items(), key=lambda count: -count[1])
    detected = [(reason, REASON_WORDS[Reason(reason)], f"{count:,}") for reason, count in by_count]
    fired, silent = [], []
    for id_, campaign in campaigns.items():
        if count := receiver.sends[id_]:
            phones = count_of(len(receiver.phones[id_]), "phone")
            fired.append((campaign.name, f"{campaign.format}, to {phones}", f"{count:,}"))
        else:
            silent.append((campaign.name, _silence_reason(catalog, id_), "0"))
    for title, rows in (
        ("What was detected", detected),
        ("What did not fire, and why", silent),
        ("What fired", fired),
    ):
        say("")
        print_table((title, "", ""), rows, numbers=1)
    say("")
    say(
        f"{receiver.sends.total():,} notifications; {figures.throttled:,} times a campaign was "
        "held back by its delay."
    )
    say(f"From detection to notification: {figures.latency * 1000:.0f} ms on average.")


def _silence_reason(catalog: ReplayedCatalog, campaign_id: int) -> str:
    """Why a campaign sends nothing now, by the rules' own verdict."""
    places = [
        (place.place, campaign)
        for place in catalog.places.values()
        for campaign in place.campaigns
        if campaign.id == campaign_id
    ]
    for _, campaign in places:
        if (reason := Schedule(campaign).verdict(time.time()).reason) is not None:
            return REASON_WORDS[reason]
    if not any(place.active for place, _ in places):
        return "it has no place that is switched on"
    return "no phone came near enough to its places"
