"""The last line of scripts/test counts Catch2 and pytest cases."""

import pytest

from support.count_results import count

CASE = '<testcase name="{}" status="{}">{}</testcase>'


@pytest.fixture
def write_reports(tmp_path):
    """Writes ctest's report, and pytest's reports of x_test.py and y_test.py if given; returns the counts."""
    def write(entries, **files):
        (tmp_path / "tests.xml").write_text(f"<testsuite>{''.join(entries)}</testsuite>")
        for name, cases in files.items():
            (tmp_path / f"{name}.py.xml").write_text(f"<testsuites><testsuite>{cases}</testsuite></testsuites>")
        return {name: number for name, number in count(tmp_path / "tests.xml", tmp_path).items() if number}
    return write


PASSED, FAILED = CASE.format("x_test.py", "run", ""), CASE.format("x_test.py", "fail", "<failure/>")


def test_catch2_cases_count_once_each(write_reports):
    entries = [CASE.format("a", "run", ""), CASE.format("b", "fail", "<failure/>"),
               CASE.format("c", "notrun", "<skipped/>")]
    assert write_reports(entries) == {"passed": 1, "failed": 1, "skipped": 1}


def test_cases_of_a_python_file_replace_the_file(write_reports):
    cases = "<testcase/><testcase/><testcase><failure/></testcase><testcase><skipped/></testcase>"
    assert write_reports([FAILED], x_test=cases) == {"passed": 2, "failed": 1, "skipped": 1}


def test_error_in_a_fixture_is_a_failure(write_reports):
    assert write_reports([FAILED], x_test="<testcase><error/></testcase>") == {"failed": 1}


def test_error_after_a_failure_counts_once(write_reports):
    assert write_reports([FAILED], x_test="<testcase><failure/><error/></testcase>") == {"failed": 1}


@pytest.mark.parametrize("entry", [PASSED, FAILED], ids=["exit 0", "exit 1"])
@pytest.mark.parametrize("files", [{}, {"x_test": ""}], ids=["no report", "no cases"])
def test_file_without_cases_is_a_failure(write_reports, entry, files):
    assert write_reports([entry], **files) == {"failed": 1}


def test_file_that_fails_although_its_cases_pass_is_a_failure(write_reports):
    assert write_reports([FAILED], x_test="<testcase/>") == {"passed": 1, "failed": 1}


def test_file_that_is_not_run_is_skipped(write_reports):
    assert write_reports([CASE.format("x_test.py", "disabled", "<skipped/>")]) == {"skipped": 1}
