"""The part common to Avro, Protobuf and JSON Schema: Confluent's wire format and a registry.

https://docs.confluent.io/platform/current/schema-registry/fundamentals/serdes-develop/index.html
The message follows a byte 0 and the schema's id in four bytes, or a byte 1 and the schema's GUID in
sixteen bytes. These may be in a header instead; then the value is the message alone. The message is
this project's own detection with its own field names.
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
_MOST_SCHEMAS = 8  # of one record with many events


class _Framed(NamedTuple):
    """A message and the id of the schema that wrote it."""

    schema: SchemaId
    message: bytes


class _Compiled(NamedTuple):
    schema: RegisteredSchema
    decode: Decode


class RegisteredFormat:
    """Implements ReadReport for one kind of schema.

    `compile_` makes a schema's decoder, and raises ValueError for a schema that cannot be used for
    detections. `indexed`: the indexes of its type precede a message, or follow the schema's id if
    the id is in a header.
    """

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
        """Raises ValueError if the events of a record name more schemas than the limit allows."""
        if len(self._schemas(reports)) > _MOST_SCHEMAS:
            raise ValueError(f"the events of a record may name at most {_MOST_SCHEMAS} schemas")

    async def prepare(self, reports: Iterable[Report]) -> None:
        """Fetch the schemas that the reports name, and drop the decoders of forgotten schemas."""
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
            raise  # the message is not JSON, which has a dead-letter reason of its own
        except ValueError as error:
            raise ValueError(f"schema {id_}: {error}") from error
        return (Sighting(0, msgspec.convert(plain, Detection)),)

    def _schemas(self, reports: Iterable[Report]) -> set[SchemaId]:
        ids: set[SchemaId] = set()
        for report in reports:
            with contextlib.suppress(ValueError):  # `__call__` raises it, for a dead letter
                ids.add(self._framed(report).schema)
        return ids

    def _framed(self, report: Report) -> _Framed:
        """The schema's id from the header if there is one, else from the value's first bytes."""
        header = header_bytes(report, SCHEMA_HEADER)
        if header is None:
            return _unframed(report.value, "the value")
        id_, indexes = _unframed(header, f"header {SCHEMA_HEADER}")
        if bool(indexes) != self._indexed:
            expected = "the indexes of a type" if self._indexed else "nothing"
            raise ValueError(f"in header {SCHEMA_HEADER} {expected} must follow the schema's id")
        return _Framed(id_, indexes + report.value)

    def _decoder(self, id_: SchemaId) -> Decode:
        """The decoder of a schema, made once for as long as the registry remembers the schema."""
        schema = self._registry.schema(id_)
        known = self._compiled.get(id_)
        if known is None or known.schema is not schema:
            known = self._compiled[id_] = _Compiled(schema, self._compile_or_refuse(schema))
        return known.decode

    def _compile_or_refuse(self, schema: RegisteredSchema) -> Decode:
        """The decoder of an unusable schema refuses every message; it too is made only once."""
        if schema.kind != self._kind:
            return _refusing(f"it is {schema.kind[:80]}, and the topic's format is {self._kind}")
        try:
            return self._compile(schema)
        except ValueError as error:
            return _refusing(str(error))


def _unframed(framed: bytes, what: str) -> _Framed:
    """The schema's id and the bytes after it. Raises ValueError."""
    if framed[:1] not in (b"\0", b"\1"):
        raise ValueError(f"{what} begins with neither a zero nor a one: no Confluent wire format")
    size = _NUMBER.size if framed[0] == _ID else _GUID_BYTES
    name, rest = framed[1 : 1 + size], framed[1 + size :]
    if len(name) < size:
        raise ValueError(f"{what} is too short for a schema's id: no Confluent wire format")
    return _Framed(UUID(bytes=name) if framed[0] == _GUID else _NUMBER.unpack(name)[0], rest)


def _refusing(cause: str) -> Decode:
    def refuse(_message: bytes) -> object:
        raise ValueError(cause)

    return refuse
