"""Symbolic links inside the output folder of a batch: nothing outside is changed, and a message names the link."""

import json
import os
import shutil

import pytest

from support.attn import attn
from support.jobs import contents, job, manifest_of, write_jobs

REFUSED = "is a symbolic link, which can lead out of the output folder"


@pytest.fixture
def folder(tmp_path):
    """A batch of three jobs, one of them in a folder, that has run; and a folder of other files."""
    write_jobs(tmp_path / "jobs", range(2))
    write_jobs(tmp_path / "jobs" / "deep", [2])
    (tmp_path / "others" / "empty").mkdir(parents=True)
    (tmp_path / "others" / "data.npz").write_bytes(b"other data\n")
    return tmp_path


def batch(folder, *flags):
    return attn("batch", "jobs", "--out-dir", "out", "--name", "{job}", *flags, cwd=folder)


def others(folder):
    return sorted(os.listdir(folder / "others")), contents(folder / "others", ())


def replace_by_link(folder, name):
    """Moves an entry of the output folder out of it, and links to it."""
    shutil.move(folder / "out" / name, folder / "others")
    (folder / "out" / name).symlink_to(f"../others/{name}")


def change_jobs(folder):
    for path in (folder / "jobs").rglob("*.json"):
        path.write_text(json.dumps(job(int(path.stem[3:]) + 10)))


ISOLATE = [[], ["--isolate"]]


@pytest.mark.parametrize("isolate", ISOLATE, ids=str)
@pytest.mark.parametrize("flags", [[], ["--resume"], ["--force"], ["--no-clobber"], ["--durable"],
                                   ["--format", "folder"]], ids=str)
def test_folder_that_is_a_link_is_refused(folder, flags, isolate):
    (folder / "out").mkdir()
    (folder / "out" / "deep").symlink_to("../others")
    before = others(folder)
    run = batch(folder, *flags, *isolate)
    assert run.returncode == 3
    assert others(folder) == before
    assert manifest_of(folder / "out")["jobs/deep/job0002.json"]["error"] == [
        f"jobs/deep/job0002.json: out/deep: {REFUSED}"]
    assert manifest_of(folder / "out")["jobs/job0000.json"]["status"] == "done"


@pytest.mark.parametrize("isolate", ISOLATE, ids=str)
@pytest.mark.parametrize("flag", ["--resume", "--force"])
@pytest.mark.parametrize("name", ["job0000.npz", "deep"])
def test_result_that_is_a_link_is_kept(folder, name, flag, isolate):
    assert batch(folder).returncode == 0
    replace_by_link(folder, name)
    change_jobs(folder)
    before = others(folder)
    run = batch(folder, flag, *isolate)
    assert run.returncode == 3
    assert f"out/{name}: {REFUSED}\n" in run.stderr.decode()
    assert others(folder) == before


@pytest.mark.parametrize("isolate", ISOLATE, ids=str)
@pytest.mark.parametrize("flag", ["--resume", "--force"])
def test_bundle_that_is_a_link_is_kept(folder, flag, isolate):
    assert batch(folder, "--bundle", "3").returncode == 0
    replace_by_link(folder, "bundle-1.npz")
    change_jobs(folder)
    before = others(folder)
    run = batch(folder, "--bundle", "3", flag, *isolate)
    assert run.returncode == 73
    assert f"attn: out/bundle-1.npz: {REFUSED}\n" in run.stderr.decode()
    assert others(folder) == before


@pytest.mark.parametrize("flag", ["--resume", "--force", "--no-clobber"])
def test_manifest_that_is_a_link_is_kept(folder, flag):
    assert batch(folder).returncode == 0
    replace_by_link(folder, "manifest.ndjson")
    before = others(folder)
    run = batch(folder, flag)
    assert run.returncode == 73
    assert run.stderr.decode() == f"attn: out/manifest.ndjson: {REFUSED}\n"
    assert others(folder) == before


@pytest.mark.parametrize("name", ["link/data.npz", "link", "../others/data.npz", "link/../../others/data.npz"])
def test_pruning_does_not_follow_links(folder, name):
    """The manifest may have been changed by others."""
    assert batch(folder).returncode == 0
    lines = (folder / "out" / "manifest.ndjson").read_text()
    (folder / "jobs" / "job0001.json").unlink()
    shutil.copy(folder / "out" / "job0001.npz", folder / "others" / "data.npz")
    (folder / "out" / "link").symlink_to("../others" if "/" in name else "../others/data.npz")
    (folder / "out" / "manifest.ndjson").write_text(lines.replace('"job0001.npz"', json.dumps(name)))
    before = others(folder)
    run = batch(folder, "--resume", "--prune")
    assert run.returncode == 0
    assert others(folder) == before
    assert (folder / "out" / "link").is_symlink()
    if name.startswith("link") and ".." not in name:
        assert f"attn: out/link: {REFUSED}; not removed\n" in run.stderr.decode()


def test_results_may_be_in_a_folder_that_links_lead_to(folder):
    (folder / "elsewhere" / "results").mkdir(parents=True)
    (folder / "above").symlink_to("elsewhere")
    (folder / "out").symlink_to("above/results")
    assert batch(folder).returncode == 0
    assert sorted(contents(folder / "elsewhere")) == [
        "results/deep/job0002.npz", "results/job0000.npz", "results/job0001.npz"]
    change_jobs(folder)
    assert batch(folder, "--resume", "--isolate").returncode == 0
    (folder / "jobs" / "deep" / "job0002.json").unlink()
    assert batch(folder, "--resume", "--prune").returncode == 0
    assert sorted(contents(folder / "elsewhere")) == ["results/job0000.npz", "results/job0001.npz"]
    assert (folder / "out").is_symlink()
