"""Settings: defaults, the file, the environment over it, and errors that name the setting."""

from __future__ import annotations

from pathlib import Path

import pytest
from pydantic import ValidationError

from config.errors import UsageError
from config.load_settings import get_config_path, load_settings
from config.settings import OPTIONAL_STAGES, Settings


@pytest.fixture(autouse=True)
def _bare_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    import os

    for name in list(os.environ):
        if name.startswith("SKILLBUS_"):
            monkeypatch.delenv(name)


def write(home: Path, text: str) -> None:
    home.mkdir(exist_ok=True)
    (home / "skillbus.toml").write_text(text, encoding="utf-8")


def test_defaults_need_no_file(tmp_path: Path) -> None:
    settings = load_settings(tmp_path / "home")
    assert settings.home == tmp_path / "home"
    assert settings.choice.budget == 8000
    assert settings.log_level == "warning"


def test_a_file_sets_tables_and_leaves_the_rest(tmp_path: Path) -> None:
    write(tmp_path, 'log_level = "info"\n[passages]\nmiss = 0.3\n')
    settings = load_settings(tmp_path)
    assert settings.log_level == "info"
    assert settings.passages.miss == 0.3
    assert settings.passages.method == "f"


def test_the_environment_wins_over_the_file_key_by_key(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(tmp_path, '[passages]\nmiss = 0.3\nmethod = "mmr"\n')
    monkeypatch.setenv("SKILLBUS_PASSAGES__MISS", "0.1")
    settings = load_settings(tmp_path)
    assert settings.passages.miss == 0.1
    assert settings.passages.method == "mmr"


def test_home_comes_from_the_call_then_from_the_environment(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SKILLBUS_HOME", str(tmp_path / "named"))
    assert load_settings().home == tmp_path / "named"
    assert load_settings(tmp_path / "given").home == tmp_path / "given"


def test_home_is_absolute_and_expands_the_user(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    assert load_settings(Path("~/library")).home == tmp_path / "library"
    monkeypatch.chdir(tmp_path)
    assert load_settings(Path("here")).home == tmp_path / "here"


def test_the_config_variable_names_another_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    elsewhere = tmp_path / "team.toml"
    elsewhere.write_text("[choice]\ntop = 3\n", encoding="utf-8")
    monkeypatch.setenv("SKILLBUS_CONFIG", str(elsewhere))
    assert get_config_path(tmp_path / "home") == elsewhere
    assert load_settings(tmp_path / "home").choice.top == 3


def test_a_config_variable_without_its_file_is_an_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SKILLBUS_CONFIG", str(tmp_path / "absent.toml"))
    with pytest.raises(UsageError, match=r"absent\.toml.*SKILLBUS_CONFIG"):
        load_settings(tmp_path)


@pytest.mark.parametrize(
    ("text", "named"),
    [
        ("[passages]\nmiss = -1\n", "passages.miss"),
        ("[passages]\nmisses = 1\n", "passages.misses"),
        ("colour = 1\n", "colour"),
        ('[choice]\nbudget = "much"\n', "choice.budget"),
        ('log_level = "loud"\n', "log_level"),
        ('home = "elsewhere"\n', "home"),
        ("[servers]\ntimeout_seconds = inf\n", "servers.timeout_seconds"),
        ("[workers]\ningest_threads = 0\n", "workers.ingest_threads"),
    ],
)
def test_a_wrong_setting_is_named_with_its_file_and_variable(
    tmp_path: Path, text: str, named: str
) -> None:
    write(tmp_path, text)
    with pytest.raises(UsageError) as caught:
        load_settings(tmp_path)
    message = str(caught.value)
    assert f"setting {named}:" in message
    assert str(tmp_path / "skillbus.toml") in message
    assert "SKILLBUS_" + named.upper().replace(".", "__") in message


def test_a_setting_that_does_not_exist_is_called_so(tmp_path: Path) -> None:
    write(tmp_path, "[choice]\nbudgett = 3\n")
    with pytest.raises(UsageError, match=r"setting choice\.budgett: no setting of that name"):
        load_settings(tmp_path)


def test_a_rule_about_several_groups_names_them(tmp_path: Path) -> None:
    write(tmp_path, '[policy]\nreview = ["a"]\n[history]\nrevisions = 0\n')
    with pytest.raises(UsageError, match=r"^policy\.review keeps .* or the environment\)$"):
        load_settings(tmp_path)


def test_a_wrong_variable_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SKILLBUS_CHOICE__TOP", "many")
    with pytest.raises(UsageError, match="SKILLBUS_CHOICE__TOP"):
        load_settings(tmp_path)


@pytest.mark.parametrize("address", ["ftp://me:key@host/v1", "http://me:k/ey@host/v1"])
def test_an_error_does_not_quote_a_password(tmp_path: Path, address: str) -> None:
    write(tmp_path, f'[language_model]\nmodel = "m"\nbase_url = "{address}"\n')
    with pytest.raises(UsageError, match=r"base_url '\w+://me@host/v1': write http"):
        load_settings(tmp_path)


@pytest.mark.parametrize("value", ["nan", "2026-11-29"])
def test_fields_for_a_language_model_that_are_not_json_are_refused(
    tmp_path: Path, value: str
) -> None:
    write(tmp_path, f"[language_model.extra_body]\nseed = {value}\n")
    with pytest.raises(UsageError, match="extra_body cannot be sent as JSON"):
        load_settings(tmp_path)


def test_several_errors_are_reported_at_once(tmp_path: Path) -> None:
    write(tmp_path, "[choice]\ntop = 0\nbudget = 0\n")
    with pytest.raises(UsageError) as caught:
        load_settings(tmp_path)
    assert "choice.top" in str(caught.value)
    assert "choice.budget" in str(caught.value)


@pytest.mark.parametrize("content", [b"[paging\n", b"\xff\xfe", b"a = = 1"])
def test_a_file_that_is_no_toml_is_an_error(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "skillbus.toml").write_bytes(content)
    with pytest.raises(UsageError, match="not a readable TOML file"):
        load_settings(tmp_path)


def test_settings_cannot_be_changed(tmp_path: Path) -> None:
    settings = load_settings(tmp_path)
    with pytest.raises(ValidationError):
        settings.log_level = "debug"  # type: ignore[misc]  # read-only
    with pytest.raises(ValidationError):
        settings.passages.miss = 1.0  # type: ignore[misc]  # read-only


def test_settings_handed_in_are_taken_without_a_file(tmp_path: Path) -> None:
    settings = Settings(home=tmp_path, choice={"top": 2})
    assert settings.choice.top == 2


def test_stages_have_no_duplicates() -> None:
    assert len(set(OPTIONAL_STAGES)) == len(OPTIONAL_STAGES)


def test_a_variable_that_nothing_reads_is_an_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SKILLBUS_PAGNG__MISS", "5")
    with pytest.raises(UsageError, match="SKILLBUS_PAGNG__MISS: no such setting"):
        load_settings(tmp_path)


def test_a_variable_of_a_list_or_table_that_is_not_json_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SKILLBUS_CHOICE__TOP", "3")
    monkeypatch.setenv("SKILLBUS_LANGUAGE_MODEL__STAGES", "select")
    monkeypatch.setenv("SKILLBUS_POLICY__SOURCES", "{team: send}")
    with pytest.raises(UsageError, match=r'such as \["a", "b"\]') as caught:
        load_settings(tmp_path)
    lines = str(caught.value).splitlines()
    assert sorted(line.partition(":")[0] for line in lines) == [
        "SKILLBUS_LANGUAGE_MODEL__STAGES",
        "SKILLBUS_POLICY__SOURCES",
    ]
    monkeypatch.setenv("SKILLBUS_LANGUAGE_MODEL__STAGES", '["select"]')
    monkeypatch.setenv("SKILLBUS_POLICY__SOURCES", '{"team": "send"}')
    assert load_settings(tmp_path).policy.sources == {"team": "send"}


@pytest.mark.parametrize("home", ["~no-such-user/library", "/" + "x" * 300, "/caf\udce9"])
def test_a_home_that_cannot_be_reached_is_refused(home: str) -> None:
    with pytest.raises(UsageError, match=r"cannot be used: .*SKILLBUS_HOME or --home"):
        load_settings(Path(home))
