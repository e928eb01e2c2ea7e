"""The order of ingest: what each task works on, and which tasks it sends.

    event ──► plan ─────────────► ingest ──┬─► embed_skills ──► embed_sections
      │        │                    ▲      ├─► link
      └────────┴──► fetch ──────────┘      └─► refine

An event is recorded in the journal and then sent to `plan`, or to `fetch` if the event says that it
is about a git source. `plan` also forwards events of git sources to `fetch`. Both compare the
source with the catalog (`diff`), request ingest of changed skills, and remove skills that are gone.
`ingest` publishes skills, which are found by their words from then on. Once no other ingest task
runs or waits, `link` follows, and `embed_skills`, which makes them found by meaning; once all
skills have their vectors, `embed_sections`. `refine` has a language model add to what is published,
where one is configured. `maintain` runs periodically and sends again what a crash lost at any
step.

Messages carry ids only. What is to be done is in the journal (events) and in the catalog (skills),
so a message that comes twice, or not at all, neither repeats nor loses work.
"""

from __future__ import annotations

from functools import partial

from tasks.ingest.embed_sections import embed_sections
from tasks.ingest.embed_skills import embed_skills
from tasks.ingest.event_outcome import fail_events
from tasks.ingest.fetch import fetch
from tasks.ingest.ingest import ingest, split_ingest_batch
from tasks.ingest.link import link
from tasks.ingest.maintain import maintain
from tasks.ingest.next_tasks import split_embed_batch
from tasks.ingest.plan import plan
from tasks.policies import (
    EMBED_SECTIONS,
    EMBED_SKILLS,
    FETCH,
    INGEST,
    LINK,
    MAINTAIN,
    PLAN,
    REFINE,
)
from tasks.refine.refine import refine, split_refine_batch
from tasks.task import TaskDefinition

INGEST_PIPELINE = (
    TaskDefinition(PLAN, plan, on_failure=fail_events),
    TaskDefinition(FETCH, fetch, on_failure=fail_events),
    TaskDefinition(INGEST, ingest, on_failure=split_ingest_batch, counts_itself=True),
    TaskDefinition(
        EMBED_SKILLS,
        embed_skills,
        on_failure=partial(split_embed_batch, task=EMBED_SKILLS),
        counts_itself=True,
    ),
    TaskDefinition(
        EMBED_SECTIONS,
        embed_sections,
        on_failure=partial(split_embed_batch, task=EMBED_SECTIONS),
        counts_itself=True,
    ),
    TaskDefinition(REFINE, refine, on_failure=split_refine_batch, counts_itself=True),
    TaskDefinition(LINK, link),
    TaskDefinition(MAINTAIN, maintain),
)
"""Tasks in the order in which they work on a change."""
