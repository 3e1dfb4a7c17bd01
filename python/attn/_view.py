"""attn.view() and attn.explain(), which run the program `attn`."""

from __future__ import annotations

import base64
import functools
import html
import json
import os
import pathlib
import re
import shutil
import struct
import subprocess
import tempfile
import warnings
import weakref
from typing import Any, Mapping, NamedTuple, Sequence

import numpy as np

from attn._library import LIBRARY
from attn._run import AttnWarning, Error, json_of, split_job
from attn._tensors import Tensor, is_array, tensor_of

_SAFETENSORS_TYPES = {
    "float64": "F64", "float32": "F32", "float16": "F16", "bfloat16": "BF16", "int8": "I8", "int16": "I16", "int32": "I32",
    "int64": "I64", "uint8": "U8", "uint16": "U16", "uint32": "U32", "uint64": "U64", "bool": "BOOL",
    "float8_e4m3fn": "F8_E4M3", "float8_e4m3fnuz": "F8_E4M3FNUZ", "float8_e5m2": "F8_E5M2",
    "float8_e5m2fnuz": "F8_E5M2FNUZ", "float8_e8m0fnu": "F8_E8M0"}
_SETTINGS = ("threads", "max_memory", "nan")  # of attn.run(), which are flags of the program

_PAGE_BYTES = "2M"  # Jupyter Server drops outputs of more than 3 MB (iopub_data_rate_limit times rate_limit_window)
_LARGE_PAGE = 500_000

# Pages follow the theme of JupyterLab, and not that of the system.
_THEMES = ('<style>[data-jp-theme-light="false"] .attn-page {color-scheme: dark} '
           '[data-jp-theme-light="true"] .attn-page {color-scheme: light}</style>')


def _program() -> str:
    """The program beside the library, in the folder bin next to the library's, or on the PATH."""
    library = pathlib.Path(os.path.abspath(LIBRARY._name))
    for folder in (library.parent, library.parent.parent / "bin") if "/" in LIBRARY._name else ():
        program = folder / "attn"
        if program.is_file() and os.access(program, os.X_OK):
            return str(program)
    found = shutil.which("attn")
    if found is None:
        raise FileNotFoundError("the program attn is neither beside its library nor on the PATH")
    return found


# Makes a frame as high as the explanation in it. Chromium does not tell frames of the same origin that the notebook is
# dark, so this also switches the explanation's rule for that on and off.
_FIT = """
const page = this.contentDocument.documentElement, {body} = document;
new ResizeObserver(() => { this.style.height = Math.ceil(page.getBoundingClientRect().height) + 'px'; }).observe(page);
const night = [...page.ownerDocument.styleSheets[0].cssRules].find(rule => rule.media);
const theme = (_, observer) => {
  if (!this.isConnected) return observer.disconnect();
  const light = body.dataset.jpThemeLight;
  if (light) night.media.mediaText = light === 'false' ? 'all' : 'not all';
};
theme();
new MutationObserver(theme).observe(body, {attributes: true, attributeFilter: ['data-jp-theme-light']});
"""


class _Target(NamedTuple):
    """Arguments that make the program write a file, whose name replaces {}, or text; and others for pages."""
    file: Sequence[str]
    text: Sequence[str]
    page: Sequence[str] = ()


class _Folder:
    """A new folder, which is removed with the object."""

    def __init__(self) -> None:
        self.path = pathlib.Path(tempfile.mkdtemp())
        weakref.finalize(self, shutil.rmtree, self.path, True)


class _Command(NamedTuple):
    """The program's arguments and standard input; files of arrays are in the folder."""
    folder: _Folder
    arguments: Sequence[str]
    stdin: bytes = b""
    is_of_run: bool = False  # the arrays are results of attn.run(), whose axes are known


def _output(command: _Command, arguments: Sequence[str], warns: bool = False) -> bytes:
    """What the program prints. Warnings are those of the function that makes a drawing."""
    folder = None if command.stdin else command.folder.path  # a job names files in the current folder
    run = subprocess.run([_program(), *command.arguments, *arguments], cwd=folder, input=command.stdin, capture_output=True)
    lines = _messages(run.stderr, str(command.folder.path))
    if run.returncode != 0 and "-q" not in arguments:
        return _output(command, [*arguments, "-q"])  # prints the errors alone
    if run.returncode != 0:
        raise Error("\n".join(lines), run.returncode)
    for line in lines if warns else ():
        if line.startswith("warning: ") and not (command.is_of_run and ": the axes are taken as batch" in line):
            warnings.warn(line[len("warning: "):], AttnWarning, stacklevel=5)
    return run.stdout


def _messages(stderr: bytes, folder: str) -> list[str]:
    """The lines of the program, without the names of temporary files."""
    names = re.compile(rf"{re.escape(folder)}/[\w.]+#[^:]*: |(?<![^ ])(first|second|result)\.safetensors\b")
    return [names.sub(lambda found: found[1] or "", line[len("attn: "):]) for line in stderr.decode(errors="replace").splitlines()
            if line.startswith("attn: ")]


class Drawing:
    """A page, which notebooks show. str() is its text; save() writes it in the format of a file name's suffix."""

    _FRAME = f'sandbox="allow-same-origin" onload="{html.escape(_FIT)}"'  # explanations have no scripts

    def __init__(self, command: _Command, target: _Target) -> None:
        self._command, self._target = command, target
        self.html = self._file(".html", target.page, warns=True).decode()

    def _path(self, suffix: str) -> pathlib.Path:
        return self._command.folder.path / f"drawn{suffix}"

    def _file(self, suffix: str, flags: Sequence[str] = (), warns: bool = False) -> bytes:
        path = self._path(suffix)
        _output(self._command, [*(part.format(path) for part in self._target.file), *flags, "--force"], warns)
        return path.read_bytes()

    def save(self, path: str | os.PathLike[str], **options: Any) -> None:
        """The options are flags of the format, such as dpi=600."""
        suffix = pathlib.Path(path).suffix
        try:
            drawn = self._file(suffix, _flags(options))
        except Error as error:
            message = str(error).replace(str(self._path(suffix)), os.fspath(path))
            raise Error(message, error.exit_code) from None
        pathlib.Path(path).write_bytes(drawn)

    def __str__(self) -> str:
        return _output(self._command, self._target.text).decode()

    def _repr_html_(self) -> str:
        """A frame, so that neither the page's styles nor its keys are those of the notebook.

        A notebook that is not trusted drops the frame and keeps the content of <noscript>, which others hide."""
        return (f'{_THEMES}<iframe class="attn-page" srcdoc="{html.escape(self.html)}" {self._FRAME} title="attn" '
                f'style="width: 100%; height: 720px; border: 0"></iframe><noscript>{self._without_page()}</noscript>')

    def _without_page(self) -> str:
        return f"<pre>{html.escape(str(self))}</pre>"


class View(Drawing):
    """An interactive page, and a picture where no pages are shown, as in PDF."""

    _FRAME = 'sandbox="allow-scripts allow-downloads"'  # the page cannot reach the notebook
    _HAS_PICTURE = True

    @functools.cached_property
    def _picture(self) -> bytes | None:
        if not self._HAS_PICTURE or len(self.html) > _LARGE_PAGE:  # the picture of a large one would take seconds
            return None
        return self._file(".png")

    def _repr_png_(self) -> bytes | None:
        return self._picture

    def _without_page(self) -> str:
        advice = "<p>This output is an interactive page. Trust the notebook to see it.</p>"
        if self._picture is None:
            return advice
        width = int.from_bytes(self._picture[16:20], "big") // 2  # 192 pixels per inch
        return f'{advice}<img src="data:image/png;base64,{base64.b64encode(self._picture).decode()}" width="{width}" alt="attn">'


class _Comparison(View):
    """A page of two results and their difference. Its text has both results, one after the other."""

    _HAS_PICTURE = False
    _results: Mapping[str, _Command]  # the commands that draw them alone, by name

    def save(self, path: str | os.PathLike[str], **options: Any) -> None:
        if pathlib.Path(path).suffix != ".html":
            raise Error(f"{os.fspath(path)}: two results are saved as a page, NAME.html", 2)
        super().save(path, **options)

    def __str__(self) -> str:
        return "\n".join(f"{name}: {_output(result, self._target.text).decode()}" for name, result in self._results.items())


class _Entry(NamedTuple):
    """A tensor of a file, from tensors that follow each other in it."""
    name: str
    shape: Sequence[int]
    parts: Sequence[Tensor]


def _write(path: pathlib.Path, entries: Sequence[_Entry]) -> None:
    """A .safetensors file."""
    header: dict[str, Any] = {}
    parts: list[bytes] = []
    size = 0
    for name, shape, tensors in entries:
        dtype = tensors[0].dtype.lstrip("<>")
        code = _SAFETENSORS_TYPES.get(dtype)
        if code is None:
            raise TypeError(f"{name}: {dtype} arrays are not supported")
        bits = re.search(r"\d+", code)  # none: BOOL
        parts += [_bytes_of(tensor, int(bits.group()) // 8 if bits else 1) for tensor in tensors]
        end = size + sum(map(len, parts[-len(tensors):]))
        header[name] = {"dtype": code, "shape": list(shape), "data_offsets": [size, end]}
        size = end
    text = json.dumps(header).encode()
    with open(path, "wb") as file:
        file.writelines([struct.pack("<Q", len(text)), text, *parts])


class _Elements:
    """What NumPy needs to know about the elements of a tensor."""

    def __init__(self, tensor: Tensor, size: int) -> None:
        self.__array_interface__ = {"data": (tensor.address, True), "shape": tensor.shape, "strides": tensor.strides,
                                    "typestr": f"|V{size}", "version": 3}


def _bytes_of(tensor: Tensor, size: int) -> bytes:
    elements = np.asarray(_Elements(tensor, size)) if 0 not in tensor.shape else np.empty(0, f"V{size}")
    if tensor.dtype.startswith(">"):
        return elements.view(f">u{size}").astype(f"<u{size}").tobytes()
    return elements.tobytes()


def _entries_of(result: Any) -> list[_Entry]:
    """A dict of arrays by name; layers, as a list or tuple of arrays; or the weights."""
    if isinstance(result, (list, tuple)) and len(result) > 0 and all(is_array(layer) for layer in result):
        layers = [tensor_of("weights", layer) for layer in result]
        kinds = {(layer.dtype, layer.shape) for layer in layers}
        if len(kinds) > 1:
            raise ValueError("layers differ: " + ", ".join(sorted(f"{dtype} {shape}" for dtype, shape in kinds)))
        shape = layers[0].shape  # (L, S), (H, L, S) or (B, H, L, S)
        return [_Entry("weights", (len(layers), *(1,) * (4 - len(shape)), *shape), layers)]
    arrays = result if isinstance(result, Mapping) else {"weights": result}
    return [_entry_of(tensor_of(name, array if is_array(array) else np.asarray(array))) for name, array in arrays.items()]


def _entry_of(tensor: Tensor) -> _Entry:
    return _Entry(tensor.name, tensor.shape, [tensor])


def _flags(options: Mapping[str, Any]) -> list[str]:
    """head=[0, 3] is --head=0,3, and log=True is --log."""
    flags = []
    for name, value in options.items():
        flag = f"--{name.replace('_', '-')}"
        if value is True:
            flags.append(flag)
        elif value is not None and value is not False:
            if isinstance(value, (np.ndarray, range)):
                value = list(value) if isinstance(value, range) else value.tolist()
            if isinstance(value, (list, tuple)):
                value = json.dumps(value) if name.endswith("tokens") else ",".join(map(str, value))
            elif name.endswith("tokens") and str(value).startswith("@"):
                value = "@" + os.path.abspath(value[1:])
            flags.append(f"{flag}={value}")
    return flags


def _job(job: dict[str, Any], flags: Sequence[str] = ()) -> _Command:
    folder = _Folder()
    path = folder.path / "tensors.safetensors"
    settings = {name: job.pop(name) for name in _SETTINGS if name in job}
    options, tensors = split_job(job)
    if tensors:
        _write(path, [_entry_of(tensor) for tensor in tensors])
    for tensor in tensors:
        key, _, name = tensor.name.partition(".")
        reference = f"{path}#{tensor.name}"
        options[key] = {**options.get(key, {}), name: reference} if name else reference
    return _Command(folder, ["run", "-", *_flags(settings), *flags], json_of(options))


def view(*results: Any, **options: Any) -> View:
    """A page that shows attention weights, as `attn view` writes it (docs/viewing.md). Notebooks display it.

    results   the result of attn.run(), or another dict of arrays by name; an array of weights (..., L, S);
              a list or tuple of arrays, one for each layer; or the name of a file. Of two results, the page
              shows both and their difference.
    options   the flags of `attn view`: of="scores", head=[0, 3], tokens=["the", "cat"], title="...", ...
              max_html_bytes is 2M by default, because Jupyter drops outputs of more than 3 MB

    Without results, the options are a job, as for attn.run(). The page then also shows how each weight comes
    about. str() of the view is a heat map as text, and view.save("a.png") writes a page or a picture.
    """
    page = _flags({"max_html_bytes": options.pop("max_html_bytes", _PAGE_BYTES)})
    if not results:
        return View(_job(options), _Target(["--view={}"], ["--view", "--color=never"], page))
    folder, files = _Folder(), []
    for result, name in zip(results, ("first", "second") if len(results) == 2 else ("result",) * len(results)):
        if isinstance(result, (str, os.PathLike)):
            path, _, member = os.fspath(result).partition("#")
            files.append("#".join([os.path.abspath(path), *[member] * bool(member)]))
        else:
            _write(folder.path / f"{name}.safetensors", _entries_of(result))
            files.append(f"{name}.safetensors")
    flags, target = _flags(options), _Target(["-o", "{}"], ["--color=never"], page)
    is_of_run = all(isinstance(result, Mapping) and ("context" in result or "scores" in result) for result in results)
    command = _Command(folder, ["view", *files, *flags], is_of_run=is_of_run)
    if len(files) != 2:
        return View(command, target)
    single = {name: _Command(folder, ["view", file, *flags]) for name, file in zip(("first", "second"), files)}
    comparison = _Comparison(command, target)
    comparison._results = single
    return comparison


def explain(*, query: int | None = None, head: int | None = None, precision: int | None = None, **job: Any) -> Drawing:
    """The calculation of one query, step by step, as `attn run --explain` writes it. Notebooks display it.

    query       the query whose arithmetic is written out; default: the first, or the last if the job is causal
    head        default: 0
    precision   digits after the point; default: at most six digits
    job         the keys of a job, as for attn.run()

    str() of the result is the text, and result.save("steps.tex") writes .html, .md, .tex or .txt.
    """
    choice = _flags({"explain_query": query, "explain_head": head, "precision": precision})
    return Drawing(_job(job, choice), _Target(["--explain={}"], ["--explain=-"]))
