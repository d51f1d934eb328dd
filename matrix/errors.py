"""Every error that ends a command, each with its exit code and what to do about it.

A command catches `MatrixError` once, at the top: the message goes to standard
error without a traceback, the exit code is the class's own.
"""

from __future__ import annotations

import enum


class ExitCode(enum.IntEnum):
    """What `matrix` exits with; promised in the documentation."""

    OK = 0
    VERDICT = 1  # a verdict of --fail-on, or a cell that ended badly
    USAGE = 2  # wrong command line or configuration; nothing was run
    INCOMPLETE = 3  # the run could not be completed: disk full, engine lost
    INTERRUPTED = 130  # Ctrl-C; `matrix run --resume` continues


class MatrixError(Exception):
    """Base of the errors that a user can do something about."""

    exit_code = ExitCode.INCOMPLETE


class UsageError(MatrixError):
    """A wrong argument: the command line names what does not exist or does not fit."""

    exit_code = ExitCode.USAGE


class ConfigError(MatrixError):
    """One or more located mistakes in a configuration or catalog file."""

    exit_code = ExitCode.USAGE

    def __init__(self, problems: list[str]) -> None:
        super().__init__("\n".join(problems))
        self.problems = problems


class StorageError(MatrixError):
    """The results folder or the cache cannot be written: disk full, no permission."""


class EngineLost(MatrixError):
    """The container engine does not answer any more; the run can be continued once it does."""


class IndexUnreachable(MatrixError):
    """The package index does not answer when it is asked which releases there are."""


class RunLocked(MatrixError):
    """Another process is writing this run."""


class Interrupted(MatrixError):
    """The user or the system asked the run to stop."""

    exit_code = ExitCode.INTERRUPTED
