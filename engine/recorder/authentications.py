"""Authentications: a device opened the application of a company."""

from collections.abc import Mapping
from typing import NamedTuple

import msgspec

from engine.kafka.dead_letter_limit import DeadLetterLimit
from engine.kafka.dead_letters import DeadLetter, DeadLetterPublisher, DeadLetterReason
from engine.kafka.messages import Authentication
from engine.kafka.partition_worker import Records
from engine.kafka.timestamps import parse
from engine.recorder.aggregate import address, came_at, instant, learn
from engine.recorder.decode import Record, decode_all
from engine.recorder.ledger import Entry, Ledger
from engine.recorder.local_days import DayRule
from engine.recorder.rows import (
    Application,
    AuthenticationRow,
    DeviceKey,
    DeviceNews,
)

_decode = msgspec.json.Decoder(Authentication).decode


class SignIn(NamedTuple):
    """An authentication with a key that is good, at `at`, whose record came at `came_at` (both
    epoch seconds)."""

    message: Authentication
    at: float
    came_at: float
    application: Application

    @property
    def device(self) -> DeviceKey:
        """Who signed in, as the company of the application knows it."""
        return DeviceKey(self.application.company_id, self.message.device.udid)


class AuthenticationReader:
    """Reads authentications; one for each partition, all under one `limit`."""

    def __init__(
        self,
        *,
        ledger: Ledger,
        dead_letters: DeadLetterPublisher,
        limit: DeadLetterLimit,
        rule: DayRule,
    ) -> None:
        self._ledger = ledger
        self._dead_letters = dead_letters
        self._limit = limit
        self._rule = rule

    async def read(self, records: Records) -> "AuthenticationBatch":
        """Decode the records; those whose key opens no application go aside too."""
        messages, dead = decode_all(records, _decoded, self._limit)
        keys = {message.api_key for _, (message, _) in messages}
        applications = await self._ledger.applications(keys)
        found = []
        for record, (message, at) in messages:
            application = applications.get(message.api_key)
            if application is not None and _admits(application, at):
                found.append(SignIn(message, at, came_at(record), application))
            else:
                # Never the key itself: dead letters are read by people.
                detail = "the api_key opens no application that is active and not expired"
                dead.append(DeadLetter(record, DeadLetterReason.UNKNOWN_APPLICATION, detail))
        await self._dead_letters.publish(dead)
        return AuthenticationBatch(found, self._rule)


class AuthenticationBatch:
    """Authentications that count."""

    def __init__(self, sign_ins: list[SignIn], rule: DayRule) -> None:
        self._sign_ins = sign_ins
        self._rule = rule

    async def write(self, entry: Entry) -> Mapping[str, int]:
        """Write all of it; the rows written, by table."""
        if not self._sign_ins:
            return {}
        news: dict[DeviceKey, DeviceNews] = {}
        for sign_in in self._sign_ins:
            learn(news.setdefault(sign_in.device, DeviceNews()), sign_in.message.device)
        now = await entry.now()
        devices = await entry.add_devices(news, now)
        rows = [
            AuthenticationRow(
                devices[each.device].id,
                each.application.id,
                instant(each.at),
                address(each.message.ip),
            )
            for each in self._sign_ins
            if self._rule.leaves_trace(each.at, each.came_at, now.timestamp())
        ]
        await entry.add_authentications(rows)
        return {"device": len(devices), "authentication_trace": len(rows)}


def _admits(application: Application, at: float) -> bool:
    expires = application.expire_on
    return application.active and (expires is None or at < expires.timestamp())


def _decoded(record: Record) -> tuple[Authentication, float]:
    message = _decode(record.value or b"")
    if "\0" in message.device.udid or "\0" in message.api_key:
        raise ValueError("udid and api_key have no NUL characters")
    at = message.authenticated_at
    return message, record.timestamp / 1000 if at is None else parse(at)
