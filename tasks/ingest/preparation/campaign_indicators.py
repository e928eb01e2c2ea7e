"""Loads the list of campaign indicators that the settings name."""

from __future__ import annotations

import json
from functools import lru_cache
from pathlib import Path

from config.errors import UsageError
from skills.scanner.indicators import Indicators, parse_indicators, use_additional_indicators


@lru_cache(maxsize=1)
def load_indicators(path: str) -> Indicators:
    """Make this process also scan for the indicators in a file; "" for none.

    Raises UsageError if the file cannot be read or is not a list of indicators.
    """
    if not path:
        indicators = Indicators("", {}, {})
    else:
        try:
            indicators = parse_indicators(json.loads(Path(path).read_text(encoding="utf-8")))
        except (OSError, ValueError) as error:
            raise UsageError(f"policy.indicators: {path} cannot be used: {error}") from error
    use_additional_indicators(indicators)
    return indicators
