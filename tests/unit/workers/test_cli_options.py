"""Deprecated options are accepted with a warning; status lines are labelled."""

from __future__ import annotations

import re
from pathlib import Path
from typing import cast

import pytest
from click.testing import CliRunner

from config.errors import TransientError, UsageError
from config.language_model_settings import ModelStage
from config.settings import Settings
from skills.bundle.model import Bundle
from workers.backend.protocol import Backend
from workers.cli.common import SyncProgress
from workers.cli.evaluation.options import _poll_until_embedded, check_line_ranges
from workers.cli.library.query import _print
from workers.cli.library.refine import select_stages
from workers.cli.library.sync import make_source_event, sync
from workers.cli.operations.status import _library_lines
from workers.cli.processes import worker
from workers.cli.program import cli
from workers.cli.training.reranker import reranker
from workers.processes.workloads import ALL_QUEUES


@pytest.mark.parametrize("value", ["words", "searchable", "embedded", "paged"])
def test_until_paged_is_embedded(value: str, tmp_path: Path) -> None:
    result = CliRunner().invoke(sync, [str(tmp_path / "none"), "--until", value])
    assert ("use `--until embedded`" in result.stderr) == (value == "paged")
    assert "Usage" not in result.stderr


def test_until_offers_no_deprecated_value() -> None:
    shown = CliRunner().invoke(sync, ["--help"]).output
    assert "[words|searchable|embedded]" in shown
    assert "paged" not in shown


def test_a_folder_whose_path_is_not_utf8_is_refused_with_its_reason(tmp_path: Path) -> None:
    root = tmp_path / "caf\udce9"
    root.mkdir()
    with pytest.raises(UsageError, match=r"caf\\udce9 is not UTF-8 text"):
        make_source_event(root, "team")
    with pytest.raises(UsageError, match="'a b' cannot be a source id"):
        make_source_event(tmp_path, "a b")


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["serve", "--listen", ""], "write IP:PORT"),
        (["sources", "add", "https://example.org/a.git", "--licence-policy", ""], "is empty"),
        (["query", "fire a kiln", "--session", ""], "--session is empty"),
        (["query", "--session", "", "--resend"], "--session is empty"),
        (["sources", "groups", "a b", "team"], "'a b' cannot be a source id: at most 200"),
        (["upload", "SKILL.md", "--source", "a b"], "'a b' cannot be a source id: at most 200"),
        (["eval", "routing", "SKILL.md", "--out", "none/a.json"], "is in no existing folder"),
        (["eval", "ablation", "SKILL.md", "--out", "."], "is a directory"),
        (["query"], "give the task as TEXT"),
        (["query", "fire a kiln", "--file", "SKILL.md"], "give the task as TEXT"),
        (["query", "--file", "none"], "none cannot be read: No such file"),
        (["query", "--file", "binary"], "binary is not UTF-8 text"),
        (["query", "-"], "standard input is not UTF-8 text"),
        (["query", "fire a kiln", "--filter", "colour=red"], "NAME one of source, licence,"),
        (["query", "fire a kiln", "--why", "nosuch"], "--why: 'nosuch' is not a skill id"),
        (["query", "fire a kiln", "--budget", "0"], "0 is not in the range"),
        (["query", "fire a kiln", "--budget", "9" * 20], "is not in the range"),
        (["query", "fire a kiln"], "run `skillbus sync DIR` first"),
        (["query", "--obstacle", "it failed"], "--obstacle refers to a session"),
        (["query", "fire a kiln", "--resend"], "--resend refers to a session"),
        (["query", "fire a kiln", "--brief"], "--brief refers to a session"),
        (["query", "fire a kiln", "--session", "x" * 201], "at most 200 printable"),
        (["query", "fire a kiln", "--session", "tab\there"], "at most 200 printable"),
        (["query", "--session", "s"], "give the task as TEXT"),
        (["refine"], "no language model is configured"),
        (["dead", "list"], "no library in"),
        (["usage"], "no library in"),
        (["usage", "--days", "0"], "0 is not in the range"),
        (["usage", "--unused", "--copies"], "give only one of --unused,"),
        (["usage", "--unanswered", "--skill", "a:b"], "--unanswered covers all skills and sources"),
        (["usage", "--queries", "--source", "a"], "--queries covers all skills and sources"),
        (["outcomes", "export"], "no library in"),
        (["outcomes", "forget"], "give one of --query, --owner and --older-than"),
        (["outcomes", "forget", "--owner", "x", "--older-than", "1"], "give one of --query,"),
        (["outcomes", "forget", "--older-than", "-1"], "-1.0 is not in the range"),
        (["outcome", "q", "a:b", "helped"], "no library in"),
        (["outcome", "q", "a:b", "liked"], "OUTCOME is one of used, helped"),
        (["outcome", "q", "helped"], "a skill is required"),
        (["outcome", "q", "a:b", "missing"], "a skill is required"),
        (["outcome", "q", "a:b", "x", "helped"], "write SKILL OUTCOME"),
        (["outcome", "q", "a:b", "rejected"], "needs a reason"),
        (["outcome", "q", "a:b", "helped", "--reason", "redundant"], "needs a reason"),
        (["outcome", "q", "a:b", "superseded"], "needs the other skill"),
        (["outcome", "q", "a:b", "superseded", "--other", "a:b"], "the skill itself"),
        (["outcome", "q", "a:b", "helped", "--other", "a:c"], "another skill is for"),
        (["outcome", "q", "no-skill-id", "helped"], "skill_id"),
        (["links", "dismiss", "a:b", "a:c", "knows", "--reason", "x"], "'knows' is not one of"),
        (["links", "dismiss", "a:b", "a:c", "semantic", "--reason", " "], "needs a reason"),
        (["links", "dismiss", "a:b", "a:c", "semantic", "--reason", "a\nb"], "control characters"),
        (["links", "dismiss", "a:b", "a:c", "semantic", "--reason", "x" * 501], "more than 500"),
        (["tokens", "add", "ci", "--expires", ""], "--expires : write minutes, hours or days"),
        (["audit", "--since", ""], "--since : write minutes, hours or days"),
        (["eval", "bundles", "SKILL.md", "--budget", "9" * 20], "is not in the range"),
        (["eval", "bundles", "none.jsonl"], "none.jsonl cannot be read"),
        (["eval", "ablation", "tasks.jsonl", "--out", "t.csv"], ".md or .json"),
        (["eval", "ablation", "tasks.jsonl"], "no task has `gt_skill_ids`"),
        (["eval", "paging", "SKILL.md", "--miss", "-1"], "-1.0 is not in the range"),
        (["eval", "paging", "SKILL.md", "--miss", "nan"], "'nan' is not a number"),
        (["outcomes", "forget", "--older-than", "nan"], "'nan' is not a number"),
        (
            ["sources", "add", "https://example.org/a.git", "--poll-seconds", "-1"],
            "is not in the range",
        ),
        (["sources", "add", "https://example.org/.git"], "give --source ID"),
        (["eval", "learning", "tasks.jsonl", "--scenario", "x"], "scenarios: clean"),
        (["eval", "learning", "tasks.jsonl", "--arm", "x"], "arms: without, memory"),
        (["eval", "sessions", "tasks.jsonl"], "missing gt_skill_ids"),
        (["findings", "--rule", "no-such-rule"], "no rule 'no-such-rule'"),
        (["findings", "--sarif", "--json"], "leave out --json"),
        (["findings", "--level", "4"], "4 is not in the range"),
        (["sync", ""], "is empty; name a folder"),
        (["sync", "none"], "none does not exist; give the folder"),
        (["sync", "SKILL.md"], "SKILL.md is a file; give the folder"),
        (["watch", ""], "is empty; name a folder"),
        (["backup", ""], "is empty; name a folder"),
        (["restore", ""], "is empty; name a folder"),
        (["--home", "", "status"], "is empty; name a folder"),
        (["worker"], "for an embedded library, run"),
        (["eval", "scanner", "."], "a corpus holds malicious/ and benign/"),
    ],
)
def test_wrong_arguments_are_refused(
    arguments: list[str], said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("SKILL.md").write_text("# A skill\n", encoding="utf-8")
    Path("binary").write_bytes(b"\xff\xfe\0")
    Path("tasks.jsonl").write_text('{"task_id": "x", "instruction": "bake bread"}\n')
    words = ["--home", str(tmp_path / "home"), *arguments]
    result = CliRunner().invoke(cli, words, input=b"\xff\xfe")
    assert result.exit_code
    assert isinstance(result.exception, UsageError | SystemExit)
    assert result.stdout == ""
    assert said in f"{result.exception} {result.stderr}"


@pytest.mark.parametrize(
    ("enabled", "stages", "said"),
    [
        ("select", (), "stages has none of roles"),
        ("roles", ("record",), "record: not in language_"),
    ],
)
def test_stages_that_are_off_do_not_refine(
    enabled: str, stages: tuple[ModelStage, ...], said: str
) -> None:
    model = {"base_url": "http://127.0.0.1:9/v1", "model": "m", "stages": [enabled]}
    with pytest.raises(UsageError, match=said):
        select_stages(Settings(language_model=model), stages)


def test_lists_a_step_is_the_batch_size(tmp_path: Path) -> None:
    options = ["--out", str(tmp_path), "--fold", "9", "--lists-a-step", "4"]
    result = CliRunner().invoke(reranker, options)
    assert "use `--batch-size`" in result.stderr
    assert "--lists-a-step" not in CliRunner().invoke(reranker, ["--help"]).output


def test_the_help_of_worker_names_every_queue() -> None:
    shown = CliRunner().invoke(worker, ["--help"]).output
    words = set(re.findall(r"\w+", shown))
    assert {queue.removeprefix("skillbus.") for queue in ALL_QUEUES} <= words


def test_an_answer_without_a_skill_says_what_it_had_to_do_without(
    capsys: pytest.CaptureFixture[str],
) -> None:
    bundle = Bundle(
        query_id="q", status="NO_SKILL_HIT", task="t", budget=9, degraded=("ranked by words only",)
    )
    _print(bundle.model_dump(), "text")
    assert "degraded: ranked by words only" in capsys.readouterr().out


def test_status_lines_of_a_library() -> None:
    report = {
        "skills": {"published": 33, "waiting": 2, "failed": 1},
        "oldest_waiting_seconds": 12.0,
        "with_vectors": 32,
        "embedded": 33,
        "outdated": 4,
        "links": 40,
        "unlinked": 1,
        "open_events": 1,
        "open_queries": 0,
        "oldest_event_seconds": 7_300.0,
        "oldest_query_seconds": 0.0,
        "dead_letters": 0,
        "sources": [
            {
                "source_id": "team",
                "root": "https://example.org/x.git",
                "kind": "git",
                "lag_seconds": None,
                "last_error": "",
            }
        ],
    }
    assert _library_lines(report) == [
        "skills       33 published, 2 pending (oldest 12 s), 1 failed",
        "with vectors 32 of 33",
        "embedded     33 of 33",
        "links        40 (1 skill to link)",
        "outdated     4 skills of an older version of the parser; they are parsed again in the "
        "background",
        "open         1 event, 0 queries (oldest 2 h)",
        "dead letters 0",
        "source       team: https://example.org/x.git (never synced)",
    ]


class StalledBackend:
    """A backend whose sections are never embedded: it says first what it waits for, then why the
    work does not go on."""

    def __init__(self) -> None:
        self.graph = self
        self._problems = iter(["", "", "no worker is running"])

    def get_counts(self) -> dict[str, int]:
        return {"published": 2, "embedded": 1}

    def get_problem(self) -> str:
        return next(self._problems)

    def get_wait_reason(self) -> str:
        return "waiting for a worker"


def test_an_evaluation_does_not_wait_for_work_that_stalls(
    capsys: pytest.CaptureFixture[str],
) -> None:
    backend = cast(Backend, StalledBackend())
    with pytest.raises(TransientError, match="no worker is running; --no-wait"):
        _poll_until_embedded(backend, SyncProgress(), lambda: 0)
    assert capsys.readouterr().err == "waiting for a worker\n"


@pytest.mark.parametrize("ranges", [[[1, 9999]], [[3, 2]], [[1]], [], None, 5, "1-2"])
def test_what_is_no_range_of_lines_is_refused(ranges: object) -> None:
    check_line_ranges("q", [[1, 3], [5, 5]], 5)
    with pytest.raises(UsageError, match=r"^q: .* is not a line range of the SKILL.md"):
        check_line_ranges("q", ranges, 5)


def test_the_shown_settings_are_a_settings_file(tmp_path: Path) -> None:
    file = tmp_path / "skillbus.toml"
    file.write_text(
        '[encoder]\nlanguages = ["en"]\nquery_prompt = "\\u00e9 \\"q\\""\n'
        '[webhooks.sources]\n"team/skills" = ["/run/secret"]\n'
    )
    show = ["--home", str(tmp_path), "config", "show"]
    shown = CliRunner().invoke(cli, show).stdout
    file.write_text(shown)
    assert 'query_prompt = "é \\"q\\""' in shown
    assert CliRunner().invoke(cli, show).stdout == shown
