"""Reads and counts authentications: a device opened an application of a company."""

from typing import NamedTuple

import msgspec

from engine.kafka.dead_letter_limit import DeadLetterLimit
from engine.kafka.dead_letters import DeadLetter, DeadLetterPublisher, DeadLetterReason
from engine.kafka.decoding import Record, decode_records
from engine.kafka.messages import Authentication
from engine.kafka.partition_worker import Records
from engine.kafka.timestamps import parse
from engine.recorder.aggregate import (
    ChangesByDevice,
    NewRows,
    StoredDevices,
    arrived_at,
    stored_address,
    stored_instant,
    update_device,
)
from engine.recorder.ledger import Ledger, LedgerTransaction
from engine.recorder.local_days import DayRule
from engine.recorder.rows import AuthenticationRow, DeviceIdentity, RegisteredApplication

_decode = msgspec.json.Decoder(Authentication).decode


class AcceptedAuthentication(NamedTuple):
    """An authentication with a valid key.

    `arrived_at` is the time of its record; both instants are epoch seconds.
    """

    message: Authentication
    authenticated_at: float
    arrived_at: float
    application: RegisteredApplication

    @property
    def device(self) -> DeviceIdentity:
        """The device, identified within the application's company."""
        return DeviceIdentity(self.application.company_id, self.message.device.udid)


class AuthenticationReader:
    """Reads authentications of all partitions, which share one `limit`."""

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

    async def read(self, records: Records) -> list[AcceptedAuthentication]:
        """Decode the records. A record with the key of no application becomes a dead letter."""
        decoded, dead, _ = decode_records(records, _decode_authentication, self._limit)
        keys = {message.api_key for _, message, _ in decoded}
        applications = await self._ledger.applications(keys)
        accepted = []
        for record, message, at in decoded:
            application = applications.get(message.api_key)
            if application is not None and application.admits(at):
                arrived = arrived_at(record)
                accepted.append(AcceptedAuthentication(message, at, arrived, application))
            else:
                # The message never quotes the key, because people read dead letters.
                detail = "the api_key belongs to no application that is active and not expired"
                dead.append(DeadLetter(record, DeadLetterReason.UNKNOWN_APPLICATION, detail))
        await self._dead_letters.publish(dead)
        return accepted

    async def count(
        self, _transaction: LedgerTransaction, batch: list[AcceptedAuthentication]
    ) -> "CountedAuthentications":
        """All authentications of the batch count."""
        return CountedAuthentications(batch, self._rule)


class CountedAuthentications:
    """The authentications of a batch. Pure."""

    def __init__(self, accepted: list[AcceptedAuthentication], rule: DayRule) -> None:
        self._accepted = accepted
        self._rule = rule

    def device_updates(self) -> ChangesByDevice:
        """The last known facts of each device."""
        updates: ChangesByDevice = {}
        for each in self._accepted:
            update_device(updates, each.device, each.message.device)
        return updates

    def rows(self, devices: StoredDevices, now: float) -> NewRows:
        """The trace rows. `now` is SQL's clock."""
        return NewRows(
            authentications=[
                AuthenticationRow(
                    devices[each.device].id,
                    each.application.id,
                    stored_instant(each.authenticated_at),
                    stored_address(each.message.ip),
                )
                for each in self._accepted
                if self._rule.leaves_trace(each.authenticated_at, each.arrived_at, now)
            ]
        )


def _decode_authentication(record: Record) -> tuple[Record, Authentication, float]:
    message = _decode(record.value or b"")
    if "\0" in message.device.udid or "\0" in message.api_key:
        raise ValueError("udid and api_key have no NUL characters")
    at = message.authenticated_at
    return record, message, arrived_at(record) if at is None else parse(at)
