"""Makes a language model of random weights: a transformer of one layer in a GGUF file.

Its answers are random; it serves to test the protocol. Its tokens are learnt from this project's
documents, so that prompts have realistic lengths. It favours tokens that end strings and lists, so
that answers constrained by a schema stay short. The same documents give the same file.
"""

from __future__ import annotations

import json
from pathlib import Path

import gguf
import numpy as np
from numpy.typing import NDArray
from tokenizers import Tokenizer, models, pre_tokenizers, trainers

TEXTS = Path(__file__).resolve().parents[3] / "docs"
CONTEXT = 131_072
"""Maximum tokens of prompt and answer in the model; the server sets its own limit."""

TOKENS = 2048
WIDTH = 32
END = "<|end|>"
ROLES = ("<|system|>", "<|user|>", "<|assistant|>")
TEMPLATE = (
    "{% for message in messages %}<|{{ message.role }}|>{{ message.content }}"
    f"{END}{{% endfor %}}"
    "{% if add_generation_prompt %}<|assistant|>{% endif %}"
)
FAVOURS = {'"': 5.0, "]": 3.0}
"""Token -> value added to its logit. All logits have a standard deviation of about 1, and the
largest of 2,000 is about 3.5, so a text ends after one or two tokens."""

NEVER = -100.0
"""Value added to the logits of non-ASCII tokens, which may be parts of characters."""

_CONTROL, _NORMAL = 3, 1  # token types of GGUF


def make_model(path: Path, name: str) -> None:
    """Write the model's file atomically. name: name of the model in the file."""
    tokens, merges = _learn_tokens()
    draft = path.with_name(f"{path.name}.draft")
    writer = gguf.GGUFWriter(draft, "llama")
    writer.add_name(name)
    writer.add_context_length(CONTEXT)
    writer.add_embedding_length(WIDTH)
    writer.add_block_count(1)
    writer.add_feed_forward_length(WIDTH)
    writer.add_head_count(1)
    writer.add_head_count_kv(1)
    writer.add_layer_norm_rms_eps(1e-5)
    writer.add_rope_dimension_count(WIDTH)
    writer.add_vocab_size(len(tokens))
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre("gpt-2")
    writer.add_token_list(tokens)
    writer.add_token_types(
        [_CONTROL if token in (END, *ROLES) else _NORMAL for token in tokens],
    )
    writer.add_token_merges(merges)
    end = tokens.index(END)
    writer.add_bos_token_id(end)
    writer.add_eos_token_id(end)
    writer.add_pad_token_id(end)
    writer.add_add_bos_token(False)
    writer.add_chat_template(TEMPLATE)
    for tensor, values in _weights(tokens).items():
        writer.add_tensor(f"{tensor}.weight", values)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    draft.rename(path)


def _learn_tokens() -> tuple[list[str], list[str]]:
    """Learn a byte-pair encoding; return its tokens by id and its merges by rank."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    trainer = trainers.BpeTrainer(
        vocab_size=TOKENS,
        special_tokens=[END, *ROLES],
        initial_alphabet=sorted(pre_tokenizers.ByteLevel.alphabet()),
        show_progress=False,
    )
    texts = [path.read_text(encoding="utf-8") for path in sorted(TEXTS.rglob("*.md"))]
    tokenizer.train_from_iterator(texts, trainer)
    learnt = json.loads(tokenizer.to_str())["model"]
    ids: dict[str, int] = learnt["vocab"]
    return sorted(ids, key=ids.__getitem__), [" ".join(pair) for pair in learnt["merges"]]


def _weights(tokens: list[str]) -> dict[str, NDArray[np.float32]]:
    """Return the tensors by name.

    The first dimension is the same for every token, and no layer writes to it. The output layer
    uses it to add the favour of each token.
    """
    random = np.random.default_rng(0)

    def matrix(rows: int, deviation: float = WIDTH**-0.5) -> NDArray[np.float32]:
        return (random.standard_normal((rows, WIDTH)) * deviation).astype(np.float32)

    ones = np.ones(WIDTH, np.float32)
    tensors = {"token_embd": matrix(len(tokens), 1.0), "output": matrix(len(tokens))}
    tensors["token_embd"][:, 0] = WIDTH**0.5
    # The norm before the output halves the squared length of which this dimension is one half.
    favours = np.array([_favour(token) for token in tokens], np.float32)
    tensors["output"][:, 0] = favours / (WIDTH / 2) ** 0.5
    for norm in ("output_norm", "blk.0.attn_norm", "blk.0.ffn_norm"):
        tensors[norm] = ones
    for part in ("attn_q", "attn_k", "attn_v", "attn_output", "ffn_gate", "ffn_up", "ffn_down"):
        tensors[f"blk.0.{part}"] = matrix(WIDTH)
    for part in ("attn_output", "ffn_down"):
        tensors[f"blk.0.{part}"][0] = 0
    return tensors


def _favour(token: str) -> float:
    text = token.replace("Ġ", " ")  # "Ġ" is the space in byte-level tokens
    return FAVOURS.get(token, 0.0) if text.isascii() and text.isprintable() else NEVER
