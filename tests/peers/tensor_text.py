"""The text of random tensors, as PyTorch and JAX print them and as `attn convert --style torch|jax` does."""

import collections
import pathlib
import tempfile

import numpy as np

from support.random_tensors import BFLOAT16, random_tensors, styled_text, write

TENSORS_OF_A_FILE = 100
FILES = {"torch": 120, "jax": 20}
SCI_MODES = {"auto": None, "always": True, "never": False}


def random_print_options(rng, style):
    """Values of attn's flags; none in one file of five."""
    options = {}
    if rng.random() < 0.2:
        return options
    for name, share, choices in [
            ("precision", 0.5, [0, 1, 2, 3, 5, 6, 8, 10, 17, 20]),
            ("threshold", 0.4, [0, 1, 5, 10, 50, 2000]),
            ("edgeitems", 0.4, [0, 1, 2, 4, 5]),
            ("linewidth", 0.4, [1, 10, 20, 30, 40, 60, 74, 76, 79, 81, 100, 132, 200])]:
        if rng.random() < share:
            options[name] = int(rng.choice(choices))
    if style == "torch":
        if rng.random() < 0.5:
            options["sci_mode"] = str(rng.choice(list(SCI_MODES)))
        options.update([[], [("requires_grad", True)], [("grad_fn", "CloneBackward0")]][rng.integers(3)])
    else:
        if rng.random() < 0.3:
            options["suppress"] = True
        if rng.random() < 0.5:
            options["floatmode"] = str(rng.choice(["fixed", "unique", "maxprec", "maxprec_equal"]))
    return options


def torch_tensor(array):
    import torch
    if array.dtype != BFLOAT16:
        return torch.from_numpy(np.ascontiguousarray(array)).reshape(array.shape)
    bits = np.ascontiguousarray(array).view(np.int16).reshape(array.shape)
    return torch.from_numpy(bits).view(torch.bfloat16)


def torch_texts(tensors, options):
    """PyTorch's text by name. Tensors of integers have no gradients."""
    import torch
    print_options = {name: value for name, value in options.items() if name not in ("requires_grad", "grad_fn")}
    if "sci_mode" in options:
        print_options["sci_mode"] = SCI_MODES[options["sci_mode"]]
    texts = {}
    torch.set_printoptions(profile="default")
    torch.set_printoptions(**print_options)
    for name, array in tensors.items():
        tensor = torch_tensor(array)
        if "requires_grad" in options or "grad_fn" in options:
            if not tensor.is_floating_point():
                continue
            tensor.requires_grad_()
            tensor = tensor.clone() if "grad_fn" in options else tensor
        texts[name] = str(tensor)
    return {"str": texts}


def jax_texts(tensors, options):
    """JAX's str and repr by name."""
    import jax
    import ml_dtypes
    jax.config.update("jax_enable_x64", True)
    texts = {"str": {}, "repr": {}}
    with np.printoptions(**options):
        for name, array in tensors.items():
            if array.dtype == BFLOAT16:
                array = np.ascontiguousarray(array).view(ml_dtypes.bfloat16).reshape(array.shape)
            tensor = jax.numpy.asarray(array)
            texts["str"][name], texts["repr"][name] = str(tensor), repr(tensor)
    return texts


def cases(style, files):
    """(options, tensors, texts by form) of random files."""
    for file in range(files):
        rng = np.random.default_rng([2026, list(FILES).index(style), file])
        options = random_print_options(rng, style)
        tensors = random_tensors(rng, TENSORS_OF_A_FILE)
        yield options, tensors, {"torch": torch_texts, "jax": jax_texts}[style](tensors, options)


def compare(style):
    """The numbers of texts and of equal texts by kind of tensor, and a line for each that differs."""
    counts = collections.defaultdict(lambda: [0, 0])
    differences = []
    with tempfile.TemporaryDirectory() as folder:
        path = pathlib.Path(folder) / "tensors.safetensors"
        for options, tensors, texts in cases(style, FILES[style]):
            write(path, tensors)
            for form, expected in texts.items():
                found = styled_text(path, style, options, ["--repr"] if form == "repr" else [])
                for name, text in expected.items():
                    dtype = tensors[name].dtype
                    kind = "bfloat16" if dtype == BFLOAT16 else dtype.name if dtype.kind == "f" else "integers, bool"
                    counts[kind][0] += 1
                    counts[kind][1] += found.get(name) == text
                    if found.get(name) != text:
                        differences.append(f"{style} {options} {form}: expected {text!r}, found {found.get(name)!r}")
    return counts, differences
