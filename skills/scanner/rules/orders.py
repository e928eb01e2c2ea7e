"""Rules for orders in words: concepts that honest skills do not combine in a sentence.

A list of phrases would find only the examples that it was made from. Instead, each rule states
which concepts must occur together; their words are in `skills.scanner.rules.concepts`.
"""

from __future__ import annotations

from skills.scanner.rules import concepts as c
from skills.scanner.text_rule import TextRule as _Rule

_HIDDEN = (c.SILENCE, c.COVER_STORY, c.UNASKED, c.SECRETLY)

ORDER_RULES = (
    _Rule("override-instructions", c.DROPS, c.EARLIER, c.GUIDANCE, unless=c.STYLE, follows=70),
    _Rule("override-instructions", c.DROPS, c.GUIDANCE, c.EARLIER, unless=c.STYLE, follows=70),
    _Rule("override-instructions", c.VOID, c.EARLIER, c.GUIDANCE, unless=c.STYLE, within=70),
    _Rule("override-instructions", c.UNBOUND),
    _Rule(
        "order-to-send-secrets",
        (c.SENDS, c.INCLUDES),
        c.SECRETS,
        c.OUTSIDE,
        unless=c.LOGIN,
        follows=200,
    ),
    _Rule("keep-from-user", (c.SILENCE, c.COVER_STORY, c.ACTS_SECRETLY)),
    _Rule("order-to-send-data", c.STANDING, c.SENDS, c.DATA, c.OUTSIDE, unless=c.CONSENT),
    _Rule("order-to-send-data", c.PRIVATE, c.SENDS, c.OUTSIDE, unless=c.CONSENT),
    _Rule("order-to-send-data", c.UNASKED, c.SENDS, c.OUTSIDE, reach=1),
    _Rule("host-controls-off", c.SWITCHES_OFF, c.CONTROLS, unless=c.CONDITION, follows=70),
    _Rule("checks-off", c.OPENS_UP, c.STEERING_FILES, unless=c.CONDITION),
    _Rule("writes-steering-file", c.STEERING_FILES, c.WRITES, _HIDDEN, within=200),
    _Rule("writes-steering-file", c.STEERING_FILES, c.OUTSIDE, c.OBEYS, reach=2, within=400),
    _Rule("obeys-fetched-text", c.FETCHES, c.OUTSIDE, c.OBEYS, unless=c.DOCUMENTATION, follows=300),
    _Rule("order-to-destroy", c.ERASES, c.PRECIOUS, unless=c.CONDITION, follows=60),
    _Rule("order-to-destroy", c.ENCRYPTS, c.PRIVATE, c.RANSOM, reach=1),
    _Rule("obeys-encoded-text", c.DECODES),
    _Rule("asks-for-secrets", c.ASKS_FOR, c.LOGIN_SECRET, c.OUTSIDE, reach=1),
    _Rule("fake-prerequisite", c.ARCHIVE, c.DOWNLOADS, c.PASSWORD_GIVEN, reach=1, spoken=False),
    _Rule("fake-prerequisite", c.TERMINAL, c.COPIES, c.PAGE, reach=1, spoken=False),
    _Rule("fake-prerequisite", c.PROGRAM, c.NEEDED, c.RUNS, reach=2, spoken=False),
    _Rule("hidden-comment", c.COMMENT_WITH_ORDER),
    _Rule("hidden-comment", c.HIDDEN_STYLE, (c.SENDS, c.INCLUDES, c.OBEYS, c.DROPS), reach=1),
)
