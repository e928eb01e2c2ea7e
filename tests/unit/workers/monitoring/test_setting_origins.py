"""Where settings come from, and what a restart would change; no passwords."""

from __future__ import annotations

from pathlib import Path

import pytest
from click.testing import CliRunner

from config.load_settings import load_settings
from workers.cli.program import cli
from workers.monitoring.setting_origins import SettingInForce, list_settings_in_force


def list_by_name(home: Path) -> dict[str, SettingInForce]:
    found, problem = list_settings_in_force(load_settings(home))
    assert not problem
    return {one.name: one for one in found}


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.delenv("SKILLBUS_CONFIG", raising=False)
    return tmp_path


def test_each_setting_has_its_origin(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (home / "skillbus.toml").write_text("[choice]\nbudget = 6000\ntop = 3\n[paging]\nmiss = 0.3\n")
    monkeypatch.setenv("SKILLBUS_CHOICE__TOP", "4")
    monkeypatch.setenv("skillbus_log_level", "info")
    found = list_by_name(home)
    assert found["choice.budget"].origin == "file"
    assert (found["choice.top"].origin, found["choice.top"].value) == ("environment", 4)
    assert found["choice.top"].variable == "SKILLBUS_CHOICE__TOP"
    assert found["passages.miss"].origin == "file"
    assert found["log_level"].origin == "environment"
    assert found["choice.relative"].origin == "default"
    assert not any(one.is_changed for one in found.values())


def test_a_group_in_one_variable_sets_all_of_it(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SKILLBUS_CHOICE", '{"budget": 5000}')
    assert list_by_name(home)["choice.budget"].origin == "environment"


def test_what_a_restart_would_change_is_marked(home: Path) -> None:
    settings = load_settings(home)
    (home / "skillbus.toml").write_text("[choice]\nbudget = 6000\n")
    found, _ = list_settings_in_force(settings)
    changed = [one for one in found if one.is_changed]
    assert [(one.name, one.value) for one in changed] == [("choice.budget", 8000)]
    (home / "skillbus.toml").write_text("[choice]\nbudget = many\n")
    _, problem = list_settings_in_force(settings)
    assert "not a readable TOML file" in problem


def test_addresses_are_shown_without_passwords(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    settings = load_settings(home)
    servers = settings.servers.model_copy(
        update={
            "broker": "amqp://bus:hunter2@one/,amqp://bus:hunter2@two/",
            "redis": "redis://:hunter2,hunter2@three/0",
        }
    )
    found, _ = list_settings_in_force(settings.model_copy(update={"servers": servers}))
    [broker] = [one for one in found if one.name == "servers.broker"]
    assert broker.value == "amqp://bus@one/,amqp://bus@two/"
    assert "hunter2" not in str(found)


@pytest.mark.parametrize("options", [(), ("--json",)])
def test_the_command_line_shows_no_passwords(
    home: Path, monkeypatch: pytest.MonkeyPatch, options: tuple[str, ...]
) -> None:
    addresses = {"broker": "redis://:hunter2@one/0", "neo4j": "bolt://neo4j:hunter2@two:7687"}
    addresses["elasticsearch"] = "http://u:hunter2@three:9200,http://u:hunter2@four:9200"
    for name, address in addresses.items():
        monkeypatch.setenv(f"SKILLBUS_SERVERS__{name.upper()}", address)
    result = CliRunner().invoke(cli, ["--home", str(home), "config", "show", *options])
    assert result.exit_code == 0
    assert "http://u@three:9200,http://u@four:9200" in result.stdout
    assert "hunter2" not in result.output
