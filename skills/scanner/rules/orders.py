"""Rules for orders in words: concepts that honest skills do not bring together in a sentence.

A list of phrases finds its own examples. Each rule here says which ideas must meet; the ideas are
in `skills.scanner.rules.concepts`.
"""

from __future__ import annotations

from skills.scanner.rule import OrderRule
from skills.scanner.rules import concepts as c

ORDER_RULES = (
    OrderRule("override-instructions", (c.OVERRIDES,), unless=c.STYLE),
    OrderRule("claims-precedence", (c.OUTRANKS,)),
    OrderRule(
        "order-to-send-secrets", (c.SENDS, c.SECRETS, c.TO_ADDRESS), ordered=True, unless=c.HEADER
    ),
    OrderRule("order-to-send-secrets", (c.SECRETS_ZH, c.SENDS_ZH, c.TO_ADDRESS), ordered=True),
    OrderRule("hidden-act", (c.SECRETLY,)),
    OrderRule("hidden-act", (c.SILENCE, c.SENDS, c.ADDRESS), reach=1),
    OrderRule("hidden-act", (c.SILENCE, c.SECRETS, c.SENDS), reach=1),
    OrderRule("keep-from-user", (c.SILENCE,)),
    OrderRule("standing-order-to-send", (c.STANDING, c.SENDS_OUT, c.ADDRESS)),
    OrderRule("standing-order-to-send", (c.STANDING, c.UPLOAD_COMMAND), reach=3, ordered=True),
    OrderRule("order-to-send-private-data", (c.PRIVATE, c.SENDS_OUT, c.ADDRESS)),
    OrderRule(
        "host-controls-off", (c.SWITCHES_OFF, c.HOST_CONTROLS), ordered=True, unless=c.CONDITION
    ),
    OrderRule("checks-off", (c.CHECKS, c.SWITCHES_OFF, c.FOR_GOOD), unless=c.CONDITION),
    OrderRule("writes-steering-file", (c.STEERING_FILES, c.WRITES, c.UNSEEN)),
    OrderRule(
        "obeys-fetched-text", (c.FETCHES, c.ADDRESS, c.OBEYS), ordered=True, unless=c.DOCUMENTATION
    ),
    OrderRule("order-to-destroy", (c.DESTROYS,), unless=c.CONDITION),
    OrderRule("wipes-traces", (c.WIPES,), unless=c.CONDITION),
    OrderRule("against-other-skills", (c.AGAINST_OTHERS,)),
    OrderRule("obeys-encoded-text", (c.DECODES_AND_OBEYS,)),
    OrderRule("redirects-payment", (c.ACCOUNTS, c.REPLACES)),
)
