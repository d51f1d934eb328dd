"""`--fail-on`: which words of a comparison make the command fail."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from matrix.compare.findings import Finding
from matrix.errors import UsageError
from matrix.judge.rows import Word
from matrix.strict_yaml.located import did_you_mean
from matrix_adapters.protocol import State

MISSING, NOTHING = "missing", "none"
DEFAULT = "regressed,incorrect,missing"

#: a cell that is ok is no reason to fail, so that "ok" is no word
WORDS = (
    *(word.value for word in Word),
    *(state.value for state in State if state is not State.OK),
    MISSING,
)


def parse(text: str) -> tuple[str, ...]:
    """The words of a comma-separated list; `none`, alone, is none of them. Raises UsageError.

    Words of two parts may be written with a space, a hyphen or an underscore. An empty list is
    a mistake (a variable that was never set), and must not open a gate.
    """
    known = {_folded(word): word for word in WORDS}
    parts = [part for part in text.split(",") if _folded(part)]
    if not parts:
        raise UsageError(f"--fail-on {text!r} names nothing; write {NOTHING} to never fail")
    if any(_folded(part) == NOTHING for part in parts):
        if len(parts) > 1:
            raise UsageError(f"--fail-on {text!r}: {NOTHING} goes with no other word")
        return ()
    found: list[str] = []
    for part in parts:
        word = _folded(part)
        if word not in known:
            hint = did_you_mean(part.strip(), [word.replace(" ", "_") for word in WORDS])
            raise UsageError(
                f"--fail-on: no word is {part.strip()!r}{hint}; there are {', '.join(WORDS)}, {NOTHING}"
            )
        found.append(known[word])
    return tuple(dict.fromkeys(found))


def occurring(findings: Iterable[Finding], words: Sequence[str]) -> dict[str, int]:
    """Those of `words` that occur, with how many findings each.

    A state word means the candidate's cell; a verdict that only repeats another metric's is
    counted once, with the metric it repeats.
    """
    found: dict[str, int] = {}
    for finding in findings:
        for word in words:
            if _applies(word, finding):
                found[word] = found.get(word, 0) + 1
    return {word: found[word] for word in words if word in found}


def _applies(word: str, finding: Finding) -> bool:
    if word == MISSING:
        return finding.missing
    if word in (finding.verdict.value, finding.state):
        return not finding.derived or word != finding.verdict.value
    return False


def _folded(word: str) -> str:
    return " ".join(word.strip().lower().replace("-", " ").replace("_", " ").split())
