"""Loading of the encoder and the reranker that the settings name."""

from __future__ import annotations

from config.settings import EncoderSettings, RerankerSettings
from search.models.encoder import SentenceTransformerEncoder
from search.models.reranker import CrossEncoderReranker
from search.protocol import Encoder, Reranker


def load_encoder(settings: EncoderSettings) -> Encoder:
    """Load the encoder; raises PermanentError if that fails."""
    return SentenceTransformerEncoder(settings)


def load_reranker(settings: RerankerSettings) -> Reranker:
    """Load the reranker; raises PermanentError if that fails."""
    return CrossEncoderReranker(settings.model, max_length=settings.max_length)
