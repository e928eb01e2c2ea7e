"""Messages about errors for clients."""

from __future__ import annotations

import structlog

from config.errors import MisconfiguredError, SkillbusError, TransientError

log = structlog.get_logger()


def explain_error(error: SkillbusError) -> str:
    """Return the message about an error for a client; details for operators are only logged."""
    message = error.public_message  # addresses and file names of the deployment are not for agents
    if isinstance(error, MisconfiguredError):
        log.error("a setting is wrong", reason=str(error))
        return message
    if message != str(error):
        log.warning("a server failed", reason=str(error))
    again = isinstance(error, TransientError) and "try again" not in message
    return f"{message}; try again in a moment" if again else message
