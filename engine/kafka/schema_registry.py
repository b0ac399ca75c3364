"""Fetches schemas by id or GUID from a registry with Confluent's REST interface, and caches them.

https://docs.confluent.io/platform/current/schema-registry/develop/api.html
"""

import time
from collections import OrderedDict
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from functools import partial
from typing import NamedTuple, TypeAlias
from urllib.parse import quote
from uuid import UUID

import msgspec

from engine.kafka.errors import UnreadableSchemaError
from engine.kafka.registry_request import RegistryAddress
from engine.process.errors import SchemaRegistryError
from engine.process.failures import describe
from engine.process.retry import retry
from engine.process.server_errors import ServerErrors

# Records name a schema by its number in one registry, or by a GUID that is the same in all.
SchemaId: TypeAlias = int | UUID

_MOST_SCHEMAS = 1000
_MOST_BYTES = 64 * 1024 * 1024  # of all cached schemas, before more are fetched
_MOST_UNREADABLE = 10_000
_MOST_REFERENCES = 32
_RETRY_UNREADABLE = 60.0  # seconds after which an unreadable schema is fetched again
_FOUND, _NOT_FOUND = 200, 404


class _Reference(msgspec.Struct):
    name: str
    subject: str
    version: int


class _Answer(msgspec.Struct):
    schema: str
    schema_type: str = msgspec.field(name="schemaType", default="AVRO")
    references: list[_Reference] = []


_decode = msgspec.json.Decoder(_Answer).decode


@dataclass(frozen=True, slots=True)
class RegisteredSchema:
    """A schema as registered. `kind` is AVRO, PROTOBUF or JSON.

    `references` are the texts of the schemas that it refers to, by the name in the reference. A
    referenced schema follows those that it refers to itself.
    """

    kind: str
    text: str
    references: Mapping[str, str]

    @property
    def size(self) -> int:
        """Characters of the schema and of its references."""
        return len(self.text) + sum(map(len, self.references.values()))


class _Unreadable(NamedTuple):
    reason: str
    until: float


class SchemaRegistry:
    """The schemas of one registry.

    `errors` counts and logs failures of the registry, which are retried; without `errors` a failure
    raises. `form` is the requested form of schemas, as in ?format=.
    """

    def __init__(
        self,
        address: RegistryAddress,
        *,
        errors: ServerErrors | None,
        form: str | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._address = address
        self._errors = errors
        self._query = "" if form is None else f"?format={form}"
        self._clock = clock
        self._schemas: OrderedDict[SchemaId, RegisteredSchema] = OrderedDict()
        self._unreadable: OrderedDict[SchemaId, _Unreadable] = OrderedDict()
        self._size = 0

    @property
    def known(self) -> Collection[SchemaId]:
        """The ids of the cached schemas."""
        return self._schemas.keys()

    async def fetch(self, ids: Collection[SchemaId]) -> None:
        """Fetch these few schemas, except those that are cached or known to be unreadable.

        Waits while the registry is down; without `errors` raises SchemaRegistryError instead.
        """
        self._forget_large()
        while missing := [id_ for id_ in ids if not self._knows(id_)]:
            for id_ in missing:
                if self._errors is None:
                    await self._fetch_once(id_)
                else:
                    await retry(partial(self._fetch_one, id_), self._errors, "schemas")

    def schema(self, id_: SchemaId) -> RegisteredSchema:
        """A schema that `fetch` has just fetched. Raises ValueError for an unreadable one."""
        found = self._schemas.get(id_)
        if found is None:
            raise ValueError(f"schema {id_} of the registry: {self._unreadable[id_].reason}")
        return found

    def _forget_large(self) -> None:
        """Drop the least recently used schemas until the others are within the limit."""
        while self._size > _MOST_BYTES:
            self._forget_oldest()

    def _forget_oldest(self) -> None:
        _, forgotten = self._schemas.popitem(last=False)
        self._size -= forgotten.size

    def _remember(self, id_: SchemaId, schema: RegisteredSchema) -> None:
        self._schemas[id_] = schema
        self._size += schema.size
        if len(self._schemas) > _MOST_SCHEMAS:
            self._forget_oldest()

    def _knows(self, id_: SchemaId) -> bool:
        if id_ in self._schemas:
            self._schemas.move_to_end(id_)
            return True
        found = self._unreadable.get(id_)
        return found is not None and self._clock() < found.until

    async def _fetch_once(self, id_: SchemaId) -> None:
        try:
            await self._fetch_one(id_)
        except (OSError, TimeoutError) as error:
            message = f"the schema registry does not answer: {describe(error)}"
            raise SchemaRegistryError(message) from error

    async def _fetch_one(self, id_: SchemaId) -> None:
        try:
            kind = "guids" if isinstance(id_, UUID) else "ids"
            answer = await self._get(f"/schemas/{kind}/{id_}")
            references: dict[str, str] = {}
            await self._add_references(answer, references, _MOST_REFERENCES)
        except UnreadableSchemaError as error:
            self._unreadable[id_] = _Unreadable(str(error), self._clock() + _RETRY_UNREADABLE)
            self._unreadable.move_to_end(id_)
            if len(self._unreadable) > _MOST_UNREADABLE:
                self._unreadable.popitem(last=False)
        else:
            schema = RegisteredSchema(answer.schema_type, answer.schema, references)
            self._remember(id_, schema)

    async def _add_references(self, answer: _Answer, found: dict[str, str], depth: int) -> None:
        """Fetch the referenced schemas, depth first. Raises UnreadableSchemaError for too many."""
        for each in answer.references:
            if each.name in found:
                continue
            if depth == 0 or len(found) >= _MOST_REFERENCES:
                raise UnreadableSchemaError(f"it needs more than {_MOST_REFERENCES} others")
            subject = quote(each.subject, safe="")
            referred = await self._get(f"/subjects/{subject}/versions/{each.version}")
            await self._add_references(referred, found, depth - 1)
            found[each.name] = referred.schema

    async def _get(self, target: str) -> _Answer:
        """An answer of the registry. Raises UnreadableSchemaError if it has no such schema."""
        answer = await self._address.get(f"{target}{self._query}")
        if answer.status == _NOT_FOUND:
            raise UnreadableSchemaError("it has no schema of this id")
        if answer.status != _FOUND:
            raise SchemaRegistryError(f"the schema registry answers {answer.status} to {target}")
        try:
            return _decode(answer.body)
        except (msgspec.DecodeError, RecursionError) as error:
            raise UnreadableSchemaError(f"the answer is not a registry's: {error}") from error
