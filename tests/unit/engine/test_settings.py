"""Settings: where they come from, what is refused, and that secrets stay secret."""

from pathlib import Path

import pytest

from engine.cli.application import run
from engine.kafka.client_options import connection_options
from engine.process.errors import SettingsError
from engine.process.settings import PREFIX, Settings
from engine.process.settings_checks import bootstrap_addresses
from engine.process.settings_sources import load_settings

PASSWORD = "p4ssw0rd-never-shown"


@pytest.fixture(autouse=True)
def _bare_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in Settings.model_fields:
        monkeypatch.delenv(PREFIX + name.upper(), raising=False)


def test_the_environment_wins_over_the_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    file = tmp_path / "env"
    file.write_text("PROXIMITY_TOPIC_PREFIX=file.\nPROXIMITY_GROUP_PREFIX=file-\n")
    monkeypatch.setenv("PROXIMITY_TOPIC_PREFIX", "environment.")
    settings = load_settings(file)
    assert (settings.topic_prefix, settings.group_prefix) == ("environment.", "file-")


@pytest.mark.parametrize(
    ("name", "value", "expected"),
    [
        ("METRICS_PORT", "70000", "65535"),
        ("MAX_DETECTION_AGE", "never", "number"),
        ("REDIS_URL", f"http://:{PASSWORD}@host", "redis://"),
        ("DATABASE_URL", f"mysql://user:{PASSWORD}@host", "postgresql://"),
        ("DATABASE_URL", f"postgresql://u:{PASSWORD}@h/x?sslrootcert=/not/there", "no such file"),
        ("REDIS_URL", f"redis://:{PASSWORD}@host:port", "redis://"),
        ("DATABASE_URL", f"postgresql://u:{PASSWORD}@x@h/x", "write %40"),
        ("DATABASE_URL", "sqlite://", "names no file"),
        ("DATABASE_URL", "sqlite:///:memory:", "names no file"),
        ("REDIS_URL", f"rediss://:{PASSWORD}@h?ssl_ca_certs=/not/there", "/there: no such file"),
        ("REDIS_URL", f"redis://:{PASSWORD}@h?ssl_ca_certs=x", "begin with rediss"),
        ("REDIS_URL", f"redis+cluster://:{PASSWORD}@h?ssl_keyfile=x", "begin with rediss"),
        ("REDIS_URL", f"redis://:{PASSWORD}@h?decode_responses=yes", "'decode_responses' is not"),
        ("REDIS_URL", f"redis+sentinel://{PASSWORD}@h/s?sentinel_x=1", "'sentinel_x' is not known"),
        ("REDIS_URL", f"redis://:{PASSWORD}@h?sentinel_password=1", "'sentinel_password' is not"),
        ("REDIS_URL", f"redis://:{PASSWORD}@h:1/first", "is a number"),
        ("REDIS_URL", f"redis://:{PASSWORD}@x@h", "write %40"),
        ("REDIS_URL", "redis:/localhost", "accepted: [user:password@]host"),
        ("CONNECTOR_ALLOW_NETWORKS", "127.0.0.0/8,nowhere", "'nowhere' is no network"),
        ("CONNECTOR_ALLOW_NETWORKS", "127.0.0.1/8", "no network; 127.0.0.0/8?"),
        ("API_TRUSTED_PROXIES", "all", "accepted: networks such as 10.0.0.0/8"),
        ("TOPIC_PREFIX", "a b", "'a b': Kafka takes letters, digits"),
        ("KAFKA_BOOTSTRAP_SERVERS", "localhost:abc", "'localhost:abc': a port is a number"),
        ("KAFKA_BOOTSTRAP_SERVERS", "kafka://localhost:9092", "accepted: host:port"),
        ("KAFKA_BOOTSTRAP_SERVERS", "localhost:9092,:9092", "accepted: host:port"),
        ("KAFKA_BOOTSTRAP_SERVERS", " , ", "empty"),
        ("KAFKA_SASL_USERNAME", "me", "no effect with KAFKA_SECURITY_PROTOCOL PLAINTEXT"),
        ("KAFKA_SASL_PASSWORD", PASSWORD, "set it to SASL_SSL or SASL_PLAINTEXT"),
        ("KAFKA_SASL_MECHANISM", "SCRAM-SHA-256", "no effect"),
        ("KAFKA_SASL_OAUTH_TOKEN_URL", f"https://me:{PASSWORD}@host/token", "accepted: http://"),
        ("KAFKA_SASL_OAUTH_TOKEN_URL", "idp.example/token", "accepted: http://"),
        ("KAFKA_SASL_OAUTH_TOKEN_URL", "https://idp.example:port/token", "cannot be read"),
        ("KAFKA_SASL_OAUTH_EXTENSIONS", "a=1,2=b", "accepted: name=value"),
        ("KAFKA_SASL_OAUTH_EXTENSIONS", "auth=b", "accepted: name=value"),
        ("KAFKA_SASL_OAUTH_EXTENSIONS", "pool=a\x01b", "pool: a value consists of printable"),
        ("KAFKA_SASL_OAUTH_TIMEOUT", "0", "greater than 0"),
        ("KAFKA_SSL_CAFILE", "/not/there.pem", "No such file"),
        ("KAFKA_SSL_CAFILE", __file__, "set it to SSL or SASL_SSL"),
        ("API_PORT", "tcp://10.0.0.1:8000", "enableServiceLinks: false"),
        ("METRICS_PRT", "9464", "did you mean PROXIMITY_METRICS_PORT?"),
        ("NOTHING_OF_THE_KIND", "1", "`proximity settings` prints them all"),
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
        ("SASL_PLAINTEXT", {"SASL_USERNAME": "me"}, "KAFKA_SASL_PASSWORD is required"),
        ("SSL", {"SASL_USERNAME": "me"}, "KAFKA_SASL_USERNAME has no effect"),
        ("SSL", {"SSL_KEYFILE": __file__}, "KAFKA_SSL_CERTFILE is required"),
        ("SASL_SSL", {"SASL_MECHANISM": "OAUTHBEARER"}, "KAFKA_SASL_OAUTH_TOKEN_URL is required"),
        ("SASL_SSL", OAUTH, "KAFKA_SASL_OAUTH_CLIENT_SECRET is required"),
        (
            "SASL_SSL",
            OAUTH | {"SASL_PASSWORD": PASSWORD},
            "KAFKA_SASL_PASSWORD has no effect with KAFKA_SASL_MECHANISM OAUTHBEARER",
        ),
        (
            "SASL_SSL",
            OAUTH | {"SASL_MECHANISM": "PLAIN"},
            "KAFKA_SASL_OAUTH_TOKEN_URL has no effect with KAFKA_SASL_MECHANISM PLAIN: set it to",
        ),
        ("PLAINTEXT", {"SASL_OAUTH_SCOPE": "all"}, "KAFKA_SASL_OAUTH_SCOPE has no effect"),
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
    ("servers", "addresses"),
    [
        ("a", [("a", 9092)]),
        ("a:1, b.example:65535,", [("a", 1), ("b.example", 65535)]),
        ("[::1]:9093,::1,[::2]", [("::1", 9093), ("::1", 9092), ("::2", 9092)]),
    ],
)
def test_addresses_of_kafka(servers: str, addresses: list[tuple[str, int]]):
    assert bootstrap_addresses(servers) == addresses


def test_names_that_are_no_settings_and_may_be_there(monkeypatch: pytest.MonkeyPatch):
    for name, value in {
        "TEST_ANYTHING": "1",
        "API_SERVICE_HOST": "10.0.0.1",
        "API_SERVICE_PORT_HTTP": "8000",
        "PORT": "tcp://10.0.0.1:80",
        "API_PORT_8000_TCP_ADDR": "10.0.0.1",
    }.items():
        monkeypatch.setenv(PREFIX + name, value)
    assert load_settings().api_port == 8000


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        (b"PROXIMITY_METRICS_PRT=1\n", "did you mean PROXIMITY_METRICS_PORT?"),
        (b"A=1\n\nthis is no setting\n", ":3: accepted: KEY=value"),
        (b"PROXIMITY_TOPIC_PREFIX\n", ":1: accepted: KEY=value"),
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


def test_a_byte_order_mark_is_no_part_of_the_first_name(tmp_path: Path):
    file = tmp_path / "env"
    file.write_bytes(b"\xef\xbb\xbfPROXIMITY_TOPIC_PREFIX=a.\nOTHER=1\n")
    assert load_settings(file).topic_prefix == "a."


@pytest.mark.parametrize("name", ["cafile", "certfile"])
def test_a_file_that_is_no_certificate_is_named(monkeypatch: pytest.MonkeyPatch, name: str):
    monkeypatch.setenv("PROXIMITY_KAFKA_SECURITY_PROTOCOL", "SSL")
    monkeypatch.setenv(f"PROXIMITY_KAFKA_SSL_{name.upper()}", __file__)
    with pytest.raises(SettingsError, match=f"^PROXIMITY_KAFKA_SSL_{name.upper()} .*PEM"):
        connection_options(load_settings())


def test_networks_are_read_from_a_list(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("PROXIMITY_CONNECTOR_ALLOW_NETWORKS", "127.0.0.0/8, ::1/128")
    assert [str(n) for n in load_settings().connector_allow_networks] == ["127.0.0.0/8", "::1/128"]


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
