"""Performance targets, and whether they are met."""

from statistics import median


def kernel_gates(rows):
    """Yields (name, measured, bound, aim, whether less is better)."""
    rows = {row["name"]: row for row in rows}

    def chosen(dtype, tokens, *words):
        return [row for row in rows.values() if row["problem"]["dtype"] == dtype and
                row["problem"]["L"] in tokens and set(words) <= set(row["name"].split())]

    def least(found):
        return min((median(row["fraction"]) for row in found), default=None)

    def causal(tokens):
        """Time ratio in units of the peak measured next to each, which cancels changes of the clock rate."""
        return max(((1 + 1 / tokens) / 2 * median(full["fraction"]) / median(row["fraction"])
                    for row in chosen("float32", (tokens,), "causal")
                    for full in [rows[row["name"].replace("causal", "full")]]), default=None)

    def times(*libraries, kind=""):
        """For each shape, the fastest library's time as a multiple of attn's."""
        found = [row["times"] for row in rows.values()
                 if row["problem"]["dtype"] == "float32" and row["name"].endswith(kind)]
        return [min(median(row[library]) for library in libraries if row[library])
                for row in found if any(row[library] for library in libraries)]

    for d, bound, aim in ((64, 0.80, 0.88), (128, 0.82, 0.91)):
        yield (f"f32 full, L=S >= 2048, D={d}, fraction of peak",
               least(chosen("float32", (2048, 8192), f"D{d}", "full")), bound, aim, False)
    yield ("f64 full, L=S >= 2048, fraction of peak",
           least(chosen("float64", (2048, 8192), "full")), 0.70, 0.80, False)
    for tokens, bound, aim in ((2048, 0.60, 0.54), (8192, 0.54, 0.51)):
        yield f"causal / full, f32, {tokens}, at the same clock", causal(tokens), bound, aim, True
    yield "torch / attn, f32, minimum over shapes", min(times("torch")), 1.0, None, False
    yield "torch / attn, f32, median over shapes", median(times("torch")), None, 1.4, False
    yield ("onnxruntime (faster of two operators) / attn, minimum over shapes",
           min(times("ort-mha", "ort-attention")), 1.1, None, False)
    yield "onnxruntime MHA / attn, full, median", median(times("ort-mha", kind="full")), None, 1.4, False
    yield "onnxruntime MHA / attn, causal, median", median(times("ort-mha", kind="causal")), None, 4, False
    yield "decode, fraction of memory read bandwidth", least(chosen("float32", (1,))), 0.6, 0.85, False


def gates(results):
    if "kernels" in results:
        yield from kernel_gates(results["kernels"])
    if "options" in results:
        for d in (64, 128):
            yield (f"AVX2, f32 full, 2048, D={d}, fraction of its peak",
                   median(results["options"]["lower"][f"avx2 D{d}"]), 0.70, 0.82, False)
        times = {key.split()[-1]: median(ratios) for key, ratios in results["options"]["times"].items()}
        head_mask = times.pop("head-bias")  # 134 MB; limited by memory bandwidth
        most = max(times, key=times.get)
        yield f"options on / off, maximum of {len(times)} ({most})", times[most], 1.25, 1.1, True
        yield "additive mask for each head, on / off", head_mask, None, 1.25, True
    if "backward" in results:
        yield ("backward, f32, 512 and 2048, fraction of peak, minimum",
               min(median(row["fraction"]) for row in results["backward"]), 0.75, None, False)
        yield ("backward, attn / torch, f32, maximum",
               max((1 / median(row["torch"]) for row in results["backward"] if row["torch"]), default=None),
               0.7, None, True)
    if "dtypes" in results:
        for side in ("attn float16", "attn bfloat16"):
            yield (f"{side} / float32, 512 and 2048, maximum",
                   max(median(row["times"][side]) for row in results["dtypes"] if row["problem"]["L"] >= 512),
                   1.05, None, True)
    if "threads" in results and results["machine"]["threads"] >= 4:
        four = [values for key, values in results["threads"].items() if key.endswith(" full, 4")]
        yield "threads 1 to 4, full, 2048", median(four[0]), 3.4, 3.9, False
    if "errors" in results:
        yield ("RMS error, attn / torch, maximum",
               max(row["attn"][0] / row["torch"][0] for row in results["errors"]), 1.0, 0.5, True)
    if "processes" in results:
        for tokens, bound, aim in ((4, 25, 40), (512, 15, 30), (2048, 6, 9), (4096, 4, 5)):
            yield (f"process, {tokens} tokens, context: Python / attn",
                   median(results["processes"][f"{tokens} context"]["python"]), bound, aim, False)
        for tokens, bound, aim in ((2048, 1.7, 1.35), (4096, 1.5, 1.2)):
            yield (f"process, {tokens} tokens: with weights / context only",
                   median(results["processes"][f"{tokens} weights"]["relative_to_context"]), bound, aim, True)
    if "memory" in results:
        mib = 1 << 20
        context, weights = results["memory"]["context"], results["memory"]["weights"]
        yield (f"memory in addition to inputs and output, context only, {context['tokens']} tokens, MiB",
               (context["peak"] - context["files"]) / mib, 128, None, True)
        yield (f"memory with weights, {weights['tokens']} tokens, MiB", weights["peak"] / mib, 512, None, True)


MOST_VARIATION = 0.1  # of the peak
UNTIMED = ("RMS error", "memory")


def variation(results):
    """How much the measured peak of multiply-adds varied during the run, 0.1 for 10 %."""
    peaks = {}
    for row in results.get("kernels", []):
        if row["problem"]["L"] > 1:  # the peak of decoding is memory bandwidth
            peaks.setdefault(row["problem"]["dtype"], []).extend(row["peak"])
    return max((max(found) / min(found) - 1 for found in peaks.values()), default=0)


def verdict(figure, bound, aim, less):
    if aim is not None and (figure <= aim if less else figure >= aim):
        return "aim"
    if bound is None:
        return "below aim"
    return "yes" if (figure <= bound if less else figure >= bound) else "**no**"


def show(results):
    varied = variation(results)
    steady = varied <= MOST_VARIATION
    if not steady:
        print(f"The measured peak varied by {varied:.0%} (at most {MOST_VARIATION:.0%}): targets for times are not "
              "judged. Repeat the run on an idle machine.\n")
    print("| target | measured | at least (or <=) | aim | met |")
    print("| --- | ---: | ---: | ---: | --- |")
    for name, figure, bound, aim, less in gates(results):
        if figure is None:
            continue
        sign = "<= " if less else ""
        judged = steady or name.startswith(UNTIMED)
        print(f"| {name} | {figure:.3g} | {'' if bound is None else f'{sign}{bound:g}'} "
              f"| {'' if aim is None else f'{sign}{aim:g}'} "
              f"| {verdict(figure, bound, aim, less) if judged else 'not judged'} |")
