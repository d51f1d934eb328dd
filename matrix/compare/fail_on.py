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

WORDS = (*(word.value for word in Word), *(state.value for state in State), MISSING)


def parse(text: str) -> tuple[str, ...]:
    """The words of a comma-separated list; `none` is none of them. Raises UsageError.

    Words of two parts may be written with a space, a hyphen or an underscore.
    """
    known = {_folded(word): word for word in WORDS}
    found: list[str] = []
    for part in text.split(","):
        word = _folded(part)
        if not word or word == NOTHING:
            continue
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
