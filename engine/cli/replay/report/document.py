"""Builds an HTML file that contains everything: scripts, styles and data.

Its content security policy permits its own scripts, by their hashes, and forbids loading anything.
"""

import base64
import hashlib
from collections.abc import Iterable, Mapping, Sequence
from html import escape
from importlib.resources import files
from typing import Any

import orjson

_ASSETS = files("engine.cli.replay.report")
# The console serves the same copy of the library to browsers.
_UPLOT = files("api.console").joinpath("vendor", "uplot")


def html_document(
    title: str,
    *,
    styles: Sequence[str],
    scripts: Sequence[str],
    body: Iterable[str],
    data: Mapping[str, Any],
) -> str:
    """The whole file. `body` is markup; the scripts find `data` in the element of that name."""
    policy = (
        f"default-src 'none'; script-src {_hashes(scripts)}; style-src {_hashes(styles)}; "
        "base-uri 'none'; form-action 'none'"
    )
    return "\n".join(
        [
            '<!DOCTYPE html>\n<html lang="en">\n<head>\n<meta charset="utf-8">',
            f'<meta http-equiv="Content-Security-Policy" content="{policy}">',
            '<meta name="viewport" content="width=device-width, initial-scale=1">',
            f"<title>{escape(title)}</title>",
            *(f"<style>{style}</style>" for style in styles),
            "</head>\n<body>",
            *body,
            f'<script type="application/json" id="data">{_in_element(data)}</script>',
            *(f"<script>{script}</script>" for script in scripts),
            f"<!-- uPlot:\n{_of_uplot('LICENSE')}-->",
            "</body>\n</html>\n",
        ]
    )


def uplot_script() -> str:
    """The script of the charting library."""
    return _of_uplot("uPlot.iife.min.js")


def uplot_style() -> str:
    """The style sheet of the charting library."""
    return _of_uplot("uPlot.min.css")


def report_style() -> str:
    """The style of pages of figures, for light and dark screens."""
    return report_asset("assets/report.css")


def report_asset(name: str) -> str:
    """A file of this package."""
    return _ASSETS.joinpath(*name.split("/")).read_text(encoding="utf-8")


def _of_uplot(name: str) -> str:
    return _UPLOT.joinpath(name).read_text(encoding="utf-8")


def _hashes(texts: Iterable[str]) -> str:
    digests = (base64.b64encode(hashlib.sha256(text.encode()).digest()) for text in texts)
    return " ".join(f"'sha256-{digest.decode()}'" for digest in digests)


def _in_element(data: Mapping[str, Any]) -> str:
    """JSON in which no text can end the script element."""
    written = orjson.dumps(data).decode()
    for character in "<>&":
        written = written.replace(character, f"\\u{ord(character):04x}")
    return written
