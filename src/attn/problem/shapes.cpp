#include "attn/problem/shapes.h"

#include <algorithm>
#include <numeric>

#include "attn/base/error.h"
#include "attn/base/number_text.h"
#include "attn/base/suggestion.h"
#include "attn/base/text.h"
#include "attn/problem/layout.h"
#include "attn/problem/score_scale.h"
#include "attn/tensor/gathered_rows.h"
#include "attn/tensor/widened.h"

namespace attn {
namespace {

/// Without the weights `absent` between two axes, these have to have the same length.
void check_identity(Input absent, Axis from, Axis to, AxisLengths& axes) {
  if (axes.knows(from) && axes.knows(to) && axes[from].length != axes[to].length)
    axes.problem(absent, {.expected = "(" + std::to_string(axes[from].length) + ", " +
                                      std::to_string(axes[to].length) + ") to match " +
                                      std::string(axes[to].name) + " " + axes[to].found(),
                          .found = "none"});
}

void check_score_weights(const TensorMap& tensors, Score score, AxisLengths& axes) {
  const auto take = [&](Input input, const AxisList& expected) {
    if (const Tensor* tensor = find(tensors, input)) axes.take(input, *tensor, expected);
  };
  if (score == Score::concat && axes.knows(Axis::D) && axes.knows(Axis::Dk)) {
    AxisLengths::Length both = axes[Axis::D];
    both.length += axes[Axis::Dk].length;
    both.remark += " beside " + axes[Axis::Dk].found();
    axes.set_length(Axis::DDk, std::move(both));
    take(Input::W_score, {Axis::DDk, Axis::A});
  } else {
    take(Input::W_score, {Axis::D, Axis::Dk});
  }
  take(Input::W_score_Q, {Axis::D, Axis::A});
  if (score == Score::additive && !contains(tensors, Input::W_score_Q))
    axes.equate(Axis::A, Axis::D);
  take(Input::W_score_K, {Axis::Dk, Axis::A});
  if (score == Score::additive && !contains(tensors, Input::W_score_K))
    check_identity(Input::W_score_K, Axis::Dk, Axis::A, axes);
  take(Input::b_score, {Axis::A});
  take(Input::v_score, {Axis::A});
  if (const Tensor* g = find(tensors, Input::g_score); g != nullptr && g->size() != 1)
    axes.problem(Input::g_score, {.expected = "one number", .found = to_string(g->shape())});
}

void check_relative_bias(const Tensor& table, const Options& options, AxisLengths& axes) {
  using Direction = RelativeBias::Direction;
  const Direction direction = options.relative.direction;
  const bool both =
      direction == Direction::automatic ? !options.causal : direction == Direction::both;
  axes.take(Input::relative_bias, table, {Axis::buckets, Axis::H});
  const std::size_t least = both ? 4 : 2, found = table.rank() > 0 ? table.shape()[0] : 0;
  if (found < least || (both && found % 2 != 0))
    return axes.problem(
        Input::relative_bias,
        {.expected = both ? "an even number of buckets, at least 4, for both directions"
                          : "at least 2 buckets",
         .found = to_string(table.shape())});
  const auto exact = static_cast<std::int64_t>(found / (both ? 4 : 2));
  if (options.relative.max_distance <= exact)
    axes.problem({.subject = "relative.max_distance",
                  .expected = "more than " + std::to_string(exact) +
                              ", the number of buckets for single distances",
                  .found = std::to_string(options.relative.max_distance)});
}

/// The weights and biases of qk_norm: (D), (H, D), or (H * D) with QkNormAxis::all.
void check_norms(const AttentionArguments& given, AxisLengths& axes) {
  struct Norm {
    Input input;
    Axis heads, width, all;
  };
  for (const auto& [input, heads, width, all] :
       {Norm{Input::q_norm, Axis::H, Axis::D, Axis::HD},
        Norm{Input::q_norm_bias, Axis::H, Axis::D, Axis::HD},
        Norm{Input::k_norm, Axis::G, Axis::Dk, Axis::GD},
        Norm{Input::k_norm_bias, Axis::G, Axis::Dk, Axis::GD}}) {
    const Tensor* tensor = find(given.tensors, input);
    if (tensor == nullptr) continue;
    if (given.options.qk_norm_axis == QkNormAxis::all) {
      axes.take(input, *tensor, {all});
      continue;
    }
    const bool fits_all = axes.knows(all) && tensor->shape() == Shape{axes[all].length};
    axes.take(input, *tensor, tensor->rank() == 2 ? AxisList{heads, width} : AxisList{width},
              fits_all ? "set qk_norm_axis: all to normalise all heads" : "");
  }
}

}  // namespace

void check_option_shapes(const AttentionArguments& given, AxisLengths& axes) {
  for (const InputRow& row : kInputs)
    if (const Tensor* tensor = row.has_own_axes ? find(given.tensors, row.input) : nullptr)
      axes.take(row.input, *tensor, row.axes);
  if (const Tensor* slopes = find(given.tensors, Input::alibi_slopes)) {
    const bool each = slopes->rank() == 2 && axes.knows(Axis::B);
    axes.take(Input::alibi_slopes, *slopes, each ? AxisList{Axis::B, Axis::H} : AxisList{Axis::H});
  }
  if (const Tensor* table = find(given.tensors, Input::relative_bias))
    check_relative_bias(*table, given.options, axes);
  check_norms(given, axes);
  check_score_weights(given.tensors, given.options.score, axes);
}

void check_names(const TensorMap& tensors, AxisLengths& axes) {
  for (const auto& [name, tensor] : tensors)
    if (!input_named(name) && !name.starts_with(kMaskTables))
      axes.problem({.message = "unknown tensor '" + printable(name) + "'" +
                               did_you_mean(name, input_names(), NameKind::input)});
  const bool direct = contains(tensors, Input::Q) && contains(tensors, Input::K);
  if (!direct && !contains(tensors, Input::embeddings))
    axes.problem(Input::embeddings, {.expected = "embeddings, or Q and K", .found = "neither"});
}

DType result_dtype(const TensorMap& tensors, const Options& options) {
  if (options.compute == Compute::f32) return DType::f32;
  if (options.compute == Compute::f64) return DType::f64;
  const DType widest = options.bf16_products ? DType::f32 : DType::f64;
  const auto given = [&](DType dtype) {
    return std::any_of(tensors.begin(), tensors.end(), [&](const auto& entry) {
      if (entry.second.dtype() != dtype) return false;
      const auto input = input_named(entry.first);
      return input &&
             (row_of(*input).kind != InputKind::table && row_of(*input).kind != InputKind::flag &&
              row_of(*input).kind != InputKind::seed);
    });
  };
  if (given(DType::f64)) return widest;
  if (given(DType::f32) || (given(DType::f16) && given(DType::bf16))) return DType::f32;
  if (given(DType::f16)) return DType::f16;
  return given(DType::bf16) ? DType::bf16 : widest;
}

namespace {

bool is_of(std::optional<Input> input, InputKind kind) {
  return input && row_of(*input).kind == kind;
}

}  // namespace

DType converted_dtype(std::optional<Input> input, DType given, DType compute) {
  if (is_of(input, InputKind::flag)) return DType::boolean;
  if (is_float(given)) return compute;
  return is_of(input, InputKind::mask) ? DType::boolean : DType::i64;
}

bool may_stay_narrow(Input input) {
  return input == Input::Q || input == Input::K || input == Input::V || input == Input::past_K ||
         input == Input::past_V;
}

Tensor as_number(Input input, const Tensor& tensor, DType compute) {
  const DType dtype = converted_dtype(input, tensor.dtype(), compute);
  const Tensor computed = computed_rows(tensor, dtype);
  return may_stay_narrow(input) ? widened(computed, dtype) : cast(computed, dtype);
}

TensorMap as_numbers(const TensorMap& tensors, DType compute, AxisLengths& axes) {
  TensorMap numbers;
  for (const auto& [name, tensor] : tensors) {
    const auto input = input_named(name);
    if (!input || is_of(input, InputKind::mask) || is_of(input, InputKind::flag)) continue;
    try {
      numbers.set(name, as_number(*input, tensor, compute));
    } catch (const Error& error) {
      axes.problem({.subject = name, .message = error.what()});
    }
  }
  return numbers;
}

Tensor as_mask(Input input, const Tensor& mask, DType compute, AxisLengths& axes) {
  if (mask.dtype() == DType::boolean) return mask;
  if (is_float(mask.dtype())) return cast(mask, compute);
  visit(mask.dtype(), [&]<class T>(Type<T>) {
    if constexpr (std::is_integral_v<T>)
      for (const T value : mask.data<T>())
        if (value != T{0} && value != T{1})
          return axes.problem(input,
                              {.expected = "booleans, the integers 0 and 1, or floats to add",
                               .found = "the integer " + std::to_string(value)});
  });
  return cast(mask, DType::boolean);
}

Tensor as_flags(Input input, const Tensor& flags, AxisLengths& axes) {
  if (flags.dtype() == DType::boolean) return flags;
  Tensor booleans(DType::boolean, flags.shape());
  visit(flags.dtype(), [&]<class T>(Type<T>) {
    bool* out = booleans.mutable_data<bool>().data();
    for (const T element : flags.data<T>()) {
      const auto value = static_cast<double>(element);
      if (value != 0 && value != 1)
        return axes.problem(
            input, {.expected = "booleans, or the numbers 0 and 1", .found = six_digits(value)});
      *out++ = value == 1;
    }
  });
  return booleans;
}

std::vector<std::size_t> chosen_rows(const std::vector<std::int64_t>& rows, std::size_t L,
                                     AxisLengths& axes) {
  std::vector<std::size_t> chosen;
  const auto count = static_cast<std::int64_t>(L);
  for (const std::int64_t row : rows) {
    if (row < -count || row >= count)
      axes.problem({.subject = "rows",
                    .expected = "indices of the " + std::to_string(L) + " queries",
                    .found = std::to_string(row)});
    else
      chosen.push_back(static_cast<std::size_t>(row < 0 ? row + count : row));
  }
  if (rows.empty()) {
    chosen.resize(L);
    std::iota(chosen.begin(), chosen.end(), std::size_t{0});
  }
  return chosen;
}

namespace {

/// The axes with the batch in front, or second.
AxisList with_batch(bool batched, AxisList axes, bool second = false) {
  if (batched) axes.insert(second ? 1 : 0, Axis::B);
  return axes;
}

/// Whether all items of the batch use this matrix.
bool is_shared(const Tensor& matrix, bool batched) { return batched && matrix.rank() == 2; }

bool check_rank(Input input, const Tensor& tensor, std::size_t max_rank, AxisLengths& axes) {
  if (tensor.rank() >= 2 && tensor.rank() <= max_rank) return true;
  axes.problem(input, {.expected = std::string(max_rank == 4 ? "2, 3 or 4" : "2 or 3") + " axes",
                       .found = to_string(tensor.shape()),
                       .hint = tensor.rank() == 1 ? "write one vector as [[...]]" : ""});
  return false;
}

/// part = whole / heads, such as D of H*D.
void split_axis(Axis whole, Axis heads, Axis part, AxisLengths& axes) {
  if (axes.knows(part) || !axes.knows(whole) || !axes.knows(heads)) return;
  AxisLengths::Length axis = axes[whole];
  const AxisLengths::Length& by = axes[heads];
  if (axis.length % by.length != 0 || (axis.length == 0 && by.length > 1))
    return axes.problem({.subject = std::string(axis.name),
                         .message = "width " + std::to_string(axis.length) + " of " + axis.found() +
                                    " is not divisible by " + std::string(by.name) + " " +
                                    by.found()});
  axis.length /= by.length;
  axes.set_length(part, std::move(axis));
}

/// whole = part * heads; `why` is appended to the remark of the part.
void join_axis(Axis whole, Axis heads, Axis part, AxisLengths& axes, const std::string& why = "") {
  if (axes.knows(whole) || !axes.knows(part) || !axes.knows(heads)) return;
  AxisLengths::Length axis = axes[part];
  axis.length *= axes[heads].length;
  axis.remark += why;
  axes.set_length(whole, std::move(axis));
}

void settle_heads(const Options& options, AxisLengths& axes) {
  const auto set_length = [&](Axis axis, const char* name, std::int64_t count) {
    if (count > 0)
      axes.set_length(axis,
                      {static_cast<std::size_t>(count), name, {}, "= " + std::to_string(count)});
  };
  set_length(Axis::H, "heads", options.heads);
  set_length(Axis::G, "kv_heads", options.kv_heads);
}

/// Whether keys may have another width than queries, as there are weights between them.
bool keys_have_own_width(Score score) {
  return score == Score::general || score == Score::additive || score == Score::concat;
}

/// Requires that Axis::HD is known. Sets H and G if they are not given, then D and, if keys have
/// the same width, Axis::GD.
void settle_packed_heads(Score score, AxisLengths& axes) {
  axes.set_length(Axis::H, {1, "heads", {}, "= 1"});
  axes.equate(Axis::G, Axis::H);
  split_axis(Axis::HD, Axis::H, Axis::D, axes);
  if (keys_have_own_width(score)) return;
  axes.equate(Axis::Dk, Axis::D);
  if (axes[Axis::G].length == 0 || axes[Axis::H].length % axes[Axis::G].length != 0)
    return;  // check_groups()
  join_axis(Axis::GD, Axis::G, Axis::Dk, axes,
            axes[Axis::G].length == axes[Axis::H].length
                ? ""
                : " with kv_heads " + axes[Axis::G].found());
}

/// "kv_heads = 2 if these are 2 heads of 16": if kv_heads is not given and the keys have the
/// width of fewer heads.
std::string advice_on_groups(const Tensor& keys, const Options& options, const AxisLengths& axes) {
  if (options.kv_heads > 0 || keys.rank() == 0 || !axes.knows(Axis::D)) return "";
  const std::size_t width = keys.shape().back(), D = axes[Axis::D].length;
  const std::size_t H = axes[Axis::H].length, G = D == 0 ? 0 : width / D;
  if (G == 0 || G * D != width || G >= H || H % G != 0) return "";
  return "kv_heads = " + std::to_string(G) + " if these are " + std::to_string(G) +
         (G == 1 ? " head of " : " heads of ") + std::to_string(D);
}

/// Suggests the other weights_layout if the shape of W is correct in it.
std::string advice_on_layout(const Tensor& W, const AxisList& expected, const Options& options,
                             const AxisLengths& axes) {
  if (W.rank() != 2 || !axes.agrees({W.shape()[1], W.shape()[0]}, {expected[0], expected[1]}))
    return "";
  return options.weights_layout == WeightsLayout::in_out
             ? "(out, in) weights, as torch saves them? add weights_layout: out-in"
             : "(in, out) weights? set weights_layout: in-out";
}

/// W_Q, W_K, W_V, W_O or W_gate. `advice` is used if the other layout does not fit either.
void take_weights(Input input, const Tensor& W, const Options& options, AxisLengths& axes,
                  const std::string& advice = "") {
  const bool is_expanded = input == Input::W_O && axes.knows(Axis::HDu);
  const AxisList expected = is_expanded ? AxisList{Axis::HDu, Axis::Mo} : row_of(input).axes;
  if (axes.agrees(W.shape(), expected)) return axes.take(input, W, expected);
  const std::string other = advice_on_layout(W, expected, options, axes);
  axes.take(input, W, expected, other.empty() ? advice : other);
}

std::string advice_to_change(Layout layout) {
  return layout == Layout::bhld ? "(B, L, H, D)? set layout: blhd"
                                : "(B, H, L, D)? set layout: bhld";
}

/// Suggests the other layout if Q and K, with four axes, have compatible numbers of heads in it.
/// The heads of keys in pages, G, do not depend on it.
std::string advice_on_groups(const AttentionArguments& given, std::size_t G) {
  const Tensor *Q = find(given.tensors, Input::Q), *K = find(given.tensors, Input::K);
  if (Q == nullptr || K == nullptr || Q->rank() != 4 || K->rank() != 4) return "";
  const std::size_t axis = given.options.layout == Layout::bhld ? 2 : 1;
  const std::size_t H = Q->shape()[axis], other = K->shape()[axis];
  const auto fits = [&](std::size_t heads) { return heads != 0 && H % heads == 0; };
  const bool is_in_pages = contains(given.tensors, Input::key_lengths) && K->rows() != nullptr;
  return fits(other) || (is_in_pages && fits(G)) ? advice_to_change(given.options.layout) : "";
}

void check_groups(const AttentionArguments& given, AxisLengths& axes) {
  if (!axes.knows(Axis::H) || !axes.knows(Axis::G)) return;
  const AxisLengths::Length &H = axes[Axis::H], &G = axes[Axis::G];
  if (H.length == 0 || G.length == 0 || H.length % G.length != 0)
    axes.problem({.subject = std::string(G.name),
                  .expected = "a divisor of " + std::to_string(H.length) +
                              ", the number of query heads (from " + std::string(H.name) + ")",
                  .found = std::to_string(G.length),
                  .hint = advice_on_groups(given, G.length)});
}

void check_projected(const AttentionArguments& given, AxisLengths& axes) {
  const Tensor& embeddings = at(given.tensors, Input::embeddings);
  if (!check_rank(Input::embeddings, embeddings, 3, axes)) return;
  const bool batched = embeddings.rank() == 3;
  const auto rows = [&](Axis count, Axis width) {
    return with_batch(batched, {count, width}, given.options.batch_second);
  };
  const auto key_rows = [&](const Tensor& tensor, Axis width) {
    return is_shared(tensor, batched) ? AxisList{Axis::N, width} : rows(Axis::N, width);
  };
  axes.take(Input::embeddings, embeddings, rows(Axis::L, Axis::M));
  if (const Tensor* memory = find(given.tensors, Input::memory)) {
    axes.take(Input::memory, *memory, key_rows(*memory, Axis::Mk));
  } else {
    axes.equate(Axis::N, Axis::L);
    axes.equate(Axis::Mk, Axis::M);
  }
  if (const Tensor* memory_V = find(given.tensors, Input::memory_V))
    axes.take(Input::memory_V, *memory_V, key_rows(*memory_V, Axis::Mv));
  else
    axes.equate(Axis::Mv, Axis::Mk);
  if (const Tensor* W_Q = find(given.tensors, Input::W_Q))
    take_weights(Input::W_Q, *W_Q, given.options, axes);
  else
    axes.equate(Axis::HD, Axis::M);
  settle_packed_heads(given.options.score, axes);
  if (const Tensor* W_K = find(given.tensors, Input::W_K))
    take_weights(Input::W_K, *W_K, given.options, axes,
                 advice_on_groups(*W_K, given.options, axes));
  else if (keys_have_own_width(given.options.score))
    axes.equate(Axis::GD, Axis::Mk);
  else
    check_identity(Input::W_K, Axis::Mk, Axis::GD, axes);
  if (keys_have_own_width(given.options.score)) split_axis(Axis::GD, Axis::G, Axis::Dk, axes);
  if (const Tensor* W_V = find(given.tensors, Input::W_V))
    take_weights(Input::W_V, *W_V, given.options, axes);
  else
    axes.equate(Axis::GDv, Axis::Mv);
  split_axis(Axis::GDv, Axis::G, Axis::Dv, axes);
}

/// Q, K and V with heads as an axis.
void check_split(const Tensor& Q, const Tensor& K, const Tensor* V, const Options& options,
                 AxisLengths& axes) {
  const auto take = [&](Input input, const Tensor& tensor, Axis heads, Axis rows, Axis width) {
    const AxisList by_heads{Axis::B, heads, rows, width}, by_rows{Axis::B, rows, heads, width};
    if (options.layout == Layout::thd) return axes.take(input, tensor, by_rows.last(3));
    const bool is_bhld = options.layout == Layout::bhld;
    const bool fits_other = axes.agrees(tensor.shape(), is_bhld ? by_rows : by_heads);
    axes.take(input, tensor, is_bhld ? by_heads : by_rows,
              fits_other ? advice_to_change(options.layout) : "");
  };
  take(Input::Q, Q, Axis::H, Axis::L, Axis::D);
  if (!keys_have_own_width(options.score)) axes.equate(Axis::Dk, Axis::D);
  take(Input::K, K, Axis::G, Axis::N, Axis::Dk);
  if (V != nullptr)
    take(Input::V, *V, Axis::G, Axis::N, Axis::Dv);
  else
    axes.equate(Axis::Dv, Axis::Dk);
}

void check_packed(const Tensor& Q, const Tensor& K, const Tensor* V, const Options& options,
                  AxisLengths& axes) {
  const bool batched = Q.rank() == 3;
  const auto rows = [&](Axis count, Axis width) {
    return with_batch(batched, {count, width}, options.batch_second);
  };
  axes.take(Input::Q, Q, rows(Axis::L, Axis::HD));
  settle_packed_heads(options.score, axes);
  const auto key_rows = [&](const Tensor& tensor, Axis width) {
    return is_shared(tensor, batched) ? AxisList{Axis::N, width} : rows(Axis::N, width);
  };
  axes.take(Input::K, K, key_rows(K, Axis::GD), advice_on_groups(K, options, axes));
  split_axis(Axis::GD, Axis::G, Axis::Dk, axes);
  if (V != nullptr)
    axes.take(Input::V, *V, key_rows(*V, Axis::GDv));
  else
    axes.equate(Axis::GDv, Axis::GD);
  if (V != nullptr || axes.knows(Axis::Dk))  // otherwise the width of K is reported already
    split_axis(Axis::GDv, Axis::G, Axis::Dv, axes);
}

void check_given(const AttentionArguments& given, AxisLengths& axes) {
  const Tensor &Q = at(given.tensors, Input::Q), &K = at(given.tensors, Input::K);
  if (!check_rank(Input::Q, Q, 4, axes)) return;
  if (given.options.layout == Layout::thd && Q.rank() != 3)
    return axes.problem(Input::Q,
                        {.expected = "3 axes with layout thd", .found = to_string(Q.shape())});
  if (has_head_axis(Q.shape(), given.options))
    check_split(Q, K, find(given.tensors, Input::V), given.options, axes);
  else
    check_packed(Q, K, find(given.tensors, Input::V), given.options, axes);
}

/// The cache, shaped as the user's keys, or with all four axes.
void check_past(const TensorMap& tensors, bool with_heads, AxisLengths& axes) {
  const auto take = [&](Input input, Axis width) {
    const Tensor* past = find(tensors, input);
    if (past == nullptr) return;
    AxisList past_axes = {Axis::P, width};
    if (with_heads || past->rank() == 4) past_axes.insert(0, Axis::G);
    axes.take(input, *past, with_batch(axes.knows(Axis::B), past_axes));
  };
  take(Input::past_K, Axis::Dk);
  take(Input::past_V, Axis::Dv);
}

/// S: past, new and appended keys.
void settle_keys(const AttentionArguments& given, AxisLengths& axes) {
  if (!axes.knows(Axis::N)) return;
  AxisLengths::Length keys = axes[Axis::N];
  if (axes.knows(Axis::P)) {
    keys.length += axes[Axis::P].length;
    keys.remark += " after past_K " + axes[Axis::P].found();
  }
  keys.length +=
      (contains(given.tensors, Input::bias_K) ? 1u : 0u) + (given.options.zero_key ? 1u : 0u);
  axes.set_length(Axis::S, std::move(keys));
}

/// Shaped as the context.
void check_gate(const Tensor& gate, bool split, const Options& options, AxisLengths& axes) {
  if (!split)
    axes.take(Input::gate, gate,
              with_batch(axes.knows(Axis::B), {Axis::L, Axis::HDv}, options.batch_second));
  else if (options.layout == Layout::bhld)
    axes.take(Input::gate, gate, {Axis::B, Axis::H, Axis::L, Axis::Dv});
  else
    axes.take(Input::gate, gate,
              with_batch(options.layout == Layout::blhd, {Axis::L, Axis::H, Axis::Dv}));
}

void check_parts(const AttentionArguments& given, AxisLengths& axes) {
  join_axis(Axis::HD, Axis::H, Axis::D, axes);
  join_axis(Axis::HDv, Axis::H, Axis::Dv, axes);
  join_axis(Axis::GD, Axis::G, Axis::Dk, axes);
  join_axis(Axis::GDv, Axis::G, Axis::Dv, axes);
  if (const Tensor* W_UV = find(given.tensors, Input::W_UV))
    axes.take(Input::W_UV, *W_UV, row_of(Input::W_UV).axes);
  join_axis(Axis::HDu, Axis::H, Axis::Du, axes);
  if (const Tensor* W_O = find(given.tensors, Input::W_O))
    take_weights(Input::W_O, *W_O, given.options, axes);
  if (const Tensor* W_gate = find(given.tensors, Input::W_gate))
    take_weights(Input::W_gate, *W_gate, given.options, axes);
  const Tensor* Q = find(given.tensors, Input::Q);
  if (const Tensor* gate = find(given.tensors, Input::gate))
    check_gate(*gate, Q != nullptr && has_head_axis(Q->shape(), given.options), given.options,
               axes);
  for (const Input bias : {Input::b_Q, Input::b_K, Input::b_V, Input::b_O, Input::b_gate})
    if (const Tensor* tensor = find(given.tensors, bias))
      axes.take(bias, *tensor, row_of(bias).axes);
}

void check_scale(const Options& options, AxisLengths& axes) {
  if (divides_by_root(options) && axes.knows(Axis::D) && axes[Axis::D].length == 0)
    axes.problem({.subject = std::string(axes[Axis::D].name),
                  .expected = "a width D of at least 1 to divide by sqrt(D)",
                  .found = axes[Axis::D].found(),
                  .hint = "set scale"});
}

}  // namespace

void check_shapes(const AttentionArguments& given, AxisLengths& axes) {
  settle_heads(given.options, axes);
  if (contains(given.tensors, Input::Q) && contains(given.tensors, Input::K))
    check_given(given, axes);
  else if (contains(given.tensors, Input::embeddings))
    check_projected(given, axes);
  check_groups(given, axes);
  const Tensor* Q = find(given.tensors, Input::Q);
  check_past(given.tensors,
             given.options.heads > 0 || (Q != nullptr && has_head_axis(Q->shape(), given.options)),
             axes);
  settle_keys(given, axes);
  check_parts(given, axes);
  check_option_shapes(given, axes);
  check_scale(given.options, axes);
}

}  // namespace attn
