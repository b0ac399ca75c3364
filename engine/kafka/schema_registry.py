"""Schemas by id or GUID, from a registry with Confluent's REST interface, remembered in bounds.

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

# As records name schemas: the number that one registry gave it, or the same everywhere.
SchemaId: TypeAlias = int | UUID

_MOST_SCHEMAS = 1000
_MOST_BYTES = 64 * 1024 * 1024  # of them together, before more are fetched
_MOST_UNREADABLE = 10_000
_MOST_REFERENCES = 32
_FORGOTTEN = 60.0  # seconds after which what could not be read is asked for again
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
    """A schema as registered. `kind` is AVRO, PROTOBUF or JSON; `references` are the texts of the
    schemas that it needs, by the name by which it needs them, each behind those it needs itself."""

    kind: str
    text: str
    references: Mapping[str, str]

    @property
    def size(self) -> int:
        """Characters, with those of its references."""
        return len(self.text) + sum(map(len, self.references.values()))


class _Unreadable(NamedTuple):
    why: str
    until: float


class SchemaRegistry:
    """The schemas of one registry. `errors` counts and says its failures; without `errors` one that
    fails raises. `form` is the form in which schemas are asked for, as in ?format=."""

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
        """The schemas that are remembered."""
        return self._schemas.keys()

    async def fetch(self, ids: Collection[SchemaId]) -> None:
        """Until each of these few is known, or known to be unreadable. Waits for a registry that is
        away.

        Without `errors` raises SchemaRegistryError instead.
        """
        self._forget_large()
        while missing := [id_ for id_ in ids if not self._knows(id_)]:
            for id_ in missing:
                if self._errors is None:
                    await self._ask_once(id_)
                else:
                    await retry(partial(self._ask, id_), self._errors, "schemas")

    def schema(self, id_: SchemaId) -> RegisteredSchema:
        """What `fetch` has just found. Raises ValueError for what it could not."""
        found = self._schemas.get(id_)
        if found is None:
            raise ValueError(f"schema {id_} of the registry: {self._unreadable[id_].why}")
        return found

    def _forget_large(self) -> None:
        """The ones that were used longest ago, until the others have room."""
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

    async def _ask_once(self, id_: SchemaId) -> None:
        try:
            await self._ask(id_)
        except (OSError, TimeoutError) as error:
            told = f"the schema registry does not answer: {describe(error)}"
            raise SchemaRegistryError(told) from error

    async def _ask(self, id_: SchemaId) -> None:
        try:
            kind = "guids" if isinstance(id_, UUID) else "ids"
            answer = await self._get(f"/schemas/{kind}/{id_}")
            references: dict[str, str] = {}
            await self._add_references(answer, references, _MOST_REFERENCES)
        except UnreadableSchemaError as error:
            self._unreadable[id_] = _Unreadable(str(error), self._clock() + _FORGOTTEN)
            self._unreadable.move_to_end(id_)
            if len(self._unreadable) > _MOST_UNREADABLE:
                self._unreadable.popitem(last=False)
        else:
            schema = RegisteredSchema(answer.schema_type, answer.schema, references)
            self._remember(id_, schema)

    async def _add_references(self, answer: _Answer, found: dict[str, str], depth: int) -> None:
        """Those that others need first. Raises UnreadableSchemaError for too many."""
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
        """Raises UnreadableSchemaError for what the registry has not, or what is no schema."""
        answer = await self._address.get(f"{target}{self._query}")
        if answer.status == _NOT_FOUND:
            raise UnreadableSchemaError("it has none of this id")
        if answer.status != _FOUND:
            raise SchemaRegistryError(f"the schema registry answers {answer.status} to {target}")
        try:
            return _decode(answer.body)
        except (msgspec.DecodeError, RecursionError) as error:
            raise UnreadableSchemaError(f"no answer of a registry: {error}") from error
