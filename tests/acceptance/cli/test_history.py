"""`skillbus skills history`, `diff` and `show SKILL_ID@SEQ`: earlier revisions of skills."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.program.program import ForkServer, Skillbus, wait_for
from tests.support.samples.library import write_skill, write_topics

KILN, BEES = "crafts:kiln-firing", "crafts:bee-keeping"
TEXTS = (
    "# Kiln\n\nFirst text.\n",
    "# Kiln\n\nSecond text.\n\x1b[2Jcleared\n",
    "# Kiln\n\nThird.\n",
)


@pytest.fixture(scope="module")
def skillbus(fork_server: ForkServer, tmp_path_factory: pytest.TempPathFactory) -> Skillbus:
    """Crafts of which one had three texts, and one was removed."""
    base = tmp_path_factory.mktemp("history")
    made = Skillbus(fork_server, base / "home")
    _change(made, write_topics(base / "crafts"))
    return made


def _change(made: Skillbus, root: Path) -> None:
    for text in TEXTS:
        folder = write_skill(root, "kiln-firing", body=text)
        made("sync", str(root), "--until", "words")
    (folder / "fire.sh").write_text("echo hot\n", encoding="utf-8")
    write_skill(root, "kiln-firing", body=TEXTS[2], license="MIT")
    (root / "bee-keeping" / "SKILL.md").unlink()
    made("sync", str(root), "--until", "words")


def seqs(skillbus: Skillbus, skill_id: str = KILN) -> list[int]:
    return [row["seq"] for row in skillbus("skills", "history", skill_id, "--json").data]


def test_revisions_are_listed(skillbus: Skillbus) -> None:
    rows = skillbus("skills", "history", KILN, "--json").data
    assert [row["state"] for row in rows] == ["published", *["superseded"] * 3]
    assert [row["licence"] for row in rows] == ["MIT", "", "", ""]
    assert rows[0]["seq"] == skillbus.skills()[KILN]["seq"]
    assert all(row["published_at"] for row in rows)
    table = skillbus("skills", "history", KILN).out.splitlines()
    assert len(table) == 5
    assert table[0].startswith("revision  state")


def test_serve_keeps_the_same_revisions(fork_server: ForkServer, tmp_path: Path) -> None:
    made = Skillbus(fork_server, tmp_path / "home")
    with made.serving():
        _change(made, write_topics(tmp_path / "crafts"))
        rows = made("skills", "history", KILN, "--json").data
    assert [row["state"] for row in rows] == ["published", *["superseded"] * 3]
    [row] = made("skills", "history", BEES, "--json").data
    assert row["state"] == "superseded"


def test_a_revision_is_shown_with_its_text(skillbus: Skillbus) -> None:
    second = f"{KILN}@{seqs(skillbus)[2]}"
    shown = skillbus("skills", "show", second, "--json").data
    assert TEXTS[1].rstrip("\n") in shown["text"]
    out = skillbus("skills", "show", second).out
    assert "Second text." in out
    assert "\x1b" not in out
    assert "hidden characters" in out


def test_revisions_are_compared(skillbus: Skillbus) -> None:
    newest, third, second, first = seqs(skillbus)
    data = skillbus("skills", "diff", KILN, "--json").data
    assert (data["from"], data["to"]) == (third, newest)
    assert data["files"] == {"added": ["fire.sh"], "removed": [], "changed": []}
    assert {"field": "licence", "before": "", "after": "MIT"} in data["fields"]
    data = skillbus("skills", "diff", f"{KILN}@{first}", str(second), "--json").data
    assert "-First text." in data["diff"]
    assert "+Second text." in data["diff"]
    out = skillbus("skills", "diff", f"{KILN}@{first}", str(second)).out
    assert f"--- {KILN}@{first}\n+++ {KILN}@{second}\n@@ " in out
    assert "\x1b" not in out
    backwards = skillbus("skills", "diff", f"{KILN}@{newest}", str(first), "--json").data
    assert backwards["files"]["removed"] == ["fire.sh"]


def test_a_removed_skill_keeps_its_history(skillbus: Skillbus) -> None:
    [row] = skillbus("skills", "history", BEES, "--json").data
    assert row["state"] == "superseded"
    assert "varroa" in skillbus("skills", "show", f"{BEES}@{row['seq']}").out


@pytest.mark.parametrize(
    ("words", "reason"),
    [
        (("history", "crafts:none"), "no skill 'crafts:none'"),
        (("diff", "crafts:tide-tables"), "has no revision before"),
        (("diff", f"{KILN}@999999"), "is not kept; those that are:"),
        (("diff", KILN, "999999"), "is not kept; those that are:"),
        (("show", f"{KILN}@999999"), "is not kept; those that are:"),
        (("show", "crafts:none@3"), "no skill 'crafts:none'"),
    ],
)
def test_what_is_not_kept_is_refused(
    skillbus: Skillbus, words: tuple[str, ...], reason: str
) -> None:
    assert reason in skillbus("skills", *words, code=2).err


def test_the_settings_limit_what_is_kept(fork_server: ForkServer, tmp_path: Path) -> None:
    root = write_topics(tmp_path / "crafts")
    made = Skillbus(fork_server, tmp_path / "home", SKILLBUS_HISTORY__REVISIONS="1")
    for number in range(4):
        write_skill(root, "kiln-firing", body=f"# Kiln\n\nText {number}.\n")
        made("sync", str(root), "--until", "words")
    assert len(seqs(made)) == 2
    off = made.with_environment(SKILLBUS_HISTORY__REVISIONS="0")
    write_skill(root, "kiln-firing", body="# Kiln\n\nText 5.\n")
    off("sync", str(root), "--until", "words")
    assert len(seqs(off)) == 2  # those of before


def test_what_a_crash_left_in_the_index_is_kept_before_it_is_deleted(
    fork_server: ForkServer, tmp_path: Path
) -> None:
    """With the file of the history gone, the reconciler finds the superseded revision."""
    root = write_topics(tmp_path / "crafts")
    made = Skillbus(fork_server, tmp_path / "home", SKILLBUS_WORKERS__KEEP_SECONDS="0")
    made("sync", str(root), "--until", "words")
    off = made.with_environment(SKILLBUS_HISTORY__REVISIONS="0")
    write_skill(root, "kiln-firing", body=TEXTS[0])
    off("sync", str(root), "--until", "words")
    assert len(seqs(made)) == 1
    fast = made.with_environment(
        SKILLBUS_WORKERS__SWEEP_SECONDS="0.2", SKILLBUS_WORKERS__RECONCILE_SECONDS="0.2"
    )
    with fast.serving():
        wait_for(lambda: len(seqs(made)) == 2)


def test_a_backup_has_the_history(
    skillbus: Skillbus, fork_server: ForkServer, tmp_path: Path
) -> None:
    skillbus("backup", str(tmp_path / "backup"))
    restored = Skillbus(fork_server, tmp_path / "restored")
    restored("restore", str(tmp_path / "backup"))
    assert seqs(restored) == seqs(skillbus)
    assert seqs(restored, BEES) == seqs(skillbus, BEES)
