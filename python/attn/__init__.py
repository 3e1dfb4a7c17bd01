"""Computes attention: the program `attn` as a Python module.

    >>> import attn, numpy as np
    >>> results = attn.run(Q=np.eye(2), K=np.eye(2), V=[[1, 2], [3, 4]], outputs=["weights", "context"])
    >>> results["weights"]
    array([[0.66976155, 0.33023845],
           [0.33023845, 0.66976155]])

`run` takes the keys of a job as keyword arguments; `attn schema` and docs/formats.md describe them.
`view` and `explain` show results and calculations in notebooks.
`attn.testing` checks the outputs of kernels against error bounds.
"""

from attn._library import __version__
from attn._run import AttnWarning, Error, run
from attn._view import Drawing, View, explain, view

__all__ = ["AttnWarning", "Drawing", "Error", "View", "explain", "run", "view", "__version__"]
