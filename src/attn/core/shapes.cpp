#include "attn/core/shapes.h"

#include "attn/core/option_shapes.h"

namespace attn {
namespace {

/// The letters with "B" in front, or second.
Letters with_batch(bool batched, Letters letters, bool second = false) {
  if (batched) letters.insert(letters.begin() + (second ? 1 : 0), "B");
  return letters;
}

bool check_rank(const std::string& name, const Tensor& tensor, std::size_t most, Axes& axes) {
  if (tensor.rank() >= 2 && tensor.rank() <= most) return true;
  axes.problem(name + ": expected " + (most == 4 ? "2, 3 or 4" : "2 or 3") + " axes, found " +
               to_string(tensor.shape()) +
               (tensor.rank() == 1 ? "; one vector is written [[...]]" : ""));
  return false;
}

/// part = whole / heads, where that divides: D of H*D.
void split_axis(std::string_view whole, std::string_view heads, std::string_view part,
                Axes& axes) {
  if (!axes.knows(whole) || !axes.knows(heads)) return;
  Axes::Axis axis = axes[whole];
  const Axes::Axis& by = axes[heads];
  if (axis.length % by.length != 0 || (axis.length == 0 && by.length > 1))
    return axes.problem(std::string(axis.name) + ": expected a width that " +
                        std::string(by.name) + " " + by.found() + " divides, found " +
                        axis.found());
  axis.length /= by.length;
  axes.settle(part, std::move(axis));
}

/// whole = part * heads; `why` goes behind what settled the part.
void join_axis(std::string_view whole, std::string_view heads, std::string_view part, Axes& axes,
               const std::string& why = "") {
  if (!axes.knows(part) || !axes.knows(heads)) return;
  Axes::Axis axis = axes[part];
  axis.length *= axes[heads].length;
  axis.remark += why;
  axes.settle(whole, std::move(axis));
}

void settle_heads(const Options& options, Axes& axes) {
  const auto settle = [&](const char* letter, const char* name, std::int64_t count) {
    if (count > 0)
      axes.settle(letter,
                  {static_cast<std::size_t>(count), name, {}, "= " + std::to_string(count)});
  };
  settle("H", "heads", options.heads);
  settle("G", "kv_heads", options.kv_heads);
}

/// Whether keys may be of another width than queries, as weights stand between them.
bool keys_have_own_width(Score score) {
  return score == Score::general || score == Score::additive || score == Score::concat;
}

/// Once "HD" is known: H and G where not given, then D and, where the keys share it, "GD".
void settle_packed_heads(Score score, Axes& axes) {
  axes.settle("H", {1, "heads", {}, "= 1"});
  axes.equate("G", "H");
  split_axis("HD", "H", "D", axes);
  if (keys_have_own_width(score)) return;
  axes.equate("Dk", "D");
  if (axes["G"].length == 0 || axes["H"].length % axes["G"].length != 0) return;  // check_groups()
  join_axis("GD", "G", "Dk", axes,
            axes["G"].length == axes["H"].length ? "" : " with kv_heads " + axes["G"].found());
}

void check_groups(Axes& axes) {
  if (!axes.knows("H") || !axes.knows("G")) return;
  const Axes::Axis &H = axes["H"], &G = axes["G"];
  if (H.length == 0 || G.length == 0 || H.length % G.length != 0)
    axes.problem(std::string(G.name) +
                 ": expected a number of key/value heads that divides the " +
                 std::to_string(H.length) + " of " + std::string(H.name) + ", found " +
                 std::to_string(G.length));
}

/// W_K where it is not given: the source itself has to be as wide as the keys.
void check_identity_keys(Axes& axes) {
  if (axes.knows("Mk") && axes.knows("GD") && axes["Mk"].length != axes["GD"].length)
    axes.problem("W_K: expected (" + std::to_string(axes["Mk"].length) + ", " +
                 std::to_string(axes["GD"].length) + ") to match " +
                 std::string(axes["GD"].name) + " " + axes["GD"].found() + ", found none");
}

void check_projected(const TensorMap& tensors, const Options& options, Axes& axes) {
  const Tensor& embeddings = tensors.at("embeddings");
  if (!check_rank("embeddings", embeddings, 3, axes)) return;
  const bool batched = embeddings.rank() == 3;
  const auto rows = [&](const char* count, const char* width) {
    return with_batch(batched, {count, width}, options.batch_second);
  };
  axes.take("embeddings", embeddings, rows("L", "M"));
  if (const Tensor* memory = tensors.find("memory")) {
    axes.take("memory", *memory, rows("N", "Mk"));
  } else {
    axes.equate("N", "L");
    axes.equate("Mk", "M");
  }
  if (const Tensor* memory_V = tensors.find("memory_V"))
    axes.take("memory_V", *memory_V, rows("N", "Mv"));
  else
    axes.equate("Mv", "Mk");
  if (const Tensor* W_Q = tensors.find("W_Q"))
    axes.take("W_Q", *W_Q, {"M", "HD"});
  else
    axes.equate("HD", "M");
  settle_packed_heads(options.score, axes);
  if (const Tensor* W_K = tensors.find("W_K"))
    axes.take("W_K", *W_K, {"Mk", "GD"});
  else if (keys_have_own_width(options.score))
    axes.equate("GD", "Mk");
  else
    check_identity_keys(axes);
  if (keys_have_own_width(options.score)) split_axis("GD", "G", "Dk", axes);
  if (const Tensor* W_V = tensors.find("W_V"))
    axes.take("W_V", *W_V, {"Mv", "GDv"});
  else
    axes.equate("GDv", "Mv");
  split_axis("GDv", "G", "Dv", axes);
}

/// Q, K and V with heads as an axis.
void check_split(const Tensor& Q, const Tensor& K, const Tensor* V, const Options& options,
                 Axes& axes) {
  const auto letters = [&](const char* heads, const char* rows, const char* width) {
    return options.layout == Layout::bhld ? Letters{"B", heads, rows, width}
                                          : Letters{"B", rows, heads, width};
  };
  axes.take("Q", Q, letters("H", "L", "D"));
  if (!keys_have_own_width(options.score)) axes.equate("Dk", "D");
  axes.take("K", K, letters("G", "N", "Dk"));
  if (V != nullptr)
    axes.take("V", *V, letters("G", "N", "Dv"));
  else
    axes.equate("Dv", "Dk");
}

void check_packed(const Tensor& Q, const Tensor& K, const Tensor* V, const Options& options,
                  Axes& axes) {
  const bool batched = Q.rank() == 3;
  const auto rows = [&](const char* count, const char* width) {
    return with_batch(batched, {count, width}, options.batch_second);
  };
  axes.take("Q", Q, rows("L", "HD"));
  settle_packed_heads(options.score, axes);
  axes.take("K", K, rows("N", "GD"));
  if (keys_have_own_width(options.score)) split_axis("GD", "G", "Dk", axes);
  if (V != nullptr)
    axes.take("V", *V, rows("N", "GDv"));
  else
    axes.equate("GDv", "GD");
  split_axis("GDv", "G", "Dv", axes);
}

void check_given(const TensorMap& tensors, const Options& options, Axes& axes) {
  const Tensor &Q = tensors.at("Q"), &K = tensors.at("K");
  if (!check_rank("Q", Q, 4, axes)) return;
  if (Q.rank() == 4)
    check_split(Q, K, tensors.find("V"), options, axes);
  else
    check_packed(Q, K, tensors.find("V"), options, axes);
}

/// The cache, shaped as the keys that the user sees, or with all four axes.
void check_past(const TensorMap& tensors, bool with_heads, Axes& axes) {
  const auto take = [&](const char* name, const char* width) {
    const Tensor* past = tensors.find(name);
    if (past == nullptr) return;
    Letters letters = {"P", width};
    if (with_heads || past->rank() == 4) letters.insert(letters.begin(), "G");
    axes.take(name, *past, with_batch(axes.knows("B"), letters));
  };
  take("past_K", "Dk");
  take("past_V", "Dv");
}

/// S, all keys: those of the past, the new ones and those appended.
void settle_keys(const TensorMap& tensors, const Options& options, Axes& axes) {
  if (!axes.knows("N")) return;
  Axes::Axis keys = axes["N"];
  if (axes.knows("P")) {
    keys.length += axes["P"].length;
    keys.remark += " after past_K " + axes["P"].found();
  }
  keys.length += (tensors.contains("bias_K") ? 1u : 0u) + (options.zero_key ? 1u : 0u);
  axes.settle("S", std::move(keys));
}

void check_parts(const TensorMap& tensors, Axes& axes) {
  join_axis("HDv", "H", "Dv", axes);
  join_axis("GD", "G", "Dk", axes);
  join_axis("GDv", "G", "Dv", axes);
  if (const Tensor* W_O = tensors.find("W_O")) axes.take("W_O", *W_O, {"HDv", "Mo"});
  static constexpr std::pair<const char*, const char*> kBiases[] = {
      {"b_Q", "HD"}, {"b_K", "GD"}, {"b_V", "GDv"}, {"b_O", "Mo"}};
  for (const auto& [name, letter] : kBiases)
    if (const Tensor* bias = tensors.find(name)) axes.take(name, *bias, {letter});
}

void check_scale(const Options& options, Axes& axes) {
  const bool divides = options.scale.kind == Scale::Kind::automatic && options.score == Score::dot;
  if (divides && axes.knows("D") && axes["D"].length == 0)
    axes.problem(std::string(axes["D"].name) +
                 ": expected a width D of at least 1 to divide by sqrt(D), found " +
                 axes["D"].found() + "; give a scale");
}

}  // namespace

void check_shapes(const TensorMap& tensors, const Options& options, Axes& axes) {
  settle_heads(options, axes);
  if (tensors.contains("Q") && tensors.contains("K"))
    check_given(tensors, options, axes);
  else if (tensors.contains("embeddings"))
    check_projected(tensors, options, axes);
  check_groups(axes);
  const Tensor* Q = tensors.find("Q");
  check_past(tensors, options.heads > 0 || (Q != nullptr && Q->rank() == 4), axes);
  settle_keys(tensors, options, axes);
  check_parts(tensors, axes);
  check_option_shapes(tensors, options, axes);
  check_scale(options, axes);
}

}  // namespace attn
