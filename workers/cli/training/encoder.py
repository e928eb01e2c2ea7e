"""`train encoder`: fine-tunes the bi-encoder on a library's own text and prompts."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from config.errors import UsageError
from config.settings import Settings
from workers.cli.common import format_count, print_result, read_settings
from workers.cli.parameter_types import NumberRange
from workers.cli.training.model_training import (
    check_fold,
    choose_options,
    data_options,
    number_option,
    prepare_folder,
    print_comparison,
    resume_or_build,
    run_options,
    run_training,
)

if TYPE_CHECKING:
    from workers.training.encoder.encoder_pairs import EncoderOptions


@click.command("encoder")
@data_options
@click.option("--base", help="Name or folder of the encoder to start from. [default: the one used]")
@number_option(
    "--pairs", 6, click.IntRange(0, 100), "Maximum training pairs from each skill's own text."
)
@number_option(
    "--negatives", 1, click.IntRange(0, 10), "Hard negatives per pair and step, of its ten."
)
@number_option(
    "--rank",
    16,
    click.IntRange(0, 1024),
    "Rank of the adapter that is trained; 0 trains all weights.",
)
@click.option(
    "--layers",
    default=0,
    type=click.IntRange(0, 1000),
    help="Number of last layers to adapt; fewer layers are faster. [default: all]",
)
@number_option("--tokens", 96, click.IntRange(16, 8192), "Maximum tokens of a text in training.")
@number_option(
    "--learning-rate",
    3e-4,
    NumberRange(0, 1, min_open=True),
    "Peak learning rate; with --rank 0, use about 2e-5.",
)
@number_option(
    "--temperature",
    0.02,
    NumberRange(0, 10, min_open=True),
    "Divides the cosines in the loss.",
)
@number_option(
    "--batch-size",
    64,
    click.IntRange(2, 4096),
    "Pairs per step; the texts of the others are negatives.",
)
@click.option(
    "--repository",
    default="",
    help="Regular expression whose match in a skill's id is its repository. [default: source and "
    "first folder]",
)
@run_options
def encoder(**options: Any) -> None:
    """Fine-tune the encoder on the library.

    Training moves requests nearer to the skills that serve them. The encoder learns from requests
    that skills quote, from pieces of their text, from the prompts that a language model wrote for
    them, and from prompts of --feedback. Negatives are the other texts of a batch and hard
    negatives: near in meaning, near in words, of the same category, or random. One of --folds
    parts of the repositories is held out; the report compares the base and the trained model on
    it. To use the trained model, set `encoder.model` to the folder and run `skillbus reindex`.

    \b
    Example:
      skillbus train encoder --out my-encoder --feedback prompts.jsonl
      SKILLBUS_ENCODER__MODEL=my-encoder skillbus reindex
    """
    from workers.training.encoder.bi_encoder import check_base
    from workers.training.encoder.encoder_pairs import EncoderTrainingSet
    from workers.training.encoder.encoder_training import (
        evaluate_encoder,
        make_encoder_card,
        train_encoder,
    )
    from workers.training.encoder.mine_pairs import build_encoder_training_set

    settings, out = read_settings(), options["out"]
    check_fold(options)
    _check_pattern(options["repository"])
    base = options["base"] or settings.encoder.model
    prepare_folder(out, options["fresh"], "encoder", base)
    chosen = _choose(settings, base, options)
    training_set = resume_or_build(
        settings, options, chosen, EncoderTrainingSet, check_base, build_encoder_training_set
    )
    card = run_training(training_set, options, train_encoder, evaluate_encoder, make_encoder_card)
    print_result(card, lambda made: _print(made, out))


def _choose(settings: Settings, base: str, options: Mapping[str, Any]) -> EncoderOptions:
    """Return the options of a training from this base."""
    from search.models.identity import trained_languages
    from workers.training.encoder.encoder_pairs import EncoderOptions

    used = settings.encoder
    same = base == used.model
    languages = frozenset(used.languages if same else ()) or trained_languages(base)
    return choose_options(
        settings,
        EncoderOptions,
        options,
        # The trained model names its base, and is loaded from other working directories.
        base=str(Path(base).absolute()) if Path(base).is_dir() else base,
        languages=tuple(sorted(languages)),
        query_prompt=used.query_prompt if same else None,
        passage_prompt=used.passage_prompt if same else None,
    )


def _check_pattern(pattern: str) -> None:
    """Raise UsageError if `--repository` is not a valid regular expression."""
    try:
        re.compile(pattern)
    except re.error as error:
        raise UsageError(f"--repository {pattern!r} is not a regular expression: {error}") from None


def _print(card: Mapping[str, Any], out: Path) -> None:
    pairs = ", ".join(f"{count} from {origin}" for origin, count in card["pairs"].items())
    click.echo(f"pairs: {pairs}; base {card['base']}")
    for name, count in card["notes"].items():
        click.echo(f"  {name}: {count}")
    filtered = ", ".join(f"{name} {share:.1%}" for name, share in card["filtered"].items())
    click.echo(f"  candidates for negatives filtered by: {filtered}")
    for origin, figures in card["held_out"].items():
        click.echo(
            f"held-out {origin}: {format_count(figures['queries'], 'query')}, "
            f"{format_count(figures['repositories'], 'repository')}, {card['pool']} skills"
        )
        print_comparison(figures, ("base", "trained"))
    if card["wins"]:
        click.echo(
            f'better than the base: set encoder.model = "{out.absolute()}" and run '
            "`skillbus reindex`"
        )
    else:
        click.echo("not better than the base on held-out repositories: not recommended")
