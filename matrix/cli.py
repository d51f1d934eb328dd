"""The command line: finds the command, turns every known error into a message and an exit code.

Thin on purpose. Nothing heavy is imported before the command is known, so that
`matrix --help` answers at once; each command lives in `matrix.commands`.
"""

from __future__ import annotations

import argparse
import contextlib
import importlib
import io
import os
import signal
import sys
import traceback
from collections.abc import Sequence

from matrix import __version__
from matrix.errors import ExitCode, MatrixError

#: command -> one line for the overview; the module of the same name has the rest
COMMANDS = {
    "plan": "show the cells, what cannot run and why, and what it would cost; runs nothing",
    "run": "build environments, run every cell, print the matrix, write the reports",
    "report": "show stored runs as table, markdown, html, csv, json, junit or svg",
    "catalog": "list the frameworks, versions, models and hardware that a sweep can name",
    "compare": "say of every cell whether the candidate is worse than the base, and how sure that is",
    "upgrade": "measure two versions side by side, and say whether the newer one is worse anywhere",
    "bisect": "find the first release that is worse, and whether it or one of its packages is guilty",
    "import": "store samples that were measured elsewhere (CSV or Parquet) as a run",
    "history": "show what a metric did over the stored runs of a machine, and where it stepped",
    "query": "ask stored runs in SQL: tables runs, cells and metrics",
    "operators": "run tests that others wrote of operators: the ONNX project's, and PyTorch's own",
    "images": "list, build and remove the container images",
    "doctor": "say what this machine offers and what would spoil a measurement",
    "clean": "list or remove cached environments and model artefacts",
}

#: commands whose name no Python module can have
_MODULES = {"import": "import_samples"}

EXIT_CODES = """\
exit codes: 0 all well; 1 a cell ended badly, a required one is not ok, or a comparison says a word of
--fail-on; 2 wrong usage or configuration, nothing was run; 3 the run could not be completed; 130
interrupted, resumable"""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command. Returns the exit code; never raises for a user's mistake."""
    _prepare_streams()
    try:
        return _run(list(sys.argv[1:] if arguments is None else arguments))
    except MatrixError as error:
        _complain(str(error))
        return error.exit_code
    except KeyboardInterrupt:
        _complain("interrupted")
        return ExitCode.INTERRUPTED
    except BrokenPipeError:  # `matrix report ... | head`: the reader had enough
        _discard_output()
        return 128 + signal.SIGPIPE
    except OSError as error:  # what no command foresaw: the system's word, and the file if it names one
        _discard_output()
        where = error.filename if error.filename is not None else "standard output"
        _complain(f"{where}: {error.strerror or error}")
        return ExitCode.INCOMPLETE
    except Exception:  # a defect of ours must not look like a verdict (exit code 1)
        _complain(f"a defect in framework-matrix, please report it:\n{traceback.format_exc()}")
        return ExitCode.INCOMPLETE


def _run(arguments: list[str]) -> int:
    parser = _parser(arguments)
    args = parser.parse_args(arguments)
    if not args.command:
        parser.print_help()
        return ExitCode.USAGE
    code = int(args.execute(args))
    sys.stdout.flush()  # here, where a full disk or a closed pipe can still be answered
    return code


def _complain(text: str) -> None:
    with contextlib.suppress(OSError):  # nobody may be listening
        print(f"matrix: {text}", file=sys.stderr, flush=True)


def _prepare_streams() -> None:
    """No print may fail: not after `>&-` (Python has no stream then), nor for what ASCII lacks."""
    for name in ("stdout", "stderr"):
        if getattr(sys, name) is None:
            setattr(sys, name, open(os.devnull, "w", encoding="utf-8"))  # noqa: PTH123, SIM115
        stream = getattr(sys, name)
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")


def _discard_output() -> None:
    """What is still in the buffer cannot be written: let the interpreter's own flush at exit succeed."""
    with contextlib.suppress(OSError, ValueError):  # no file behind it (a test's capture)
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


class _Parser(argparse.ArgumentParser):
    """argparse, with the nearest name offered for a mistyped command."""

    def error(self, message: str) -> None:  # type: ignore[override]
        import difflib

        typed = next((a for a in sys.argv[1:] if not a.startswith("-")), "")
        if "argument COMMAND: invalid choice" in message and (
            near := difflib.get_close_matches(typed, COMMANDS, 1)
        ):
            message += f"; did you mean {near[0]!r}?"
        self.print_usage(sys.stderr)
        self.exit(ExitCode.USAGE, f"{self.prog}: {message}\n")


def _parser(arguments: list[str]) -> argparse.ArgumentParser:
    parser = _Parser(
        prog="matrix",
        description="Compare AI frameworks, versions and hardware on the same models, "
        "with the same weights, inputs and clock.",
        epilog=f"example:\n  matrix run --select 'model == \"distilbert\"'\n\n{EXIT_CODES}",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--version", action="version", version=f"framework-matrix {__version__}")
    parser.set_defaults(command="")
    commands = parser.add_subparsers(title="commands", metavar="COMMAND", parser_class=_Parser)
    wanted = next((a for a in arguments if a in COMMANDS), None)
    for name, summary in COMMANDS.items():
        sub = commands.add_parser(
            name, help=summary, description=summary, formatter_class=argparse.RawDescriptionHelpFormatter
        )
        if name == wanted:  # only the command at hand pays for its imports
            module = importlib.import_module(f"matrix.commands.{_MODULES.get(name, name)}")
            module.configure(sub)
            sub.set_defaults(command=name, execute=module.execute)
    return parser


if __name__ == "__main__":
    sys.exit(main())
