"""The command line's exit codes and messages, whatever a command raises."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator

import click
import pytest

import workers.cli.program
from config.errors import PermanentError, TransientError, UsageError
from workers.cli import main
from workers.cli.common import read_stdin
from workers.cli.exit_codes import (
    EXIT_FAILED,
    EXIT_NEWLY_FAILED,
    EXIT_NO_SKILL_HIT,
    EXIT_USAGE,
)

Run = Callable[..., int]


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch) -> Run:
    """Runs the program with a command `probe` that does what a test says."""

    def with_command(does: Callable[[click.Context], None], *arguments: str) -> int:
        @click.command()
        @click.pass_context
        def probe(ctx: click.Context) -> None:
            does(ctx)

        monkeypatch.setattr(workers.cli.program, "probe", probe, raising=False)
        monkeypatch.setitem(workers.cli.program._COMMANDS, "probe", ("program", "Probe."))
        monkeypatch.setattr(sys, "argv", ["skillbus", "probe", *arguments])
        with pytest.raises(SystemExit) as caught:
            main()
        return int(caught.value.code or 0)

    return with_command


def nothing(_: click.Context) -> None:
    """Succeeds."""


def raising(error: BaseException) -> Callable[[click.Context], None]:
    def does(_: click.Context) -> None:
        raise error

    return does


def test_done_is_0(run: Run) -> None:
    assert run(nothing) == 0


@pytest.mark.parametrize("code", [EXIT_FAILED, EXIT_NO_SKILL_HIT, EXIT_NEWLY_FAILED])
def test_the_code_of_a_command_is_the_code_of_the_program(run: Run, code: int) -> None:
    assert run(lambda ctx: ctx.exit(code)) == code


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (UsageError("no such folder"), EXIT_USAGE),
        (PermanentError("damaged"), EXIT_FAILED),
        (TransientError("busy"), EXIT_FAILED),
        (KeyboardInterrupt(), 130),
        (click.Abort(), 130),
        (click.BadParameter("wrong"), EXIT_USAGE),
    ],
)
def test_errors_end_with_a_line_and_their_code(
    run: Run, capsys: pytest.CaptureFixture[str], error: BaseException, code: int
) -> None:
    assert run(raising(error)) == code
    written = capsys.readouterr()
    assert written.out == ""
    assert str(error) in written.err
    assert "Traceback" not in written.err


def test_a_disk_that_is_full_is_named(run: Run, capfd: pytest.CaptureFixture[str]) -> None:
    assert run(raising(OSError(28, "No space left on device"))) == EXIT_FAILED
    assert capfd.readouterr().err == "skillbus: No space left on device\n"


def test_a_closed_standard_input_is_empty(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdin", None)
    found: list[str] = []
    assert run(lambda _: found.append(read_stdin())) == 0
    assert found == [""]
    sys.stdin.close()


def test_a_mistake_in_the_program_is_not_hidden(run: Run) -> None:
    with pytest.raises(ZeroDivisionError):
        run(raising(ZeroDivisionError()))


@pytest.mark.parametrize("arguments", [["--unheard-of"], ["surplus"]])
def test_wrong_arguments_are_usage(run: Run, arguments: list[str]) -> None:
    assert run(nothing, *arguments) == EXIT_USAGE


def test_arguments_that_are_not_utf_8_are_usage(
    run: Run, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(nothing, "--unheard-of", "caf\udce9") == EXIT_USAGE
    assert (
        capsys.readouterr().err == "skillbus: the argument 'caf\\udce9' is not UTF-8; convert it\n"
    )


def test_an_unknown_command_is_usage(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "argv", ["skillbus", "stauts"])
    with pytest.raises(SystemExit) as caught:
        main()
    assert caught.value.code == EXIT_USAGE
    assert "No such command 'stauts'. Did you mean 'status'?" in capsys.readouterr().err


def list_groups(
    group: click.Group, ctx: click.Context
) -> Iterator[tuple[click.Group, click.Context]]:
    yield group, ctx
    for name in group.list_commands(ctx):
        command = group.get_command(ctx, name)
        if isinstance(command, click.Group):
            yield from list_groups(command, click.Context(command, parent=ctx, info_name=name))


def test_lists_of_commands_have_the_first_sentences_of_their_helps() -> None:
    root = click.Context(workers.cli.program.cli, info_name="skillbus", terminal_width=80)
    for group, ctx in list_groups(workers.cli.program.cli, root):
        _, _, listed = group.get_help(ctx).partition("\nCommands:\n")
        found = dict(line.split(maxsplit=1) for line in listed.splitlines())
        for name in group.list_commands(ctx):
            command = group.get_command(ctx, name)
            assert command is not None
            assert found[name] == command.get_short_help_str(100), ctx.command_path


@pytest.mark.parametrize("command", sorted(workers.cli.program._COMMANDS))
def test_every_command_has_help(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], command: str
) -> None:
    monkeypatch.setattr(sys, "argv", ["skillbus", command, "--help"])
    with pytest.raises(SystemExit) as caught:
        main()
    assert not caught.value.code
    assert f"Usage: skillbus {command}" in capsys.readouterr().out
