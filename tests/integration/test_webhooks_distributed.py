"""Webhooks where gateways share their journal: a replay is refused by whichever receives it."""

from __future__ import annotations

from pathlib import Path

import pytest

from config.settings import WebhookSettings
from graph.protocol import Source
from tests.support.distributed import Distributed, deployments, distributed
from tests.support.webhooks import github, github_push, gitlab, gitlab_push
from workers.remote import Remote
from workers.webhooks.delivery import DeliveryError
from workers.webhooks.receipt import receive

__all__ = ["deployments", "distributed"]

SECRET = "correct horse battery staple"


def test_a_replay_is_refused_by_every_process(distributed: Distributed, tmp_path: Path) -> None:
    file = tmp_path / "secret"
    file.write_text(SECRET)
    webhooks = WebhookSettings(github=(file,), gitlab=(file,))
    settings = distributed.settings.model_copy(update={"webhooks": webhooks})
    with Remote(settings, writable=True) as one, Remote(settings) as other:
        one.graph.put_source(Source("crafts", "git", "https://git.example/crafts/skills.git"))
        for delivery in (github(github_push(), SECRET), gitlab(gitlab_push(), SECRET)):
            receipt = receive(one, delivery)
            assert receipt.state == "accepted"
            assert other.journal.job(receipt.ids[0]).event.data["source_id"] == "crafts"
            for channel in (other, one):
                with pytest.raises(DeliveryError) as caught:
                    receive(channel, delivery)
                assert caught.value.status == 409
        assert other.journal.count_open("event") == 2
