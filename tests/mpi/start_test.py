"""The start of attn-mpi under Open MPI. scripts/test-mpi runs these tests for each MPI library."""

import pytest

from mpi import ranks
from mpi.ranks import MPIRUN, with_script

pytestmark = [ranks.NEEDS_MPI, pytest.mark.skipif("openmpi" not in MPIRUN, reason="needs Open MPI")]

SHOW = {"OMPI_MCA_mpi_show_mca_params": "enviro"}  # prints parameters that come from the environment


def pml_of(folder, script, **environment):
    run = with_script(folder, 0, script, "help", ranks=1, env={**SHOW, **environment})
    assert run.returncode == 0, run.stderr
    return [line.split()[1] for line in run.stderr.splitlines() if " pml=" in line]


def test_networks_are_not_searched_on_one_host(tmp_path):
    assert pml_of(tmp_path, "true") == ["pml=ob1"]


def test_the_choice_of_the_user_remains(tmp_path):
    assert pml_of(tmp_path, "true", OMPI_MCA_pml="^ucx") == ["pml=^ucx"]


def test_networks_are_searched_on_several_hosts(tmp_path):
    assert not pml_of(tmp_path, "export OMPI_COMM_WORLD_SIZE=2")  # as if the second were on another host
