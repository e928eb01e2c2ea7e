"""Loading of the encoder and the reranker that the settings name."""

from __future__ import annotations

from config.settings import EncoderSettings, RerankerSettings
from search.models.batch_encoder import BatchEncoder
from search.models.encoder import SentenceTransformerEncoder
from search.models.identity import EncoderIdentity, is_packaged, read_identity
from search.models.packaged_encoder import PackagedEncoder
from search.models.reranker import CrossEncoderReranker
from search.protocol import Reranker


def load_encoder(settings: EncoderSettings) -> BatchEncoder:
    """Load the encoder; raises PermanentError if that fails, or a package for it is missing."""
    if is_packaged(settings.model):
        return PackagedEncoder(settings)
    return SentenceTransformerEncoder(settings)


def encoder_identity(settings: EncoderSettings) -> EncoderIdentity:
    """Return the identity of the encoder on this machine; loads the encoder if no file has it."""
    identity = read_identity(settings)
    if identity is None:
        encoder = load_encoder(settings)
        return EncoderIdentity(encoder.model, encoder.dimension)
    return identity


def load_reranker(settings: RerankerSettings) -> Reranker:
    """Load the reranker; raises PermanentError if that fails, or a package for it is missing."""
    return CrossEncoderReranker(settings.model, max_length=settings.max_length)
