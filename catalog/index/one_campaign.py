"""Reads one campaign and one of its beacons from SQL, in the form that the index will have.

The result includes the latest edits, whether or not triggers know them already.
"""

from typing import NamedTuple

from sqlalchemy import and_, exists, or_, select
from sqlalchemy.ext.asyncio import AsyncSession

from catalog.index.catalog_reader import beacon_fields, campaign_fields
from catalog.index.entries import BeaconEntry, decode_beacon, decode_campaign
from catalog.models import (
    Beacon,
    Campaign,
    Connector,
    Venue,
    beacon_tag,
    campaign_beacon,
    campaign_tag,
)
from rules.decision import Target
from rules.explanation import awake_campaign
from rules.model import BeaconSnapshot, CampaignSnapshot, VenueSnapshot


class CampaignAtBeacon(NamedTuple):
    """A campaign and the beacon that the question is about; None if it targets no beacon.

    `target` has the campaign only if the campaign is aimed at the beacon.
    """

    campaign: CampaignSnapshot
    beacon: BeaconSnapshot | None
    target: Target


async def read_campaign_at_beacon(
    session: AsyncSession, company_id: int, venue_id: int, campaign_id: int, beacon_id: int | None
) -> CampaignAtBeacon | None:
    """A campaign of a company's venue at a beacon of the company; None without the campaign.

    Without `beacon_id` it is the first active beacon that the campaign targets.
    """
    wanted = and_(
        Campaign.id == campaign_id, Campaign.venue_id == venue_id, Venue.company_id == company_id
    )
    campaign = None
    async for _, fields in campaign_fields(session, wanted):
        (campaign,) = (awake_campaign(decode_campaign(value)) for value in fields.values())
    if campaign is None:
        return None
    if beacon_id is None:
        beacon_id = await _first_target(session, venue_id, campaign_id)
    entry = None if beacon_id is None else await _entry(session, beacon_id)
    connected = exists().where(Connector.company_id == company_id)
    has_connector = bool(await session.scalar(select(connected)))
    if entry is None:
        venue = await _venue(session, venue_id)
        return CampaignAtBeacon(campaign, None, Target(venue, True, None, (), has_connector))
    aimed = [campaign] if campaign_id in entry.campaigns else []
    target = Target.of_beacon(entry.beacon, aimed, has_connector)
    return CampaignAtBeacon(campaign, entry.beacon, target)


async def _first_target(session: AsyncSession, venue_id: int, campaign_id: int) -> int | None:
    named = select(campaign_beacon.c.beacon_id).where(campaign_beacon.c.campaign_id == campaign_id)
    carrying = (
        select(beacon_tag.c.beacon_id)
        .join(campaign_tag, campaign_tag.c.tag_id == beacon_tag.c.tag_id)
        .where(campaign_tag.c.campaign_id == campaign_id)
    )
    by_tag = and_(Beacon.venue_id == venue_id, Beacon.id.in_(carrying))
    query = select(Beacon.id).where(or_(Beacon.id.in_(named), by_tag))
    return await session.scalar(query.order_by(Beacon.active.desc(), Beacon.id).limit(1))


async def _entry(session: AsyncSession, beacon_id: int) -> BeaconEntry | None:
    found = None
    async for _, fields in beacon_fields(session, Beacon.id == beacon_id):
        (found,) = map(decode_beacon, fields.values())
    return found


async def _venue(session: AsyncSession, venue_id: int) -> VenueSnapshot:
    venue = (await session.scalars(select(Venue).where(Venue.id == venue_id))).one()
    return VenueSnapshot(
        id=venue.id,
        name=venue.name,
        company_id=venue.company_id,
        active=venue.active,
        time_zone=venue.time_zone,
    )
