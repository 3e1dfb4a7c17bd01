#include "attn/diagnose/changes.h"

#include <algorithm>
#include <cctype>
#include <cmath>
#include <limits>
#include <numeric>

#include "attn/diagnose/row_changes.h"
#include "attn/problem/mask.h"
#include "attn/tensor/gathered_rows.h"
#include "attn/tensor/rearrange.h"
#include "attn/tensor/transposed.h"

namespace attn {

Found without(Variant& variant, std::initializer_list<Input> inputs, const std::string& kernel) {
  bool has = false;
  for (const Input input : inputs) has |= variant.has(input);
  if (!has) return std::nullopt;
  variant.erase(inputs);
  return flag(kernel);
}

Found without(Variant& variant, Input input) {
  std::string kernel = "without --";
  for (const char c : name_of(input))
    kernel += c == '_' ? '-' : static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  return without(variant, {input}, kernel);
}

VariantChange dropped(Input input) {
  return [input](Variant& variant, const Inputs&) { return without(variant, input); };
}

void add_for_each(const std::string& id, std::initializer_list<std::size_t> numbers,
                  Found (*change)(Variant& variant, const Inputs& in, std::size_t number),
                  Hypotheses& hypotheses) {
  for (const std::size_t number : numbers)
    hypotheses.push_back({id + "_" + in_words(number), kAttention, change_by(change, number)});
}

Found with_transposed(Variant& variant, const Inputs&, Input input) {
  const Tensor* W = variant.find(input);
  if (W == nullptr || W->rank() != 2 || W->shape()[0] != W->shape()[1]) return std::nullopt;
  variant.set(input, transposed_matrices(*W));
  return words(std::string(name_of(input)) + " transposed");
}

Found with_queries_as_keys(Variant& variant, const Inputs&, Input input) {
  const Tensor* pairs = variant.find(input);
  if (pairs == nullptr || pairs->shape()[2] != pairs->shape()[3] || pairs->shape()[2] < 2)
    return std::nullopt;
  variant.set(input, transposed_matrices(*pairs));
  return words("the " + std::string(name_of(input)) + " transposed");
}

Tensor mapped(const Tensor& tensor, const std::function<double(double)>& f) {
  Tensor result = cast(tensor, DType::f64);
  for (double& x : result.mutable_data<double>()) x = f(x);
  return result;
}

Tensor reordered(const Tensor& tensor, std::size_t block,
                 const std::function<std::size_t(std::size_t)>& source) {
  const std::size_t width = tensor.shape().empty() ? 1 : tensor.shape().back();
  if (tensor.rows() != nullptr && width > 0 && block % width == 0) {
    const std::size_t rows = block / width;  // of a block
    return rows_from(cast(tensor, DType::f64), tensor.shape(),
                     [&](std::size_t row) { return source(row / rows) * rows + row % rows; });
  }
  const Tensor from = cast(tensor, DType::f64);
  Tensor result(DType::f64, tensor.shape());
  double* out = result.mutable_data<double>().data();
  for (std::size_t i = 0; i * block < result.size(); ++i)
    out = std::copy_n(from.data<double>().data() + source(i) * block, block, out);
  return result;
}

Tensor with_heads_from(const Tensor& x, const std::vector<std::size_t>& source) {
  std::vector<std::size_t> items(x.shape()[0]);
  std::iota(items.begin(), items.end(), std::size_t{0});
  return matrices_from(cast(x, DType::f64), items, source);
}

Tensor with_rows_from(const Tensor& x, const std::function<std::size_t(std::size_t)>& source) {
  const std::size_t N = x.shape()[2];
  return reordered(x, x.shape()[3],
                   [&](std::size_t row) { return row - row % N + source(row % N); });
}

namespace {

/// (B, G, P + N, columns), f64.
Tensor joined(const Variant& variant, Input past, Input input) {
  const Tensor next = cast(*variant.find(input), DType::f64);
  const Tensor* before = variant.find(past);
  return before != nullptr ? append_rows(cast(*before, DType::f64), next) : next;
}

void set_joined(Variant& variant, Input past, Input input, std::size_t P, const Tensor& x) {
  if (P > 0) variant.set(past, row_range(x, 0, P));
  variant.set(input, row_range(x, P, x.shape()[2] - P));
}

}  // namespace

Tensor all_keys(const Variant& variant) { return joined(variant, Input::past_K, Input::K); }
Tensor all_values(const Variant& variant) { return joined(variant, Input::past_V, Input::V); }
void set_all_keys(Variant& variant, const Inputs& in, const Tensor& keys) {
  set_joined(variant, Input::past_K, Input::K, in.P, keys);
}
void set_all_values(Variant& variant, const Inputs& in, const Tensor& values) {
  set_joined(variant, Input::past_V, Input::V, in.P, values);
}

Tensor reversed_rows(const Tensor& x) {
  return with_rows_from(x, [&](std::size_t n) { return x.shape()[2] - 1 - n; });
}

Tensor transposed_memory(const Tensor& x) { return transposed_matrices(x).reshaped(x.shape()); }

void hide_keys(Variant& variant, const Inputs& in,
               const std::function<bool(std::size_t, std::size_t)>& hidden) {
  const std::size_t keys = in.P + in.N;
  const Tensor* given = variant.find(Input::key_mask);
  const bool adds = given != nullptr && is_float(given->dtype());
  const bool hides = variant.options.mask_polarity == MaskPolarity::ignore;
  const Tensor numbers = adds ? cast(*given, DType::f64) : Tensor();
  Tensor mask(adds ? DType::f64 : DType::boolean, {in.B, keys});
  for (std::size_t b = 0; b < in.B; ++b)
    for (std::size_t j = 0; j < keys; ++j) {
      const std::size_t from = given == nullptr || given->rank() == 1 ? j : b * keys + j;
      if (adds) {
        mask.mutable_data<double>()[b * keys + j] =
            hidden(b, j) ? -std::numeric_limits<double>::infinity() : numbers.data<double>()[from];
      } else {
        const bool was_hidden = given != nullptr && given->data<bool>()[from] == hides;
        mask.mutable_data<bool>()[b * keys + j] = (was_hidden || hidden(b, j)) == hides;
      }
    }
  variant.set(Input::key_mask, mask);
}

Variant without_masks(const Variant& variant, const Inputs& in) {
  Variant open = variant;
  if (open.has(Input::key_lengths) || open.has(Input::query_lengths))
    if (const auto offset = common_offset(in)) open.options.causal_offset = offset;
  open.row_change = RowChange::none;
  open.options.causal = false;
  open.options.window = {};
  for (const Input input : {Input::mask, Input::key_mask})
    if (const Tensor* mask = open.find(input); mask != nullptr && mask->dtype() == DType::boolean)
      open.erase({input});
  open.erase({Input::key_lengths, Input::key_starts, Input::query_lengths});
  return open;
}

void set_kv_heads(Variant& variant, const Inputs& in, const std::vector<std::size_t>& of_keys,
                  const std::vector<std::size_t>& of_values) {
  const auto replace = [&](Input input, const std::vector<std::size_t>& source) {
    if (const Tensor* tensor = variant.find(input))
      variant.set(input, with_heads_from(*tensor, source));
  };
  replace(Input::K, of_keys), replace(Input::past_K, of_keys);
  replace(Input::V, of_values), replace(Input::past_V, of_values);
  const auto replace_packed = [&](Input input, const std::vector<std::size_t>& source) {
    const Tensor* tensor = variant.find(input);
    if (tensor == nullptr) return;
    const std::size_t width = tensor->size() / in.G;
    variant.set(input, with_heads_from(tensor->reshaped({1, in.G, 1, width}), source)
                           .reshaped({source.size() * width}));
  };
  replace_packed(Input::bias_K, of_keys), replace_packed(Input::bias_V, of_values);
  variant.options.kv_heads = static_cast<std::int64_t>(of_keys.size());
}

void add_zero_keys(Variant& variant, const Inputs& in, double count) {
  const Tensor* sinks = variant.find(Input::sinks);
  Tensor sum = sinks != nullptr ? cast(*sinks, DType::f64) : Tensor(DType::f64, {in.H});
  for (double& x : sum.mutable_data<double>())
    x = std::log(count + (sinks != nullptr ? std::exp(x) : 0));
  variant.set(Input::sinks, sum);
}

std::size_t keys_of(const Inputs& in, std::size_t b) {
  return in.token_positions[in.token_positions.size() == 1 ? 0 : b].keys.length;
}

std::optional<std::int64_t> common_offset(const Inputs& in) {
  if (in.options.causal_offset) return in.options.causal_offset;
  std::optional<std::int64_t> common;
  for (const TokenPositions& tokens : in.token_positions) {
    if (tokens.queries.count == 0) continue;
    const auto& documents = tokens.queries.documents;
    if (std::any_of(documents.begin(), documents.end(),
                    [&](std::int64_t id) { return id != documents[0]; }))
      return std::nullopt;
    const auto begin = static_cast<std::int64_t>(tokens.keys.begin);  // positions count from it
    const std::int64_t offset = tokens.queries.position(0) + begin;
    if (common && *common != offset) return std::nullopt;
    common = offset;
  }
  return common;
}

bool has_bias(const Variant& variant) {
  const auto is_added = [&](Input input) {
    const Tensor* tensor = variant.find(input);
    return tensor != nullptr && is_float(tensor->dtype());
  };
  return is_added(Input::mask) || is_added(Input::key_mask) || variant.has(Input::bias) ||
         variant.has(Input::alibi_slopes) || variant.has(Input::relative_bias) ||
         !variant.options.bias_rule.empty();
}

Tensor viewed_as_heads(const Tensor& x) {
  const std::size_t H = x.shape()[1], N = x.shape()[2];
  return reordered(x, x.shape()[3], [&](std::size_t row) {
    const std::size_t in_item = row % (H * N), n = in_item / H, h = in_item % H;
    return row - in_item + h * N + n;
  });
}

Tensor viewed_as_rows(const Tensor& x) {
  const std::size_t H = x.shape()[1], N = x.shape()[2];
  return reordered(x, x.shape()[3], [&](std::size_t row) {
    const std::size_t in_item = row % (H * N), h = in_item / N, n = in_item % N;
    return row - in_item + n * H + h;
  });
}

Found with_product(Variant& variant, Input input, double factor, const std::string& kernel) {
  const Tensor* x = variant.find(input);
  if (x == nullptr || factor == 1) return std::nullopt;
  variant.set(input, mapped(*x, [&](double element) { return element * factor; }));
  return words(kernel);
}

VariantChange each_of(Input input, double (*f)(double), const std::string& kernel) {
  return [=](Variant& variant, const Inputs&) -> Found {
    const Tensor* x = variant.find(input);
    if (x == nullptr) return std::nullopt;
    variant.set(input, mapped(*x, f));
    return words(kernel);
  };
}

VariantChange multiplied(Input input, double factor, const std::string& kernel) {
  return
      [=](Variant& variant, const Inputs&) { return with_product(variant, input, factor, kernel); };
}

bool has_window(const Inputs& in) {
  return in.options.window.left >= 0 || in.options.window.right >= 0;
}

bool is_causal(const Inputs& in) { return in.options.causal || in.options.window.right == 0; }

bool hides_keys(const Variant& variant, const Inputs& in) {
  return in.options.causal || has_window(in) || variant.has(Input::mask) ||
         variant.has(Input::key_mask) || variant.has(Input::key_lengths) ||
         variant.has(Input::key_starts) || in.key_lists;
}

bool has_empty_rows(const Inputs& in) {
  if (in.key_ranges && !in[Input::mask] && !in[Input::key_mask])
    return std::any_of(in.key_ranges->begin(), in.key_ranges->end(), [](const auto& range) {
      return !range.padding && range.begin >= range.end;
    });
  if (in.B * in.H * in.rows.size() > (std::size_t{1} << 24) / std::max<std::size_t>(1, in.S))
    return true;
  const Tensor visible = visible_keys(in).reshaped(shape_of_visible_keys(in));
  const auto keys = visible.data<bool>();
  for (std::size_t from = 0; in.S > 0 && from < keys.size(); from += in.S)
    if (std::find(&keys[from], &keys[from] + in.S, true) == &keys[from] + in.S) return true;
  return in.S == 0;
}

void add_bias(Variant& variant, const Tensor& bias) {
  const Tensor* given = variant.find(Input::bias);
  if (given == nullptr) return variant.set(Input::bias, bias);
  Shape shape = given->shape();
  for (std::size_t axis = 0; axis < 4; ++axis)
    if (shape[axis] == 1) shape[axis] = bias.shape()[axis];
  Tensor sum(DType::f64, shape);
  const auto out = sum.mutable_data<double>();
  if (out.empty()) return variant.set(Input::bias, sum);
  for (const Tensor& part : {cast(*given, DType::f64), bias}) {
    const Shape& of = part.shape();
    const auto x = part.data<double>();
    const std::size_t step = of[3] > 1 ? 1 : 0;
    for (std::size_t row = 0; row < shape[0] * shape[1] * shape[2]; ++row) {
      const std::size_t b = row / (shape[1] * shape[2]), h = row / shape[2] % shape[1],
                        i = row % shape[2];
      const std::size_t head = (of[0] > 1 ? b : 0) * of[1] + (of[1] > 1 ? h : 0);
      const double* from = &x[(head * of[2] + (of[2] > 1 ? i : 0)) * of[3]];
      double* to = &out[row * shape[3]];
      for (std::size_t j = 0; j < shape[3]; ++j) to[j] += from[j * step];
    }
  }
  variant.set(Input::bias, sum);
}

Found with_row_change(Variant& variant, const Inputs& in, RowChange change,
                      const std::string& kernel) {
  if (!may_change_rows(change, variant, in)) return std::nullopt;
  variant.row_change = change;
  return words(kernel);
}

}  // namespace attn
