"""Skills are prepared in processes as they are in the thread that asks."""

from __future__ import annotations

import os
import signal
import struct
from collections.abc import Iterator
from multiprocessing import Pipe

import pytest

from config.errors import PermanentError
from skills.parsing.parse_skill import ParseLimits
from tasks.ingest.preparation import child
from tasks.ingest.preparation.prepare import (
    LocalPreparer,
    PreparationRequest,
    PreparationSettings,
    PreparedSkill,
    UnreadableSkill,
)
from tasks.ingest.preparation.processes import ProcessPreparer, _Child
from tasks.policies import Deadline, DeadlineExceededError
from tasks.sources.protocol import SkillFolder
from workers.backend.embedded import _start_preparing

SETTINGS = PreparationSettings(ParseLimits())
COUNT = 11


def request(name: str, text: str = "") -> PreparationRequest:
    text = text or f"---\nname: {name}\ndescription: Warps the {name}\n---\n# {name}\n\nWarp it.\n"
    return PreparationRequest(name, SkillFolder(text.encode(), (), f"hash of {name}"))


REQUESTS = [*(request(f"loom-{number}") for number in range(COUNT)), request("empty", " ")]


@pytest.fixture(scope="module")
def preparer() -> Iterator[ProcessPreparer]:
    """One for all tests, since a process takes long to start."""
    made = ProcessPreparer(_start_preparing, lambda: True)
    yield made
    made.close()


def child_of(preparer: ProcessPreparer) -> _Child:
    (child,) = preparer._idle
    return child


def test_processes_prepare_what_a_thread_would(preparer: ProcessPreparer) -> None:
    local = list(LocalPreparer().prepare(REQUESTS, SETTINGS, Deadline(3_600)))
    for _ in range(2):
        shared = list(preparer.prepare(REQUESTS, SETTINGS, Deadline(3_600)))
        assert isinstance(shared[-1], UnreadableSkill)
        assert "the file has no text" in shared[-1].reason
        assert shared[-1] == local[-1]
        for one, other in zip(shared[:-1], local[:-1], strict=True):
            assert isinstance(one, PreparedSkill)
            assert isinstance(other, PreparedSkill)
            assert one.parsed == other.parsed
            assert one.analysis.fields == other.analysis.fields
            assert (one.mentions, one.body_terms) == (other.mentions, other.body_terms)
    assert child_of(preparer)._process.poll() is None, "one process, used again"


def test_few_skills_start_no_process() -> None:
    def refuse(connection: int) -> None:
        raise AssertionError(f"a process was started for {connection}")

    preparer = ProcessPreparer(refuse, lambda: False)  # type: ignore[arg-type]
    assert len(list(preparer.prepare(REQUESTS[:3], SETTINGS, Deadline(3_600)))) == 3
    preparer.close()


def test_a_killed_process_is_replaced(preparer: ProcessPreparer) -> None:
    outcomes = preparer.prepare(REQUESTS, SETTINGS, Deadline(3_600))
    next(outcomes)
    list(outcomes)
    os.kill(child_of(preparer)._process.pid, signal.SIGKILL)
    child_of(preparer)._process.wait()
    assert len(list(preparer.prepare(REQUESTS, SETTINGS, Deadline(3_600)))) == len(REQUESTS)


def test_a_parent_that_is_killed_within_a_message_ends_its_process(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    ours, theirs = Pipe()
    with theirs:
        monkeypatch.setattr("sys.argv", ["child", str(os.dup(theirs.fileno()))])
    monkeypatch.setattr("os.nice", lambda _: None)
    os.write(ours.fileno(), struct.pack("!i", 100) + b"the beginning")
    ours.close()
    child.main()


def test_closing_ends_the_processes(preparer: ProcessPreparer) -> None:
    list(preparer.prepare(REQUESTS, SETTINGS, Deadline(3_600)))
    process = child_of(preparer)._process
    preparer.close()
    assert process.poll() is not None


def test_a_skill_that_breaks_the_parser_is_named(preparer: ProcessPreparer) -> None:
    broken = PreparationRequest("odd", None)  # type: ignore[arg-type]
    with pytest.raises(PermanentError, match=r"odd: the parser failed(.|\n)*AttributeError"):
        list(preparer.prepare([*REQUESTS, broken], SETTINGS, Deadline(3_600)))


def test_time_that_is_over_ends_the_process(preparer: ProcessPreparer) -> None:
    list(preparer.prepare(REQUESTS, SETTINGS, Deadline(3_600)))
    process = child_of(preparer)._process
    with pytest.raises(DeadlineExceededError, match="not parsed within"):
        list(preparer.prepare(REQUESTS, SETTINGS, Deadline(1e-9)))
    assert process.poll() is not None
    assert preparer._idle == []
