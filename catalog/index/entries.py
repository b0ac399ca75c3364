"""The shape of the index: keys, fields, and the records behind them.

The index is 16 Redis hashes. A field's bucket is the CRC-32 of the field modulo 16. Every bucket
holds the marker, so that one HMGET answers both "is the index built" and "what is the entry",
atomically, on a single server and on a cluster (the number in braces is a hash tag).
"""

from functools import lru_cache
from hashlib import sha256
from typing import Generic, TypeVar
from zlib import crc32

import msgspec

from rules.geofences import Circle
from rules.model import CampaignSnapshot, CompanyRules, Place

BUCKETS = 16
MARKER_FIELD = "m"
REBUILT = "*"  # the `keys` of a change message after a rebuild: everything may have changed


class Marker(msgspec.Struct, frozen=True, kw_only=True):
    """Says that a bucket is complete, which catalog it is from, and which write was the last.

    `generation` counts the writes. `writer` is random, so that no two writers make the same marker.
    """

    catalog: str
    generation: int
    writer: str = ""


SomePlace = TypeVar("SomePlace", bound=Place)


class PlaceEntry(msgspec.Struct, Generic[SomePlace], frozen=True, kw_only=True):
    """A place and the ids of the campaigns that target it, active or not, ascending."""

    place: SomePlace
    campaigns: list[int]


class CompanyGeofences(msgspec.Struct, frozen=True):
    """The circles of all geofences of a company, active or not, for positions."""

    circles: list[Circle]


class ApplicationEntry(msgspec.Struct, frozen=True, kw_only=True):
    """An application's company. `expires_at` in epoch seconds; None: never."""

    id: int
    company_id: int
    active: bool
    expires_at: float | None = None

    def admits(self, at: float) -> bool:
        """Whether its key was valid at `at` (epoch seconds)."""
        return self.active and (self.expires_at is None or at < self.expires_at)


class ConnectorEntry(msgspec.Struct, frozen=True, kw_only=True):
    """A company's connector. `parameters` and `secret` are still encrypted (catalog.secrets)."""

    id: int
    company_id: int
    name: str
    url: str
    method: str
    auth: str
    parameters: str
    secret: str | None = None


class IndexKeys:
    """The names of the index's Redis keys under a prefix, "proximity:" by default."""

    def __init__(self, prefix: str) -> None:
        self._buckets = tuple(f"{prefix}index:{{{number}}}" for number in range(BUCKETS))
        self.changes = f"{prefix}index:changes"

    def bucket(self, number: int) -> str:
        """The key of the hash with this number, 0..15."""
        return self._buckets[number]

    def building(self, number: int, writer: str) -> str:
        """The key under which a rebuild collects that hash, in the same slot of a cluster."""
        return f"{self._buckets[number]}:building:{writer}"

    def of(self, field: str) -> str:
        """The key of the hash that holds `field`."""
        return self._buckets[bucket(field)]


def bucket(field: str) -> int:
    """The number of the bucket that holds `field`."""
    return crc32(field.encode()) % BUCKETS


def beacon_field(uuid: str, major: int, minor: int) -> str:
    """The field of a beacon's entry. `uuid` is in canonical form: lower case, with dashes."""
    return f"b:{uuid}:{major}:{minor}"


def geofence_field(geofence_id: int) -> str:
    """The field of a geofence's entry."""
    return f"g:{geofence_id}"


def tag_field(company_id: int, kind: str, value: str) -> str:
    """The field of the entry of an NFC tag or QR code."""
    return f"t:{company_id}:{kind}:{sha256(value.encode()).hexdigest()}"


def geofences_field(company_id: int) -> str:
    """The field of a company's CompanyGeofences; absent where it has none."""
    return f"p:{company_id}"


@lru_cache(maxsize=4096)  # the hash of a key takes half a microsecond
def application_field(api_key: str) -> str:
    """The field of an ApplicationEntry; the index does not hold the key itself."""
    return f"a:{sha256(api_key.encode()).hexdigest()}"


def campaign_field(campaign_id: int) -> str:
    """The field of a CampaignSnapshot."""
    return f"c:{campaign_id}"


def connector_field(company_id: int) -> str:
    """The field of a ConnectorEntry."""
    return f"k:{company_id}"


def rules_field(company_id: int) -> str:
    """The field of a company's CompanyRules; absent where it has set nothing."""
    return f"r:{company_id}"


encode = msgspec.json.encode
decode_marker = msgspec.json.Decoder(Marker).decode
decode_place = msgspec.json.Decoder(PlaceEntry[Place]).decode
decode_geofences = msgspec.json.Decoder(CompanyGeofences).decode
decode_application = msgspec.json.Decoder(ApplicationEntry).decode
decode_campaign = msgspec.json.Decoder(CampaignSnapshot).decode
decode_connector = msgspec.json.Decoder(ConnectorEntry).decode
decode_rules = msgspec.json.Decoder(CompanyRules).decode
