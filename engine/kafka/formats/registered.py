"""What Avro, Protobuf and JSON Schema have in common: Confluent's wire format and a registry.

https://docs.confluent.io/platform/current/schema-registry/fundamentals/serdes-develop/index.html
A value is a zero byte, the schema's id in four bytes, and the message: this project's own
detection, in the fields of its own names.
"""

import struct
from collections import OrderedDict
from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple

import msgspec

from engine.kafka.formats.report import Report, Sighting
from engine.kafka.messages import Detection
from engine.kafka.schema_registry import RegisteredSchema, SchemaRegistry

Decode = Callable[[bytes], object]

_HEAD = struct.Struct(">bI")
_MAGIC = 0
_MOST_COMPILED = 1000


class _Compiled(NamedTuple):
    schema: RegisteredSchema
    decode: Decode


class RegisteredFormat:
    """Implements ReadReport for one kind of schema. `compile_` makes a schema's decoder, and raises
    ValueError for a schema that cannot be one of detections."""

    def __init__(
        self,
        registry: SchemaRegistry,
        *,
        kind: str,
        compile_: Callable[[RegisteredSchema], Decode],
    ) -> None:
        self._registry = registry
        self._kind = kind
        self._compile = compile_
        self._compiled: OrderedDict[int, _Compiled] = OrderedDict()

    async def prepare(self, reports: Iterable[Report]) -> None:
        """Fetch the schemas that the reports name."""
        ids = set()
        for report in reports:
            try:
                ids.add(_framed(report.value)[0])
            except ValueError:
                continue  # it becomes a dead letter when it is read
        await self._registry.fetch(ids)

    def __call__(self, report: Report) -> Sequence[Sighting]:
        """The one detection of the report."""
        id_, message = _framed(report.value)
        try:
            plain = self._decoder(id_)(message)
        except msgspec.DecodeError:
            raise  # it is not JSON, and its reason says so
        except ValueError as error:
            raise ValueError(f"schema {id_}: {error}") from error
        return (Sighting(0, msgspec.convert(plain, Detection)),)

    def _decoder(self, id_: int) -> Decode:
        """The schema's; made once for as long as the schema is remembered."""
        schema = self._registry.schema(id_)
        known = self._compiled.get(id_)
        if known is not None and known.schema is schema:
            return known.decode
        self._compiled[id_] = _Compiled(schema, self._made(schema))
        if len(self._compiled) > _MOST_COMPILED:
            self._compiled.popitem(last=False)
        return self._compiled[id_].decode

    def _made(self, schema: RegisteredSchema) -> Decode:
        """The decoder of a schema that cannot be one refuses everything, and is made once too."""
        if schema.kind != self._kind:
            return _refusing(f"it is {schema.kind[:80]}, and the topic holds {self._kind}")
        try:
            return self._compile(schema)
        except ValueError as error:
            return _refusing(str(error))


def _framed(value: bytes) -> tuple[int, bytes]:
    if len(value) < _HEAD.size:
        raise ValueError("too short for a schema's id: no Confluent wire format")
    magic, id_ = _HEAD.unpack_from(value)
    if magic != _MAGIC:
        raise ValueError("it does not begin with a zero byte: no Confluent wire format")
    return id_, value[_HEAD.size :]


def _refusing(why: str) -> Decode:
    def refuse(_message: bytes) -> object:
        raise ValueError(why)

    return refuse
