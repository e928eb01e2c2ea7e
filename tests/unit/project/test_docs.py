"""README and docs: links resolve, commands exist."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from pathlib import Path

import click
import pytest

from config.bundle_settings import PolicySettings
from config.inbound_settings import OidcSettings
from config.language_model_settings import LanguageModelSettings
from config.settings import RankerSettings, RerankerSettings, Settings
from workers.cli.program import cli
from workers.monitoring.local_checks import library_checks, machine_checks
from workers.monitoring.server_checks import server_checks
from workers.processes.workloads import ALL_QUEUES

ROOT = Path(__file__).resolve().parents[3]
PAGES = sorted([*ROOT.glob("*.md"), ROOT / "examples" / "README.md", *ROOT.glob("docs/**/*.md")])

_LINK = re.compile(r"\]\(([^)\s]+)\)")
_FENCE = re.compile(r"^(```|~~~)(\w*)\n(.*?)^\1$", re.MULTILINE | re.DOTALL)


def ids(page: Path) -> str:
    return str(page.relative_to(ROOT))


def commands(page: Path) -> Iterator[list[str]]:
    """The words of every `skillbus …` that the page's code shows, ids and texts included."""
    text = page.read_text(encoding="utf-8")
    shown = [
        fence[2] for fence in _FENCE.findall(text) if fence[1] in ("console", "sh", "markdown")
    ]
    for line in "\n".join(shown).replace("\\\n", " ").splitlines():
        found = re.search(r"(?:^[$>] .*?|^ {4}|^)\bskillbus (?=[a-z-])(.*)", line)
        if found and (line.startswith(("$ ", "> ", "    ")) or line.startswith("skillbus ")):
            yield _words(found[1])
    prose = _FENCE.sub("", text)
    for code in re.findall(r"`skillbus ([a-z-][^`]*)`", prose):
        yield _words(code)


def _words(text: str) -> list[str]:
    """Shell words up to a pipe, a redirection or an end of the command."""
    words = []
    lexer = shlex.shlex(text, posix=True, punctuation_chars="|;<>&")
    lexer.whitespace_split = True
    for word in lexer:
        if set(word) <= set("|;<>&"):
            break
        words.append(word)
    return words


def check_command(words: list[str]) -> None:
    """Raise click's own error for a command or option that does not exist."""
    command: click.Command = cli
    context = click.Context(cli, info_name="skillbus")
    while isinstance(command, click.Group) and words and not words[0].startswith("-"):
        name, *words = words
        found = command.get_command(context, name)
        assert found is not None, f"no command {name!r}"
        command, context = found, click.Context(found, parent=context, info_name=name)
    known = {option for parameter in command.params for option in parameter.opts}
    known |= {option for parameter in command.params for option in parameter.secondary_opts}
    known |= {"-", "--help"}
    for word in words:
        if word.startswith("-"):
            assert word.split("=")[0] in known, f"{command.name} has no option {word}"


@pytest.mark.parametrize("page", PAGES, ids=ids)
def test_rows_of_tables_are_lines_with_the_cells_of_the_header(page: Path) -> None:
    text = _FENCE.sub("", page.read_text(encoding="utf-8"))
    assert [one for one in text.splitlines() if "| --- |" in one and set(one) - set(" |:-")] == []
    for table in re.findall(r"(?:^ *\|.*\n)+", text, re.MULTILINE):
        rows = [line.strip() for line in table.splitlines()]
        assert [row for row in rows if not row.endswith("|")] == []
        assert len({len(re.findall(r"(?<!\\)\|", row)) for row in rows}) == 1, rows[0]


@pytest.mark.parametrize("page", PAGES, ids=ids)
def test_relative_links_resolve(page: Path) -> None:
    for target in _LINK.findall(_FENCE.sub("", page.read_text(encoding="utf-8"))):
        if re.match(r"[a-z]+:", target) or target.startswith("#"):
            continue
        assert (page.parent / target.partition("#")[0]).exists(), f"{target} is not there"


@pytest.mark.parametrize("page", PAGES, ids=ids)
def test_commands_and_their_options_exist(page: Path) -> None:
    for words in commands(page):
        check_command(words)


def test_every_command_is_shown() -> None:
    shown = {words[0] for page in PAGES for words in commands(page)}
    assert shown >= set(cli.list_commands(click.Context(cli)))


def test_the_page_about_monitoring_names_every_check_and_queue(tmp_path: Path) -> None:
    text = (ROOT / "docs/how-to/see-what-happens.md").read_text()
    (tmp_path / "graph.db").touch()
    settings = Settings(
        home=tmp_path,
        reranker=RerankerSettings(model="m"),
        ranker=RankerSettings(weights="weights.json"),
        oidc=OidcSettings(issuer="https://issuer.example", audience="a", scopes={"reader": "read"}),
        language_model=LanguageModelSettings(base_url="http://127.0.0.1:1/v1", model="m"),
        policy=PolicySettings(suppressed_rules=("download-run",)),
    )
    checks = {**machine_checks(settings), **library_checks(settings), **server_checks(settings)}
    table = text.partition("| check | fails if |")[2].partition("\n\n")[0]
    named = [row.split("|")[1] for row in table.splitlines() if row.startswith("|")]
    assert {*checks, "library"} == {one.strip() for row in named[1:] for one in row.split(",")}
    queues = re.search(r"^queues +(.*) messages$", text, re.MULTILINE)
    assert queues is not None
    shown = [one.partition(" ")[0] for one in queues[1].split(", ")]
    assert shown == [queue.removeprefix("skillbus.") for queue in ALL_QUEUES]


def test_every_path_of_the_map_exists() -> None:
    text = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
    paths = re.findall(r"`((?:config|skills|search|graph|tasks|workers|tests|docs)/[\w/.]*)`", text)
    assert len(paths) > 20
    assert not [path for path in paths if not (ROOT / path).exists()]


def test_the_readme_is_short() -> None:
    assert len((ROOT / "README.md").read_text(encoding="utf-8").splitlines()) <= 220


def test_a_command_or_option_that_does_not_exist_is_noticed() -> None:
    with pytest.raises(AssertionError, match="no command 'skill'"):
        check_command(["skill", "list"])
    with pytest.raises(AssertionError, match="no option --budge"):
        check_command(["query", "a task", "--budge", "3"])
