import pytest

from rules.parsing import DAY, HOUR, LONGEST_DELAY, MONTH, WEEK, YEAR, parse_delay


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("none", 0),
        ("None", 0),
        ("second", 1),
        ("MINUTE", 60),
        ("hour", HOUR),
        ("day", DAY),
        ("week", 7 * DAY),
        ("month", 30 * DAY),
        ("Year", 365 * DAY),
        ("minutes", 60),
        ("15 minutes", 900),
        ("15  Minute", 900),
        ("  2 hours \n", 2 * HOUR),
        ("0 days", 0),
        ("1200 months", 1200 * MONTH),
        ("PT15M", 900),
        ("pt15m", 900),
        ("P2W", 2 * WEEK),
        ("P1M", MONTH),
        ("PT1M", 60),
        ("P1Y2M3DT4H5M6S", YEAR + 2 * MONTH + 3 * DAY + 4 * HOUR + 306),
        ("P0D", 0),
        ("P1DT12H", 36 * HOUR),
        ("100 years", LONGEST_DELAY),
        ("P100Y", LONGEST_DELAY),
        ("15" + " " * 55 + "minutes", 900),  # 64 characters
    ],
)
def test_accepts_words_and_durations(text: str, seconds: int) -> None:
    assert parse_delay(text) == seconds


@pytest.mark.parametrize(
    "text",
    [
        "",
        " ",
        "nones",
        "2 none",
        "fortnight",
        "minutess",
        "15",
        "-1 day",
        "1.5 hours",
        "one day",
        "1 day 2 hours",
        "P",
        "PT",
        "P1DT",
        "P1W2D",
        "PT1.5H",
        "-PT1M",
        "P1H",
        "PT1D",
        "P1D2Y",
        "٣ days",
        "ſecond",
        "101 years",
        "P100YT1S",
        "15" + " " * 56 + "minutes",
        "9" * 5000 + " days",
        "9" * 60 + " s",
    ],
)
def test_refuses_anything_else_and_says_what_is_accepted(text: str) -> None:
    with pytest.raises(ValueError, match=r"15 minutes.*PT15M.*100 years"):
        parse_delay(text)
