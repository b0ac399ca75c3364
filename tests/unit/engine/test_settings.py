"""Settings: where they come from, what is refused, and that secrets stay secret."""

from pathlib import Path

import pytest

from engine.cli import run
from engine.settings import PREFIX, Settings, SettingsError, load_settings

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
    ("name", "value", "told"),
    [
        ("METRICS_PORT", "70000", "65535"),
        ("MAX_DETECTION_AGE", "never", "number"),
        ("REDIS_URL", f"http://:{PASSWORD}@host", "redis://"),
        ("DATABASE_URL", f"mysql://user:{PASSWORD}@host", "postgresql://"),
        ("CONNECTOR_ALLOW_NETWORKS", "127.0.0.0/8,nowhere", "network"),
    ],
)
def test_a_bad_value_is_named_on_one_line(
    monkeypatch: pytest.MonkeyPatch, name: str, value: str, told: str
):
    monkeypatch.setenv(PREFIX + name, value)
    with pytest.raises(SettingsError) as caught:
        load_settings()
    message = str(caught.value)
    assert PREFIX + name in message
    assert told in message
    assert "\n" not in message
    assert PASSWORD not in message


def test_networks_are_read_from_a_list(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("PROXIMITY_CONNECTOR_ALLOW_NETWORKS", "127.0.0.0/8, ::1/128")
    assert [str(n) for n in load_settings().connector_allow_networks] == ["127.0.0.0/8", "::1/128"]


def test_settings_prints_every_setting_and_no_secret(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    monkeypatch.setenv("PROXIMITY_DATABASE_URL", f"postgresql://user:{PASSWORD}@host/name")
    monkeypatch.setenv("PROXIMITY_SECRET_KEY", PASSWORD)
    monkeypatch.setenv("PROXIMITY_KAFKA_SASL_PASSWORD", PASSWORD)
    assert run(["settings"]) == 0
    printed = capsys.readouterr().out
    for name in Settings.model_fields:
        assert PREFIX + name.upper() in printed
    assert PASSWORD not in printed
    assert "redis://localhost:6379/0" in printed
