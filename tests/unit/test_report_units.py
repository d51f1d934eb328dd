"""Numbers for people: scaled once, read back unchanged."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from matrix.report.units import human, number, parse, pretty, ratio, scale_for

SECONDS = st.floats(min_value=1e-9, max_value=100, allow_nan=False)


@given(SECONDS)
def test_a_time_from_1_ns_to_100_s_is_read_back_within_its_three_digits(seconds: float) -> None:
    value, unit = parse(human(seconds, "s"))
    assert unit == "s"
    assert value == pytest.approx(seconds, rel=0.0051)


@given(SECONDS)
def test_a_time_is_read_back_exactly_enough_with_twelve_digits(seconds: float) -> None:
    assert parse(human(seconds, "s", digits=12))[0] == pytest.approx(seconds, rel=1e-11)


@given(SECONDS)
def test_the_stored_unit_does_not_change_what_is_shown(seconds: float) -> None:
    shown = {parse(human(seconds * factor, unit))[0] for unit, factor in (("s", 1), ("ms", 1e3), ("us", 1e6))}
    assert max(shown) == pytest.approx(min(shown), rel=0.0051)


@given(st.floats(min_value=1, max_value=2.0**45))
def test_bytes_are_read_back_within_their_three_digits(value: float) -> None:
    read, unit = parse(human(value, "bytes"))
    assert unit == "bytes"
    assert read == pytest.approx(value, rel=0.0051)


@pytest.mark.parametrize(
    ("value", "unit", "text"),
    [
        (1e-9, "s", "1.00 ns"),
        (61.0, "ns", "61.0 ns"),
        (0.9, "ms", "900 us"),
        (1.1, "ms", "1.10 ms"),
        (999.9996e-6, "s", "1.00 ms"),
        (46.123, "ms", "46.1 ms"),
        (1234.0, "ms", "1.23 s"),
        (99.96, "s", "100 s"),
        (268.0, "s", "268 s"),
        (0.0, "ms", "0 ms"),
        (1023.0, "bytes", "1,023 B"),
        (1024.0, "bytes", "1.00 KiB"),
        (641728512.0, "bytes", "612 MiB"),
        (24 * 2.0**30, "bytes", "24.0 GiB"),
        (21.694, "items/s", "21.7 items/s"),
        (12345.6, "items/s", "12,346 items/s"),
        (1.8e-5, "1", "1.8e-05"),
        (0.0031, "1", "0.00310"),
        (1.0, "1", "1"),
        (1 - 2.1e-10, "1", "1 - 2.1e-10"),
        (0.0005, "J", "500 uJ"),
    ],
)
def test_a_value_reads_as_people_say_it(value: float, unit: str, text: str) -> None:
    assert human(value, unit) == text


def test_values_of_one_row_share_a_unit_so_that_none_looks_smaller_than_it_is() -> None:
    scale = scale_for([0.9, 1.1], "ms")
    assert (scale.text(0.9), scale.text(1.1)) == ("0.900 ms", "1.10 ms")


def test_a_row_that_spans_many_decades_keeps_its_smallest_value_readable() -> None:
    scale = scale_for([0.002, 8.0], "ms")
    assert (scale.text(0.002), scale.text(8.0)) == ("2.00 us", "8,000 us")


def test_a_ratio_keeps_the_digits_that_tell_it_from_one() -> None:
    assert [ratio(r) for r in (1.0, 1.004, 1.01, 12.44, 340.2)] == [
        "1.00x",
        "1.00x",
        "1.01x",
        "12.4x",
        "340x",
    ]


def test_prettier_text_has_the_same_numbers() -> None:
    assert pretty("900 us, 1.17x, 4x faster") == "900 µs, 1.17×, 4× faster"
    assert parse(pretty("900 us")) == parse("900 us")


def test_rounding_up_to_the_next_decade_does_not_add_a_digit() -> None:
    assert number(9.999) == "10.0"
    assert number(99.99) == "100"


@pytest.mark.parametrize("text", ["", "fast", "ms 3", "nan ms"])
def test_text_that_is_no_number_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="no number"):
        parse(text)
