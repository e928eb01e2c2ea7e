"""Settings that name sources which are not there are reported by `doctor`."""

from __future__ import annotations

from config.settings import Settings
from graph.records import Source
from workers.monitoring.local_checks import find_unknown_sources


def test_sources_of_the_policy_that_are_not_there_are_named() -> None:
    policy = {
        "sources": {"crafts": "send", "craftz": "withhold"},
        "public": ["crafts", "opne"],
        "review": ["crafts", "cr*", "crafts:drafts/*", "hubs", "hub*:drafts/*"],
    }
    settings = Settings.model_validate({"policy": policy})
    found = find_unknown_sources(settings, [Source("crafts", "directory", "/srv/crafts")])
    assert [one.partition(", which")[0] for one in found] == [
        "policy.sources names 'craftz'",
        "policy.public names 'opne'",
        "policy.review names 'hubs'",
        "policy.review names 'hub*:drafts/*'",
    ]


def test_known_sources_are_no_problem() -> None:
    settings = Settings.model_validate({"policy": {"public": ["crafts"]}})
    assert find_unknown_sources(settings, [Source("crafts", "directory", "/srv/crafts")]) == []
