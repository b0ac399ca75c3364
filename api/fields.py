"""What requests are read with: the tables of catalog.fields, and what only requests have."""

from typing import Any

from api.ties import CAMPAIGN_TIES, TAGS
from catalog.fields import campaign, company, venue
from catalog.fields.reader import FieldError, reader
from catalog.fields.reading import Field
from catalog.fields.values import DEEPEST, boolean, is_plain, text
from catalog.passwords import MIN_PASSWORD_LENGTH

_MOST = 1000


@reader(type="array", items={}, maxItems=_MOST)
def shallow_list(value: Any) -> list[Any]:
    """A list of anything that is not nested deeply: writers and readers of JSON have limits."""
    if not isinstance(value, list) or len(value) > _MOST or not is_plain(value):
        raise FieldError(
            f"accepted: a list of at most {_MOST}, nested {DEEPEST} deep at most, without NUL "
            "characters"
        )
    return value


CREDENTIALS = (
    Field(name="email", read=text(1024), required=True),
    Field(name="password", read=text(1024), required=True, secret=True),
)
NEW_PASSWORD = (
    Field(name="old_password", read=text(1024), required=True, secret=True),
    Field(
        name="new_password",
        read=text(1024, shortest=MIN_PASSWORD_LENGTH),
        required=True,
        secret=True,
    ),
)
APPLICATION = tuple(field for field in company.APPLICATION if field.name != "api_key")
BEACON = (*(field for field in venue.BEACON if field.name != "tags"), TAGS)
_LISTS = tuple(Field(name=name, read=shallow_list) for name in ("nfcs", "qrcodes"))
_CAMPAIGN = (
    *(f for f in campaign.CAMPAIGN if f.name not in ("tags", "nfcs", "qrcodes")),
    *campaign.HOURS,
    *_LISTS,
    *CAMPAIGN_TIES,
)
CAMPAIGN_CREATE = (*_CAMPAIGN, *campaign.DAYS)
CAMPAIGN_EDIT = (
    *_CAMPAIGN,
    *(Field(name=day.name, also=day.also, read=day.read) for day in campaign.DAYS),
)
TEST = (Field(name="test", read=boolean, required=True),)
