#include "attn/diagnose/variant.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <utility>

#include "attn/attention/attention.h"
#include "attn/attention/plan.h"
#include "attn/tensor/gathered_rows.h"

namespace attn {

void Variant::erase(std::initializer_list<Input> inputs) {
  TensorMap kept;
  for (const auto& [name, tensor] : tensors) {
    const auto input = input_named(name);
    if (!input || std::find(inputs.begin(), inputs.end(), *input) == inputs.end())
      kept.set(name, tensor);
  }
  tensors = std::move(kept);
}

const RowTable* table_of_stored(const Variant& variant, Input input) {
  const Tensor* tensor = variant.find(input);
  if (tensor == nullptr || tensor->rows() == nullptr) return nullptr;
  const RowTable& table = *tensor->rows()->table();
  return table.is_stored() ? &table : nullptr;
}

void set_table(Variant& variant, Input input, RowTable table) {
  const Tensor& tensor = *variant.find(input);
  const GatheredRows& rows = *tensor.rows();
  const Tensor changed = gathered_tensor(std::make_shared<const RowTable>(std::move(table)),
                                         rows.dtype(), rows.by_head());
  variant.set(input, changed.reshaped(tensor.shape()));
}

Tensor matrices_from(const Tensor& x, const std::vector<std::size_t>& items,
                     const std::vector<std::size_t>& heads) {
  const std::size_t H = x.shape()[1], N = x.shape()[2];
  return rows_from(x, {items.size(), heads.size(), N, x.shape()[3]}, [&](std::size_t row) {
    const std::size_t matrix = row / N;
    return (items[matrix / heads.size()] * H + heads[matrix % heads.size()]) * N + row % N;
  });
}

namespace {

/// The inputs of an attention_only() whose axes axes_of() knows.
constexpr Input kWithKnownAxes[] = {Input::Q,
                                    Input::K,
                                    Input::V,
                                    Input::past_K,
                                    Input::past_V,
                                    Input::gate,
                                    Input::mask,
                                    Input::bias,
                                    Input::dropout_mask,
                                    Input::key_mask,
                                    Input::key_lengths,
                                    Input::sinks,
                                    Input::key_starts,
                                    Input::head_scale,
                                    Input::alibi_slopes,
                                    Input::query_lengths};

/// The last of these are the axes of an input of an attention_only().
AxisList axes_of(Input input) {
  if (input == Input::Q || input == Input::gate) return {Axis::B, Axis::H, Axis::L, Axis::D};
  if (input == Input::K || input == Input::V) return {Axis::B, Axis::G, Axis::N, Axis::D};
  return row_of(input).axes;
}

/// The numbers in f64, gathered once and not for each use.
Tensor materialized(const Tensor& x) {
  const Tensor numbers = cast(x, DType::f64);
  return numbers.reshaped({1, numbers.size()}).range(0, 1).reshaped(numbers.shape());
}

}  // namespace

std::size_t elements_of_head(const Inputs& in) {
  const std::size_t of_group = in.G == 0 ? 0 : in.H / in.G;
  return of_group * in.L * in.D + in.S * (in.D + in.Dv);
}

bool can_choose_heads(const Variant& attention) {
  if (attention.cache || !attention.options.mask_rule.empty() ||
      !attention.options.bias_rule.empty() || attention.options.score != Score::dot)
    return false;
  return std::all_of(attention.tensors.begin(), attention.tensors.end(), [](const auto& named) {
    const auto input = input_named(named.first);
    return input && std::find(std::begin(kWithKnownAxes), std::end(kWithKnownAxes), *input) !=
                        std::end(kWithKnownAxes);
  });
}

Variant with_chosen_heads(const Variant& attention, const HeadSample& sample) {
  Variant result = attention;
  const std::size_t H = attention.find(Input::Q)->shape()[1];
  const std::size_t G = attention.find(Input::K)->shape()[1], of_group = H / G;
  const auto& [items, heads] = sample;
  std::vector<std::size_t> of_keys;  // one for each group of heads if the sample has all of it
  bool has_groups = heads.size() % of_group == 0;
  for (std::size_t k = 0; k < heads.size(); ++k)
    has_groups &= heads[k] % of_group == k % of_group &&
                  heads[k] / of_group == heads[k - k % of_group] / of_group;
  for (std::size_t k = 0; k < heads.size(); k += has_groups ? of_group : 1)
    of_keys.push_back(heads[k] / of_group);
  for (const auto& [name, tensor] : attention.tensors) {
    const AxisList axes = axes_of(*input_named(name));
    Tensor part = tensor;
    for (std::size_t i = 0; i < part.rank(); ++i) {
      const Axis axis = axes[axes.size() - part.rank() + i];
      if (axis == Axis::G)
        part = take_along(part, i, of_keys);
      else if (part.shape()[i] > 1 && (axis == Axis::B || axis == Axis::H))
        part = take_along(part, i, axis == Axis::B ? items : heads);
    }
    result.tensors.set(name, part.rows() != nullptr ? materialized(part) : part);
  }
  if (attention.of_heads) {
    const Tensor& terms = *attention.of_heads;
    result.of_heads = take_along(take_along(terms, 0, items), 1, heads);
  }
  result.options.heads = static_cast<std::int64_t>(heads.size());
  result.options.kv_heads = static_cast<std::int64_t>(of_keys.size());
  return result;
}

Matrices matrices_of(const Shape& shape, const AxisList& axes, std::size_t heads) {
  Matrices view;
  if (axes.size() != shape.size()) {  // unknown
    view.C = view.stride_R = shape.empty() ? 1 : shape.back(), view.stride_C = 1;
    view.R = view.C == 0 ? 0 : element_count(shape) / view.C;
    return view;
  }
  const bool has_queries = axes.contains(Axis::L);
  std::size_t stride = 1;
  for (std::size_t k = shape.size(); k-- > 0; stride *= shape[k]) {
    const Axis letter = axes[k];
    const bool is_row =
        has_queries
            ? letter == Axis::L
            : (letter == Axis::N || letter == Axis::S || letter == Axis::P) && k + 1 < shape.size();
    if (letter == Axis::B) {
      view.B = shape[k], view.stride_B = stride;
    } else if (is_head(letter)) {
      view.H = shape[k], view.stride_H = stride;
    } else if (is_row) {
      view.R = shape[k], view.stride_R = stride;
    } else if (is_packed(letter) && heads > 0 && shape[k] % heads == 0) {
      view.H = heads, view.C = shape[k] / heads;
      view.stride_C = stride, view.stride_H = stride * view.C;
    } else if (view.stride_C == 0) {
      view.C = shape[k], view.stride_C = stride;
    } else {
      view.R = shape[k], view.stride_R = stride;
    }
  }
  return view;
}

Matrices contiguous(const Shape& shape) {
  Matrices view{shape[0], shape[1], shape[2], shape[3]};
  view.stride_C = 1, view.stride_R = view.C;
  view.stride_H = view.R * view.stride_R, view.stride_B = view.H * view.stride_H;
  return view;
}

Tensor taken(const Tensor& tensor, const Matrices& view, const std::vector<std::size_t>& rows) {
  Tensor result(DType::f64, {view.B, view.H, rows.size(), view.C});
  double* out = result.mutable_data<double>().data();
  visit(tensor.dtype(), [&]<class T>(Type<T>) {
    const auto from = tensor.data<T>();
    for (std::size_t b = 0; b < view.B; ++b)
      for (std::size_t h = 0; h < view.H; ++h)
        for (const std::size_t r : rows)
          for (std::size_t c = 0; c < view.C; ++c)
            *out++ = static_cast<double>(from[view.at(b, h, r, c)]);
  });
  return result;
}

Tensor taken(const Tensor& tensor, const Matrices& view) {
  const bool is_in_order = view.stride_C == 1 && view.stride_R == view.C &&
                           (view.H == 1 || view.stride_H == view.R * view.C) &&
                           (view.B == 1 || view.stride_B == view.H * view.R * view.C);
  if (is_in_order && tensor.dtype() == DType::f64)
    return tensor.reshaped({view.B, view.H, view.R, view.C});
  std::vector<std::size_t> rows(view.R);
  std::iota(rows.begin(), rows.end(), std::size_t{0});
  return taken(tensor, view, rows);
}

namespace {

/// The argument of a sigmoid with this value.
Tensor logits(const Tensor& gates) {
  Tensor result = cast(gates, DType::f64);
  for (double& x : result.mutable_data<double>()) x = std::log(x) - std::log1p(-x);
  return result;
}

/// Inputs from which queries, keys, values and gates are computed, and of derivatives.
constexpr Input kInputsOfHeads[] = {Input::embeddings,
                                    Input::memory,
                                    Input::memory_V,
                                    Input::W_Q,
                                    Input::W_K,
                                    Input::W_V,
                                    Input::b_Q,
                                    Input::b_K,
                                    Input::b_V,
                                    Input::q_norm,
                                    Input::k_norm,
                                    Input::q_norm_bias,
                                    Input::k_norm_bias,
                                    Input::cos,
                                    Input::sin,
                                    Input::position_ids,
                                    Input::key_position_ids,
                                    Input::short_factor,
                                    Input::long_factor,
                                    Input::W_gate,
                                    Input::b_gate,
                                    Input::gate,
                                    Input::input_norm_weight,
                                    Input::input_norm_bias,
                                    Input::grad_context,
                                    Input::grad_output,
                                    Input::grad_weights,
                                    Input::grad_logsumexp};

/// Masks, biases and past keys in the shapes that users give.
void set_biases(const Inputs& in, Variant& variant) {
  for (const Input input : {Input::past_K, Input::past_V, Input::mask, Input::bias,
                            Input::dropout_mask, Input::relative_bias})
    if (in[input]) variant.set(input, *in[input]);
  if (in[Input::key_mask]) {
    const Tensor& mask = *in[Input::key_mask];
    const std::size_t items = mask.shape()[0], keys = mask.shape()[3];
    variant.set(Input::key_mask, mask.reshaped(items == 1 ? Shape{keys} : Shape{items, keys}));
  }
  if (in[Input::alibi_slopes]) {
    const Tensor& slopes = *in[Input::alibi_slopes];
    variant.set(Input::alibi_slopes,
                slopes.shape()[0] == 1 ? slopes.reshaped({slopes.size()}) : slopes);
  }
}

/// The options of a job that gives the heads' queries, keys and values.
void set_options_of_heads(const Inputs& in, Options& options) {
  options.heads = static_cast<std::int64_t>(in.H),
  options.kv_heads = static_cast<std::int64_t>(in.G);
  options.layout = Layout::bhld;
  options.batch_second = false;
  options.short_mask = ShortMask::refuse;
  options.position = {};
  options.clip_qkv = 0;
  options.input_norm = options.qk_norm = QkNorm::none;
  options.norm_offset = 0;
  options.rotary = {};
  options.query_scale = {};
  options.alibi = false;
  if (options.relative.direction == RelativeBias::Direction::automatic)
    options.relative.direction =
        options.causal ? RelativeBias::Direction::past : RelativeBias::Direction::both;
}

}  // namespace

bool are_used_as_given(const Inputs& in) {
  const Options& options = in.options;
  return !in.projected && options.clip_qkv == 0 && options.qk_norm == QkNorm::none &&
         options.rotary.kind == Rotary::Kind::none && options.query_scale.factor == 0;
}

Variant attention_only(const Variant& given) {
  Variant variant = given;
  variant.is_attention_only = true;
  variant.options.compute = Compute::f64;
  variant.options.rows.clear();
  for (const auto& [seed, output] : kSeeds) variant.erase({seed});  // they have the chosen rows
  const Inputs in = make_inputs(variant);
  std::vector<Request> requests;
  const bool is_given = are_used_as_given(in);
  if (!is_given) requests = {Output::queries, Output::keys, Output::values};
  const bool has_gate = in[Input::gate] || in[Input::W_gate];
  if (has_gate) requests.emplace_back(Output::gates);
  const TensorMap computed = attend(in, requests);
  const Plan shapes = plan(in, requests);
  const auto computed_matrix = [&](std::size_t i, std::size_t heads) {
    const Tensor& tensor = computed.at(name_of(requests[i]));
    return taken(tensor, matrices_of(tensor.shape(), shapes.outputs[i].axes, heads));
  };

  for (const Input input : kInputsOfHeads) variant.erase({input});
  if (is_given) {
    const auto numbers = [&](Input input) { return cast(*in[input], DType::f64); };
    variant.set(Input::Q, numbers(Input::Q));
    variant.set(Input::K, numbers(Input::K));
    variant.set(Input::V, numbers(in[Input::V] ? Input::V : Input::K));
  } else {
    variant.set(Input::Q, computed_matrix(0, in.H));
    variant.set(Input::K, computed_matrix(1, in.G));
    variant.set(Input::V, computed_matrix(2, in.G));
  }
  if (has_gate) variant.set(Input::gate, logits(computed_matrix(requests.size() - 1, in.H)));
  set_biases(in, variant);
  set_options_of_heads(in, variant.options);
  return variant;
}

}  // namespace attn
