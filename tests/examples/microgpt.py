"""What microgpt computes before its first step of training, in pure Python. As a program, it prints the expected.txt
of the example microgpt.

microgpt (https://gist.github.com/karpathy/8627fe009c40f57531cb18360106ce95) seeds `random` with 42, shuffles its list
of 32,033 names and draws its weights with random.gauss(0, 0.08), in the order of MATRICES.
"""

import math
import random

NAMES, WIDTH, HEADS, LETTERS, POSITIONS = 32_033, 16, 4, 26, 16
TOKENS = LETTERS + 1  # the last one, BOS, begins and ends a name
MATRICES = {"wte": (TOKENS, WIDTH), "wpe": (POSITIONS, WIDTH), "lm_head": (TOKENS, WIDTH),
            "attn_wq": (WIDTH, WIDTH), "attn_wk": (WIDTH, WIDTH), "attn_wv": (WIDTH, WIDTH), "attn_wo": (WIDTH, WIDTH),
            "mlp_fc1": (4 * WIDTH, WIDTH), "mlp_fc2": (WIDTH, 4 * WIDTH)}
NAME = "yuheng"  # the one of the first step


def drawn_matrices():
    """Each as rows: one row of weights for each output."""
    stream = random.Random(42)
    stream.shuffle(list(range(NAMES)))
    return {name: [[stream.gauss(0, 0.08) for _ in range(columns)] for _ in range(rows)]
            for name, (rows, columns) in MATRICES.items()}


def dot(a, b):
    return sum(x * y for x, y in zip(a, b))


def sums(a, b):
    return [x + y for x, y in zip(a, b)]


def product(matrix, x):
    return [dot(row, x) for row in matrix]


def normed(x):
    factor = 1 / math.sqrt(dot(x, x) / len(x) + 1e-5)
    return [factor * value for value in x]


def softmax(scores):
    powers = [math.exp(score - max(scores)) for score in scores]
    return [power / sum(powers) for power in powers]


def token_ids(name):
    """Of the inputs: BOS and the letters."""
    return [LETTERS, *(ord(letter) - ord("a") for letter in name)]


def embeddings(matrices, name):
    """The sums of the rows of tokens and positions, before any norm."""
    return [sums(matrices["wte"][token], matrices["wpe"][i]) for i, token in enumerate(token_ids(name))]


def heads_of(x):
    step = WIDTH // HEADS
    return [x[start:start + step] for start in range(0, WIDTH, step)]


def attention(matrices, name):
    """The weights of each head and query, and the contexts of each query, heads one after another."""
    states = [normed(normed(x)) for x in embeddings(matrices, name)]
    queries, keys, values = ([heads_of(product(matrices[f"attn_w{letter}"], x)) for x in states] for letter in "qkv")
    weights, contexts = [[] for _ in range(HEADS)], [[] for _ in states]
    for i, query in enumerate(queries):
        for h in range(HEADS):
            row = softmax([dot(query[h], key[h]) / math.sqrt(len(query[h])) for key in keys[:i + 1]])
            weights[h].append(row)
            contexts[i] += [dot(row, column) for column in zip(*(value[h] for value in values[:i + 1]))]
    return weights, contexts


def loss(matrices, name):
    """The mean over the positions of -log of the probability of the next token."""
    losses = []
    for x, context, target in zip(embeddings(matrices, name), attention(matrices, name)[1],
                                  [*token_ids(name)[1:], LETTERS]):
        x = sums(product(matrices["attn_wo"], context), normed(x))
        hidden = [max(0, value) for value in product(matrices["mlp_fc1"], normed(x))]
        x = sums(product(matrices["mlp_fc2"], hidden), x)
        losses.append(-math.log(softmax(product(matrices["lm_head"], x))[target]))
    return sum(losses) / len(losses)


def text_of(weights):
    """As NumPy prints an array (heads, queries, keys) with four decimals; hidden keys are zeros."""
    queries = len(weights[0])
    heads = []
    for head in weights:
        rows = (" ".join(f"{weight:.4f}" for weight in row + [0] * (queries - len(row))) for row in head)
        heads.append("[" + "\n  ".join(f"[{row}]" for row in rows) + "]")
    return "[" + "\n\n ".join(heads) + "]\n"


if __name__ == "__main__":
    print(text_of(attention(drawn_matrices(), NAME)[0]), end="")
