"""Growing pauses between retries."""

from config.backoff import Backoff


def test_pauses_double_up_to_the_longest_and_begin_again_after_a_reset() -> None:
    backoff = Backoff(0.2, 1.0, jitter=False)
    assert [backoff.pause() for _ in range(5)] == [0.2, 0.4, 0.8, 1.0, 1.0]
    backoff.reset()
    assert backoff.pause() == 0.2


def test_jitter_takes_at_most_half_off_and_does_not_slow_the_growth() -> None:
    backoff = Backoff(0.2, 1.0)
    for full in (0.2, 0.4, 0.8, 1.0, 1.0):
        assert full / 2 <= backoff.pause() <= full


def test_two_backoffs_with_jitter_do_not_pause_alike() -> None:
    first, second = Backoff(1.0, 8.0), Backoff(1.0, 8.0)
    assert [first.pause() for _ in range(5)] != [second.pause() for _ in range(5)]
