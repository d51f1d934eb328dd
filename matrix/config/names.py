"""Names, paths and expressions of a sweep file, looked up one by one in the raw data.

It works on what was written, not on the typed result, so that a mistyped framework is
reported together with an unknown key elsewhere in the file.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from matrix.catalog.types import Catalog, Framework
from matrix.config.candidates import check_candidates
from matrix.config.user_model import absolute
from matrix.errors import UsageError
from matrix.select import selector
from matrix.strict_yaml.located import Checker, did_you_mean
from matrix.strict_yaml.source import Loc

# A version goes into a requirement, so nothing but a version may pass.
_VERSION = re.compile(r"[0-9]+(\.[0-9]+)*((a|b|rc|\.post|\.dev)[0-9]+)*(\+[A-Za-z0-9]+(\.[A-Za-z0-9]+)*)?")

# Other words for a precision; frameworks and hardware bring theirs from the catalog.
_PRECISION_WORDS = {
    "float32": "fp32",
    "float": "fp32",
    "bfloat16": "bf16",
    "float16": "fp16",
    "half": "fp16",
}


def check_names(checker: Checker, folder: Path, catalog: Catalog) -> None:
    """Report every name that does not exist, every missing path and every wrong expression."""
    data = checker.document.data
    if not isinstance(data, Mapping):
        return
    for loc, entry in _items(data, (), "frameworks"):
        _framework(checker, loc, entry, catalog)
    _hardware(checker, data, (), catalog)
    _models(checker, data, folder, catalog)
    _operators(checker, data, catalog)
    check_candidates(checker, data, folder, catalog)
    for loc, value in _items(data, (), "precisions"):
        if isinstance(value, str) and value in _PRECISION_WORDS:
            checker.add(loc, f'{value} is written "{_PRECISION_WORDS[value]}" here')
    for loc, value in _items(data, (), "threads"):
        if isinstance(value, str) and value != "all":
            checker.add(loc, f"a whole number or `all` is needed, got {value!r}")
    for loc, rule in _items(data, (), "rules"):
        _rule(checker, loc, rule)
    images = data.get("images")
    bases = images.get("base") if isinstance(images, Mapping) else None
    for name in bases if isinstance(bases, Mapping) else ():
        if name not in catalog.hardware:
            hint = _nearest(str(name), catalog.hardware, {})
            checker.add(("images", "base", name), f"there is no hardware profile {name!r}{hint}")


def _framework(checker: Checker, loc: Loc, entry: Any, catalog: Catalog) -> None:
    name = entry.get("name") if isinstance(entry, Mapping) else entry
    where = (*loc, "name") if isinstance(entry, Mapping) else loc
    if not isinstance(name, str):
        return
    framework = catalog.frameworks.get(name)
    if framework is None:
        if name in catalog.broken:
            checker.add(where, f"the framework {name} cannot be used: {catalog.broken[name]}")
        else:
            other = {word: f.name for f in catalog.frameworks.values() for word in _words(f)}
            checker.add(where, f"there is no framework {name!r}{_nearest(name, catalog.frameworks, other)}")
        return
    if not isinstance(entry, Mapping):
        return
    for at, version in _items(entry, loc, "versions"):
        if isinstance(version, str) and not (len(version) <= 64 and _VERSION.fullmatch(version)):
            checker.add(at, f'{version[:64]!r} is not a version, such as "{framework.default_version}"')
    for at, variant in _items(entry, loc, "variants"):
        if isinstance(variant, str) and variant not in framework.variants:
            hint = _nearest(variant, framework.variants, {})
            checker.add(at, f"{framework.title} has no variant {variant!r}{hint}")
    _hardware(checker, entry, loc, catalog)


def _hardware(checker: Checker, data: Mapping[str, Any], loc: Loc, catalog: Catalog) -> None:
    known = [*catalog.hardware, "auto"]
    devices = {s.device: h for f in catalog.frameworks.values() for h, s in f.hardware.items()}
    for at, name in _items(data, loc, "hardware"):
        if isinstance(name, str) and name not in known:
            kinds = [h for h, e in catalog.hardware.items() if name.lower() in e.title.lower().split()]
            hint = f" (did you mean {' or '.join(kinds)}?)" if kinds else _nearest(name, known, devices)
            checker.add(at, f"there is no hardware profile {name!r}{hint}")


def _models(checker: Checker, data: Mapping[str, Any], folder: Path, catalog: Catalog) -> None:
    seen: set[str] = set()
    for loc, entry in _items(data, (), "models"):
        if isinstance(entry, str):
            if entry not in catalog.models:
                checker.add(loc, f"there is no model {entry!r}{_nearest(entry, catalog.models, {})}")
        elif isinstance(entry, Mapping):
            name = entry.get("name")
            if isinstance(name, str) and name in catalog.models:
                checker.add((*loc, "name"), f"the catalog has a model {name!r}: choose another name")
            elif isinstance(name, str) and name in seen:
                checker.add((*loc, "name"), f"a second model is called {name!r}: choose another name")
            seen.add(str(name))
            _paths(checker, loc, entry, folder)


def _operators(checker: Checker, data: Mapping[str, Any], catalog: Catalog) -> None:
    """Words that choose operator cases. The catalog's operators are read only where there are any."""
    words = [(loc, word) for loc, word in _items(data, (), "operators") if isinstance(word, str)]
    if not words:
        return
    from matrix.operators import load, suites

    known = load.load_operators(catalog.operators)
    for loc, word in words:
        if text := suites.problem(word, known, catalog.models):
            checker.add(loc, text)


def _paths(checker: Checker, loc: Loc, entry: Mapping[str, Any], folder: Path) -> None:
    _exists(checker, (*loc, "path"), entry.get("path"), folder)
    _exists(checker, (*loc, "expected"), entry.get("expected"), folder)
    inputs = entry.get("inputs")
    for name, fields in inputs.items() if isinstance(inputs, Mapping) else ():
        if isinstance(fields, Mapping):
            _exists(checker, (*loc, "inputs", name, "file"), fields.get("file"), folder)


def _exists(checker: Checker, loc: Loc, value: Any, folder: Path) -> None:
    if not isinstance(value, str):
        return
    try:
        path = absolute(Path(value), folder)
    except UsageError as error:
        checker.add(loc, str(error))
    else:
        if not path.exists():
            checker.add(loc, f"there is no {path}")


def _rule(checker: Checker, loc: Loc, rule: Any) -> None:
    if not isinstance(rule, Mapping):
        return
    expression = rule.get("select")
    if isinstance(expression, str):
        try:
            selector(expression)
        except UsageError as error:
            checker.add((*loc, "select"), str(error).removeprefix("--select ").splitlines()[0])
    if not rule.get("required") and not rule.get("xfail"):
        checker.add(loc, "a rule does nothing without `required: true` or `xfail: reason`")


def _items(data: Mapping[str, Any], loc: Loc, key: str) -> Iterator[tuple[Loc, Any]]:
    value = data.get(key)
    if isinstance(value, list):
        for i, item in enumerate(value):
            yield (*loc, key, i), item


def _words(framework: Framework) -> list[str]:
    return [framework.title, framework.import_package, *framework.provided_by]


def _nearest(name: str, known: Iterable[str], other_words: Mapping[str, str]) -> str:
    """The nearest name; a word that is known elsewhere (`torch`, `cuda`) leads to ours."""
    known = list(known)
    if name.lower() in (word.lower() for word in other_words):
        return f' (did you mean "{next(v for w, v in other_words.items() if w.lower() == name.lower())}"?)'
    return did_you_mean(name, known) or f"; there are: {', '.join(sorted(known)[:12])}"
