"""Strict YAML: what was written is what is read, or an error that says where and how to write it."""

from __future__ import annotations

import math
import string
from pathlib import Path

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from matrix.errors import ConfigError
from matrix.strict_yaml.source import Document, parse, read


def problems(text: str) -> list[str]:
    document = parse(text, "f.yaml")
    return [document.message(p) for p in document.problems]


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("1e-3", 0.001),
        ("2.10", 2.1),
        ("-7", -7),
        ("0", 0),
        ("0x1F", 31),
        ("0o17", 15),
        ("true", True),
        ("false", False),
        ("null", None),
        ("~", None),
        ('"off"', "off"),
        ("'2.10'", "2.10"),
        ('"true"', "true"),
        ("1.2.3", "1.2.3"),
        ("1_000", "1_000"),
        ("1:30", "1:30"),
        ("2026-11-30", "2026-11-30"),
        ("n", "n"),
        ("|\n  off", "off"),
    ],
)
def test_a_scalar_is_read_by_the_yaml_1_2_core_schema(text: str, value: object) -> None:
    document = parse(f"a: {text}", "f.yaml")
    assert document.data == {"a": value}
    assert type(document.data["a"]) is type(value)
    assert not document.problems


@pytest.mark.parametrize(
    "word", ["off", "Off", "OFF", "on", "yes", "Yes", "no", "NO", "True", "TRUE", "False"]
)
def test_a_word_that_some_read_as_a_boolean_is_an_error_that_says_how_to_write_it(word: str) -> None:
    (message,) = problems(f"a: {word}")
    assert message.startswith("f.yaml:1:4: a: ")
    assert f'"{word}" in quotes' in message
    assert ("write true" in message) == (word.lower() in ("on", "yes", "true"))


@pytest.mark.parametrize(("text", "number"), [("010", "10"), ("007", "7"), ("00", "0"), ("-08", "8")])
def test_a_number_with_a_leading_zero_is_refused(text: str, number: str) -> None:
    (message,) = problems(f"a: {text}")
    assert f"write {number} for the number" in message


@pytest.mark.parametrize("text", [".inf", "-.INF", ".nan", "1e999", "9" * 50])
def test_no_value_is_infinite_or_undefined(text: str) -> None:
    (message,) = problems(f"a: {text}")
    assert "number" in message


def test_a_duplicate_key_is_an_error_with_both_lines() -> None:
    assert problems("a: 1\nb:\n  c: 1\n  c: 2\na: 3\n") == [
        "f.yaml:4:3: b.c: given twice (first at line 3)",
        "f.yaml:5:1: a: given twice (first at line 1)",
    ]


def test_several_mistakes_are_reported_together() -> None:
    assert len(problems("a: off\na: 1\nb: [010, yes]\n<<: {c: 1}\n? [x]\n: 1\n")) == 6


@pytest.mark.parametrize(
    ("text", "where", "what"),
    [
        ("a: [1\n", "f.yaml:2:1", "not YAML"),
        ("a:\n\tb: 1\n", "f.yaml:2:1", "tab"),
        ("a: b: c\n", "f.yaml:1:5", "needs quotes"),
        ("", "f.yaml:1:1", "empty"),
        ("# only a remark\n", "f.yaml:1:1", "empty"),
        ("a: 1\n---\nb: 2\n", "f.yaml:2:1", "second document"),
        ("a: *nowhere\n", "f.yaml:1:4", "alias"),
        ("a: \x01\n", "f.yaml:1:1", "not YAML"),
        ("[" * 5000, "f.yaml:1:", "not YAML"),
        ("- " * 900 + "x", "f.yaml:1:1", "nested too deeply"),
    ],
)
def test_a_broken_file_is_one_located_error(text: str, where: str, what: str) -> None:
    with pytest.raises(ConfigError) as caught:
        parse(text, "f.yaml")
    assert str(caught.value).startswith(where)
    assert what in str(caught.value)


def test_tags_are_refused_and_nothing_is_constructed() -> None:
    (message,) = problems("a: !!python/object/apply:os.system [echo]\n")
    assert "tag !!python/object/apply:os.system is not allowed" in message


def test_an_alias_repeats_its_value() -> None:
    document = parse("a: &x [1, 2]\nb: *x\n", "f.yaml")
    assert document.data == {"a": [1, 2], "b": [1, 2]}
    assert not document.problems


def test_an_alias_that_contains_itself_is_an_error() -> None:
    assert problems("a: &x [1, *x]\n") == ["f.yaml:1:4: a[1]: an alias that contains itself"]


def test_aliases_cannot_multiply_without_bound() -> None:
    lines = ["a0: &a0 [x, x, x, x, x, x, x, x, x, x]"]
    lines += [f"a{i}: &a{i} [{', '.join([f'*a{i - 1}'] * 10)}]" for i in range(1, 12)]
    with pytest.raises(ConfigError, match="more than 100000 values"):
        parse("\n".join(lines), "f.yaml")


def test_unreadable_files_are_errors_without_a_traceback(tmp_path: Path) -> None:
    (tmp_path / "latin.yaml").write_bytes(b"a: 1\nb: caf\xe9\n")
    (tmp_path / "large.yaml").write_bytes(b"#" * 2_000_000)
    (tmp_path / "bom.yaml").write_bytes(b"\xef\xbb\xbfa: 1\n")
    for path, text in (
        (tmp_path / "missing.yaml", "no such file"),
        (tmp_path, "a folder, not a file"),
        (tmp_path / "latin.yaml", "latin.yaml:2:1: not UTF-8"),
        (tmp_path / "large.yaml", "larger than"),
    ):
        with pytest.raises(ConfigError, match=text):
            read(path)
    assert read(tmp_path / "bom.yaml").data == {"a": 1}


_keys = st.text(string.ascii_lowercase, min_size=1, max_size=6)
_leaves = st.one_of(
    st.integers(-(10**9), 10**9),
    st.floats(allow_nan=False, allow_infinity=False),
    st.booleans(),
    st.none(),
    st.text(st.characters(max_codepoint=0xD7FF), max_size=12),  # JSON writes the rest as surrogates
)
_data = st.recursive(
    _leaves,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(_keys, inner, max_size=4),
    max_leaves=12,
)


@settings(max_examples=80, deadline=None)
@given(st.dictionaries(_keys, _data, min_size=1, max_size=4), st.booleans())
def test_json_is_read_back_as_it_was_and_every_position_points_at_its_text(
    data: dict[str, object], compact: bool
) -> None:
    import json

    text = json.dumps(data, indent=None if compact else 2, ensure_ascii=True)
    document = parse(text, "f.yaml")
    assert not document.problems
    assert _same(document.data, data)
    lines = text.splitlines()
    for loc, position in document.keys.items():
        assert lines[position.line - 1][position.column - 1 :].startswith(json.dumps(loc[-1]))
    for loc, position in document.values.items():
        value = _at(data, loc)
        start = lines[position.line - 1][position.column - 1 :]
        expected = {dict: "{", list: "["}.get(type(value)) or json.dumps(value)
        assert start.startswith(expected)


@settings(max_examples=80, deadline=None)
@given(st.text(max_size=60))
def test_any_text_is_read_or_refused_but_never_crashes(text: str) -> None:
    try:
        document = parse(text, "f.yaml")
    except ConfigError as error:
        assert all(p.startswith("f.yaml:") for p in error.problems)
    else:
        assert isinstance(document, Document)


def test_positions_do_not_depend_on_which_parser_is_there(monkeypatch: pytest.MonkeyPatch) -> None:
    text = "a: [1, {b: two}]\nc:\n  d: 'x'\n"
    fast = parse(text, "f.yaml")
    monkeypatch.delattr(yaml, "CBaseLoader", raising=False)
    slow = parse(text, "f.yaml")
    assert (fast.data, fast.keys, fast.values) == (slow.data, slow.keys, slow.values)


def _at(data: object, loc: tuple[str | int, ...]) -> object:
    for part in loc:
        data = data[part]  # type: ignore[index]
    return data


def _same(left: object, right: object) -> bool:
    if isinstance(left, float) and isinstance(right, (int, float)) and not isinstance(right, bool):
        return math.isclose(left, right, rel_tol=0, abs_tol=0)
    if isinstance(left, dict) and isinstance(right, dict):
        return left.keys() == right.keys() and all(_same(left[k], right[k]) for k in left)
    if isinstance(left, list) and isinstance(right, list):
        return len(left) == len(right) and all(map(_same, left, right))
    return type(left) is type(right) and left == right
