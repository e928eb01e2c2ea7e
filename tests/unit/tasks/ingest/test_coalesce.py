"""Batches of events."""

from __future__ import annotations

import pytest

from skills.events import GATEWAY_SOURCE, GitFetchOptions, SourceChanged, new_event
from tasks.ingest.coalesce import coalesce_jobs
from tasks.journal.protocol import Job


@pytest.mark.parametrize(
    ("origin", "owner", "may_set_git"),
    [("skillbus/test", "", True), (GATEWAY_SOURCE, "ana", True), ("skillbus/test", "ana", False)],
)
def test_a_batch_knows_whether_its_senders_may_set_git_options(
    origin: str, owner: str, may_set_git: bool
) -> None:
    root = "https://example.org/skills.git"
    git = SourceChanged(source_id="team", root=root, git=GitFetchOptions(branch="main"))
    events = [
        new_event(SourceChanged(source_id="team"), "skillbus/test"),
        new_event(git, origin).model_copy(update={"owner": owner}),
        new_event(SourceChanged(source_id="team"), "skillbus/test").model_copy(
            update={"owner": "ana"}
        ),
    ]
    jobs = [Job(one.id, "event", one, "accepted", None, "", 0.0, None) for one in events]
    ((batch,), refused) = coalesce_jobs(jobs)
    assert refused == []
    assert len(batch.event_ids) == 3
    assert batch.may_set_git is may_set_git
