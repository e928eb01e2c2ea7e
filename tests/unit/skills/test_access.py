"""Groups of readers and sources, and their text form in events."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from config.errors import UsageError
from config.inbound_settings import EVERYONE, GROUP_PATTERN, AccessSettings
from skills.access import ANYONE, MAX_GROUPS, UNRESTRICTED, Reader, is_group, parse_groups
from skills.events import QueryAsked, new_event, parse_event, replace_origin

GROUPS = st.lists(st.from_regex(GROUP_PATTERN, fullmatch=True), max_size=5)


@settings(max_examples=30)
@given(GROUPS)
def test_a_reader_survives_its_journey_in_an_event(groups: list[str]) -> None:
    for reader in (Reader.of(groups), UNRESTRICTED, ANYONE):
        forged = new_event(QueryAsked(task="x"), "test").model_copy(
            update={"readergroups": "admin"}
        )
        event = replace_origin(forged, "ann", reader)
        assert parse_event(event.model_dump_json()).reader == reader


def test_an_event_without_groups_is_of_one_who_sees_everything() -> None:
    assert new_event(QueryAsked(task="x"), "test").reader == UNRESTRICTED


def test_everyone_is_a_group_of_each_reader() -> None:
    assert ANYONE.shares([EVERYONE])
    assert Reader.of(["finance"]).shares(["hr", "finance"])
    assert not Reader.of(["finance"]).shares(["hr"])
    assert not ANYONE.shares([])
    assert UNRESTRICTED.shares([])


@pytest.mark.parametrize("name", ["", "*", "a b", "-a", "é", "a" * 101, "a\n"])
def test_odd_names_are_refused(name: str) -> None:
    assert not is_group(name)
    with pytest.raises(UsageError, match="not a group name"):
        parse_groups([name])
    with pytest.raises(ValueError, match="not a group name"):
        AccessSettings(default_groups=(name,))


def test_groups_are_sorted_and_few() -> None:
    assert parse_groups(["b", "a", "b"]) == ("a", "b")
    with pytest.raises(UsageError, match="at most 100"):
        parse_groups([f"g{number}" for number in range(MAX_GROUPS + 1)])


def test_messages_see_everything_unless_a_setting_says_otherwise() -> None:
    assert AccessSettings().message_groups == ("*",)
    with pytest.raises(ValueError, match="not a group name"):
        AccessSettings(message_groups=("*", "finance"))
