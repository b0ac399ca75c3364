"""`proximity check`: prints one table of all checks."""

import asyncio
from typing import TYPE_CHECKING, Annotated

import typer

from engine.cli.errors import CommandError
from engine.cli.invocation import begin_quietly
from engine.cli.tables import echo_json, print_rows
from engine.process.settings import Settings

if TYPE_CHECKING:
    from engine.cli.check.finding import Finding

_HEADER = ("state", "part", "what", "found")


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command("check")(check)


def check(
    context: typer.Context,
    json: Annotated[bool, typer.Option("--json", help="One JSON object a line.")] = False,
) -> None:
    """Check everything that a process needs at its start, and change nothing.

    Kafka: whether it is reachable, topics, partitions, the rights of the login, and its token if it
    uses one. Redis: version, memory, eviction policy, persistence. SQL: migrations, rights. Also
    the clocks of the servers, the secret key, egress, ports, and the schema registry if a topic
    needs it. The exit status is 1 if a check fails; warnings alone are no failure.
    """
    settings = begin_quietly(context)
    found = asyncio.run(_check_all(settings))
    if json:
        for each in found:
            echo_json(each.as_json())
    else:
        rows = [(each.state.value, each.part, each.subject, each.result) for each in found]
        lines = (f"{state:7}  {part}: {subject}: {result}" for state, part, subject, result in rows)
        print_rows(_HEADER, rows, narrow=lines)
    faults = sum(each.state.value == "bad" for each in found)
    if faults:
        raise CommandError(f"{faults} of {len(found)} checks failed")


async def _check_all(settings: Settings) -> "list[Finding]":
    from engine.cli.check.kafka import check_kafka
    from engine.cli.check.process import check_process
    from engine.cli.check.redis import check_redis
    from engine.cli.check.registry import check_registry
    from engine.cli.check.sql import check_sql
    from engine.cli.check.token import check_token

    parts = (check_kafka, check_token, check_registry, check_redis, check_sql, check_process)
    return [each for found in await asyncio.gather(*(p(settings) for p in parts)) for each in found]
