"""Function that gives the chosen skills the roles of a language model, if the settings say so."""

from __future__ import annotations

from dataclasses import replace

from config.errors import TransientError
from tasks.query.context import QueryContext
from tasks.query.read_chosen import ChosenRevisions
from tasks.refine.roles.role_overlay import overlay_roles


def show_model_roles(context: QueryContext, chosen: ChosenRevisions) -> ChosenRevisions:
    """Return the chosen skills with the roles of stored refinements; if the store does not answer,
    return them unchanged and record a degradation."""
    services = context.services
    try:
        revisions = overlay_roles(
            services.answers, services.settings.language_model, chosen.revisions
        )
    except TransientError as error:
        context.degradations.add(
            "roles of the local classifier: the stored answers could not be read", error
        )
        return chosen
    return replace(chosen, revisions=revisions)
