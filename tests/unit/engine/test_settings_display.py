"""Of a URL only the secret part is hidden, and never less than that."""

import pytest
from pydantic import SecretStr

from engine.process.settings_display import HIDDEN, shown, shown_url

SECRET = "hunter2"


@pytest.mark.parametrize(
    ("url", "expected"),
    [
        ("redis://localhost:6379/0", "redis://localhost:6379/0"),
        ("sqlite:///file.sqlite3", "sqlite:///file.sqlite3"),
        ("sqlite:////tmp/file.sqlite3", "sqlite:////tmp/file.sqlite3"),
        (f"redis://:{SECRET}@host:1/2", f"redis://:{HIDDEN}@host:1/2"),
        (f"rediss://me:{SECRET}@host", f"rediss://me:{HIDDEN}@host"),
        (f"redis://{SECRET}@host", f"redis://{HIDDEN}@host"),
        (
            f"postgresql://me:{SECRET}@h:5432/x?sslmode=verify-full&sslrootcert=/a/b.pem",
            f"postgresql://me:{HIDDEN}@h:5432/x?sslmode=verify-full&sslrootcert=/a/b.pem",
        ),
        (
            f"postgresql://me@h/x?sslkey=/a&sslpassword={SECRET}",
            f"postgresql://{HIDDEN}@h/x?sslkey=/a&sslpassword={HIDDEN}",
        ),
        (
            f"redis://h/0?username=me&password={SECRET}",
            f"redis://h/0?username=me&password={HIDDEN}",
        ),
        (
            f"redis+sentinel://me:{SECRET}@a:1,b:2/service?sentinel_password={SECRET}",
            f"redis+sentinel://me:{HIDDEN}@a:1,b:2/service?sentinel_password={HIDDEN}",
        ),
        (f"rediss://host?ssl_password={SECRET}", f"rediss://host?ssl_password={HIDDEN}"),
        (f"redis://:pa/{SECRET}@host", HIDDEN),
        (f"redis://:pa#{SECRET}@host", HIDDEN),
        (f"redis://:pa?{SECRET}@host", HIDDEN),
        (f"redis://:pa@{SECRET}@host", f"redis://:{HIDDEN}@host"),
        (f"redis://[{SECRET}", HIDDEN),
    ],
)
def test_only_the_secret_part_is_hidden(url: str, expected: str) -> None:
    assert shown_url(url) == expected
    assert SECRET not in expected


def test_a_secret_that_is_no_url_is_hidden_completely() -> None:
    assert shown(SecretStr(SECRET)) == HIDDEN
    assert shown(SecretStr("")) == ""
