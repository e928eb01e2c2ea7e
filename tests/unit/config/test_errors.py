"""The error hierarchy: each kind has one meaning, whatever the order of `except` clauses."""

from __future__ import annotations

import pickle
from itertools import permutations

import pytest

from config.errors import (
    MisconfiguredError,
    NotFoundError,
    PermanentError,
    SkillbusError,
    StaleError,
    TransientError,
    UsageError,
)
from tasks.celery_app import create_app  # noqa: F401 - its subclasses of errors are checked too
from workers import cli  # noqa: F401 - likewise

KINDS = (TransientError, PermanentError, StaleError)


def _subclasses(kind: type[Exception]) -> set[type[Exception]]:
    found = set(kind.__subclasses__())
    return found.union(*map(_subclasses, found)) if found else found


@pytest.mark.parametrize("kind", KINDS)
def test_each_kind_is_a_direct_child_of_the_base(kind: type[SkillbusError]) -> None:
    assert kind.__bases__ == (SkillbusError,)


@pytest.mark.parametrize(("kind", "other"), list(permutations(KINDS, 2)))
def test_kinds_exclude_one_another(kind: type[Exception], other: type[Exception]) -> None:
    assert not issubclass(kind, other)


def test_a_wrong_setting_lets_work_wait() -> None:
    assert MisconfiguredError.__bases__ == (TransientError,)


def test_remote_callers_are_sent_the_public_message() -> None:
    error = TransientError("redis://inside:6379 does not answer", public_message="try again")
    for one in (error, pickle.loads(pickle.dumps(error))):
        assert (str(one), one.public_message) == (str(error), "try again")
    assert UsageError("top: at least 1").public_message == "top: at least 1"
    assert "inside" not in MisconfiguredError("inside refuses the login").public_message


def test_usage_errors_are_permanent() -> None:
    assert UsageError.__bases__ == (PermanentError,)
    assert NotFoundError.__bases__ == (UsageError,)


def test_no_error_inherits_from_two_kinds() -> None:
    for error in _subclasses(SkillbusError):
        assert len([kind for kind in KINDS if issubclass(error, kind)]) <= 1, error
