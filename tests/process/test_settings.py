"""Settings: where they come from, what is refused, and that secrets stay secret."""

import sys
from pathlib import Path

import pytest

from engine.cli.application import run
from engine.process.errors import SettingsError
from engine.process.settings import PREFIX, Settings
from engine.process.settings_sources import HIDDEN, file_variable, load_settings, shown_url

PASSWORD = "p4ssw0rd-never-shown"
REDIS = "PROXIMITY_REDIS_URL"


@pytest.fixture(autouse=True)
def _bare_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in Settings.model_fields:
        monkeypatch.delenv(PREFIX + name.upper(), raising=False)


@pytest.mark.parametrize(
    ("name", "value", "expected"),
    [
        ("METRICS_PORT", "70000", "65535"),
        ("DATABASE_URL", "", "accepted: postgresql://"),
        ("DATABASE_URL", f"://{PASSWORD}", "accepted: postgresql://"),
        ("DATABASE_URL", f"mysql://u:{PASSWORD}@h/x", "begins with neither"),
        ("DATABASE_URL", f"postgresql://u:{PASSWORD}@h:port/x", "accepted: postgresql://"),
        ("DATABASE_URL", f"postgresql://u:{PASSWORD}@h/x?sslrootcert=/not/there", "no such file"),
        ("DATABASE_URL", f"postgresql://u:{PASSWORD}@h/x?sslmode=always", "none of disable"),
        ("DATABASE_URL", f"postgresql://u:{PASSWORD}@h/x?channel_binding=x", "is not known"),
        ("REDIS_URL", f"http://:{PASSWORD}@host", "redis://"),
        ("REDIS_URL", f"redis://:{PASSWORD}@h:port", "accepted: redis://"),
        ("REDIS_URL", f"redis://:x@h?socket_timeout={PASSWORD}", "accepted: redis://"),
        ("REDIS_URL", f"redis://:{PASSWORD}@h?no_such_parameter=1", "a parameter is not known"),
        ("REDIS_URL", f"rediss://:{PASSWORD}@h?ssl_ca_certs=/not/there", "/there: no such file"),
        ("REDIS_URL", f"redis+cluster://:{PASSWORD}@h:port", "accepted: redis://"),
        ("REDIS_URL", f"redis+cluster://:{PASSWORD}@h?ssl_ca_certs=/ca", "begin with rediss"),
        ("REDIS_URL", f"redis+sentinel://:{PASSWORD}@a/service?ssl_ca_certs=/ca", "with rediss"),
        ("REDIS_URL", f"redis+sentinel://:{PASSWORD}@a:26379", "accepted: redis://"),
        ("REDIS_URL", f"redis+sentinel://:{PASSWORD}@a:port/service", "accepted: redis://"),
        ("REDIS_URL", f"redis+sentinel://:{PASSWORD}@,/service", "accepted: redis://"),
        ("REDIS_URL", "redis+sentinel://a/x?sentinel_socket_timeout=never&db=x", "accepted: redis"),
        # Files with a secret.
        ("REDIS_URL_FILE", "/not/there", "No such file"),
        ("REDIS_URL_FILE", "/dev/null", "the file is empty"),
        ("REDIS_URL_FILE", sys.executable, "not UTF-8"),
        ("REDIS_URL_FILE", __file__, "accepted: redis://"),
        ("CONNECTOR_ALLOW_NETWORKS", "127.0.0.0/8,nowhere", "IPv4 or IPv6 network"),
        ("CONNECTOR_CA_FILE", "/not/there", "does not point to a file"),
        ("SECRET_KEY", f"sixteen letters!,{PASSWORD[:15]}", "key 2 is too weak; accepted"),
        ("KAFKA_BOOTSTRAP_SERVERS", "kafka://localhost:9092", "accepted: host:port"),
        ("KAFKA_SASL_USERNAME", "me", "no effect with KAFKA_SECURITY_PROTOCOL PLAINTEXT"),
        ("KAFKA_SASL_OAUTH_TOKEN_URL", f"https://me:{PASSWORD}@host/token", "accepted: http://"),
        ("KAFKA_SASL_OAUTH_EXTENSIONS", "a=1,2=b", "accepted: name=value"),
        ("KAFKA_SESSION_TIMEOUT", "0", "0: Input should be greater than 0 s"),
        ("METRICS_PRT", "9464", "did you mean PROXIMITY_METRICS_PORT?"),
        ("TOPIC_PREFIX_FILE", __file__, "no setting has this name"),
        ("DETECTION_TOPICS", "a", "'a' is no topic with its format; accepted: topic=format"),
        ("DETECTION_TOPICS", "a b=own", "no topic with its format"),
        ("DETECTION_TOPICS", f"{'x' * 250}=own", "no topic with its format"),
        ("DETECTION_TOPICS", "a=", "is no format; formats: own"),
        ("DETECTION_TOPICS", "a=cloudevents", "in CloudEvents: cloudevents+<format>"),
        ("DETECTION_TOPICS", "a=own,b=own,a=own", "a topic has two formats"),
        ("DETECTION_TOPICS", "proximity.presence=own", "has other messages"),
    ],
)
def test_a_bad_value_is_named_on_one_line(
    monkeypatch: pytest.MonkeyPatch, name: str, value: str, expected: str
):
    monkeypatch.setenv(PREFIX + name, value)
    with pytest.raises(SettingsError) as caught:
        load_settings()
    message = str(caught.value)
    assert PREFIX + name in message
    assert expected in message
    assert "\n" not in message
    assert PASSWORD not in message


OAUTH = {
    "SASL_MECHANISM": "OAUTHBEARER",
    "SASL_OAUTH_TOKEN_URL": "https://idp.example/token",
    "SASL_OAUTH_CLIENT_ID": "me",
}


@pytest.mark.parametrize(
    ("protocol", "given", "named"),
    [
        ("SASL_SSL", {}, "KAFKA_SASL_USERNAME is required"),
        ("SASL_SSL", OAUTH, "KAFKA_SASL_OAUTH_CLIENT_SECRET is required"),
        (
            "SASL_SSL",
            OAUTH | {"SASL_MECHANISM": "PLAIN"},
            "KAFKA_SASL_OAUTH_TOKEN_URL has no effect with KAFKA_SASL_MECHANISM PLAIN: set it to",
        ),
    ],
)
def test_settings_that_contradict_each_other_are_named(
    monkeypatch: pytest.MonkeyPatch, protocol: str, given: dict[str, str], named: str
):
    for name, value in {"SECURITY_PROTOCOL": protocol, **given}.items():
        monkeypatch.setenv(f"{PREFIX}KAFKA_{name}", value)
    with pytest.raises(SettingsError, match=f"^PROXIMITY_{named}[^\n]*$"):
        load_settings()


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        (b"A=1\n\nthis is no setting\n", ":3: accepted: KEY=value"),
        (b"A=\xff\n", "not UTF-8"),
        (b"PROXIMITY_METRICS_PORT=x\n", "PROXIMITY_METRICS_PORT: "),
    ],
)
def test_a_bad_file_says_so_once(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], content: bytes, expected: str
):
    file = tmp_path / "env"
    file.write_bytes(content)
    assert run(["--env-file", str(file), "settings"]) == 2
    out, error = capsys.readouterr()
    assert (out, error.count("\n")) == ("", 1)
    assert expected in error


@pytest.mark.parametrize(
    ("written", "seconds"),
    [("5m", 300), ("20", 20), ("1.5h", 5400), ("250ms", 0.25), (" 2 D ", 172_800)],
)
def test_durations_are_read(monkeypatch: pytest.MonkeyPatch, written: str, seconds: float):
    monkeypatch.setenv("PROXIMITY_NOTIFICATION_LIFETIME", written)
    assert load_settings().notification_lifetime == seconds


def test_settings_prints_every_setting_and_no_secret(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    monkeypatch.setenv("PROXIMITY_DATABASE_URL", f"postgresql://user:{PASSWORD}@host/name")
    monkeypatch.setenv("PROXIMITY_SECRET_KEY", PASSWORD)
    monkeypatch.setenv("PROXIMITY_KAFKA_SECURITY_PROTOCOL", "SASL_SSL")
    monkeypatch.setenv("PROXIMITY_KAFKA_SASL_USERNAME", "engine")
    monkeypatch.setenv("PROXIMITY_KAFKA_SASL_PASSWORD", PASSWORD)
    assert run(["settings"]) == 0
    printed = capsys.readouterr().out
    for name in Settings.model_fields:
        assert PREFIX + name.upper() in printed
    assert PASSWORD not in printed
    assert "redis://localhost:6379/0" in printed


SECRET = "hunter2"


@pytest.mark.parametrize(
    ("url", "expected"),
    [
        ("redis://localhost:6379/0", "redis://localhost:6379/0"),
        (f"redis://{SECRET}@host", f"redis://{HIDDEN}@host"),
        (
            f"postgresql://me:{SECRET}@h:5432/x?sslmode=verify-full&sslrootcert=/a/b.pem",
            f"postgresql://{HIDDEN}@h:5432/x?sslmode=verify-full&sslrootcert=/a/b.pem",
        ),
        (
            f"postgresql://me@h/x?sslkey=/a&sslpassword={SECRET}",
            f"postgresql://{HIDDEN}@h/x?{HIDDEN}",
        ),
        (
            f"redis+sentinel://me:{SECRET}@a:1,b:2/service?sentinel_password={SECRET}",
            f"redis+sentinel://{HIDDEN}@a:1,b:2/service?{HIDDEN}",
        ),
        (f"redis://:pa/{SECRET}@host", f"redis://{HIDDEN}@host"),
        (f"redis://:pa?{SECRET}@host", HIDDEN),
        (f"redis://:pa@{SECRET}@host", f"redis://{HIDDEN}@host"),
    ],
)
def test_only_the_secret_part_is_hidden(url: str, expected: str) -> None:
    assert shown_url(url) == expected
    assert SECRET not in expected


def test_each_secret_is_read_from_its_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    of_kafka = {"SECURITY_PROTOCOL": "SASL_SSL", "SASL_USERNAME": "me", "SSL_CERTFILE": __file__}
    for name, value in of_kafka.items():
        monkeypatch.setenv(f"{PREFIX}KAFKA_{name}", value)
    contents = {
        "kafka_sasl_password": " with blanks ",
        "kafka_ssl_password": "of\r\ntwo lines",
        "redis_url": f"redis://:{PASSWORD}@r",
        "database_url": f"postgresql://u:{PASSWORD}@h/x",
        "secret_key": "one passphrase or,another passphrase",
    }
    for name, content in contents.items():
        (tmp_path / name).write_text(f"{content}\r\n", newline="")
        monkeypatch.setenv(file_variable(name), str(tmp_path / name))
    settings = load_settings()
    read = {name: getattr(settings, name).get_secret_value() for name in contents}
    assert read == contents


def test_the_environment_wins_over_the_env_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    env = tmp_path / "env"
    env.write_text(f"{REDIS}=redis://of-the-env-file\n")
    assert load_settings(env).redis_url.get_secret_value() == "redis://of-the-env-file"
    monkeypatch.setenv(REDIS, "redis://of-the-environment")
    assert load_settings(env).redis_url.get_secret_value() == "redis://of-the-environment"


def test_a_secret_that_is_given_twice_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(REDIS, "redis://x")
    monkeypatch.setenv(f"{REDIS}_FILE", __file__)
    with pytest.raises(SettingsError, match=f"^{REDIS}_FILE: {REDIS} is set as well"):
        load_settings()
