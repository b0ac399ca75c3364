"""`proximity explain`: shows each check of each campaign for one detection, real or assumed."""

import asyncio
import time
from typing import TYPE_CHECKING, Annotated

import typer

from engine.cli.errors import CommandError
from engine.cli.examples import examples
from engine.cli.invocation import begin_quietly
from engine.cli.servers import redis_reason, refuse_wrong_servers
from engine.cli.time_option import moment
from engine.process.settings import Settings

if TYPE_CHECKING:
    from engine.trigger.explainer import ExplainedDetection, SupposedDetection
    from rules.model import Zone

_HIGHEST = 65535


def register(app: typer.Typer) -> None:
    """Add the command."""
    beacon = "explain --uuid f7826da6-4fa2-4e98-8024-bc5b71e0893e \\\n    --major 1 --minor 2"
    lines = (beacon, f"{beacon} --udid device-1 --at 2026-11-20T22:41:00+0100")
    app.command("explain", epilog=examples(*lines))(explain)


def explain(
    context: typer.Context,
    uuid: Annotated[str, typer.Option(help="The beacon's UUID.")],
    major: Annotated[int, typer.Option(min=0, max=_HIGHEST, help="The beacon's major.")],
    minor: Annotated[int, typer.Option(min=0, max=_HIGHEST, help="The beacon's minor.")],
    udid: Annotated[
        str | None, typer.Option(help="The device whose claims are read; default: a new device.")
    ] = None,
    proximity: Annotated[
        str | None,
        typer.Option(
            help="immediate, near, far or unknown; default: the zone that the beacon needs."
        ),
    ] = None,
    rssi: Annotated[
        int | None, typer.Option(help="Instead of --proximity: the signal strength in dBm.")
    ] = None,
    tx_power: Annotated[
        int | None, typer.Option(help="With --rssi: the beacon's power at 1 m in dBm.")
    ] = None,
    at: Annotated[
        str | None,
        typer.Option(help="The time of the detection, as 2026-11-21T23:30:00+0100; default: now."),
    ] = None,
    decided_at: Annotated[
        str | None, typer.Option(help="The time at which the engine decides it; default: at once.")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object.")] = False,
) -> None:
    """Explain why a detection would fire each campaign of a beacon, or why not.

    Shows every check with the values that it compares, the claim of the device if there is one, and
    the next time at which the campaign would fire. The command uses the index and the claims in
    Redis and the triggers' own rules. It takes no claim and sends or writes nothing.
    """
    from engine.cli.explain.lines import explained_fields, explained_lines
    from engine.cli.tables import echo_json

    settings = begin_quietly(context)
    supposed = _supposed(
        key=(uuid, major, minor),
        udid=udid,
        zone=_zone(settings, proximity, rssi, tx_power),
        at=None if at is None else moment("--at", at),
        decided_at=None if decided_at is None else moment("--decided-at", decided_at),
    )
    explained = asyncio.run(_read(settings, supposed))
    if as_json:
        echo_json(explained_fields(supposed, explained))
        return
    for line in explained_lines(supposed, explained):
        typer.echo(line)


def _supposed(
    *,
    key: tuple[str, int, int],
    udid: str | None,
    zone: "Zone | None",
    at: float | None,
    decided_at: float | None,
) -> "SupposedDetection":
    from engine.kafka.detections import BeaconKey, canonical_uuid
    from engine.trigger.explainer import SupposedDetection

    try:
        uuid = canonical_uuid(key[0])
    except ValueError:
        raise typer.BadParameter(
            "accepted: 32 hexadecimal digits, with or without dashes", param_hint="--uuid"
        ) from None
    now = time.time()
    if at is None:
        at = now if decided_at is None else decided_at
    return SupposedDetection(
        key=BeaconKey(uuid, key[1], key[2]),
        udid=udid,
        zone=zone,
        detected_at=at,
        decided_at=at if decided_at is None else decided_at,
        is_now=at == now,
    )


def _zone(
    settings: Settings, proximity: str | None, rssi: int | None, tx_power: int | None
) -> "Zone | None":
    from rules.proximity import parse_zone, zone_from_rssi

    if proximity is not None:
        if rssi is not None:
            raise typer.BadParameter("goes without --rssi", param_hint="--proximity")
        try:
            return parse_zone(proximity)
        except ValueError as error:
            raise typer.BadParameter(str(error), param_hint="--proximity") from None
    if rssi is None:
        if tx_power is not None:
            raise typer.BadParameter("needs --rssi beside it", param_hint="--tx-power")
        return None
    return zone_from_rssi(rssi, tx_power, settings.path_loss_exponent)


async def _read(settings: Settings, supposed: "SupposedDetection") -> "ExplainedDetection":
    from redis.exceptions import RedisError

    from catalog.errors import RedisUrlError
    from engine.trigger.beacon_index import IndexNotBuiltError
    from engine.wiring.explain import open_explainer

    await refuse_wrong_servers(settings)
    try:
        async with open_explainer(settings) as explainer:
            return await explainer.explain(supposed)
    except RedisUrlError as error:
        raise CommandError(str(error)) from None
    except IndexNotBuiltError:
        raise CommandError(
            "Redis has no index yet: a process that reaches SQL builds it, as `proximity run` does"
        ) from None
    except (RedisError, OSError, TimeoutError) as error:
        raise CommandError(f"Redis does not serve: {redis_reason(settings, error)}") from None
