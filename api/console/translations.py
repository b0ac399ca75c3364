"""The texts of the pages, in one file per language; English stands in for missing texts."""

import tomllib
from collections.abc import Mapping
from functools import cache
from importlib.resources import files

from starlette.requests import Request

LANGUAGES = {"en": "English", "de": "Deutsch", "fr": "Français", "es": "Español"}
COOKIE = "console_language"
_DEFAULT = "en"


class Translations:
    """The texts of one language, by key."""

    def __init__(self, language: str, texts: Mapping[str, str]) -> None:
        self.language = language
        self._texts = texts

    def __call__(self, key: str, **values: object) -> str:
        """The text of `key` with `values` inserted. Raises KeyError for an unknown key."""
        text = self._texts[key]
        return text.format_map(values) if values else text

    def get(self, key: str) -> str:
        """The text of a key that may be unknown; for an unknown key the key itself."""
        return self._texts.get(key, key)


def translations_for(request: Request) -> Translations:
    """The language that the visitor chose, else the first known one of Accept-Language."""
    chosen = request.cookies.get(COOKIE, "")
    named = request.headers.get("accept-language", "")[:200].split(",")
    preferred = [
        chosen,
        *(part.partition(";")[0].strip().lower().partition("-")[0] for part in named),
    ]
    return load_translations(next((each for each in preferred if each in LANGUAGES), _DEFAULT))


@cache
def load_translations(language: str) -> Translations:
    """The texts of a known language."""
    return Translations(language, _read(_DEFAULT) | _read(language))


def _read(language: str) -> dict[str, str]:
    path = files("api.console").joinpath("translations", f"{language}.toml")
    return tomllib.loads(path.read_text(encoding="utf-8"))
