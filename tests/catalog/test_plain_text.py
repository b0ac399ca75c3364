"""Text from strangers neither moves the cursor nor runs as a formula."""

import pytest

from catalog.plain_text import for_csv, for_terminal


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("Harbour Mall, Caf\u00e9 \u65e5\u672c", "Harbour Mall, Caf\u00e9 \u65e5\u672c"),
        ("\x1b]0;title\x07\x1b[2J", "\\u001b]0;title\\u0007\\u001b[2J"),
        ("\x9b31m", "\\u009b31m"),
        ("abc\u202egpj.exe", "abc\\u202egpj.exe"),
    ],
)
def test_a_terminal(text: str, shown: str):
    assert for_terminal(text) == shown


@pytest.mark.parametrize(
    "text", ['=HYPERLINK("http://example.org";"here")', " =1", "\uff1d1", "\t=1"]
)
def test_no_formula(text: str):
    (cell,) = for_csv([text])
    assert cell.startswith(("'", "\\"))


def test_no_formula_behind_a_semicolon():
    """The separator where the comma is the decimal point."""
    assert for_csv(["x;=1+1;y", "a; @b"]) == ["x;'=1+1;y", "a;' @b"]


def test_figures_and_names_stay():
    row = [1, -1, None, 2.5, "Harbour Mall", "", "a=b"]
    assert for_csv(row) == row
