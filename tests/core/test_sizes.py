"""Sizes as people write them."""

from __future__ import annotations

import numpy as np
import pytest

from soma._sizes import parse_bytes
from soma.errors import InvalidInput


@pytest.mark.parametrize(
    ("written", "expected"),
    [
        (1, 1),
        (np.int64(7), 7),
        ((1 << 63) - 1, 9_223_372_036_854_775_807),
        ("1", 1),
        ("812", 812),
        ("812B", 812),
        ("2K", 2048),
        ("2k", 2048),
        ("2KB", 2048),
        ("2KiB", 2048),
        (" 2 KiB ", 2048),
        ("512M", 536_870_912),
        ("20G", 21_474_836_480),
        ("1.5GiB", 1_610_612_736),
        ("0.5K", 512),
        ("3T", 3_298_534_883_328),
        ("1P", 1_125_899_906_842_624),
        ("7E", 8_070_450_532_247_928_832),
        ("9007199254740993", 9_007_199_254_740_993),  # which no float holds
    ],
)
def test_a_size_in_bytes(written, expected):
    assert parse_bytes("limit", written, least=0) == expected


@pytest.mark.parametrize(
    "written",
    [
        *(
            "",
            " ",
            "G",
            "-1",
            "+1",
            "-1G",
            "1 000",
            "1,5G",
            "1e9",
            "1.",
            ".5G",
            "0x10",
            "\u0661",
            "²",
        ),
        *("nan", "inf", "9" * 30, "9" * 400, "9" * 10_000, "1" * 20 + "G", "8E", "20GG", "20 G B"),
        *("1G\0", -1, 1 << 63, 10**400, 1.0, float("nan"), float("inf"), True, None, b"1G", [1]),
    ],
    ids=lambda written: repr(written)[:20] if not isinstance(written, int) else "a number",
)
def test_what_is_no_size_is_refused_in_a_sentence(written):
    with pytest.raises(InvalidInput, match=r"^limit is a size, .*'500M' or '8G', not ") as refused:
        parse_bytes("limit", written, least=0)
    assert len(str(refused.value)) < 200


def test_a_size_below_the_least_is_refused():
    assert parse_bytes("limit", "1K", least=1024) == 1024
    for written in (1023, "1023", "0.9K"):
        with pytest.raises(InvalidInput, match=r"limit is a size of 1,024 bytes or more, .* not "):
            parse_bytes("limit", written, least=1024)
    for written in (0, "0", "0G", "0.1"):
        with pytest.raises(InvalidInput, match="limit is a size above 0, "):
            parse_bytes("limit", written)
