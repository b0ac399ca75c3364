"""The texts and times of the pages: catalogs of translations, and the forms in which times stand.

`locale` has a catalog for each language; English stands in for missing texts.
"""

from datetime import datetime
from functools import cache
from importlib.resources import files
from zoneinfo import ZoneInfo

from babel.messages.pofile import read_po
from starlette.requests import Request

from api.answers import timestamp
from catalog.fields import ZONES

LANGUAGES = ("en", "de", "fr", "es")
_DEFAULT = "en"


class Translations:
    """The texts of one language, by key."""

    def __init__(self, language: str) -> None:
        self.language = language
        self._texts = read_texts(_DEFAULT) | read_texts(language)

    def __call__(self, key: str, **values: object) -> str:
        """The text of `key` with `values` inserted. Raises KeyError for an unknown key."""
        text = self._texts[key]
        return text.format_map(values) if values else text

    def get(self, key: str, default: str | None = None) -> str:
        """The text of a key that may be unknown; for an unknown key the default, else the key."""
        return self._texts.get(key, key if default is None else default)


def translations_for(request: Request) -> Translations:
    """The first known language of Accept-Language."""
    named = request.headers.get("accept-language", "")[:200].split(",")
    preferred = [part.partition(";")[0].strip().lower().partition("-")[0] for part in named]
    return Translations(next((each for each in preferred if each in LANGUAGES), _DEFAULT))


@cache
def read_texts(language: str) -> dict[str, str]:
    """The texts of the language's catalog."""
    place = files("api.console").joinpath("locale", language, "LC_MESSAGES", "console.po")
    with place.open("rb") as file:
        catalog = read_po(file, locale=language)
    return {str(each.id): str(each.string) for each in catalog if each.id and each.string}


def display_time(written: str | None) -> str:
    """Date and time, as 2026-11-20 10:00:00; `display_zone` has the offset."""
    return f"{datetime.fromisoformat(written):%Y-%m-%d %H:%M:%S}" if written else ""


def display_zone(written: str) -> str:
    """The offset, as UTC or UTC+01:00."""
    offset = f"{datetime.fromisoformat(written):%z}"
    return "UTC" if offset == "+0000" else f"UTC{offset[:3]}:{offset[3:]}"


def local_time(text: str, zone: str) -> str:
    """A local time (2026-11-20T10:00) or day of a time zone, in the form of the interface.

    An invalid text is returned unchanged, because the interface refuses it with a message.
    """
    try:
        return timestamp(datetime.fromisoformat(text).replace(tzinfo=zone_named(zone)))
    except (ValueError, OverflowError):
        return text


def zone_named(name: str) -> ZoneInfo:
    """A time zone by its name; UTC for an unknown name."""
    return ZoneInfo(name if name in ZONES else "UTC")
