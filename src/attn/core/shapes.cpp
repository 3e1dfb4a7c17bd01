#include "attn/core/shapes.h"

#include "attn/core/option_shapes.h"

namespace attn {
namespace {

/// The letters with Letter::B in front, or second.
Letters with_batch(bool batched, Letters letters, bool second = false) {
  if (batched) letters.insert(letters.begin() + (second ? 1 : 0), Letter::B);
  return letters;
}

bool check_rank(const std::string& name, const Tensor& tensor, std::size_t most, Axes& axes) {
  if (tensor.rank() >= 2 && tensor.rank() <= most) return true;
  axes.problem({.subject = name,
                .expected = std::string(most == 4 ? "2, 3 or 4" : "2 or 3") + " axes",
                .found = to_string(tensor.shape()),
                .hint = tensor.rank() == 1 ? "one vector is written [[...]]" : ""});
  return false;
}

/// part = whole / heads, where that divides: D of H*D.
void split_axis(Letter whole, Letter heads, Letter part, Axes& axes) {
  if (!axes.knows(whole) || !axes.knows(heads)) return;
  Axes::Axis axis = axes[whole];
  const Axes::Axis& by = axes[heads];
  if (axis.length % by.length != 0 || (axis.length == 0 && by.length > 1))
    return axes.problem(
        {.subject = std::string(axis.name),
         .expected = "a width that " + std::string(by.name) + " " + by.found() + " divides",
         .found = axis.found()});
  axis.length /= by.length;
  axes.settle(part, std::move(axis));
}

/// whole = part * heads; `why` goes behind what settled the part.
void join_axis(Letter whole, Letter heads, Letter part, Axes& axes, const std::string& why = "") {
  if (!axes.knows(part) || !axes.knows(heads)) return;
  Axes::Axis axis = axes[part];
  axis.length *= axes[heads].length;
  axis.remark += why;
  axes.settle(whole, std::move(axis));
}

void settle_heads(const Options& options, Axes& axes) {
  const auto settle = [&](Letter letter, const char* name, std::int64_t count) {
    if (count > 0)
      axes.settle(letter,
                  {static_cast<std::size_t>(count), name, {}, "= " + std::to_string(count)});
  };
  settle(Letter::H, "heads", options.heads);
  settle(Letter::G, "kv_heads", options.kv_heads);
}

/// Whether keys may be of another width than queries, as weights stand between them.
bool keys_have_own_width(Score score) {
  return score == Score::general || score == Score::additive || score == Score::concat;
}

/// Once Letter::HD is known: H and G where not given, then D and, where the keys share it,
/// Letter::GD.
void settle_packed_heads(Score score, Axes& axes) {
  axes.settle(Letter::H, {1, "heads", {}, "= 1"});
  axes.equate(Letter::G, Letter::H);
  split_axis(Letter::HD, Letter::H, Letter::D, axes);
  if (keys_have_own_width(score)) return;
  axes.equate(Letter::Dk, Letter::D);
  if (axes[Letter::G].length == 0 || axes[Letter::H].length % axes[Letter::G].length != 0)
    return;  // check_groups()
  join_axis(Letter::GD, Letter::G, Letter::Dk, axes,
            axes[Letter::G].length == axes[Letter::H].length
                ? ""
                : " with kv_heads " + axes[Letter::G].found());
}

/// "kv_heads = 2 if these are 2 heads of 16": where nothing said how many heads the keys have and
/// they are as wide as fewer heads that would share the queries' width.
std::string advice_on_groups(const Tensor& keys, const Options& options, const Axes& axes) {
  if (options.kv_heads > 0 || keys.rank() == 0 || !axes.knows(Letter::D)) return "";
  const std::size_t width = keys.shape().back(), D = axes[Letter::D].length;
  const std::size_t H = axes[Letter::H].length, G = D == 0 ? 0 : width / D;
  if (G == 0 || G * D != width || G >= H || H % G != 0) return "";
  return "kv_heads = " + std::to_string(G) + " if these are " + std::to_string(G) +
         (G == 1 ? " head of " : " heads of ") + std::to_string(D);
}

void check_groups(Axes& axes) {
  if (!axes.knows(Letter::H) || !axes.knows(Letter::G)) return;
  const Axes::Axis &H = axes[Letter::H], &G = axes[Letter::G];
  if (H.length == 0 || G.length == 0 || H.length % G.length != 0)
    axes.problem({.subject = std::string(G.name),
                  .expected = "a number of key/value heads that divides the " +
                              std::to_string(H.length) + " of " + std::string(H.name),
                  .found = std::to_string(G.length)});
}

/// W_K where it is not given: the source itself has to be as wide as the keys.
void check_identity_keys(Axes& axes) {
  if (axes.knows(Letter::Mk) && axes.knows(Letter::GD) &&
      axes[Letter::Mk].length != axes[Letter::GD].length)
    axes.problem({.subject = "W_K",
                  .expected = "(" + std::to_string(axes[Letter::Mk].length) + ", " +
                              std::to_string(axes[Letter::GD].length) + ") to match " +
                              std::string(axes[Letter::GD].name) + " " + axes[Letter::GD].found(),
                  .found = "none"});
}

void check_projected(const TensorMap& tensors, const Options& options, Axes& axes) {
  const Tensor& embeddings = tensors.at("embeddings");
  if (!check_rank("embeddings", embeddings, 3, axes)) return;
  const bool batched = embeddings.rank() == 3;
  const auto rows = [&](Letter count, Letter width) {
    return with_batch(batched, {count, width}, options.batch_second);
  };
  axes.take("embeddings", embeddings, rows(Letter::L, Letter::M));
  if (const Tensor* memory = tensors.find("memory")) {
    axes.take("memory", *memory, rows(Letter::N, Letter::Mk));
  } else {
    axes.equate(Letter::N, Letter::L);
    axes.equate(Letter::Mk, Letter::M);
  }
  if (const Tensor* memory_V = tensors.find("memory_V"))
    axes.take("memory_V", *memory_V, rows(Letter::N, Letter::Mv));
  else
    axes.equate(Letter::Mv, Letter::Mk);
  if (const Tensor* W_Q = tensors.find("W_Q"))
    axes.take("W_Q", *W_Q, {Letter::M, Letter::HD});
  else
    axes.equate(Letter::HD, Letter::M);
  settle_packed_heads(options.score, axes);
  if (const Tensor* W_K = tensors.find("W_K"))
    axes.take("W_K", *W_K, {Letter::Mk, Letter::GD}, advice_on_groups(*W_K, options, axes));
  else if (keys_have_own_width(options.score))
    axes.equate(Letter::GD, Letter::Mk);
  else
    check_identity_keys(axes);
  if (keys_have_own_width(options.score)) split_axis(Letter::GD, Letter::G, Letter::Dk, axes);
  if (const Tensor* W_V = tensors.find("W_V"))
    axes.take("W_V", *W_V, {Letter::Mv, Letter::GDv});
  else
    axes.equate(Letter::GDv, Letter::Mv);
  split_axis(Letter::GDv, Letter::G, Letter::Dv, axes);
}

/// Q, K and V with heads as an axis.
void check_split(const Tensor& Q, const Tensor& K, const Tensor* V, const Options& options,
                 Axes& axes) {
  const auto letters = [&](Letter heads, Letter rows, Letter width) {
    return options.layout == Layout::bhld ? Letters{Letter::B, heads, rows, width}
                                          : Letters{Letter::B, rows, heads, width};
  };
  axes.take("Q", Q, letters(Letter::H, Letter::L, Letter::D));
  if (!keys_have_own_width(options.score)) axes.equate(Letter::Dk, Letter::D);
  axes.take("K", K, letters(Letter::G, Letter::N, Letter::Dk));
  if (V != nullptr)
    axes.take("V", *V, letters(Letter::G, Letter::N, Letter::Dv));
  else
    axes.equate(Letter::Dv, Letter::Dk);
}

void check_packed(const Tensor& Q, const Tensor& K, const Tensor* V, const Options& options,
                  Axes& axes) {
  const bool batched = Q.rank() == 3;
  const auto rows = [&](Letter count, Letter width) {
    return with_batch(batched, {count, width}, options.batch_second);
  };
  axes.take("Q", Q, rows(Letter::L, Letter::HD));
  settle_packed_heads(options.score, axes);
  axes.take("K", K, rows(Letter::N, Letter::GD), advice_on_groups(K, options, axes));
  if (keys_have_own_width(options.score)) split_axis(Letter::GD, Letter::G, Letter::Dk, axes);
  if (V != nullptr)
    axes.take("V", *V, rows(Letter::N, Letter::GDv));
  else
    axes.equate(Letter::GDv, Letter::GD);
  split_axis(Letter::GDv, Letter::G, Letter::Dv, axes);
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
  const auto take = [&](const char* name, Letter width) {
    const Tensor* past = tensors.find(name);
    if (past == nullptr) return;
    Letters letters = {Letter::P, width};
    if (with_heads || past->rank() == 4) letters.insert(letters.begin(), Letter::G);
    axes.take(name, *past, with_batch(axes.knows(Letter::B), letters));
  };
  take("past_K", Letter::Dk);
  take("past_V", Letter::Dv);
}

/// S, all keys: those of the past, the new ones and those appended.
void settle_keys(const TensorMap& tensors, const Options& options, Axes& axes) {
  if (!axes.knows(Letter::N)) return;
  Axes::Axis keys = axes[Letter::N];
  if (axes.knows(Letter::P)) {
    keys.length += axes[Letter::P].length;
    keys.remark += " after past_K " + axes[Letter::P].found();
  }
  keys.length += (tensors.contains("bias_K") ? 1u : 0u) + (options.zero_key ? 1u : 0u);
  axes.settle(Letter::S, std::move(keys));
}

void check_parts(const TensorMap& tensors, Axes& axes) {
  join_axis(Letter::HDv, Letter::H, Letter::Dv, axes);
  join_axis(Letter::GD, Letter::G, Letter::Dk, axes);
  join_axis(Letter::GDv, Letter::G, Letter::Dv, axes);
  if (const Tensor* W_O = tensors.find("W_O")) axes.take("W_O", *W_O, {Letter::HDv, Letter::Mo});
  static constexpr std::pair<const char*, Letter> kBiases[] = {
      {"b_Q", Letter::HD}, {"b_K", Letter::GD}, {"b_V", Letter::GDv}, {"b_O", Letter::Mo}};
  for (const auto& [name, letter] : kBiases)
    if (const Tensor* bias = tensors.find(name)) axes.take(name, *bias, {letter});
}

void check_scale(const Options& options, Axes& axes) {
  const bool divides = options.scale.kind == Scale::Kind::automatic && options.score == Score::dot;
  if (divides && axes.knows(Letter::D) && axes[Letter::D].length == 0)
    axes.problem({.subject = std::string(axes[Letter::D].name),
                  .expected = "a width D of at least 1 to divide by sqrt(D)",
                  .found = axes[Letter::D].found(),
                  .hint = "give a scale"});
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
