"""Wrong usage of `compare` and `import`: a message that helps, exit code 2, nothing left behind."""

from __future__ import annotations

import contextlib
import math
from pathlib import Path

import duckdb
import pytest
from comparison_runs import COLUMNS, Imported, cells, paired, record, samples, verdicts, write_csv, write_run
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from matrix.catalog import load
from matrix.compare import fail_on
from matrix.compare.findings import Finding
from matrix.errors import MatrixError, UsageError
from matrix.imported import checking, columns, units
from matrix.judge.rows import Word

HEAD = ",".join(COLUMNS)


@pytest.fixture
def made(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Imported:
    return Imported(tmp_path, capsys)


@pytest.mark.parametrize(
    ("arguments", "hint"),
    [
        (["run:old", "run:nwe"], '(did you mean "new"?)'),
        (["run", "run:new"], ""),
        (["run"], "no A/B run"),
        (["rnu:old", "run:new"], "did you mean 'run'?"),
        (["run:old", "run:old"], "compared with itself"),
        (["run:old", "run:new", "--fail-on", "regresed"], '(did you mean "regressed"?)'),
        (["run:old", "run:new", "--fail-on", "slow"], "there are regressed, improved"),
        (["run:old", "run:new", "--margin", "latency=0.1"], "latency_ms"),
        (["run:old", "run:new", "--margin", "latency_ms=2"], "between 0 and 1"),
        (["run:old", "run:new", "--margin", "latency_ms"], "METRIC=FRACTION"),
        (["run:old", "run:new", "--margin", "latency_ms=nan"], "between 0 and 1"),
        (["run:old", "run:new", "--margin", "latency_ms=0.1", "--margin", "latency_ms=0.2"], "one already"),
        (["run:old", "run:new", "--metric", "latencyms"], "latency_ms"),
        (["run:old", "run:new", "--select", "modle == 'a'"], "model"),
        (["run:old", "run:new", "--select", "model == 'zzz'"], "chooses no cell"),
        (["run:old", "run:new", "-o", "no/such/folder/x"], "no folder"),
        (["native", "run:new"], "imported"),
    ],
)
def test_a_mistake_is_a_message_with_a_hint(made: Imported, arguments: list[str], hint: str) -> None:
    made.add(samples())
    write_run(made.results, "native", [record("1.31.0", "resnet50", paired()[0])])
    code, out, err = made.run("compare", *arguments)
    assert code == 2 and out == ""
    assert hint in err and "Traceback" not in err


def test_a_damaged_run_is_exit_code_3(made: Imported) -> None:
    made.add(samples())
    (folder,) = made.results.iterdir()
    for damage in (b"", b"PK\x03\x04nonsense", (folder / "values.npz").read_bytes()[:500]):
        (folder / "values.npz").write_bytes(damage)
        code, _, err = made.run("compare", "run:old", "run:new")
        assert code == 3 and "values.npz" in err and "Traceback" not in err


def test_records_of_an_imported_run_are_made_again_from_its_samples(made: Imported) -> None:
    made.add(samples())
    before = made.run("report", "run", "--format", "json")[1]
    (folder,) = made.results.iterdir()
    (folder / "cells.jsonl").unlink()
    assert made.run("report", "run", "--format", "json")[1] == before


def test_an_imported_run_cannot_be_resumed(made: Imported) -> None:
    made.add(samples())
    code, _, err = made.run("run", "--resume", "run")
    assert code == 2 and "was imported" in err


def test_environments_of_two_runs_are_matched_by_name_then_by_framework(made: Imported) -> None:
    for name, versions in (("monday", ("1.31.0",)), ("tuesday", ("1.32.0",))):
        records = [record(v, "resnet50", paired()[0]) for v in versions]
        records.append(record("2.13.0", "resnet50", paired()[0], framework="pytorch"))
        write_run(made.results, name, records)
    _, out, _ = made.run("compare", "monday", "tuesday", "--all")
    assert "pytorch-2.13.0-cpu: resnet50" in out
    assert "onnxruntime-1.31.0-cpu -> onnxruntime-1.32.0-cpu: resnet50" in out


def test_an_environment_without_a_counterpart_does_not_vanish(made: Imported) -> None:
    both = record("1.31.0", "resnet50", paired()[0])
    write_run(made.results, "monday", [both, record("2.13.0", "gpt2", paired()[0], framework="pytorch")])
    write_run(made.results, "tuesday", [both, record("2.21.0", "gpt2", paired()[0], framework="tensorflow")])
    code, answer = made.compare("monday", "tuesday")
    states = cells(answer, "state")
    assert code == 1 and answer["summary"]["failing"] == {"missing": 1}
    assert states["pytorch-2.13.0-cpu: gpt2 b1 fp32 1t"]["missing"]
    assert not states["tensorflow-2.21.0-cpu: gpt2 b1 fp32 1t"]["missing"]


# --- --fail-on ----------------------------------------------------------------------------


def test_words_of_fail_on_may_be_written_in_several_ways() -> None:
    assert fail_on.parse("no worse, not-comparable,NOT_RUN , missing") == (
        "no worse",
        "not comparable",
        "not_run",
        "missing",
    )
    assert fail_on.parse("none") == ()
    assert fail_on.parse(fail_on.DEFAULT) == ("regressed", "incorrect", "missing")
    with pytest.raises(UsageError, match="regressed"):
        fail_on.parse("regressions")


@pytest.mark.parametrize("word", fail_on.WORDS)
def test_every_word_can_fail_a_comparison(word: str) -> None:
    states = {"state": word} if word not in {w.value for w in Word} | {"missing"} else {}
    verdict = Word(word) if word in {w.value for w in Word} else Word.NOT_COMPARABLE
    hit = Finding(workload="w", metric="m", verdict=verdict, missing=word == "missing", **states)
    assert fail_on.occurring([hit], (word,)) == {word: 1}
    clean = Finding(workload="w", metric="m", verdict=Word.NO_WORSE if word != "no worse" else Word.IMPROVED)
    assert fail_on.occurring([clean], (word,)) == {}


def test_inconclusive_can_gate(made: Imported) -> None:
    made.add(samples(noise=0.2))
    assert made.compare("run:old", "run:new")[0] == 0
    code, answer = made.compare("run:old", "run:new", "--fail-on", "inconclusive")
    assert code == 1 and answer["summary"]["failing"]["inconclusive"] == 3


# --- wrong files --------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("a,w,latency_ms,0,0,", ":2: value: missing"),
        ("a,w,latency_ms,0,0,nan", ":2: value: nan is not finite"),
        ("a,w,latency_ms,0,0,-inf", ":2: value: -inf is not finite"),
        ("a,w,latency_ms,0,0,1e999", ":2: value: 1e999 is not finite"),
        ("a,w,latency_ms,0,0,0", ":2: value: 0: latency_ms cannot be zero or negative"),
        ("a,w,latency_ms,0,0,-1", ":2: value: -1: latency_ms cannot be zero or negative"),
        ("a,w,throughput_items_s,0,0,0", "throughput_items_s cannot be zero or negative"),
        ("a,w,peak_memory_bytes,0,0,-1", "peak_memory_bytes cannot be negative"),
        ("a,w,latency_ms,0,0,12 ms", ":2: value: '12 ms' is not a number"),
        ("a,w,latency_ms,0,0,1_000", "'1_000' is not a number"),
        ('a,w,latency_ms,0,0,"1,5"', "a decimal point is needed"),
        ("a,w,latncy_ms,0,0,1", ":2: metric: 'latncy_ms' is not in the metric registry (did you mean"),
        ("a,w,,0,0,1", ":2: metric: missing"),
        ("a,,latency_ms,0,0,1", ":2: workload: missing"),
        ("a,w,latency_ms,,0,1", ":2: block: missing"),
        ("a,w,latency_ms,0,,1", ":2: launch: missing"),
        (" ,w,latency_ms,0,0,1", ":2: environment: missing"),
        ("a:b,w,latency_ms,0,0,1", ":2: environment: 'a:b': a colon is not possible"),
        ("a@b,w,latency_ms,0,0,1", "NAME@aa"),
        ("@aa,w,latency_ms,0,0,1", "NAME@aa"),
        ("a,w\x1b[31m,latency_ms,0,0,1", ":2: workload: 'w\\x1b[31m' holds a control character"),
        ('a,"w\nx",latency_ms,0,0,1', ":3: workload: 'w\\nx' holds a control character"),
        (f"a,{'w' * 400},latency_ms,0,0,1", "longer than 300 characters"),
        ("a,w,latency_ms,0,0", ":2: 5 values, the header has 6"),
        ("a,w,latency_ms,0,0,1,2", ":2: 7 values, the header has 6"),
        ('a,"w,latency_ms,0,0,1', "unexpected end of data"),
    ],
)
def test_a_bad_row_is_told_by_file_line_column_and_reason(made: Imported, line: str, said: str) -> None:
    path = made.folder / "bad.csv"
    path.write_text(f"{HEAD}\n{line}\n", encoding="utf-8")
    code, out, err = made.run("import", str(path), "--name", "bad")
    assert code == 2 and out == ""
    assert said in err and "bad.csv" in err and "Traceback" not in err
    assert not made.results.exists() or not list(made.results.iterdir()), "nothing is half-imported"


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "it is empty"),
        (HEAD, "it holds no samples"),
        (HEAD.replace("block", "blok"), "no column block"),
        (HEAD.replace("block", "blok"), "unknown column 'blok' (did you mean \"block\"?)"),
        (f"{HEAD},note\na,w,latency_ms,0,0,1,x", "unknown column 'note'"),
        (f"{HEAD},value\na,w,latency_ms,0,0,1,1", "two columns are called 'value'"),
        (HEAD.replace(",", ";"), "columns are separated by commas"),
        (HEAD.replace(",", "\t"), "columns are separated by commas"),
    ],
)
def test_a_file_that_is_no_table_of_samples_is_refused(made: Imported, text: str, said: str) -> None:
    path = made.folder / "bad.csv"
    path.write_text(text, encoding="utf-8")
    code, _, err = made.run("import", str(path), "--name", "bad")
    assert code == 2 and said in err


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"\xff\xfe\x00", "bad.csv:1: neither UTF-8 text nor a Parquet file"),
        (HEAD.encode() + b"\na,caf\xe9,latency_ms,0,0,1\n", "bad.csv:2: neither UTF-8"),
        (b"PAR1 and nothing", "this Parquet file cannot be read"),
    ],
)
def test_bytes_that_are_no_text_are_refused(made: Imported, content: bytes, said: str) -> None:
    path = made.folder / "bad.csv"
    path.write_bytes(content)
    code, _, err = made.run("import", str(path), "--name", "bad")
    assert code == 2 and said in err and "Traceback" not in err


def test_many_mistakes_are_told_at_once_and_counted(made: Imported) -> None:
    rows = [{**row, "value": "x"} for row in samples()]
    path = write_csv(made.folder / "bad.csv", rows)
    code, _, err = made.run("import", str(path), "--name", "bad")
    assert code == 2
    assert err.count("is not a number") == 20
    assert f"... and {len(rows) - 20} more; nothing was imported" in err


@pytest.mark.parametrize(
    ("metric", "unit", "known"),
    [
        ("latency_ms", "MiB", "ms, s"),
        ("peak_memory_bytes", "ms", "MiB"),
        ("throughput_items_s", "s", "items/s"),
    ],
)
def test_a_unit_of_another_kind_is_refused(made: Imported, metric: str, unit: str, known: str) -> None:
    path = made.folder / "bad.csv"
    path.write_text(f"{HEAD},unit\na,w,{metric},0,0,1,{unit}\n", encoding="utf-8")
    code, _, err = made.run("import", str(path), "--name", "bad")
    assert code == 2 and f"'{unit}' is no unit of {metric}" in err and known in err


def test_a_name_that_is_taken_or_cannot_be_typed_is_refused(made: Imported) -> None:
    made.add(samples())
    path = made.folder / "run.csv"
    for name, said in (("run", "a run of that name already"), ("a/b", "--name"), ("latest", "--name")):
        code, _, err = made.run("import", str(path), "--name", name)
        assert code == 2 and said in err
    assert len(list(made.results.iterdir())) == 1
    assert made.run("import", "no/such.csv", "--name", "x")[0] == 2


def test_a_byte_order_mark_blank_lines_and_spaces_do_no_harm(made: Imported) -> None:
    path = made.folder / "run.csv"
    rows = "\r\n".join(f" a , w ,latency_ms, {b} ,0, 1.5 \r\n" for b in range(6))
    path.write_bytes(b"\xef\xbb\xbf" + f"{HEAD}\r\n{rows}".encode())
    code, _, err = made.run("import", str(path), "--name", "run")
    assert code == 0, err
    assert "6 samples, 1 environment, 1 workload, 1 metric" in err


def test_parquet_is_read_as_csv_is(made: Imported) -> None:
    rows = samples(only=lambda e, w: 1.1 if (e, w) == ("new", "b") else 1.0)
    made.add(rows, "text")
    source, target = made.folder / "text.csv", made.folder / "odd [name]*.parquet"
    duckdb.sql(f"COPY (SELECT * FROM '{source}') TO '{target}' (FORMAT parquet)")
    code, _, err = made.run("import", str(target), "--name", "binary")
    assert code == 0, err
    text, binary = (made.compare(f"{n}:old", f"{n}:new")[1]["cells"] for n in ("text", "binary"))
    assert text == binary


def test_a_bad_row_of_a_parquet_file_is_told_by_its_number(made: Imported) -> None:
    target = made.folder / "bad.parquet"
    row = "'a' AS environment, 'w' AS workload, 'latency_ms' AS metric, 1.0 AS block, 0 AS launch"
    duckdb.sql(
        f"COPY (SELECT {row}, 1.5 AS value UNION ALL SELECT {row}, NULL) TO '{target}' (FORMAT parquet)"
    )
    code, _, err = made.run("import", str(target), "--name", "bad")
    assert code == 2 and "bad.parquet: row 2: value: missing" in err


@pytest.mark.parametrize(
    "name", ["<script>alert(1)</script>", "a|b", "ünï çödé ✓", "'; DROP TABLE runs; --", "=1+1"]
)
def test_odd_names_are_names(made: Imported, name: str) -> None:
    made.add(samples(workloads=(name,)))
    _, answer = made.compare("run:old", "run:new")
    assert list(verdicts(answer)) == [name]
    assert cells(answer)[name]["verdict"] == "no worse"


# --- units --------------------------------------------------------------------------------


@pytest.mark.parametrize("unit", sorted({metric.unit for metric in load().metrics.values()}))
def test_every_unit_of_the_registry_can_be_written(unit: str) -> None:
    assert units.conversion(unit, unit) == (1.0, 1.0)
    assert unit in units.known(unit)
    for written in units.known(unit):
        found = units.conversion(written, unit)
        assert found is not None and found[0] > 0 and found[1] > 0


@settings(deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(value=st.floats(1e-9, 1e9), unit=st.sampled_from(["ns", "us", "ms", "s", "min"]))
def test_a_time_is_the_same_time_in_every_unit(value: float, unit: str) -> None:
    seconds = {"ns": 1e-9, "us": 1e-6, "ms": 1e-3, "s": 1.0, "min": 60.0}[unit] * value
    factors = units.conversion(unit, "ms")
    assert factors is not None
    assert math.isclose(value * factors[0] / factors[1], seconds * 1e3, rel_tol=1e-12)


@settings(max_examples=60, deadline=None)
@given(st.binary(max_size=300))
def test_no_file_however_broken_is_a_traceback(content: bytes) -> None:
    with contextlib.suppress(MatrixError):
        checking.samples_of(columns.read(Path("x.csv"), HEAD.encode() + b"\n" + content), load().metrics)
