"""`attn stats`: statistics of stored weights, compared with NumPy formulas written from the definitions:
detect_head of TransformerLens, Clark et al. 2019 for the divergence."""

import csv
import io
import json
import math

import numpy as np
import pytest

from support.attn import assert_error, attn

OF_ROWS = ["weight_sum", "entropy", "effective_keys", "keys_95", "distance", "first_key_weight",
           "previous_token_weight", "duplicate_token_weight", "induction_weight"]
LOST = {"duplicate_token_weight", "induction_weight"}


def softmax(scores):
    w = np.exp(scores - scores.max(-1, keepdims=True))
    return w / w.sum(-1, keepdims=True)


def causal_weights(shape, seed=0, scale=3):
    rng = np.random.default_rng(seed)
    scores = scale * rng.standard_normal(shape)
    scores[..., ~np.tri(shape[-2], shape[-1], shape[-1] - shape[-2], dtype=bool)] = -np.inf
    return softmax(scores)


def detection(tokens, kind):
    """The patterns of detect_head, (L, L)."""
    n = len(tokens)
    if kind == "previous":
        return np.tri(n, k=-1) - np.tri(n, k=-2)
    equal = np.equal.outer(tokens, tokens).astype(float)
    np.fill_diagonal(equal, 0)
    duplicates = np.tril(equal)
    if kind == "duplicate":
        return duplicates
    shifted = np.roll(duplicates, 1, axis=1)
    shifted[:, 0] = 0
    return np.tril(shifted)


def statistics_of(w, tokens=None):
    """Of the weights of one head, (L, L)."""
    n = len(w)
    entropies = np.array([-(row[row > 0] * np.log(row[row > 0])).sum() for row in w])
    sorted_sums = np.cumsum(np.sort(w)[:, ::-1], axis=1)
    positions = np.arange(n)
    values = {"queries": n, "entropy": entropies.mean(), "effective_keys": np.exp(entropies).mean(),
              "keys_95": ((sorted_sums < 0.949999).sum(1) + 1).mean(),
              "distance": (w * np.abs(np.subtract.outer(positions, positions))).sum() / w.sum(),
              "first_key_weight": w[:, 0].sum() / w.sum(),
              "previous_token_weight": (w * detection(positions, "previous")).sum() / w.sum()}
    if tokens is not None:
        values["duplicate_token_weight"] = (w * detection(tokens, "duplicate")).sum() / w.sum()
        values["induction_weight"] = (w * detection(tokens, "induction")).sum() / w.sum()
    return values


def stats(*args, cwd=None):
    """The lines of `attn stats` as objects."""
    run = attn("stats", *args, "--format", "ndjson", cwd=cwd)
    assert run.returncode == 0, run.stderr
    return [json.loads(line) for line in run.stdout.splitlines()]


def assert_line(line, expected, rtol=1e-10):
    for name, value in expected.items():
        assert line[name] == pytest.approx(value, rel=rtol, abs=1e-13), name


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    """Weights (layers, B, H, L, L) and token ids (B, L)."""
    folder = tmp_path_factory.mktemp("model")
    weights = causal_weights((3, 2, 4, 11, 11))
    tokens = np.random.default_rng(1).integers(0, 4, (2, 11))
    np.save(folder / "weights.npy", weights)
    np.save(folder / "ids.npy", tokens)
    return folder, weights, tokens


class TestHeads:
    def test_statistics_of_each_item(self, model):
        folder, weights, tokens = model
        lines = stats("weights.npy", "--token-ids", "ids.npy", "--by", "item", cwd=folder)
        assert len(lines) == 3 * 2 * 4
        for line in lines:
            layer, item, head = line["layer"], line["item"], line["head"]
            assert_line(line, statistics_of(weights[layer, item, head], tokens[item]))

    def test_items_of_a_file_are_pooled(self, model):
        folder, weights, tokens = model
        lines = stats("weights.npy", "--token-ids", "ids.npy", cwd=folder)
        assert [(line["layer"], line["head"]) for line in lines] == [(i, h) for i in range(3) for h in range(4)]
        for line in lines:
            items = [statistics_of(weights[line["layer"], b, line["head"]], tokens[b]) for b in range(2)]
            assert line["queries"] == 22
            assert_line(line, {name: np.mean([item[name] for item in items]) for name in items[0] if name != "queries"})

    def test_without_token_ids_two_statistics_are_null(self, model):
        folder, _, _ = model
        line = stats("weights.npy", cwd=folder)[0]
        assert {name for name, value in line.items() if value is None} == LOST | {"name", "item"}

    def test_token_ids_in_the_file(self, model, tmp_path):
        _, weights, tokens = model
        np.savez(tmp_path / "w.npz", weights=weights[0], token_ids=tokens, context=np.zeros((2, 3)))
        line = stats("w.npz", "--by", "item", cwd=tmp_path)[5]
        assert_line(line, statistics_of(weights[0, 1, 1], tokens[1]))

    @pytest.mark.parametrize("dtype, rtol", [("f4", 1e-10), ("f2", 1e-10)])
    def test_other_dtypes_are_summed_in_doubles(self, model, tmp_path, dtype, rtol):
        _, weights, _ = model
        rounded = weights[0, 0].astype(dtype)
        np.save(tmp_path / "w.npy", rounded)
        for head, line in enumerate(stats("w.npy", cwd=tmp_path)):
            expected = statistics_of(rounded[head].astype(float))
            expected.pop("keys_95")  # of rows that do not sum to 1
            assert_line(line, expected, rtol)

    def test_a_matrix_has_one_line_without_a_head(self, model, tmp_path):
        _, weights, _ = model
        np.save(tmp_path / "w.npy", weights[0, 0, 0])
        [line] = stats("w.npy", cwd=tmp_path)
        assert line["head"] is None
        assert_line(line, statistics_of(weights[0, 0, 0]))

    def test_the_last_query_is_at_the_last_key(self, tmp_path):
        w = causal_weights((2, 6))
        np.save(tmp_path / "w.npy", w)
        [line] = stats("w.npy", cwd=tmp_path)
        assert line["previous_token_weight"] == pytest.approx((w[0, 3] + w[1, 4]) / 2, rel=1e-12)

    CACHES = {"some": ({"rows": [2, -1]}, [6, 9]), "all": ({}, range(4, 10)), "offset": ({"causal_offset": 2}, range(2, 8)),
              "top-left": ({"alignment": "top-left"}, range(4, 10)), "appended": ({"zero_key": True}, range(4, 10)),
              "some, appended": ({"rows": [-6, 3], "zero_key": True}, [4, 7])}

    @pytest.mark.parametrize("name", ["out.npz", "out.json", "out.safetensors"])
    @pytest.mark.parametrize("case", CACHES)
    def test_queries_after_a_cache_are_at_the_keys_of_their_positions(self, tmp_path, case, name):
        options, own = self.CACHES[case]
        rng = np.random.default_rng(8)
        cached = {key: rng.standard_normal((2, 4 if key[0] == "p" else 6, 3)) for key in ["Q", "K", "V", "past_K", "past_V"]}
        np.savez(tmp_path / "in.npz", **cached)
        job = {key: f"in.npz#{key}" for key in cached} | {"causal": True, "outputs": ["weights"]} | options
        (tmp_path / "job.json").write_text(json.dumps(job))
        assert attn("run", "job.json", "-o", name, "-o", "w.npy", cwd=tmp_path).returncode == 0
        w = np.load(tmp_path / "w.npy")
        expected = np.mean([w[:, i, key - 1] for i, key in enumerate(own)])
        [line] = stats(name, "--by", "all", cwd=tmp_path)
        assert line["previous_token_weight"] == pytest.approx(expected, rel=1e-10)

    def test_queries_without_weights_are_left_out(self, tmp_path):
        w = causal_weights((5, 5))
        np.save(tmp_path / "w.npy", np.concatenate([w, np.zeros((2, 5))])[None, :, :5])
        [line] = stats("w.npy", cwd=tmp_path)
        assert line["queries"] == 5
        assert line["entropy"] == pytest.approx(statistics_of(w)["entropy"], rel=1e-12)

    def test_a_sink_lowers_no_share(self, tmp_path):
        w = causal_weights((5, 5))
        np.save(tmp_path / "w.npy", w * 0.25)
        [line] = stats("w.npy", cwd=tmp_path)
        assert line["first_key_weight"] == pytest.approx(w[:, 0].mean(), rel=1e-12)


class TestFiles:
    @pytest.fixture(scope="class")
    def folder(self, tmp_path_factory):
        folder = tmp_path_factory.mktemp("folder")
        (folder / "a" / ".hidden").mkdir(parents=True)
        for seed, name in enumerate(["b", "a/2", "a/1", "a/.hidden/0"]):
            np.savez(folder / f"{name}.npz", weights=causal_weights((2, 7, 7), seed))
        (folder / "readme.txt").write_text("no tensors")
        return folder

    def test_a_folder_stands_for_its_files(self, folder):
        lines = stats(".", cwd=folder)
        assert [line["file"] for line in lines[::2]] == ["./a/1.npz", "./a/2.npz", "./b.npz"]
        assert_line(lines[1], statistics_of(causal_weights((2, 7, 7), 2)[1]))

    def test_all_files_together(self, folder):
        lines = stats(".", "--by", "all", cwd=folder)
        assert [(line["file"], line["head"], line["queries"]) for line in lines] == [(None, 0, 21), (None, 1, 21)]
        files = [statistics_of(causal_weights((2, 7, 7), seed)[1]) for seed in range(3)]
        assert_line(lines[1], {name: np.mean([file[name] for file in files]) for name in files[0] if name != "queries"})

    def test_text_has_one_header(self, folder):
        lines = attn("stats", ".", cwd=folder).stdout.decode().splitlines()
        assert [line.split()[0] for line in lines].count("file") == 1
        assert len(lines) == 1 + len(stats(".", cwd=folder))
        assert len({len(line) for line in lines}) == 1  # aligned

    def test_files_are_in_natural_order(self, tmp_path):
        for number in 2, 10, 1:
            np.save(tmp_path / f"layer{number}.npy", np.eye(3))
        assert [line["file"] for line in stats(".", cwd=tmp_path)] == [f"./layer{i}.npy" for i in (1, 2, 10)]

    def test_files_that_cannot_be_used_are_reported_last(self, folder, tmp_path):
        np.save(tmp_path / "a.npy", np.arange(6))
        np.savez(tmp_path / "b.npz", weights=np.eye(2))
        run = attn("stats", ".", "--format", "csv", cwd=tmp_path)
        assert_error(run, 65, "./a.npy", "2 to 5 axes")
        assert run.stdout.startswith(b"file,")
        assert b"b.npz" in run.stdout

    def test_arrays_of_a_file_without_weights(self, tmp_path):
        layers = [causal_weights((2, 5, 5), seed) for seed in range(3)]
        np.savez(tmp_path / "attentions.npz", *layers)
        lines = stats("attentions.npz", cwd=tmp_path)
        assert [line["name"] for line in lines[::2]] == ["arr_0", "arr_1", "arr_2"]
        assert_line(lines[5], statistics_of(layers[2][1]))

    @pytest.mark.parametrize("name", ["arr_{}", "layer{}", "model.layers.{}.attn"])
    def test_numbered_arrays_are_layers_in_natural_order(self, tmp_path, name):
        layers = [causal_weights((2, 4, 4), seed) for seed in range(12)]
        np.savez(tmp_path / "a.npz", **{name.format(i): layers[i] for i in sorted(range(12), key=str)})
        lines = stats("a.npz", cwd=tmp_path)
        assert [(line["layer"], line["head"]) for line in lines] == [(i, h) for i in range(12) for h in range(2)]
        for line in lines:
            assert line["name"] == name.format(line["layer"])
            assert_line(line, statistics_of(layers[line["layer"]][line["head"]]))

    def test_other_numbers_in_names_are_not_layers(self, tmp_path):
        np.savez(tmp_path / "a.npz", head_10=np.eye(3), head_9=np.eye(3))
        assert [(line["name"], line["layer"]) for line in stats("a.npz", cwd=tmp_path)] == \
            [("head_9", None), ("head_10", None)]

    def test_one_array_of_a_file(self, tmp_path):
        np.savez(tmp_path / "a.npz", x=np.eye(3), y=np.full((3, 3), 1 / 3))
        [line] = stats("a.npz#y", cwd=tmp_path)
        assert line["entropy"] == pytest.approx(math.log(3))

    @pytest.mark.parametrize("outputs", [["weights"], OF_ROWS[:-2]])
    def test_results_of_attn_run(self, tmp_path, outputs):
        """Rows that the kernels reduced give what the stored weights give."""
        rng = np.random.default_rng(2)
        np.savez(tmp_path / "in.npz", Q=rng.standard_normal((2, 9, 12)), K=rng.standard_normal((2, 9, 12)))
        attn("run", "in.npz", "--heads", "3", "--causal", "--outputs", "weights", "-o", "w.npz", cwd=tmp_path)
        run = attn("run", "in.npz", "--heads", "3", "--causal", "--outputs", ",".join(outputs), "-o", "out.npz",
                   cwd=tmp_path)
        assert run.returncode == 0
        weights = np.load(tmp_path / "w.npz")["weights"]
        for line in stats("out.npz", "--by", "item", cwd=tmp_path):
            expected = statistics_of(weights[line["item"], line["head"]])
            assert_line(line, expected)

    def test_a_batch_of_results(self, tmp_path):
        rng = np.random.default_rng(2)
        with (tmp_path / "jobs.ndjson").open("w") as jobs:
            for _ in range(20):
                q, k = rng.standard_normal((2, 5, 4)).tolist()
                jobs.write(json.dumps({"Q": q, "K": k, "heads": 2, "outputs": OF_ROWS[:-2] + LAST,
                                       "token_ids": [1, 2, 1, 2, 1]}) + "\n")
        with (tmp_path / "jobs.ndjson").open("rb") as jobs:
            run = attn("batch", "-", "--out-dir", "rows", "-q", stdin=jobs.read(), cwd=tmp_path)
        assert run.returncode == 0, run.stderr
        lines = stats("rows", "--by", "all", cwd=tmp_path)
        assert [(line["head"], line["queries"]) for line in lines] == [(0, 100), (1, 100)]
        assert not LOST & {name for name, value in lines[0].items() if value is None}

    def test_rows_need_their_weight_sum(self, tmp_path):
        np.savez(tmp_path / "rows.npz", entropy=np.ones(3))
        assert_error(attn("stats", "rows.npz", cwd=tmp_path), 65, "rows.npz: has no weights, but found entropy")

    @pytest.mark.parametrize("form", ["npz", "json"])
    def test_queries_and_keys_of_a_job_are_no_weights(self, tmp_path, form):
        job = {"Q": np.ones((3, 4)), "K": np.ones((3, 4)), "embeddings": np.ones((3, 3)), "scores": np.ones((3, 3))}
        if form == "npz":
            np.savez(tmp_path / "job.npz", **job)
        else:
            (tmp_path / "job.json").write_text(json.dumps({name: x.tolist() for name, x in job.items()}))
        assert_error(attn("stats", f"job.{form}", cwd=tmp_path), 65,
                     f"job.{form}: has no weights, but found Q, K, embeddings, ...; FILE#NAME uses a tensor of any name")

    def test_a_named_tensor_of_a_job_is_used(self, tmp_path):
        np.savez(tmp_path / "job.npz", Q=np.eye(3))
        assert stats("job.npz#Q", cwd=tmp_path)[0]["distance"] == 0

    @pytest.mark.parametrize("outputs", ["weights", "weight_sum,entropy"])
    def test_items_of_a_job_without_heads(self, tmp_path, outputs):
        q = np.random.default_rng(5).standard_normal((3, 4, 2))
        (tmp_path / "job.json").write_text(json.dumps({"Q": q.tolist(), "K": q.tolist()}))
        assert attn("run", "job.json", "--outputs", outputs, "-o", "out.npz", cwd=tmp_path).returncode == 0
        lines = list(map(json.loads, attn("stats", "out.npz", "--by", "item", "--format", "ndjson",
                                          cwd=tmp_path).stdout.splitlines()))
        assert [(line["item"], line["head"]) for line in lines] == [(0, None), (1, None), (2, None)]
        weights = softmax(q @ q.swapaxes(1, 2) / math.sqrt(2))
        entropies = -np.sum(weights * np.log(weights), -1).mean(-1)
        np.testing.assert_allclose([line["entropy"] for line in lines], entropies, rtol=1e-10)

    @pytest.mark.parametrize("output", ["mean_weights", "dropped_weights"])
    def test_other_outputs_that_are_weights(self, tmp_path, output):
        np.savez(tmp_path / "out.npz", **{output: np.eye(3)[None], "scores": np.ones((1, 3, 3))})
        [line] = stats("out.npz", cwd=tmp_path)
        assert (line["name"], line["entropy"]) == (output, 0)


class TestBundles:
    @pytest.fixture(scope="class", params=["npz", "safetensors"])
    def folder(self, request, tmp_path_factory):
        """Weights, and statistics of rows, of five jobs with two heads."""
        folder = tmp_path_factory.mktemp("bundles")
        rng = np.random.default_rng(6)
        lines = []
        for _ in range(5):
            q, k = rng.standard_normal((2, 6, 4)).tolist()
            lines.append(json.dumps({"Q": q, "K": k, "heads": 2, "causal": True}))
        for name, outputs in [("weights", "weights"), ("rows", ",".join(OF_ROWS[:-2]))]:
            for bundle in [], ["--bundle", "3"]:
                out = f"{name}{'-bundled' if bundle else ''}"
                run = attn("batch", "-", "--out-dir", out, "--format", request.param, "--outputs", outputs, *bundle,
                           stdin="\n".join(lines), cwd=folder)
                assert run.returncode == 0, run.stderr
        return folder

    @pytest.mark.parametrize("kind", ["weights", "rows"])
    def test_jobs_of_bundles_are_combined(self, folder, kind):
        [single, bundled] = [stats(name, "--by", "all", cwd=folder) for name in (kind, f"{kind}-bundled")]
        assert [(line["head"], line["queries"]) for line in bundled] == [(0, 30), (1, 30)]
        for one, other in zip(single, bundled):
            assert_line(one, {name: value for name, value in other.items() if isinstance(value, float)})

    def test_lines_name_the_jobs(self, folder):
        names = {line["name"] for line in stats("rows-bundled", cwd=folder)}
        assert names == {"1", "2", "3", "4", "5"}
        assert {line["name"] for line in stats("weights-bundled", cwd=folder)} == {f"{name}/weights" for name in names}

    def test_one_job_of_a_bundle(self, folder):
        suffix = next((folder / "weights").glob("2.*")).suffix
        [one, other] = [stats(name, cwd=folder) for name in
                        (f"weights/2{suffix}", f"weights-bundled/bundle-1{suffix}#2/weights")]
        assert [line["entropy"] for line in one] == [line["entropy"] for line in other]

    def test_similarity(self, folder):
        [single, bundled] = [stats(name, "--by", "all", "--similarity", cwd=folder) for name in
                             ("weights", "weights-bundled")]
        assert_line(single[0], {name: bundled[0][name] for name in ("cosine", "divergence")})


class TestStrangeWeights:
    def test_nan_makes_the_statistics_of_its_head_nan(self, tmp_path):
        w = causal_weights((2, 5, 5))
        w[1, 2, 0] = np.nan
        np.save(tmp_path / "w.npy", w)
        first, second = stats("w.npy", cwd=tmp_path)
        assert_line(first, statistics_of(w[0]))
        assert second["queries"] == 5
        assert {second[name] for name in OF_ROWS[1:-2]} == {"NaN"}

    @pytest.mark.parametrize("flags", [[], ["--similarity"]])
    def test_negative_weights_are_refused(self, tmp_path, flags):
        w = causal_weights((2, 5, 5))
        w[1, 3, 0] = -0.5
        np.savez(tmp_path / "w.npz", weights=w)
        assert_error(attn("stats", "w.npz", *flags, cwd=tmp_path), 65,
                     "w.npz: weights: not attention weights: query 3 contains -0.5")

    def test_other_files_are_still_used(self, tmp_path):
        np.save(tmp_path / "a.npy", -np.eye(3))
        np.save(tmp_path / "b.npy", np.eye(3))
        run = attn("stats", "a.npy", "b.npy", "--format", "csv", cwd=tmp_path)
        assert_error(run, 65, "a.npy: not attention weights")
        assert run.stdout.count(b"\n") == 2 and b"b.npy" in run.stdout


LAST = sorted(LOST)


class TestFormats:
    @pytest.fixture(scope="class")
    def folder(self, tmp_path_factory):
        folder = tmp_path_factory.mktemp("formats")
        np.save(folder / "w.npy", causal_weights((2, 6, 6)))
        np.save(folder / "a,b.npy", causal_weights((6, 6)))
        return folder

    def test_only_text_leaves_out_the_name_of_the_only_file(self, folder):
        assert "file" not in attn("stats", "w.npy", cwd=folder).stdout.decode()
        assert [line["file"] for line in stats("w.npy", cwd=folder)] == ["w.npy", "w.npy"]

    def test_text_leaves_out_unknown_columns(self, folder):
        lines = attn("stats", "w.npy", cwd=folder).stdout.decode().splitlines()
        assert lines[0].split() == ["head", "queries", "entropy", "effective_keys", "keys_95", "distance",
                                    "first_key_weight", "previous_token_weight"]
        assert len(lines) == 3

    def test_csv_has_the_digits_of_ndjson(self, folder):
        rows = list(csv.DictReader(io.StringIO(attn("stats", "w.npy", "--format", "csv", cwd=folder).stdout.decode())))
        for row, line in zip(rows, stats("w.npy", cwd=folder)):
            assert row.pop("file") == line["file"] == "w.npy"
            for name, cell in row.items():
                assert (None if cell == "" else float(cell)) == line[name]

    def test_csv_quotes_names(self, folder):
        text = attn("stats", "w.npy", "a,b.npy", "--format", "csv", cwd=folder).stdout.decode()
        assert [row["file"] for row in csv.DictReader(io.StringIO(text))] == ["w.npy", "w.npy", "a,b.npy"]

    @pytest.mark.parametrize("suffix, start", [("csv", "file,name,"), ("ndjson", '{"file":'), ("txt", "head")])
    def test_the_suffix_of_a_file_sets_its_format(self, folder, tmp_path, suffix, start):
        assert attn("stats", "w.npy", "-o", tmp_path / f"s.{suffix}", cwd=folder).returncode == 0
        assert (tmp_path / f"s.{suffix}").read_text().startswith(start)

    def test_no_file_is_written_if_an_input_fails(self, folder, tmp_path):
        run = attn("stats", "w.npy", "missing.npy", "-o", tmp_path / "s.csv", cwd=folder)
        assert_error(run, 66, "missing.npy")
        assert not (tmp_path / "s.csv").exists()

    @pytest.mark.parametrize("args, code, text", [
        (["w.npy", "-o", "s.json"], 2, ".csv, .ndjson or .txt"),
        (["w.npy", "--by", "head"], 2, "--by"),
        (["w.npy", "--token-ids", "w.npy"], 65, "whole numbers"),
        (["w.npy", "--token-ids", "short.npy"], 65, "a token id for each key"),
        (["empty"], 66, "has no .npz"),
        ([], 2, "FILE"),
        (["w.npy", "-o", "s.csv", "--format", "csv"], 2, "--format"),
        (["w.npy", "--max-memory", "100"], 65, "memory")])
    def test_errors(self, folder, args, code, text):
        np.save(folder / "short.npy", np.arange(3))
        (folder / "empty").mkdir(exist_ok=True)
        assert_error(attn("stats", *args, cwd=folder), code, text)

    @pytest.mark.parametrize("shape", [(2**21, 0, 0), (2**11, 2**11, 0, 4), (2**21, 0)])
    @pytest.mark.parametrize("flags", [(), ("--similarity",)])
    def test_long_axes_need_elements(self, tmp_path, shape, flags):
        np.save(tmp_path / "w.npy", np.zeros(shape))
        assert_error(attn("stats", "w.npy", *flags, cwd=tmp_path), 65, "a tensor without elements")

    def test_an_input_is_not_replaced(self, tmp_path):
        (tmp_path / "w.csv").write_text("1,0\n0,1\n")
        assert attn("stats", "w.csv", "-o", "w.csv", "--force", cwd=tmp_path).returncode == 73


class TestSimilarity:
    def test_cosine_and_divergence(self, model):
        folder, weights, _ = model
        lines = stats("weights.npy", "--similarity", cwd=folder)
        assert len(lines) == 3 * 6
        for line in lines:
            a, b = weights[line["layer"], :, line["head"]], weights[line["layer"], :, line["other"]]
            m = (a + b) / 2
            with np.errstate(divide="ignore", invalid="ignore"):
                terms = np.nan_to_num(a * np.log(a / m)) + np.nan_to_num(b * np.log(b / m))
            assert_line(line, {"cosine": (a * b).sum() / np.sqrt((a * a).sum() * (b * b).sum()),
                               "divergence": terms.sum(-1).mean() / 2})

    def test_equal_and_disjoint_heads(self, tmp_path):
        np.save(tmp_path / "w.npy", [np.eye(4), np.eye(4), np.roll(np.eye(4), 1, 0)])
        found = [(line["cosine"], line["divergence"]) for line in stats("w.npy", "--similarity", cwd=tmp_path)]
        assert found == [(1, 0), (0, pytest.approx(math.log(2))), (0, pytest.approx(math.log(2)))]

    def test_converted_heads_are_counted(self, tmp_path):
        np.save(tmp_path / "w.npy", np.ones((2, 1024, 1024), np.float32))
        run = attn("stats", "w.npy", "--similarity", "--max-memory", "9M", cwd=tmp_path)
        assert_error(run, 65, "attn: w.npy: takes more than 9437184 bytes of memory")

    def test_over_files(self, model, tmp_path):
        _, weights, _ = model
        for b in range(2):
            np.save(tmp_path / f"{b}.npy", weights[0, b])
        np.save(tmp_path / "both.npy", weights[0])
        together = stats("0.npy", "1.npy", "--similarity", "--by", "all", cwd=tmp_path)
        assert together == stats("both.npy", "--similarity", "--by", "all", cwd=tmp_path)


@pytest.mark.parametrize("form", ["text", "csv"])
def test_control_characters_in_names_are_escaped(tmp_path, form):
    np.savez(tmp_path / "w.npz", **{"\x1b[2J": np.full((1, 3, 3), 1 / 3), "b": np.full((1, 3, 3), 1 / 3)})
    run = attn("stats", "w.npz", "--format", form, cwd=tmp_path)
    assert run.returncode == 0
    assert b"\x1b" not in run.stdout


@pytest.mark.parametrize("output", [["--format", "csv"], ["-o", "out.csv"]])
def test_a_table_without_lines_has_a_header(tmp_path, output):
    np.save(tmp_path / "w.npy", np.full((1, 1, 2, 2), 0.5))  # one head has no pairs
    run = attn("stats", "w.npy", "--similarity", *output, cwd=tmp_path)
    text = (tmp_path / "out.csv").read_text() if "-o" in output else run.stdout.decode()
    assert (run.returncode, text) == (0, "file,name,layer,head,other,cosine,divergence\n")
    assert attn("stats", "missing.npy", "--similarity", "--format", "csv", cwd=tmp_path).stdout == b""


@pytest.mark.parametrize("flags, message", [
    (["--by", "item"], "--similarity requires --by file or --by all; heads are compared over all batch items"),
    (["--token-ids", "ids.npy"], "--similarity cannot be combined with --token-ids: no statistic of similarity depends on them"),
])
def test_similarity_refuses_options_without_effect(tmp_path, flags, message):
    np.save(tmp_path / "w.npy", np.full((2, 2, 2), 0.5))
    np.save(tmp_path / "ids.npy", np.array([1, 2]))
    assert_error(attn("stats", "w.npy", "--similarity", *flags, cwd=tmp_path), 2, message)


def test_statistics_that_not_all_files_have_are_left_out_with_a_warning(tmp_path):
    np.savez(tmp_path / "rows.npz", weight_sum=np.ones((2, 4)), entropy=np.ones((2, 4)))
    np.save(tmp_path / "w.npy", np.full((2, 4, 4), .25))
    result = attn("stats", "rows.npz", "w.npy", "--by", "all", cwd=tmp_path)
    assert result.returncode == 0 and result.stdout.split(b"\n")[0].split() == [b"head", b"queries", b"entropy"]
    assert b"statistics that not all files have are left out: effective_keys, keys_95, distance" in result.stderr
    assert b"left out" not in attn("stats", "rows.npz", "rows.npz", "--by", "all", cwd=tmp_path).stderr


def test_statistics_of_tokens_beside_weights_need_token_ids(tmp_path):
    w = np.full((3, 3), 1 / 3)
    np.savez(tmp_path / "r.npz", weights=w, weight_sum=w.sum(1), induction_weight=w[0])
    result = attn("stats", "r.npz", cwd=tmp_path)
    assert b"induction_weight" not in result.stdout
    assert b"warning: r.npz: induction_weight: left out, because the file has weights, but no token_ids" in result.stderr
    np.save(tmp_path / "ids.npy", np.arange(3))
    assert b"warning" not in attn("stats", "r.npz", "--token-ids", "ids.npy", cwd=tmp_path).stderr.replace(b"positions", b"")


def test_divergence_of_heads_beside_sinks(tmp_path):
    """Rows are divided by their sums: two heads that share no key have log 2."""
    np.save(tmp_path / "w.npy", np.array([[[.1, 0], [0, .2]], [[0, .7], [.4, 0]]]))
    lines = attn("stats", "w.npy", "--similarity", "--format", "ndjson", cwd=tmp_path).stdout.splitlines()
    assert abs(json.loads(lines[0])["divergence"] - np.log(2)) < 1e-12
