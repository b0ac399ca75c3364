"""This project's own detections with a registered schema: Avro, Protobuf and JSON Schema.

The schemas come from a registry with Confluent's REST interface:
https://docs.confluent.io/platform/current/schema-registry/develop/api.html
https://docs.confluent.io/platform/current/schema-registry/fundamentals/serdes-develop/index.html
The message follows a byte 0 and the schema's id in four bytes.
"""

import asyncio
import contextlib
import ssl
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import NamedTuple
from urllib.parse import quote

import httpx
import msgspec

from engine.formats.report import Report, Sighting
from engine.kafka.messages import Detection
from engine.process.errors import SchemaRegistryError
from engine.process.failures import ServerErrors, describe, retry

REGISTRY_SECONDS = 5.0  # deadline of one request

Decode = Callable[[bytes], object]

_HEADERS = {
    "accept": "application/vnd.schemaregistry.v1+json, application/json",
    "accept-encoding": "identity",
}
_MOST_BYTES = 4 * 1024 * 1024  # of an answer
_MOST_SCHEMAS = 1_000
_MOST_REFERENCES = 32
_MOST_OF_A_RECORD = 8  # schemas of one record with many events
_RETRY_UNREADABLE = 60.0  # seconds after which an unreadable schema is fetched again
_FOUND, _NOT_FOUND = 200, 404
_TEMPORARY = (401, 408, 429)  # for any schema; another refusal is of this one
_FRAME = 5  # bytes: a zero, and the schema's id


class RegistryAddress:
    """The address of a registry with its login. Raises OSError for a `ca_file` that is not PEM."""

    def __init__(self, url: str, *, ca_file: Path | None) -> None:
        self._url = url.rstrip("/")
        self._tls = ssl.create_default_context(cafile=ca_file)

    async def get(self, target: str) -> httpx.Response:
        """Send a GET request. Returns the answer, whose body is cut off after 4 MiB.

        Raises SchemaRegistryError.
        """
        try:
            async with (
                asyncio.timeout(REGISTRY_SECONDS),
                httpx.AsyncClient(verify=self._tls, trust_env=False) as client,
                client.stream("GET", self._url + target, headers=_HEADERS) as answer,
            ):
                body = await anext(answer.aiter_raw(_MOST_BYTES), b"")
                return httpx.Response(answer.status_code, content=body)
        except (httpx.HTTPError, TimeoutError) as error:
            fault = f"the schema registry does not answer: {describe(error)}"
            raise SchemaRegistryError(fault) from error


class _Reference(msgspec.Struct):
    name: str
    subject: str
    version: int


class _Answer(msgspec.Struct):
    schema: str
    schema_type: str = msgspec.field(name="schemaType", default="AVRO")
    references: list[_Reference] = []


_decode = msgspec.json.Decoder(_Answer).decode


class SchemaKind(NamedTuple):
    """A kind of schema, under its name in the registry.

    `compile` makes a decoder from the schema's text and the texts of the schemas that it refers to,
    by the name in the reference; a referenced schema follows those that it refers to itself. It
    raises ValueError for a schema that cannot be used for detections. `form` is the requested form
    of schemas, as in ?format=.
    """

    name: str
    compile: Callable[[str, Mapping[str, str]], Decode]
    form: str | None = None


_decode_json = msgspec.json.Decoder().decode
# The message is not validated against the registered JSON Schema, as in Confluent's own consumers
# by default, but against this project's schema, which is stricter.
JSON_SCHEMA = SchemaKind("JSON", lambda _schema, _references: _decode_json)


@dataclass(eq=False)
class RegisteredFormat:
    """Implements ReadReport for one kind of schema, with the decoders of one registry's schemas.

    `errors` counts and logs failures of the registry, which are retried; without `errors` a failure
    raises.
    """

    address: RegistryAddress
    kind: SchemaKind
    errors: ServerErrors | None
    # Decoders by id, and until when: one that is unreadable is fetched again.
    _known: dict[int, tuple[Decode, float]] = field(default_factory=dict)

    def check(self, reports: Sequence[Report]) -> None:
        """Raises ValueError if the events of a record name more schemas than the limit allows."""
        if len(_schemas_of(reports)) > _MOST_OF_A_RECORD:
            raise ValueError(f"the events of a record may name at most {_MOST_OF_A_RECORD} schemas")

    async def prepare(self, reports: Iterable[Report]) -> None:
        """Fetch the schemas that the reports name, except those that are cached or known to be
        unreadable.

        Waits while the registry is down; without `errors` raises SchemaRegistryError instead.
        """
        ids = _schemas_of(reports)
        while missing := [id_ for id_ in ids if not self._knows(id_)]:
            for id_ in missing:
                if self.errors is None:
                    await self._fetch(id_)
                else:
                    await retry(partial(self._fetch, id_), self.errors, "schemas")

    def __call__(self, report: Report) -> Sequence[Sighting]:
        """The one detection of the report, whose schema was fetched. Raises ValueError."""
        id_ = _schema_of(report)
        decode, _ = self._known[id_]
        try:
            plain = decode(report.value[_FRAME:])
        except msgspec.DecodeError:
            raise  # the message is not JSON, which has a dead-letter reason of its own
        except ValueError as error:
            raise ValueError(f"schema {id_}: {error}") from error
        return (Sighting(0, msgspec.convert(plain, Detection)),)

    def _knows(self, id_: int) -> bool:
        return id_ in self._known and time.monotonic() < self._known[id_][1]

    async def _fetch(self, id_: int) -> None:
        try:
            found = await self._compiled(f"/schemas/ids/{id_}"), float("inf")
        except ValueError as error:
            found = _unreadable(str(error)), time.monotonic() + _RETRY_UNREADABLE
        if len(self._known) >= _MOST_SCHEMAS:
            self._known.clear()
        self._known[id_] = found

    async def _compiled(self, target: str) -> Decode:
        answer = await self._get(target)
        references: dict[str, str] = {}
        await self._add_references(answer, references, _MOST_REFERENCES)
        if answer.schema_type != self.kind.name:
            found = answer.schema_type[:80]
            raise ValueError(f"it is {found}, and the topic's format is {self.kind.name}")
        return self.kind.compile(answer.schema, references)

    async def _add_references(self, answer: _Answer, found: dict[str, str], depth: int) -> None:
        """Fetch the referenced schemas, depth first. Raises ValueError for too many."""
        for each in answer.references:
            if each.name in found:
                continue
            if depth == 0 or len(found) >= _MOST_REFERENCES:
                raise ValueError(f"it needs more than {_MOST_REFERENCES} others")
            subject = quote(each.subject, safe="")
            referred = await self._get(f"/subjects/{subject}/versions/{each.version}")
            await self._add_references(referred, found, depth - 1)
            found[each.name] = referred.schema

    async def _get(self, target: str) -> _Answer:
        """An answer of the registry. Raises ValueError if it lacks or refuses the schema."""
        form = "" if self.kind.form is None else f"?format={self.kind.form}"
        answer = await self.address.get(target + form)
        if answer.status_code == _NOT_FOUND:
            raise ValueError("it has no schema of this id")
        if answer.status_code != _FOUND:
            fault = f"the schema registry answers {answer.status_code} to {target}"
            if answer.status_code >= 500 or answer.status_code in _TEMPORARY:
                raise SchemaRegistryError(fault)
            raise ValueError(fault)
        try:
            return _decode(answer.content)
        except (msgspec.DecodeError, RecursionError) as error:
            raise ValueError(f"the answer is not a registry's: {error}") from error


def _unreadable(reason: str) -> Decode:
    def decode(_message: bytes) -> object:
        raise ValueError(reason)

    return decode


def _schemas_of(reports: Iterable[Report]) -> set[int]:
    ids: set[int] = set()
    for report in reports:
        with contextlib.suppress(ValueError):  # decoding raises it, for a dead letter
            ids.add(_schema_of(report))
    return ids


def _schema_of(report: Report) -> int:
    """The schema's id in the value's first bytes. Raises ValueError."""
    frame = report.value[:_FRAME]
    if len(frame) < _FRAME or frame[0] != 0:
        raise ValueError("the value begins with no zero and schema's id: no Confluent wire format")
    return int.from_bytes(frame[1:])
