"""`proximity explain`: shows each check of each campaign for one detection, real or assumed."""

import time
from collections.abc import Iterable, Mapping
from typing import Annotated, Any

import typer
from typer import Option

from api.campaigns import shown_campaign, shown_check
from engine.cli.command import CommandError, begin_quietly, command, moment, parsed
from engine.cli.output import echo_json, say
from engine.cli.servers import company_id, open_redis
from engine.kafka.detections import BeaconKey, GeofenceKey, PlaceKey, TagKey, canonical_uuid
from engine.process.metrics import Metrics
from engine.redis.claims import ClaimReader
from engine.redis.devices import DeviceKey
from engine.trigger.place_cache import IndexedPlace, PlaceCache
from engine.trigger.place_index import IndexNotBuiltError, PlaceIndex
from rules.explanation import DeviceHistory, Question
from rules.explanation import explain as explain_detection
from rules.model import Reason, Zone
from rules.parsing import parse_zone
from rules.schedule import zone_clock

_NAME = max(map(len, Reason))
_BEACON = "explain --uuid f7826da6-4fa2-4e98-8024-bc5b71e0893e \\\n    --major 1 --minor 2"
Number = Annotated[int | None, Option(min=0, max=65535, help="The beacon's number.")]


@command(
    "explain",
    _BEACON,
    f"{_BEACON} --udid device-1 --at 2026-11-20T22:41:00+0100",
    'explain --qrcode "harbour-mall/entrance" --company "Harbour Mall"',
)
async def explain(
    uuid: Annotated[str | None, Option(help="The beacon's UUID.")] = None,
    major: Number = None,
    minor: Number = None,
    geofence: Annotated[int | None, Option(min=1, help="Or the geofence's id.")] = None,
    nfc: Annotated[str | None, Option(help="Or what the NFC tag holds.")] = None,
    qrcode: Annotated[str | None, Option(help="Or what the QR code holds.")] = None,
    company: Annotated[str | None, Option(help="Of a tag: the company's id or name.")] = None,
    udid: Annotated[str | None, Option(help="The device; default: a new one.")] = None,
    proximity: Annotated[str | None, Option(help="immediate, near, far or unknown.")] = None,
    at: Annotated[str | None, Option(help="2026-11-21T23:30:00+0100; default: now.")] = None,
    decided_at: Annotated[str | None, Option(help="When it is decided; default: at once.")] = None,
    time_zone: Annotated[str | None, Option(help="The device's, for quiet hours.")] = None,
    as_json: Annotated[bool, Option("--json", help="One JSON object.")] = False,
) -> None:
    """Explain why a detection would fire each campaign of a place, or why not.

    Shows every check with the values that it compares, the claim of the device if there is one, and
    the next time at which the campaign would fire. The command uses the index and the claims in
    Redis and the triggers' own rules. It takes no claim and sends or writes nothing.
    """
    settings = begin_quietly()
    given = [each for each in (uuid, geofence, nfc, qrcode) if each is not None]
    if len(given) != 1:
        raise typer.BadParameter("accepted: one of --uuid, --geofence, --nfc and --qrcode")
    key: PlaceKey
    if geofence is not None:
        key = GeofenceKey(geofence)
    elif uuid is not None:
        if major is None or minor is None:
            raise typer.BadParameter("needs --major and --minor beside it", param_hint="--uuid")
        key = BeaconKey(parsed("--uuid", canonical_uuid, uuid), major, minor)
    elif company is None:
        raise typer.BadParameter("missing: a tag is one of a company", param_hint="--company")
    else:
        owner = await company_id(settings, company)
        key = TagKey(owner, "qrcode" if nfc is None else "nfc", nfc or qrcode or "")
    decided = None if decided_at is None else parsed("--decided-at", moment, decided_at)
    detected = (decided or time.time()) if at is None else parsed("--at", moment, at)
    zone = Zone.IMMEDIATE if proximity is None else parsed("--proximity", parse_zone, proximity)
    async with open_redis(settings) as stores:
        options = stores.redis_options
        index = PlaceIndex(cache=PlaceCache(most_places=1), metrics=Metrics(), **options)
        try:
            place = await index.look_up(key)
        except IndexNotBuiltError:
            raise CommandError("Redis has no index yet: `proximity run` builds it") from None
        history = DeviceHistory(time_zone=time_zone)
        if place is not None and udid is not None:
            device = DeviceKey(place.company_reference.id, udid)
            campaigns = [each.id for each in place.campaigns]
            history = await ClaimReader(**options).history(device, campaigns)
            history = history._replace(time_zone=time_zone or history.time_zone)
    if place is not None and proximity is None:
        zone = place.target.reach or zone  # the farthest that triggers
    max_age = settings.max_detection_age
    question = Question(zone, detected, decided or detected, max_age, history, key.kind)
    fields = _fields(key, udid, place, question)
    if as_json:
        echo_json(fields)
    else:
        _show(key, fields)


def _fields(
    key: PlaceKey, udid: str | None, place: IndexedPlace | None, question: Question
) -> dict[str, Any]:
    """The object of --json. Times are in the venue's local time, or in UTC."""
    explanation = explain_detection(place.target if place else None, question)
    venue = None if place is None else place.target.venue
    place_fields: dict[str, Any] = key._asdict()
    if place is not None:
        place_fields |= {"id": place.reference.id, "name": place.reference.name}
    written = zone_clock((venue and venue.time_zone) or "UTC").written
    return {
        key.kind: place_fields,
        "venue": venue and {"id": venue.id, "name": venue.name},
        "company": venue and {"id": venue.company_id},
        "device": None if udid is None else {"udid": udid},
        "proximity": question.zone.name.lower(),
        "detected_at": written(question.detected_at),
        "decided_at": written(question.decided_at),
        "reason": explanation.reason.value,
        "checks": [shown_check(check) for check in explanation.checks],
        "campaigns": [shown_campaign(each) for each in explanation.campaigns],
    }


def _show(key: PlaceKey, fields: Mapping[str, Any]) -> None:
    """Print a head, the checks that all campaigns share, and each campaign."""
    named = ":".join(map(str, key[-1:] if isinstance(key, TagKey) else key))
    how = f", {fields['proximity']}" if key.kind == "beacon" else ""
    place, venue, device = fields[key.kind], fields["venue"], fields["device"]
    where = f"{place['name']}, {venue['name']}" if venue else "not in the index"
    detected_at, decided_at = fields["detected_at"], fields["decided_at"]
    at = "at once" if decided_at == detected_at else decided_at
    say(f"{key.kind:8}  {named}, {where}")
    say(f"device    {device['udid'] if device else 'a new one'}{how}")
    say(f"detected  {detected_at}, decided {at}")
    say("")
    _show_checks(fields["checks"])
    for each in fields["campaigns"]:
        say("")
        say(f"campaign {each['campaign']['id']}, {each['campaign']['name']}: {each['reason']}")
        _show_checks(each["checks"])
        if each["claim"] is not None:
            say(f"  claim  by notification {each['claim']['notification']}")
        if each["next_at"] is not None:
            say(f"  next   {'now' if each['reason'] == Reason.GRANTED else each['next_at']}")
        elif each["blocked_by"]:
            say(f"  next   whatever the time, not while: {', '.join(each['blocked_by'])}")
        else:
            say("  next   never again: its dates are over, or it has no weekday")


def _show_checks(checks: Iterable[Mapping[str, Any]]) -> None:
    for each in checks:
        values, needed = each["found"], each["needed"]
        if not each["passed"] or values != needed:
            values = f"{values}; needed: {needed}"
        say(f"  {'ok' if each['passed'] else 'NO'}  {each['check']:{_NAME}}  {values}")
