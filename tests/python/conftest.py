"""The Python module, loaded with the library of the build that is tested."""

import importlib
import os
import pathlib
import sys

import pytest

from support.attn import ATTN, ROOT

LIBRARY = pathlib.Path(ATTN).resolve().parent / "libattn.so.0"
PYTHON = str(ROOT / "python")


@pytest.fixture(scope="session")
def attn_module():
    """The module `attn`: that of the source folder, or, if ATTN_INSTALLED_MODULE is set, an installed one. Its
    tests are skipped in builds without the library (ATTN_LIBRARY)."""
    if "ATTN_INSTALLED_MODULE" in os.environ:
        return importlib.import_module("attn")
    if not LIBRARY.exists():
        pytest.skip("this build has no libattn (ATTN_LIBRARY)")
    os.environ["ATTN_LIBRARY"] = str(LIBRARY)
    sys.path.insert(0, PYTHON)
    return importlib.import_module("attn")


@pytest.fixture(scope="session")
def module_environment(attn_module):
    """The environment of a Python process that imports the module."""
    if "ATTN_INSTALLED_MODULE" in os.environ:
        return dict(os.environ)
    return {**os.environ, "ATTN_LIBRARY": str(LIBRARY), "PYTHONPATH": PYTHON, "OMP_NUM_THREADS": "1"}
