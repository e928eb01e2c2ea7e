"""Old names of settings: accepted with one line on standard error each."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest
from click.testing import CliRunner

from config.errors import UsageError
from config.load_settings import load_settings
from config.renamed_settings import REMOVED, RENAMED
from config.settings import Settings
from workers.cli.program import cli


@pytest.fixture(autouse=True)
def _bare_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in list(os.environ):
        if name.startswith("SKILLBUS_"):
            monkeypatch.delenv(name)


def write(home: Path, text: str) -> Path:
    path = home / "skillbus.toml"
    path.write_text(text, encoding="utf-8")
    return path


def load(home: Path) -> tuple[Settings, list[str]]:
    warnings: list[str] = []
    return load_settings(home, warnings.append), warnings


def test_every_current_name_is_a_setting_and_no_old_one_is() -> None:
    for old, new in RENAMED.items():
        for name, expected in ((old, False), (new, True)):
            group, _, key = name.partition(".")
            found = group in Settings.model_fields
            if found and key:
                annotation = Settings.model_fields[group].annotation
                assert annotation is not None
                found = key in annotation.model_fields
            assert found is expected, name


def test_old_names_in_the_file_set_the_current_settings(tmp_path: Path) -> None:
    path = write(
        tmp_path,
        "[paging]\nmiss = 0.3\n[workers]\npage_threads = 3\nquery_threads = 5\n"
        "[watch]\nlook_seconds = 60\n",
    )
    settings, warnings = load(tmp_path)
    assert settings.passages.miss == 0.3
    assert (settings.workers.embed_threads, settings.workers.query_threads) == (3, 5)
    assert settings.watch.rescan_seconds == 60
    assert warnings == [
        f"{path}: {old} is now {new}; the next version will not accept the old name"
        for old, new in (
            ("paging.miss", "passages.miss"),
            ("workers.page_threads", "workers.embed_threads"),
            ("watch.look_seconds", "watch.rescan_seconds"),
        )
    ]


def test_removed_settings_are_ignored_with_a_line_each(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = write(tmp_path, "[choice]\nfloor = 2.0\ntop = 4\n[paging]\ngap = 5.7\n")
    monkeypatch.setenv("SKILLBUS_CHOICE__FLOOR_LONG", "5")
    settings, warnings = load(tmp_path)
    assert settings.choice.top == 4
    assert settings.choice.least_probability == Settings().choice.least_probability
    assert warnings == [
        f"{path}: choice.floor is ignored; choice.least_probability replaces it",
        f"{path}: paging.gap is ignored; passages.miss replaces it",
        "SKILLBUS_CHOICE__FLOOR_LONG is ignored; SKILLBUS_CHOICE__LEAST_PROBABILITY replaces it",
    ]


def test_what_replaces_a_removed_setting_is_one() -> None:
    for old, new in REMOVED.items():
        for name, expected in ((old, False), (new, True)):
            group, _, key = name.partition(".")
            annotation = Settings.model_fields[group].annotation
            assert annotation is not None
            assert (key in annotation.model_fields) is expected, name


def test_old_variables_set_the_current_settings(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SKILLBUS_PAGING__MISS", "0.1")
    monkeypatch.setenv("SKILLBUS_WORKERS__PAGE_THREADS", "3")
    settings, warnings = load(tmp_path)
    assert (settings.passages.miss, settings.workers.embed_threads) == (0.1, 3)
    assert warnings == [
        "SKILLBUS_PAGING__MISS is now SKILLBUS_PASSAGES__MISS; "
        "the next version will not accept the old name",
        "SKILLBUS_WORKERS__PAGE_THREADS is now SKILLBUS_WORKERS__EMBED_THREADS; "
        "the next version will not accept the old name",
    ]


def test_an_old_variable_may_set_a_whole_group(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SKILLBUS_PAGING", '{"miss": 0.1}')
    settings, warnings = load(tmp_path)
    assert settings.passages.miss == 0.1
    assert len(warnings) == 1


def test_a_current_name_overrides_an_old_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(
        tmp_path,
        '[paging]\nmiss = 0.3\nmethod = "mmr"\n[passages]\nmiss = 0.15\n'
        "[workers]\npage_threads = 3\nembed_threads = 5\n",
    )
    settings, _ = load(tmp_path)
    assert (settings.passages.miss, settings.passages.method) == (0.15, "mmr")
    assert settings.workers.embed_threads == 5
    for name in ("SKILLBUS_PASSAGES__MISS", "SKILLBUS_PAGING__MISS"):
        monkeypatch.setenv(name, "0.4" if "PAGING" in name else "0.1")
    assert load(tmp_path)[0].passages.miss == 0.1


def test_an_old_variable_overrides_the_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(tmp_path, "[passages]\nmiss = 0.15\n")
    monkeypatch.setenv("SKILLBUS_PAGING__MISS", "0.1")
    assert load(tmp_path)[0].passages.miss == 0.1


def test_current_names_give_no_warning(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write(tmp_path, "[passages]\nmiss = 0.15\n[workers]\nembed_threads = 3\n")
    monkeypatch.setenv("SKILLBUS_PASSAGES__METHOD", "mmr")
    assert load(tmp_path)[1] == []


@pytest.mark.parametrize(
    "text",
    [
        "paging = 3\n",
        "[paging]\nmiss = -1\n",
        "[paging]\ngaps = 1\n",
        "passages = 3\n[paging]\nmiss = 0.3\n",
    ],
)
def test_a_wrong_value_under_an_old_name_is_an_error(tmp_path: Path, text: str) -> None:
    write(tmp_path, text)
    with pytest.raises(UsageError, match=r"setting (passages|paging)"):
        load(tmp_path)


def test_the_command_line_warns_on_standard_error_and_shows_current_names(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = write(tmp_path, "[paging]\nmiss = 0.3\n")
    monkeypatch.setenv("SKILLBUS_WORKERS__PAGE_THREADS", "3")
    result = CliRunner().invoke(cli, ["--home", str(tmp_path), "config", "show", "--json"])
    assert result.exit_code == 0
    shown = json.loads(result.stdout)
    assert (shown["passages"]["miss"], shown["workers"]["embed_threads"]) == (0.3, 3)
    assert "paging" not in result.stdout
    assert "page_threads" not in result.stdout
    assert result.stderr.splitlines() == [
        f"skillbus: {path}: paging.miss is now passages.miss; "
        "the next version will not accept the old name",
        "skillbus: SKILLBUS_WORKERS__PAGE_THREADS is now SKILLBUS_WORKERS__EMBED_THREADS; "
        "the next version will not accept the old name",
    ]
