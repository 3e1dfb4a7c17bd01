"""Prints how many tests passed, failed and were skipped; exits 1 if one failed.

    count_results.py CTEST_XML FOLDER

CTEST_XML is the report of ctest --output-junit: a Catch2 test case or a Python file per entry. FOLDER
has pytest's report of each Python file, FILE.xml, whose cases are counted in place of the entry.
"""

import collections
import pathlib
import sys
import xml.etree.ElementTree as ElementTree


def count_entry(entry):
    """The counts of one entry in ctest's report."""
    if entry.find("failure") is not None:
        return collections.Counter(failed=1)
    return collections.Counter(passed=1) if entry.get("status") == "run" else collections.Counter(skipped=1)


def count_file(report):
    """The counts of one Python file by pytest's report; a file without cases counts as one failure."""
    if not report.exists():
        return collections.Counter(failed=1)
    counts = collections.Counter()
    for case in ElementTree.parse(report).iter("testcase"):
        children = {child.tag for child in case}
        if children & {"failure", "error"}:
            counts["failed"] += 1
        else:
            counts["skipped" if "skipped" in children else "passed"] += 1
    return counts or collections.Counter(failed=1)


def count(ctest_report, folder):
    total = collections.Counter(passed=0, failed=0, skipped=0)
    for entry in ElementTree.parse(ctest_report).iter("testcase"):
        counts = count_entry(entry)
        if entry.get("name").endswith(".py") and not counts["skipped"]:
            cases = count_file(folder / f"{entry.get('name')}.xml")
            # A file may fail although no case did: after a crash, or when its time ran out.
            counts = cases if cases["failed"] or not counts["failed"] else cases + counts
        total.update(counts)
    return total


if __name__ == "__main__":
    totals = count(*map(pathlib.Path, sys.argv[1:]))
    print(f"{totals['passed']} passed, {totals['failed']} failed", end="")
    print(f", {totals['skipped']} skipped" if totals["skipped"] else "")
    sys.exit(1 if totals["failed"] else 0)
