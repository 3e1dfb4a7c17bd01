"""A few runs of each group of scripts/stress/file-races. ATTN_FILE_RACES sets their number."""

import os
import random

import pytest

from file_races import GROUPS

RUNS = int(os.environ.get("ATTN_FILE_RACES", "4"))


@pytest.mark.parametrize("name", GROUPS)
def test_no_crash_mixture_or_lost_file(name, tmp_path):
    dice = random.Random(name)
    for number in range(RUNS):
        folder = tmp_path / str(number)
        folder.mkdir()
        assert GROUPS[name](dice, folder) == ""
