"""Detections as JSON: usual ones, unusual ones, and such as are none."""

from typing import TypeAlias

from tests.rules.records import UUID, epoch
from tests.rules.test_decision_oracle import MAX_AGE

# Usual and unusual ones.
Spellings: TypeAlias = tuple[tuple[str, ...], tuple[str, ...]]

NOON = epoch("2026-11-20T12:00:00Z")
MS = int(NOON * 1000)
MAX_AGE_MS = int(MAX_AGE * 1000)
LONG = "x" * 256
DEVICES = ("sent", "some", "read", "new", "old", LONG, "\x7f", "é")

# Each value of a field as JSON. The first ones are those that the filter has to recognise.
UUIDS = (f'"{UUID}"', f'"{UUID.upper()}"', f'"{UUID.replace("-", "")}"')
UNUSUAL_UUIDS = (f'" {UUID}"', f'"{UUID}0"', f'"{UUID[1:]}"', '"\\u0065"', "1", "null", '""')
NUMBERS = ("1", '"1"', '"01"', '"00001"')
MINORS = (*NUMBERS, *"2345678")
UNUSUAL_NUMBERS = (
    *("01", "1.0", "-1", "65537", "65536", "1e0", "true", "null", "+1", "1_0", "000001"),
    *('"1_0"', '" 1"', '"1 "', '"000001"', '"65537"', '"-1"', '"+1"', '""', '"one"', '"１"'),
)
ZONES = (
    *("null", '"near"', '"ProximityNear"', '"NEAR"', "2", '"2"', '"far"', '"immediate"'),
    *("0", "1", "3"),
)
UNUSUAL_ZONES = (
    *('"nEaR"', '"proximitynear"', '"none"', '""', "4", "02", "2.0", "-2", "true", '"02"'),
    '"\\u006eear"',
)
TIMES = (
    *('"2026-11-20T12:00:00Z"', '"2026-11-20T13:00:00+0100"', '"2026-11-20T12:00:00.123456+00:00"'),
    *(str(MS), str(MS + 999), str(MS - 90_000), "null", '"2026-11-20T11:40:00Z"', str(MS + 10**7)),
    *(str(MS + sign * (MAX_AGE_MS + more)) for sign in (-1, 1) for more in (-1, 0, 1)),
    # When claims begin and when their delays end.
    *(str(MS + seconds * 1000) for seconds in (-40, -30, -10, 20, 30, 50)),
)
UNUSUAL_TIMES = (
    *('"2026-11-20 12:00:00z"', '"2026-11-20T12:00:00"', '"2026-13-20T12:00:00Z"', '""', '"now"'),
    *('"1969-12-31T23:59:59Z"', f'"{MS}"'),
    *("0", "-1", f"0{MS}", f"{MS}.5", f"{MS}0", f"{MS}000", "1e12", "true", "253402300799001"),
    f'"2026-11-20T12:00:00.{"0" * 40}Z"',
)
TEXTS = ("null", '"android"', '""')
UNUSUAL_TEXTS = (
    *("1", "true", '"\\""', '"é"', '"\\ud800"', '"\x1f"', '"\x7f"', "[]", '"a', "nul"),
    '"\udcff"',  # encoded as a byte that is not UTF-8
)
SIGNALS = (
    *("-60", "-60.5", "-59.0", "-72.2", "-72.5", "-52.9", "-53"),
    *("-1", "-0.0", "0", "7", "-99"),
)
UNUSUAL_SIGNALS = (
    *("-", "1e3", "-1e999", '"-60"', "-060", "60.", ".5", "true"),
    *("-" + "9" * 400, f"-60.{'0' * 400}"),
)
ANYTHING = (*TEXTS, *UNUSUAL_TEXTS, *SIGNALS, "true", "false", '{"udid":"b"}', "[1]", "NaN", "tru")

# Places that are no beacons: fields of a detection.
GEOFENCES = tuple(
    f'{{"id":{number},"transition":"{each}"}}' for number in "12346" for each in ("enter", "dwell")
)
UNUSUAL_GEOFENCES = (
    *(f'{{"id":{number},"transition":"enter"}}' for number in ("5", "0", "-1", "1.0", '"1"')),
    *(f'{{"id":{number},"transition":"enter"}}' for number in ("01", "null", "9" * 19)),
    *(f'{{"id":1,"transition":{each}}}' for each in ('"exit"', '"ENTER"', "null", "1", '"enter ')),
    *('{"id":1}', '{"transition":"enter"}', '{"id":1,"id":2,"transition":"enter"}', "{}", "[1]"),
    *('{"id":1,"transition":"enter","at":[]}', '{"id":1,"transition":"exit","transition":"enter"}'),
)
POSITIONS = (
    *(f'{{"latitude":48.8584,"longitude":2.2945,"accuracy":{each}}}' for each in ("12.5", "100")),
    '{"latitude":48.8584,"longitude":2.2945,"source":"gps"}',
    *('{"longitude":10,"latitude":10}', '{"accuracy":0,"longitude":10.00100000,"latitude":10.0}'),
    *('{"latitude":-10,"longitude":-180}', '{"latitude":-10.0009,"longitude":179.999500000000001}'),
    '{"latitude":48.858400000000003,"longitude":2.2945000000000002,"accuracy":-0.0}',
    *('{"latitude":48.865,"longitude":2.2945}', '{"latitude":0,"longitude":0}'),
    '{"latitude":48.86,"longitude":2.2945,"accuracy":801}',
)
UNUSUAL_POSITIONS = (
    *(f'{{"latitude":{each},"longitude":10}}' for each in ("90.1", "-90.1", "1e1", '"10"', "null")),
    *(f'{{"latitude":10,"longitude":{each}}}' for each in ("180.1", "-181", "010", "10.", "NaN")),
    *(f'{{"latitude":10,"longitude":10,"accuracy":{each}}}' for each in ("-1", "801", "null", "x")),
    *('{"latitude":10,"latitude":9,"longitude":10}', '{"latitude":10}', '{"longitude":10}'),
    *(f'{{"latitude":{each},"longitude":1}}' for each in ("9" * 400, f"10.{'0' * 400}1")),
    *('{"latitude":10,"longitude":10,"accuracy":801,"accuracy":1}', "{}", "null"),
    '{"latitude":48.87,"longitude":2.2945}',
)
TAGS = (
    *(f'{{"kind":"{kind}","value":"a tag"}}' for kind in ("nfc", "qrcode")),
    *('{"value":"unknown","kind":"nfc"}', '{"value":"a tag","text":null,"kind":"nfc"}'),
)
UNUSUAL_TAGS = (
    *(f'{{"kind":{kind},"value":"a tag"}}' for kind in ('"NFC"', '"rfid"', "null", "1", '""')),
    *(f'{{"kind":"nfc","value":{text}}}' for text in ('""', "null", "1", '"é"', '"a\\u0020tag"')),
    *(f'{{"kind":"nfc","value":"{"x" * size}"}}' for size in (1024, 1025)),
    *('{"kind":"nfc"}', '{"value":"a tag"}', '{"kind":"nfc","kind":"qrcode","value":"a tag"}'),
    *('{"kind":"nfc","value":"x","value":"a tag"}', "{}", '"a tag"'),
)
KEYS = ('"ours"',)
UNUSUAL_KEYS = (
    *(f'"{each}"' for each in ("ending", "off", "empty", "made up", "", "k" * 255, "k" * 256)),
    *("null", "1", '"ours", "api_key":"off"', '"o\\u0075rs"'),
)
OTHERS = {
    "geofence": (GEOFENCES, UNUSUAL_GEOFENCES),
    "position": (POSITIONS, UNUSUAL_POSITIONS),
    "tag": (TAGS, UNUSUAL_TAGS),
}

# Fields of other places, with a triple the first ones are dead letters; and one of a device.
PLACES = (
    ("time_zone", '"Europe/Paris"'),
    ("position", '{"latitude":48.8,"longitude":2.3}'),
    ("tag", '{"kind":"nfc","value":"x"}'),
    ("geofence", '{"id":1,"transition":"enter"}'),
    ("position", '{"latitude":91,"longitude":0}'),
    *((name, text) for name in ("position", "tag", "geofence") for text in ("null", '"x"', "1")),
    *(("api_key", text) for text in ('""', "1")),
)


# The fields of a detection of a beacon, and of its device.
TEXT: Spellings = (TEXTS[:2], UNUSUAL_TEXTS)
FIELDS: dict[str, Spellings] = {
    "uuid": (UUIDS, UNUSUAL_UUIDS),
    "major": (NUMBERS, UNUSUAL_NUMBERS),
    "minor": (MINORS, UNUSUAL_NUMBERS),
    "proximity": (ZONES, UNUSUAL_ZONES),
    "rssi": (SIGNALS, UNUSUAL_SIGNALS),
    "tx_power": (SIGNALS, UNUSUAL_SIGNALS),
    "detected_at": (TIMES, UNUSUAL_TIMES),
    "ip": TEXT,
    "accuracy": (SIGNALS, ANYTHING),
    # Unknown ones.
    "minor_": (('"7"', "7"), ANYTHING),
    "detected_at_ms": (("0",), ANYTHING),
}
DEVICE_FIELDS: dict[str, Spellings] = {
    # The fourth one was sent nothing.
    "udid": (
        ('"sent"', '"read"', '"old"', '"first"'),
        (*(f'"{each}"' for each in DEVICES), '""', '"c"', "1"),
    ),
    "udid2": (("1",), ANYTHING),
    **dict.fromkeys(("name", "version", "model", "token_push"), TEXT),
    "id_connector": (("7", "null"), ("1.5", '"7"')),
}


def encoded(value: str) -> bytes:
    """The bytes of a JSON text, with those that are not UTF-8."""
    return value.encode(errors="surrogateescape")


def usual(**changed: str) -> str:
    """A detection of a device that has the campaigns of the first beacon."""
    plain = {"uuid": UUIDS[0], "major": "1", "minor": "1", "proximity": '"near"'}
    fields = plain | {"device": '{"udid":"sent"}'} | changed
    return "{" + ",".join(f'"{name}":{text}' for name, text in fields.items()) + "}"
