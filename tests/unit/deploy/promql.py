"""What a PromQL query names: metrics, labels and their values. No parser: a reader of words."""

import re
from collections.abc import Iterator
from typing import NamedTuple

_TEXT = re.compile(r'"(?:[^"\\]|\\.)*"')
_MATCHER = re.compile(r'\s*(\w+)\s*(=~|!~|!=|=)\s*"((?:[^"\\]|\\.)*)"\s*(?:,|$)')
_SELECTOR = re.compile(r"([a-zA-Z_:][\w:]*)?\s*\{([^}]*)\}")
_GROUPING = re.compile(
    r"\b(?:by|without|on|ignoring|group_left|group_right)\b\s*\(([^)]*)\)", re.IGNORECASE
)
_NAME = re.compile(r"(?<![\w:.$])([a-zA-Z_:][\w:]*)(?![\w:]|\s*\()")
_WORDS = frozenset({"and", "or", "unless", "offset", "bool", "inf", "nan"})
_DURATION = re.compile(r"\[[^\]]*\]|\boffset\s+\w+")


class Matcher(NamedTuple):
    """One condition on a label of one metric."""

    metric: str
    label: str
    operator: str
    value: str

    @property
    def values(self) -> list[str]:
        """The values that it names: alternatives of a regular expression are one each."""
        return self.value.split("|") if "~" in self.operator else [self.value]


def metrics_of(query: str) -> set[str]:
    """The names of metrics and of recorded series."""
    bare = _DURATION.sub(" ", _GROUPING.sub(" ", re.sub(r"\{[^}]*\}", " ", _TEXT.sub('""', query))))
    return {name for name in _NAME.findall(bare) if name.lower() not in _WORDS}


def matchers_of(query: str) -> Iterator[Matcher]:
    """Every condition between braces."""
    for metric, inside in _SELECTOR.findall(query):
        rest = inside.strip()
        while rest:
            found = _MATCHER.match(rest)
            assert found, f"not understood: {inside}"
            yield Matcher(metric, *found.groups())
            rest = rest[found.end() :].strip()


def grouped_labels(query: str) -> set[str]:
    """The labels that by, on and their kind name."""
    named = _GROUPING.findall(_TEXT.sub('""', query))
    return {label.strip() for labels in named for label in labels.split(",") if label.strip()}
