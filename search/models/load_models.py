"""Encoders and rerankers from settings."""

from __future__ import annotations

from typing import NamedTuple

from config.settings import EncoderSettings, RerankerSettings
from search.models import encoder
from search.models.reranker import CrossEncoderReranker
from search.protocol import Encoder, Reranker


class EncoderIdentity(NamedTuple):
    """What an index is named after."""

    model: str
    dimension: int


def encoder_identity(model: str) -> EncoderIdentity:
    """Identity of the encoder of that name on this machine; the default one is not loaded."""
    return EncoderIdentity(*encoder.model_identity(model))


def load_encoder(settings: EncoderSettings) -> Encoder:
    """Load the encoder; raises PermanentError when it cannot be."""
    return encoder.SentenceTransformerEncoder(settings.model, batch_tokens=settings.batch_tokens)


def load_reranker(settings: RerankerSettings) -> Reranker:
    """Load the reranker that the settings name; raises PermanentError when it cannot be."""
    return CrossEncoderReranker(settings.model, max_length=settings.max_length)
