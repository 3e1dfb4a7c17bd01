"""The start of attn-mpi. scripts/test-with/mpi runs these tests for each MPI library."""

import pytest

from mpi import ranks
from mpi.ranks import MPIRUN, PROGRAM, launch, messages, with_script

pytestmark = ranks.NEEDS_MPI
NEEDS_OPEN_MPI = pytest.mark.skipif("openmpi" not in MPIRUN, reason="needs Open MPI")

SHOW = {"OMPI_MCA_mpi_show_mca_params": "enviro"}  # prints parameters that come from the environment


def pml_of(folder, script, **environment):
    run = with_script(folder, 0, script, "help", ranks=2, env={**SHOW, **environment})
    assert run.returncode == 0, run.stderr
    return [line.split()[1] for line in run.stderr.splitlines() if " pml=" in line]


@NEEDS_OPEN_MPI
def test_networks_are_not_searched_on_one_host(tmp_path):
    assert pml_of(tmp_path, "true") == ["pml=ob1"]


@NEEDS_OPEN_MPI
def test_the_choice_of_the_user_remains(tmp_path):
    assert pml_of(tmp_path, "true", OMPI_MCA_pml="^ucx") == ["pml=^ucx"]


@NEEDS_OPEN_MPI
def test_networks_are_searched_on_several_hosts(tmp_path):
    assert not pml_of(tmp_path, "export OMPI_COMM_WORLD_LOCAL_SIZE=1")  # as if the second were on another host


def test_mpirun_of_another_library_is_refused(tmp_path):
    """Which sets only its own variables."""
    other, name = ("PMI_SIZE", "Open MPI") if "openmpi" in MPIRUN else ("OMPI_COMM_WORLD_SIZE", "MPICH")
    run = launch([PROGRAM, "help"], tmp_path, env={other: "2"})
    assert (run.returncode, run.stdout, len(messages(run))) == (70, "", 1)
    assert f"attn: this mpirun is of another MPI library; use that of {name}" in messages(run)[0]
