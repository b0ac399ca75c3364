import pytest

from rules.parsing import DAY, HOUR, LONGEST_DELAY, MONTH, YEAR, parse_delay


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("none", 0),
        ("Year", 365 * DAY),
        ("15 minutes", 900),
        ("  2 hours \n", 2 * HOUR),
        ("PT15M", 900),
        ("P1Y2M3DT4H5M6S", YEAR + 2 * MONTH + 3 * DAY + 4 * HOUR + 306),
        ("100 years", LONGEST_DELAY),
        ("15" + " " * 55 + "minutes", 900),  # 64 characters
    ],
)
def test_accepts_words_and_durations(text: str, seconds: int) -> None:
    assert parse_delay(text) == seconds


@pytest.mark.parametrize(
    "text",
    [
        "",
        "15",
        "1.5 hours",
        "P1DT",
        "PT1.5H",
        "٣ days",
        "ſecond",
        "P100YT1S",
        "15" + " " * 56 + "minutes",
        "9" * 5000 + " days",
    ],
)
def test_refuses_anything_else_and_says_what_is_accepted(text: str) -> None:
    with pytest.raises(ValueError, match=r"15 minutes.*PT15M.*100 years"):
        parse_delay(text)
