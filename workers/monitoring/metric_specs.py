"""Specifications of all metrics: name, kind, labels and meaning."""

from __future__ import annotations

from typing import NamedTuple


class MetricSpec(NamedTuple):
    """A metric and its help text. kind: counter, histogram or gauge."""

    name: str
    kind: str
    labels: tuple[str, ...]
    meaning: str


PROCESS_METRICS = (
    MetricSpec(
        "skillbus_task_seconds",
        "histogram",
        ("task", "outcome"),
        "duration of a task with its retries; outcome: done, stale (superseded), passing (failed, "
        "retried later), failed",
    ),
    MetricSpec(
        "skillbus_stage_seconds",
        "histogram",
        ("task", "stage"),
        "duration of a stage of skillbus.query, skillbus.ingest or skillbus.embed_skills",
    ),
    MetricSpec("skillbus_task_retries_total", "counter", ("task",), "immediate retries of tasks"),
    MetricSpec(
        "skillbus_queries_total",
        "counter",
        ("answer", "degraded"),
        "queries by answer: hit, no_hit or failed; degraded: yes if stages were skipped or used a "
        "fallback, else no",
    ),
    MetricSpec(
        "skillbus_answers_recorded_total",
        "counter",
        ("by",),
        "answered queries stored for outcomes and usage; by: query (its own task) or reconciler "
        "(after that failed)",
    ),
    MetricSpec(
        "skillbus_outcomes_total",
        "counter",
        ("outcome", "by"),
        "reported outcomes stored; outcome: used, helped, failed, rejected, superseded or missing; "
        "by: agent, verifier or person",
    ),
    MetricSpec(
        "skillbus_dead_letters_written_total",
        "counter",
        ("task",),
        "dead letters written; task none: an unreadable message",
    ),
    MetricSpec("skillbus_encoded_texts_total", "counter", (), "texts encoded"),
    MetricSpec("skillbus_encoded_tokens_total", "counter", (), "tokens encoded"),
    MetricSpec("skillbus_encoding_seconds_total", "counter", (), "time spent encoding"),
    MetricSpec(
        "skillbus_submissions_total",
        "counter",
        ("outcome",),
        "submitted messages: recorded (duplicates included) or refused; and replies: replied, or "
        "dropped (no reply queue)",
    ),
    MetricSpec(
        "skillbus_spans_total",
        "counter",
        ("outcome",),
        "spans of traces: exported, or dropped (the collector never received them)",
    ),
)

MODEL_METRICS = (
    MetricSpec(
        "skillbus_model_seconds",
        "histogram",
        ("stage",),
        "time that a question took at the language model, with retries",
    ),
    MetricSpec("skillbus_model_calls_total", "counter", ("stage",), "calls to the language model"),
    MetricSpec(
        "skillbus_model_tokens_total",
        "counter",
        ("stage", "kind"),
        "tokens used; kind: prompt or completion",
    ),
    MetricSpec(
        "skillbus_model_stored_answers_total",
        "counter",
        ("stage",),
        "answers read from the store instead of asking",
    ),
    MetricSpec(
        "skillbus_model_failures_total",
        "counter",
        ("stage", "kind"),
        "questions without an answer; kind: invalid (the answer, after all retries), unavailable, "
        "budget (the day's tokens are spent), misconfigured, store (of answers)",
    ),
)
"""Metrics of the language model; exposed once a process has used it."""

DEPLOYMENT_METRICS = (
    MetricSpec(
        "skillbus_server_up", "gauge", ("server",), "1: the server answers; 0: it does not in time"
    ),
    MetricSpec(
        "skillbus_server_seconds",
        "gauge",
        ("server",),
        "time that the server took for the status queries of a scrape",
    ),
    MetricSpec("skillbus_queue_messages", "gauge", ("queue",), "messages in a queue"),
    MetricSpec("skillbus_open_jobs", "gauge", ("kind",), "open events and queries"),
    MetricSpec(
        "skillbus_oldest_job_seconds", "gauge", ("kind",), "age of the oldest open event or query"
    ),
    MetricSpec("skillbus_dead_letters", "gauge", (), "dead letters: neither retried nor discarded"),
    MetricSpec(
        "skillbus_stalled",
        "gauge",
        (),
        "1: processing is stalled; `skillbus status` says why",
    ),
    MetricSpec("skillbus_workers", "gauge", ("queue",), "running workers that consume a queue"),
    MetricSpec("skillbus_running_tasks", "gauge", ("task",), "tasks running now"),
    MetricSpec(
        "skillbus_skills",
        "gauge",
        ("state",),
        "skills by state: published, failed, held for review, removed; waiting (also counted in "
        "another state)",
    ),
    MetricSpec(
        "skillbus_reviews",
        "gauge",
        ("state",),
        "skills by state of their review: withheld and updates wait for a person; released, "
        "confirmed and rejected were decided; up to half a minute old",
    ),
    MetricSpec(
        "skillbus_index_lag_seconds",
        "gauge",
        (),
        "age of the oldest change not yet ingested; 0: none; absent if its time is unknown",
    ),
    MetricSpec(
        "skillbus_skills_without_vectors",
        "gauge",
        (),
        "published skills without skill vectors, found by words alone",
    ),
    MetricSpec(
        "skillbus_unembedded_skills", "gauge", (), "published skills without section vectors"
    ),
    MetricSpec(
        "skillbus_unrefined_skills",
        "gauge",
        ("stage",),
        "published skills that the language model has not refined; absent while none is used",
    ),
    MetricSpec("skillbus_unlinked_skills", "gauge", (), "skills not linked yet"),
    MetricSpec("skillbus_links", "gauge", (), "links between skills"),
    MetricSpec(
        "skillbus_usage_days_behind",
        "gauge",
        (),
        "past days whose usage changed and is not rolled up yet",
    ),
    MetricSpec("skillbus_sources", "gauge", (), "sources"),
    MetricSpec(
        "skillbus_consumers",
        "gauge",
        (),
        "submission consumers connected to their broker",
    ),
    MetricSpec(
        "skillbus_submissions_waiting",
        "gauge",
        (),
        "submitted messages not delivered to a consumer yet",
    ),
)
