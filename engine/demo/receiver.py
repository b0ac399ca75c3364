"""Receives what the engine sends, as a push sender would, and keeps count."""

import asyncio
from collections import Counter, defaultdict

import msgspec
from aiokafka import AIOKafkaConsumer

from engine.kafka.connection import connection_options
from engine.kafka.topics import Topics
from engine.messages import CampaignReference, KnownDevice
from engine.settings import Settings


class _Sent(msgspec.Struct):
    """What notifications and connector calls have in common here."""

    id: str
    campaign: CampaignReference
    device: KnownDevice
    format: str | None = None


_decode = msgspec.json.Decoder(_Sent).decode


class Receiver:
    """`sends` and `phones` by campaign id; `first` has the first notification of each format,
    as received. Repeats are dropped by their id."""

    def __init__(self, settings: Settings) -> None:
        self.sends: Counter[int] = Counter()
        self.phones: defaultdict[int, set[str]] = defaultdict(set)
        self.first: dict[str, bytes] = {}
        self._seen: set[str] = set()
        topics = Topics.named(settings.topic_prefix)
        self._deadline = settings.kafka_request_timeout
        self._consumer = AIOKafkaConsumer(
            topics.notifications,
            topics.connector_calls,
            **connection_options(settings),
            auto_offset_reset="earliest",
            fetch_max_wait_ms=int(settings.kafka_fetch_wait * 1000),
        )

    async def run(self) -> None:
        """Receive until cancelled. Raises KafkaError."""
        try:
            async with asyncio.timeout(self._deadline):
                await self._consumer.start()
            while True:
                for records in (await self._consumer.getmany(timeout_ms=200)).values():
                    for record in records:
                        self._take(record.value or b"")
        finally:
            async with asyncio.timeout(self._deadline):
                await self._consumer.stop()

    def _take(self, value: bytes) -> None:
        sent = _decode(value)
        if sent.id in self._seen:
            return
        self._seen.add(sent.id)
        self.sends[sent.campaign.id] += 1
        self.phones[sent.campaign.id].add(sent.device.udid)
        if sent.format is not None:  # a connector call has none yet
            self.first.setdefault(sent.format, value)
