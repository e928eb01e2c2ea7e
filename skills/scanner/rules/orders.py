"""Rules for orders in words: concepts that honest skills do not combine in a sentence.

A list of phrases would find only the examples that it was made from. Instead, each rule states
which concepts must occur together; their words are in `skills.scanner.rules.concepts`.
"""

from __future__ import annotations

from skills.scanner.rules import concepts as c
from skills.scanner.text_rule import make_rule as _rule

_HIDDEN = (c.SILENCE, c.COVER_STORY, c.UNASKED, c.SECRETLY)

ORDER_RULES = (
    _rule("override-instructions", c.DROPS, c.EARLIER, c.GUIDANCE, unless=c.STYLE, within=70),
    _rule("override-instructions", c.UNBOUND),
    _rule(
        "order-to-send-secrets",
        (c.SENDS, c.INCLUDES),
        c.SECRETS,
        c.OUTSIDE,
        unless=c.LOGIN,
        follows=200,
    ),
    _rule("keep-from-user", (c.SILENCE, c.COVER_STORY, c.ACTS_SECRETLY)),
    _rule("order-to-send-data", c.STANDING, c.SENDS, c.DATA, c.OUTSIDE, unless=c.CONSENT),
    _rule("order-to-send-data", c.PRIVATE, c.SENDS, c.OUTSIDE, unless=c.CONSENT),
    _rule("order-to-send-data", c.UNASKED, c.SENDS, c.OUTSIDE, reach=1),
    _rule("host-controls-off", c.SWITCHES_OFF, c.CONTROLS, unless=c.CONDITION, follows=70),
    _rule("checks-off", c.OPENS_UP, c.STEERING_FILES, unless=c.CONDITION),
    _rule("writes-steering-file", c.STEERING_FILES, c.WRITES, _HIDDEN, within=200),
    _rule("writes-steering-file", c.STEERING_FILES, c.OUTSIDE, c.OBEYS, reach=2, within=400),
    _rule("obeys-fetched-text", c.FETCHES, c.OUTSIDE, c.OBEYS, unless=c.DOCUMENTATION, follows=300),
    _rule("order-to-destroy", c.ERASES, c.PRECIOUS, unless=c.CONDITION, follows=60),
    _rule("order-to-destroy", c.ENCRYPTS, c.PRIVATE, c.RANSOM, reach=1),
    _rule("obeys-encoded-text", c.DECODES),
    _rule("asks-for-secrets", c.ASKS_FOR, c.LOGIN_SECRET, c.OUTSIDE, reach=1),
    _rule("fake-prerequisite", c.ARCHIVE, c.DOWNLOADS, c.PASSWORD_GIVEN, reach=1, spoken=False),
    _rule("fake-prerequisite", c.TERMINAL, c.COPIES, c.PAGE, reach=1, spoken=False),
    _rule("fake-prerequisite", c.PROGRAM, c.NEEDED, c.RUNS, reach=2, spoken=False),
    _rule("hidden-comment", c.COMMENT_WITH_ORDER),
    _rule("hidden-comment", c.HIDDEN_STYLE, (c.SENDS, c.INCLUDES, c.OBEYS, c.DROPS), reach=1),
)
