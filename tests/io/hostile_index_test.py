#!/usr/bin/env python3
"""The table of hostile inputs is complete: each number from 1 to 180 has a row in one of the tests
beside this one, or stands here with the reason why it has none."""

import pathlib
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))
sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "support"))
import hostile_job_test  # noqa: E402
import hostile_json_test  # noqa: E402
import hostile_npy_test  # noqa: E402
import hostile_npz_test  # noqa: E402
import hostile_safetensors_test  # noqa: E402
from support.attn import Checks  # noqa: E402

TABLES = {
    "hostile_npy_test.py": (hostile_npy_test.NUMBERS, range(1, 73)),
    "hostile_npz_test.py": (hostile_npz_test.NUMBERS, range(73, 101)),
    "hostile_safetensors_test.py": (hostile_safetensors_test.NUMBERS, range(101, 131)),
    "hostile_json_test.py": (hostile_json_test.NUMBERS, [*range(131, 153), 154]),
    "hostile_job_test.py": (hostile_job_test.NUMBERS, [153, *range(155, 181)]),
}
WITHOUT_A_ROW = {}  # number: why it cannot come up

if __name__ == "__main__":
    checks = Checks("the table of hostile inputs")
    for file, (numbers, expected) in TABLES.items():
        missing = sorted(set(expected) - numbers - set(WITHOUT_A_ROW))
        checks.check(not missing, f"{file}: cases without a row: {missing}")
    every = set().union(*(numbers for numbers, _ in TABLES.values()))
    checks.check(every | set(WITHOUT_A_ROW) == set(range(1, 181)),
                 f"{sorted(every ^ set(range(1, 181)))}")
    checks.check(not every & set(WITHOUT_A_ROW), "a row and a reason for none")
    rows = sum(len(module.all_rows()) for module in
               (hostile_npy_test, hostile_npz_test, hostile_safetensors_test))
    rows += len(hostile_json_test.JSON_CASES + hostile_json_test.CSV_CASES)
    rows += len(hostile_job_test.all_rows(None))
    print(f"{len(every)} numbers, {rows} rows")
    checks.finish()
