"""Converts between the keys of a Redis and lines of JSON, including the time to live."""

import json
from typing import Any

from redis import Redis

_NO_LIMIT = -1


def dump(url: str) -> str:
    """All keys, a line each."""
    with Redis.from_url(url, encoding="latin-1", decode_responses=True) as client:
        found: Any = sorted(client.scan_iter())
        lines = [
            json.dumps(
                {
                    "key": key,
                    "lives_ms": client.pttl(key),
                    "type": client.type(key),
                    "value": _READ[str(client.type(key))](client, key),
                }
            )
            for key in found
        ]
    return "".join(f"{line}\n" for line in lines)


def load(text: str, url: str) -> None:
    """Write the keys into an empty Redis."""
    with Redis.from_url(url, encoding="latin-1", decode_responses=True) as client:
        for line in map(json.loads, text.splitlines()):
            _write(client, line["key"], line["type"], line["value"])
            if line["lives_ms"] != _NO_LIMIT:
                client.pexpire(line["key"], line["lives_ms"])


def _write(client: "Redis", key: str, kind: str, value: Any) -> None:
    match kind:
        case "string":
            client.set(key, value)
        case "hash":
            client.hset(key, mapping=value)
        case "list":
            client.rpush(key, *value)
        case "set":
            client.sadd(key, *value)
        case "zset":
            client.zadd(key, dict(value))
        case "stream":
            for entry, fields in value:
                client.xadd(key, fields, id=entry)
        case _:
            raise AssertionError(kind)


_READ: dict[str, Any] = {
    "string": lambda client, key: client.get(key),
    "hash": lambda client, key: client.hgetall(key),
    "list": lambda client, key: client.lrange(key, 0, -1),
    "set": lambda client, key: sorted(client.smembers(key)),
    "zset": lambda client, key: client.zrange(key, 0, -1, withscores=True),
    "stream": lambda client, key: client.xrange(key),
}
