"""Specifications of all metrics: name, kind, labels and meaning."""

from __future__ import annotations

from typing import NamedTuple


class MetricSpec(NamedTuple):
    """A metric and its help text. kind: counter, histogram or gauge."""

    name: str
    kind: str
    labels: tuple[str, ...]
    meaning: str


def _counter(name: str, meaning: str, *labels: str) -> MetricSpec:
    return MetricSpec(name, "counter", labels, meaning)


def _histogram(name: str, meaning: str, *labels: str) -> MetricSpec:
    return MetricSpec(name, "histogram", labels, meaning)


def _gauge(name: str, meaning: str, *labels: str) -> MetricSpec:
    return MetricSpec(name, "gauge", labels, meaning)


PROCESS_METRICS = (
    _histogram(
        "skillbus_task_seconds",
        "duration of a task with its retries; outcome: done, stale (superseded), passing (failed, "
        "retried later), failed",
        "task",
        "outcome",
    ),
    _histogram(
        "skillbus_stage_seconds",
        "duration of a stage of skillbus.query, skillbus.ingest or skillbus.embed_skills",
        "task",
        "stage",
    ),
    _counter("skillbus_task_retries_total", "immediate retries of tasks", "task"),
    _counter(
        "skillbus_queries_total",
        "queries by answer: hit, no_hit or failed; degraded: yes if stages were skipped or used a "
        "fallback, else no",
        "answer",
        "degraded",
    ),
    _counter(
        "skillbus_answers_recorded_total",
        "answered queries stored for outcomes and usage; by: query (its own task) or reconciler "
        "(after that failed)",
        "by",
    ),
    _counter(
        "skillbus_outcomes_total",
        "reported outcomes stored; outcome: used, helped, failed, rejected, superseded or missing; "
        "by: agent, verifier or person",
        "outcome",
        "by",
    ),
    _counter(
        "skillbus_dead_letters_written_total",
        "dead letters written; task none: an unreadable message",
        "task",
    ),
    _counter("skillbus_encoded_texts_total", "texts encoded"),
    _counter("skillbus_encoded_tokens_total", "tokens encoded"),
    _counter("skillbus_encoding_seconds_total", "time spent on encoding"),
    _counter(
        "skillbus_submissions_total",
        "submitted messages: recorded (duplicates included) or refused; and replies: replied, or "
        "dropped (no reply queue)",
        "outcome",
    ),
    _counter(
        "skillbus_spans_total",
        "spans of traces: exported, or dropped (the collector never received them)",
        "outcome",
    ),
)

MODEL_METRICS = (
    _histogram(
        "skillbus_model_seconds",
        "duration of a question to the language model, with retries",
        "stage",
    ),
    _counter("skillbus_model_calls_total", "calls to the language model", "stage"),
    _counter(
        "skillbus_model_tokens_total", "tokens used; kind: prompt or completion", "stage", "kind"
    ),
    _counter(
        "skillbus_model_stored_answers_total",
        "answers read from the store instead of asking",
        "stage",
    ),
    _counter(
        "skillbus_model_failures_total",
        "questions without an answer; kind: invalid (the answer, after all retries), unavailable, "
        "budget (the day's tokens are spent), misconfigured, store (answers could not be read or "
        "kept)",
        "stage",
        "kind",
    ),
)
"""Metrics of the language model; exposed once a process has used it."""

DEPLOYMENT_METRICS = (
    _gauge("skillbus_server_up", "1: the server answers in time; 0: it does not", "server"),
    _gauge(
        "skillbus_server_seconds",
        "time that the server took for the status queries of a scrape",
        "server",
    ),
    _gauge("skillbus_queue_messages", "messages in a queue", "queue"),
    _gauge("skillbus_open_jobs", "open events and queries", "kind"),
    _gauge("skillbus_oldest_job_seconds", "age of the oldest open event or query", "kind"),
    _gauge("skillbus_dead_letters", "dead letters: neither retried nor discarded"),
    _gauge("skillbus_stalled", "1: processing is stalled; `skillbus status` says why"),
    _gauge("skillbus_workers", "running workers that consume a queue", "queue"),
    _gauge("skillbus_running_tasks", "tasks running now", "task"),
    _gauge(
        "skillbus_skills",
        "skills by state: published, failed, held for review, removed; waiting (also counted in "
        "another state)",
        "state",
    ),
    _gauge(
        "skillbus_reviews",
        "skills by state of their review: withheld and updates wait for a person; released, "
        "confirmed and rejected were decided; up to half a minute old",
        "state",
    ),
    _gauge(
        "skillbus_index_lag_seconds",
        "age of the oldest change not yet ingested; 0: none; absent if its time is unknown",
    ),
    _gauge(
        "skillbus_skills_without_vectors",
        "published skills without skill vectors, found by words alone",
    ),
    _gauge("skillbus_unembedded_skills", "published skills without section vectors"),
    _gauge(
        "skillbus_unrefined_skills",
        "published skills that the language model has not refined; absent while none is used",
        "stage",
    ),
    _gauge("skillbus_unlinked_skills", "skills not linked yet"),
    _gauge("skillbus_links", "links between skills"),
    _gauge("skillbus_usage_days_behind", "past days whose usage changed and is not rolled up yet"),
    _gauge("skillbus_sources", "sources"),
    _gauge("skillbus_consumers", "submission consumers connected to their broker"),
    _gauge("skillbus_submissions_waiting", "submitted messages not delivered to a consumer yet"),
)
