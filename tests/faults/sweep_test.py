"""A sample of the fault sweep that scripts/stress/faults runs in full.

The sample has every command and every kind of fault: every 11th of the calls that fail, and every 4001st
allocation. For a resumed batch, every call fails once. For a picture, every allocation of its text does.
"""

import pytest

from support.attn import under_sanitizer
from sweep import calls, sweep

pytestmark = pytest.mark.build_folder
NOT_UNDER_SANITIZER = pytest.mark.skipif(under_sanitizer(), reason="a sanitizer's allocator cannot be made to fail")


@pytest.mark.parametrize("count, every, start, sample", [(10, 4, 2, [3, 7]), (2, 4, 5, [2]), (0, 4, 0, [])])
def test_sample_is_every_nth_call(count, every, start, sample):
    assert list(calls(count, every, start)) == sample


@NOT_UNDER_SANITIZER
class TestSweep:
    @pytest.fixture(scope="class")
    def sample(self):
        return sweep(11, 4001)

    @pytest.fixture(scope="class")
    def resumed_batch(self):
        return sweep(1, 4001, "batch, resumed")

    @pytest.fixture(scope="class")
    def picture(self):
        return sweep(1, 1, "run, PNG", last_allocations=400)

    def test_every_command_handles_a_sample_of_faults(self, sample):
        assert sample.problems == []

    @pytest.mark.long
    def test_resumed_batch_handles_every_fault(self, resumed_batch):
        assert resumed_batch.problems == []

    @pytest.mark.long
    def test_picture_handles_every_failed_allocation_of_its_text(self, picture):
        assert picture.problems == []

    @pytest.mark.long
    def test_many_faults_were_injected(self, sample, resumed_batch, picture):
        assert sample.injected + resumed_batch.injected + picture.injected > 1600
