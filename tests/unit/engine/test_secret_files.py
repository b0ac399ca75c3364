"""Secrets that come from files."""

from pathlib import Path

import pytest

from engine.cli.application import run
from engine.process.errors import SettingsError
from engine.process.secret_files import file_variable, secret_settings
from engine.process.settings import PREFIX, Settings
from engine.process.settings_sources import load_settings

PASSWORD = "p4ssw0rd-never-shown"
REDIS = "PROXIMITY_REDIS_URL"


@pytest.fixture(autouse=True)
def _bare_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in Settings.model_fields:
        monkeypatch.delenv(PREFIX + name.upper(), raising=False)


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "redis-url"
    path.write_text(f"redis://:{PASSWORD}@of-the-file\n")
    return path


def test_the_secrets_are_these() -> None:
    assert set(secret_settings()) == {
        "kafka_sasl_password",
        "kafka_sasl_oauth_client_secret",
        "kafka_ssl_password",
        "redis_url",
        "database_url",
        "secret_key",
    }


def test_each_secret_is_read_from_its_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    of_kafka = {"SECURITY_PROTOCOL": "SASL_SSL", "SASL_USERNAME": "me", "SSL_CERTFILE": __file__}
    for name, value in of_kafka.items():
        monkeypatch.setenv(f"{PREFIX}KAFKA_{name}", value)
    contents = {
        "kafka_sasl_password": " with blanks ",
        "kafka_ssl_password": "of\r\ntwo lines",
        "redis_url": f"redis://:{PASSWORD}@r",
        "database_url": f"postgresql://u:{PASSWORD}@h/x",
        "secret_key": "one,two",
    }
    for name, content in contents.items():
        (tmp_path / name).write_text(f"{content}\r\n", newline="")
        monkeypatch.setenv(file_variable(name), str(tmp_path / name))
    settings = load_settings()
    read = {name: getattr(settings, name).get_secret_value() for name in contents}
    assert read == contents


def test_only_secrets_have_a_file(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PROXIMITY_TOPIC_PREFIX_FILE", __file__)
    with pytest.raises(SettingsError, match="PROXIMITY_TOPIC_PREFIX_FILE: no setting has this"):
        load_settings()


def test_the_environment_wins_over_the_env_file(
    tmp_path: Path, file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    env = tmp_path / "env"
    env.write_text(f"{REDIS}_FILE={file}\n")
    assert "of-the-file" in load_settings(env).redis_url.get_secret_value()
    monkeypatch.setenv(REDIS, "redis://of-the-environment")
    assert load_settings(env).redis_url.get_secret_value() == "redis://of-the-environment"
    monkeypatch.delenv(REDIS)
    env.write_text(f"{REDIS}=redis://of-the-env-file\n")
    monkeypatch.setenv(f"{REDIS}_FILE", str(file))
    assert "of-the-file" in load_settings(env).redis_url.get_secret_value()


def test_an_override_wins_and_the_file_is_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(f"{REDIS}_FILE", "/not/there")
    assert load_settings(redis_url="redis://x").redis_url.get_secret_value() == "redis://x"


def test_a_secret_that_is_given_twice_is_refused(
    file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(REDIS, "redis://x")
    monkeypatch.setenv(f"{REDIS}_FILE", str(file))
    with pytest.raises(SettingsError, match=f"^{REDIS}_FILE: {REDIS} is set as well"):
        load_settings()


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        (None, "No such file"),
        (b"", "the file is empty"),
        (b"\n", "the file is empty"),
        (b"\xff\xfe", "not UTF-8"),
        (b"x" * 65_537, "more than 65536 bytes"),
        (f"http://:{PASSWORD}@h".encode(), "begins with none of redis://"),
    ],
)
def test_a_bad_file_is_named_and_never_quoted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, content: bytes | None, expected: str
) -> None:
    path = tmp_path / "secret"
    if content is not None:
        path.write_bytes(content)
    monkeypatch.setenv(f"{REDIS}_FILE", str(path))
    with pytest.raises(SettingsError) as caught:
        load_settings()
    message = str(caught.value)
    assert message.startswith(f"{REDIS}_FILE: ")
    assert expected in message
    assert "\n" not in message
    assert PASSWORD not in message


def test_a_directory_is_named(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv(f"{REDIS}_FILE", str(tmp_path))
    with pytest.raises(SettingsError, match="Is a directory"):
        load_settings()


def test_the_command_shows_the_file_and_not_the_secret(
    file: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv(f"{REDIS}_FILE", str(file))
    assert run(["settings", "--json"]) == 0
    printed = capsys.readouterr().out
    (line,) = [line for line in printed.splitlines() if f'"{REDIS}"' in line]
    assert str(file) in line
    assert "of-the-file" in line
    assert f"{REDIS}_FILE: a file that holds it" in line
    assert PASSWORD not in printed
