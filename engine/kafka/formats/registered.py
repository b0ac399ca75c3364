"""What Avro, Protobuf and JSON Schema have in common: Confluent's wire format and a registry.

https://docs.confluent.io/platform/current/schema-registry/fundamentals/serdes-develop/index.html
A zero byte and the schema's id in four bytes, or a one and its GUID in sixteen, stand in front of
the message; or in a header, and then the value is the message alone. The message is this project's
own detection, in the fields of its own names.
"""

import contextlib
import struct
from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple
from uuid import UUID

import msgspec

from engine.kafka.formats.report import Report, Sighting, header_bytes
from engine.kafka.messages import Detection
from engine.kafka.schema_registry import RegisteredSchema, SchemaId, SchemaRegistry

Decode = Callable[[bytes], object]

SCHEMA_HEADER = "__value_schema_id"
_ID, _GUID = 0, 1  # the first byte
_NUMBER = struct.Struct(">I")
_GUID_BYTES = 16
_MOST_SCHEMAS = 8  # of a record of many events


class _Framed(NamedTuple):
    """A message and the schema that wrote it."""

    schema: SchemaId
    message: bytes


class _Compiled(NamedTuple):
    schema: RegisteredSchema
    decode: Decode


class RegisteredFormat:
    """Implements ReadReport for one kind of schema. `compile_` makes a schema's decoder, and raises
    ValueError for a schema that cannot be one of detections. `indexed`: in front of a message stand
    the indexes of its type, which go with the schema's id into a header."""

    def __init__(
        self,
        registry: SchemaRegistry,
        *,
        kind: str,
        indexed: bool,
        compile_: Callable[[RegisteredSchema], Decode],
    ) -> None:
        self._registry = registry
        self._kind = kind
        self._indexed = indexed
        self._compile = compile_
        self._compiled: dict[SchemaId, _Compiled] = {}

    def check(self, reports: Sequence[Report]) -> None:
        """Raises ValueError for a record whose events name more schemas than it may make us
        fetch."""
        if len(self._schemas(reports)) > _MOST_SCHEMAS:
            raise ValueError(f"the events of a record name at most {_MOST_SCHEMAS} schemas")

    async def prepare(self, reports: Iterable[Report]) -> None:
        """Fetch the schemas that the reports name, and forget what was made of others."""
        await self._registry.fetch(self._schemas(reports))
        if len(self._compiled) > len(self._registry.known):
            for id_ in self._compiled.keys() - self._registry.known:
                del self._compiled[id_]

    def __call__(self, report: Report) -> Sequence[Sighting]:
        """The one detection of the report."""
        id_, message = self._framed(report)
        try:
            plain = self._decoder(id_)(message)
        except msgspec.DecodeError:
            raise  # it is not JSON, and its reason says so
        except ValueError as error:
            raise ValueError(f"schema {id_}: {error}") from error
        return (Sighting(0, msgspec.convert(plain, Detection)),)

    def _schemas(self, reports: Iterable[Report]) -> set[SchemaId]:
        ids: set[SchemaId] = set()
        for report in reports:
            with contextlib.suppress(ValueError):  # it becomes a dead letter when it is read
                ids.add(self._framed(report).schema)
        return ids

    def _framed(self, report: Report) -> _Framed:
        """By the header, where there is one, else by the value's first bytes."""
        header = header_bytes(report, SCHEMA_HEADER)
        if header is None:
            return _unframed(report.value, "the value")
        id_, indexes = _unframed(header, f"header {SCHEMA_HEADER}")
        if bool(indexes) != self._indexed:
            wanted = "the indexes of a type follow" if self._indexed else "nothing follows"
            raise ValueError(f"in header {SCHEMA_HEADER} {wanted} behind the schema's id")
        return _Framed(id_, indexes + report.value)

    def _decoder(self, id_: SchemaId) -> Decode:
        """The schema's; made once for as long as the schema is remembered."""
        schema = self._registry.schema(id_)
        known = self._compiled.get(id_)
        if known is None or known.schema is not schema:
            known = self._compiled[id_] = _Compiled(schema, self._made(schema))
        return known.decode

    def _made(self, schema: RegisteredSchema) -> Decode:
        """The decoder of a schema that cannot be one refuses everything, and is made once too."""
        if schema.kind != self._kind:
            return _refusing(f"it is {schema.kind[:80]}, and the topic holds {self._kind}")
        try:
            return self._compile(schema)
        except ValueError as error:
            return _refusing(str(error))


def _unframed(framed: bytes, what: str) -> _Framed:
    """The schema's id and what stands behind it. Raises ValueError."""
    if framed[:1] not in (b"\0", b"\1"):
        raise ValueError(f"{what} begins with neither a zero nor a one: no Confluent wire format")
    size = _NUMBER.size if framed[0] == _ID else _GUID_BYTES
    name, rest = framed[1 : 1 + size], framed[1 + size :]
    if len(name) < size:
        raise ValueError(f"{what} is too short for a schema's id: no Confluent wire format")
    return _Framed(UUID(bytes=name) if framed[0] == _GUID else _NUMBER.unpack(name)[0], rest)


def _refusing(why: str) -> Decode:
    def refuse(_message: bytes) -> object:
        raise ValueError(why)

    return refuse
