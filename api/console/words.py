"""The words of the pages, a file a language; English is complete, and stands in for what others
lack."""

import tomllib
from collections.abc import Mapping
from functools import cache
from importlib.resources import files

from starlette.requests import Request

LANGUAGES = {"en": "English", "de": "Deutsch", "fr": "Français", "es": "Español"}
COOKIE = "console_language"
_DEFAULT = "en"


class PageWords:
    """The words of one language, by key."""

    def __init__(self, language: str, words: Mapping[str, str]) -> None:
        self.language = language
        self._words = words

    def __call__(self, key: str, **values: object) -> str:
        """The words for `key`, with values in their places. Raises KeyError for an unknown key."""
        text = self._words[key]
        return text.format_map(values) if values else text

    def get(self, key: str) -> str:
        """The words for a key that comes from outside; the key itself where there are none."""
        return self._words.get(key, key)


def words_for(request: Request) -> PageWords:
    """In the language that the visitor chose here, else the first known one that the browser
    names."""
    chosen = request.cookies.get(COOKIE, "")
    named = request.headers.get("accept-language", "")[:200].split(",")
    wanted = [chosen, *(part.partition(";")[0].strip().lower().partition("-")[0] for part in named)]
    return load_words(next((each for each in wanted if each in LANGUAGES), _DEFAULT))


@cache
def load_words(language: str) -> PageWords:
    """The words of a known language."""
    return PageWords(language, _read(_DEFAULT) | _read(language))


def _read(language: str) -> dict[str, str]:
    place = files("api.console").joinpath("words", f"{language}.toml")
    return tomllib.loads(place.read_text(encoding="utf-8"))
