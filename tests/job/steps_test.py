"""The list "draws" of a job, and the same list as a file of `attn random`."""

import json

import numpy as np
import pytest

from support.attn import assert_error, attn

LINEAR = {"in_features": 3, "out_features": 2}


def results(folder, job, *flags):
    (folder / "job.json").write_text(json.dumps(job))
    run = attn("run", "job.json", "-o", "out.npz", "--force", *flags, cwd=folder)
    assert run.returncode == 0, run.stderr
    with np.load(folder / "out.npz") as archive:
        return dict(archive)


def legacy(outputs, *steps, **options):
    return {"seed": 7, "draws": list(steps), "outputs": outputs, **options}


def rand(shape, **more):
    return {"rand": {"shape": shape}, **more}


class TestOrder:
    def test_is_that_of_the_list(self, tmp_path):
        found = results(tmp_path, legacy(["Q", "K", "V"], rand([4, 2], to="V"), rand([4, 3], to="K"),
                                         rand([2, 3], to="Q")))
        stream = np.random.RandomState(7)
        for name, shape in ("V", (4, 2)), ("K", (4, 3)), ("Q", (2, 3)):
            assert np.array_equal(found[name], stream.rand(*shape))

    def test_draw_without_a_name_is_discarded(self, tmp_path):
        found = results(tmp_path, legacy(["Q"], rand([5]), rand([2, 3], to="Q"), K=[[1.0, 2, 3]]))
        assert np.array_equal(found["Q"], np.random.RandomState(7).rand(11)[5:].reshape(2, 3))

    def test_seed_restarts_the_stream(self, tmp_path):
        found = results(tmp_path, legacy(["Q", "K"], rand([2, 3], to="Q"), {"seed": 9}, rand([4, 3], to="K")))
        assert np.array_equal(found["K"], np.random.RandomState(9).rand(4, 3))

    def test_other_random_tensors_follow(self, tmp_path):
        found = results(tmp_path, legacy(["Q", "K"], rand([4, 3], to="K"), Q=rand([2, 3])))
        assert np.array_equal(found["Q"], np.random.RandomState(7).rand(18)[12:].reshape(2, 3))

    def test_list_of_names_gets_the_parts_of_the_first_axis(self, tmp_path):
        found = results(tmp_path, legacy(["Q", "K", "V"], rand([3, 4, 2], to=["Q", "K", "V"])))
        whole = np.random.RandomState(7).rand(3, 4, 2)
        assert np.array_equal([found["Q"], found["K"], found["V"]], whole)

    def test_flag_replaces_a_drawn_tensor(self, tmp_path):
        found = results(tmp_path, legacy(["Q", "K"], rand([2, 3], to="Q"), rand([2, 3], to="K")), "--q", "[[1,2,3]]")
        assert found["Q"].tolist() == [[1, 2, 3]]
        assert np.array_equal(found["K"], np.random.RandomState(7).rand(12)[6:].reshape(2, 3))

    def test_flag_gives_the_list(self):
        steps = json.dumps([rand([2, 3], to="Q"), rand([2, 3], to="K")])
        run = attn("run", "--seed", 7, "--draws", steps, "--outputs", "Q", "--format", "json")
        assert np.array_equal(json.loads(run.stdout)["Q"], np.random.RandomState(7).rand(2, 3))


def rounded(array):
    return np.round(array.astype(np.float64), 4).tolist()


X = [[0.43, 0.15, 0.89], [0.55, 0.87, 0.66], [0.57, 0.85, 0.64], [0.22, 0.58, 0.33], [0.77, 0.25, 0.10],
     [0.05, 0.80, 0.55]]
NO_BIAS = {**LINEAR, "bias": False}
LAYERS = [{"Linear": NO_BIAS, "to": name} for name in ("W_Q", "W_K", "W_V")]


class TestLayersOfTorch:
    """Numbers printed in Raschka, LLMs from scratch, chapter 3, and Karpathy, gpt-dev."""

    def test_self_attention(self, tmp_path):
        found = results(tmp_path, {"generator": "torch", "seed": 789, "embeddings": X, "draws": LAYERS})
        assert rounded(found["context"][:2]) == [[-0.0739, 0.0713], [-0.0748, 0.0703]]
        assert rounded(found["weights"][0, :2]) == [0.1921, 0.1646]

    def test_layers_have_their_own_layout(self, tmp_path):
        job = {"generator": "torch", "seed": 789, "embeddings": X, "draws": LAYERS}
        assert np.array_equal(results(tmp_path, {**job, "weights_layout": "out-in"})["context"],
                              results(tmp_path, job)["context"])

    def test_multi_head_attention_with_output_layer(self, tmp_path):
        steps = [*LAYERS, {"Linear": {"in_features": 2, "out_features": 2}, "to": "W_O"}]
        found = results(tmp_path, {"generator": "torch", "seed": 123, "embeddings": X, "heads": 2, "causal": True,
                                   "draws": steps})
        assert rounded(found["output"][:2]) == [[0.3190, 0.4858], [0.2943, 0.3897]]

    def test_head_of_gpt_dev(self, tmp_path):
        head = {"in_features": 32, "out_features": 16, "bias": False}
        steps = [{"randn": {"shape": [4, 8, 32]}, "to": "embeddings"}, {"Linear": head, "to": "W_K"},
                 {"Linear": head, "to": "W_Q"}, {"Linear": head, "to": "W_V"}]
        found = results(tmp_path, {"generator": "torch", "seed": 1337, "causal": True, "scale": 1, "draws": steps})
        assert rounded(found["weights"][0, 2, :3]) == [0.2088, 0.1646, 0.6266]

    def test_fused_layer(self, tmp_path):
        fused = {"in_features": 3, "out_features": 6}
        found = results(tmp_path, {"generator": "torch", "seed": 5, "embeddings": np.eye(3).tolist(),
                                   "draws": [{"Linear": fused, "to": ["W_Q", "W_K", "W_V"]}],
                                   "outputs": ["queries", "keys", "values"]})
        layer = json.loads(attn("random", "Linear", "--generator", "torch", "--seed", 5, "--in-features", 3,
                                "--out-features", 6, "--format", "json").stdout)
        rows = np.array(layer["weight"], np.float32).T + np.array(layer["bias"], np.float32)
        joined = np.concatenate([found[name] for name in ("queries", "keys", "values")], axis=1)
        assert np.allclose(joined, rows, rtol=0, atol=1e-7)

    def test_multihead_attention_is_the_layer_of_a_file(self, tmp_path):
        attn("random", "MultiheadAttention", "--generator", "torch", "--seed", 3, "--embed-dim", 4, "-o", "layer.npz",
             cwd=tmp_path)
        embeddings = "[[1,2,3,4],[4,3,2,1]]"
        saved = attn("run", "layer.npz", "--heads", 2, "--embeddings", embeddings, "--outputs", "output", "--format",
                     "json", cwd=tmp_path)
        found = results(tmp_path, {"generator": "torch", "seed": 3, "heads": 2, "embeddings": json.loads(embeddings),
                                   "draws": [{"MultiheadAttention": {"embed_dim": 4}}], "outputs": ["output"]})
        assert np.array_equal(found["output"], json.loads(saved.stdout)["output"])

    def test_rows_of_an_embedding(self, tmp_path):
        table = {"num_embeddings": 6, "embedding_dim": 16}
        found = results(tmp_path, {"generator": "torch", "seed": 123, "outputs": ["inputs"],
                                   "draws": [{"Embedding": {**table, "indices": [0, 4, 5]}, "to": "embeddings"}]})
        weight = json.loads(attn("random", "Embedding", "--generator", "torch", "--seed", 123, "--num-embeddings", 6,
                                 "--embedding-dim", 16, "--format", "json").stdout)
        assert np.array_equal(found["inputs"], np.array(weight)[[0, 4, 5]])


REFUSED = [
    ([3], "job.json: draws: expected a list of steps, found [3]"),
    (["rand"], "job.json: draws: step 1: expected an object with a random method or a seed, found a string"),
    ([rand([1, 1], to="Q"), {"rnd": {}}], "draws: step 2: unknown random method 'rnd'"),
    ([{"rand": {}, "randn": {}}], "draws: step 1: expected an object with one random method"),
    ([{"seed": 1, "rand": {}}], "draws: step 1: a step has either a seed or a method; write two steps"),
    ([{"seed": -1}], "draws: step 1: seed: expected whole numbers >= 0"),
    ([{"seed": 1.5}], "draws: step 1: seed: expected whole numbers >= 0"),
    ([rand([1, 1], to="q")], "draws: step 1: to: unknown input 'q' (did you mean 'Q'?)"),
    ([rand([1, 1], to=[])], "draws: step 1: to: expected a name or a list of names, found an empty list"),
    ([rand([1, 1], to=["Q", 1])],
     "draws: step 1: to: expected a name or a list of names, found a list with an integer"),
    ([rand([1, 1], to=[1])], "draws: step 1: to: expected a name or a list of names, found a list of numbers"),
    ([rand([1, 1], to=1)], "draws: step 1: to: expected a name or a list of names, found an integer"),
    ([rand([1, 1], to="")], "draws: step 1: to: expected a name or a list of names, found an empty string"),
    ([rand([2, 1], to=["Q", "Q"])], "draws: step 1: to: 'Q' is given twice"),
    ([rand([3, 1], to=["Q", "K"])], "draws: step 1: to: expected a first axis of 2 elements, found shape (3, 1)"),
    ([rand([], to=["Q", "K"])], "draws: step 1: to: expected a first axis of 2 elements, found shape ()"),
    ([rand([1, 1], to="K")], "job.json: draws: K is given twice: also by its key"),
    ([rand([1, 1], to="Q"), rand([1, 1], to="Q")], "job.json: draws: Q is given twice: also by another step"),
]


@pytest.mark.parametrize("steps, message", REFUSED, ids=[json.dumps(steps) for steps, _ in REFUSED])
def test_step_is_refused(tmp_path, steps, message):
    (tmp_path / "job.json").write_text(json.dumps(legacy(["K"], *steps, K=[[1.0]])))
    assert_error(attn("run", "job.json", cwd=tmp_path), 65, message)


REFUSED_LAYERS = [
    ([{"Linear": LINEAR, "to": "K"}], "step 1: to: expected W_Q, W_K, W_V, W_O or W_gate for a layer, found 'K'"),
    ([{"Linear": {**LINEAR, "out_features": 4}, "to": ["W_Q", "W_K", "W_V"]}],
     "step 1: to: expected a first axis of a multiple of 3 elements, found shape (4, 3)"),
    ([{"MultiheadAttention": {"embed_dim": 3}, "to": "W_Q"}],
     "step 1: to: MultiheadAttention sets all weights and biases; leave out 'to'"),
]


@pytest.mark.parametrize("steps, message", REFUSED_LAYERS, ids=[json.dumps(steps) for steps, _ in REFUSED_LAYERS])
def test_layer_is_refused(steps, message):
    job = {"generator": "torch", "seed": 1, "embeddings": X, "draws": steps}
    assert_error(attn("run", "-", stdin=json.dumps(job)), 65, message)


def test_multihead_attention_needs_heads():
    job = {"generator": "torch", "seed": 1, "embeddings": X, "draws": [{"MultiheadAttention": {"embed_dim": 3}}]}
    assert_error(attn("run", "-", stdin=json.dumps(job)), 2,
                 "standard input: the weights of nn.MultiheadAttention do not state the number of heads; "
                 "give heads (--heads)")


def test_layer_is_not_a_tensor():
    job = {"generator": "torch", "seed": 1, "embeddings": X, "W_Q": {"Linear": LINEAR}}
    assert_error(attn("run", "-", stdin=json.dumps(job)), 65,
                 'W_Q: Linear: draws several tensors; write it in the list "draws"')


def test_draws_need_a_seed():
    job = {"K": [[1.0]], "draws": [rand([1, 1], to="Q")]}
    assert_error(attn("run", "-", stdin=json.dumps(job)), 65, "draws: a random tensor needs a seed")


class TestMemory:
    """Files and random tensors of a job have one limit."""

    HALF = {"rand": {"shape": [80_000, 4]}}  # 2.56 MB

    def test_two_random_tensors_exceed_it_together(self):
        job = {"seed": 1, "Q": self.HALF, "K": self.HALF}
        assert_error(attn("run", "-", "--max-memory", "4M", stdin=json.dumps(job)), 65,
                     "K: takes more than 4194304 bytes of memory to draw")

    def test_draws_are_counted(self):
        job = {"seed": 1, "Q": [[1.0]], "K": [[1.0]], "draws": [{"rand": {"shape": [600_000]}}]}
        assert_error(attn("run", "-", "--max-memory", "4M", stdin=json.dumps(job)), 65,
                     "attn: standard input: draws: step 1: takes more than 4194304 bytes of memory to draw")

    def test_error_names_a_flag_once(self):
        assert_error(attn("run", "--seed", 1, "--q", json.dumps({"rand": {"shape": [600_000]}}), "--k", "[[1]]",
                          "--max-memory", "4M"), 65,
                     "attn: --q: takes more than 4194304 bytes of memory to draw")

    def test_discarded_draws_are_freed(self):
        job = {"seed": 1, "K": [[1.0]], "draws": [self.HALF, self.HALF, rand([1, 1], to="Q")]}
        assert attn("run", "-", "--max-memory", "4M", stdin=json.dumps(job)).returncode == 0

    def test_values_are_counted_three_times(self):
        job = {"seed": 1, "Q": [[1.0]], "K": [[1.0]], "draws": [{"permutation": {"values": [1] * 100_000}}]}
        assert_error(attn("run", "-", "--max-memory", "4M", stdin=json.dumps(job)), 65,
                     "draws: step 1: takes more than 4194304 bytes of memory to draw")

    def test_file_and_random_tensor_exceed_it_together(self, tmp_path):
        np.save(tmp_path / "k.npy", np.ones((80_000, 4)))
        job = {"seed": 1, "Q": self.HALF, "K": "k.npy"}
        (tmp_path / "job.json").write_text(json.dumps(job))
        assert_error(attn("run", "job.json", "--max-memory", "4M", cwd=tmp_path), 65,
                     "K: k.npy: expected at most 1633217 bytes")


class TestFileOfSteps:
    """attn random FILE.json"""

    def run(self, folder, steps, *flags):
        (folder / "steps.json").write_text(json.dumps(steps))
        return attn("random", "steps.json", "--seed", 7, "-o", "a.npz", "--force", *flags, cwd=folder)

    def test_names_are_free(self, tmp_path):
        assert self.run(tmp_path, [rand([2], to="x"), rand([1]), rand([3, 2], to=["a", "b", "c"])]).returncode == 0
        stream = np.random.RandomState(7).rand(9)
        with np.load(tmp_path / "a.npz") as archive:
            assert archive.files == ["x", "a", "b", "c"]
            assert np.array_equal(archive["b"], stream[5:7])

    def test_layer_has_the_names_of_torch(self, tmp_path):
        assert self.run(tmp_path, [{"Linear": LINEAR, "to": "key"}], "--generator", "torch").returncode == 0
        with np.load(tmp_path / "a.npz") as archive:
            assert archive.files == ["key.weight", "key.bias"]

    @pytest.mark.parametrize("steps, message", [
        ({}, "steps.json: expected a list of steps, found an object"),
        ([rand([1], to="x"), rand([1], to="x")], "steps.json: step 2: to: 'x' is given twice"),
        ([{"rnd": {}}], "steps.json: step 1: unknown random method 'rnd'"),
        ({"Q": [[1.0]], "K": [[1.0]]}, "expected a list of steps, found an object; 'attn run' takes jobs"),
        ([rand([2], to=["a", "a"])], "steps.json: step 1: to: 'a' is given twice"),
    ])
    def test_is_refused(self, tmp_path, steps, message):
        assert_error(self.run(tmp_path, steps), 65, message)

    @pytest.mark.parametrize("flag", [["--shape", "5,5"], ["--high", 3], ["--input", "none.npy"], ["--repeat", 3],
                                      ["--no-bias"], ["--endpoint"]], ids=lambda flag: flag[0])
    def test_flag_without_an_effect_is_refused(self, tmp_path, flag):
        assert_error(self.run(tmp_path, [rand([1], to="x")], *flag), 2, f"{flag[0]}: not used with a list of steps")

    def test_discarded_draws_are_freed(self, tmp_path):
        assert self.run(tmp_path, [rand([100_000])] * 20 + [rand([1], to="x")], "--max-memory", "8M").returncode == 0

    def test_memory_error_names_the_file_once(self, tmp_path):
        assert_error(self.run(tmp_path, [rand([1_000_000], to="x")], "--max-memory", "500K"), 65,
                     "attn: steps.json: step 1: rand: takes more than 512000 bytes of memory; --max-memory")

    def test_list_of_names_is_refused_for_a_layer(self, tmp_path):
        assert_error(self.run(tmp_path, [{"Linear": LINEAR, "to": ["a", "b"]}], "--generator", "torch"), 65,
                     "step 1: to: expected one name for a layer, found a list")
