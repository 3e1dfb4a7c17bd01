#include "attn/problem/inputs.h"

#include <algorithm>
#include <initializer_list>
#include <limits>
#include <numbers>

#include "attn/base/error.h"
#include "attn/base/text.h"
#include "attn/problem/axis_lengths.h"
#include "attn/problem/bias_rule.h"
#include "attn/problem/key_lists.h"
#include "attn/problem/layout.h"
#include "attn/problem/mask.h"
#include "attn/problem/mask_rule.h"
#include "attn/problem/named_masks.h"
#include "attn/problem/position_bias.h"
#include "attn/problem/rotary_inputs.h"
#include "attn/problem/shapes.h"
#include "attn/problem/token_positions.h"
#include "attn/tensor/gathered_rows.h"
#include "attn/tensor/shape.h"
#include "attn/tensor/widened.h"

namespace attn {
namespace {

/// Sets a mask with all axes. `full` is (B, H, L, S), the shape of `matrix`; the message shows it
/// as the user sees it.
void set_mask_of(Input input, const Tensor& mask, Shape full, Inputs& in, AxisLengths& axes,
                 Output matrix = Output::scores) {
  in[input] = to_full_layout(input, mask, in);
  const Shape shape = in[input]->shape();
  bool fits = shape.size() == 4;
  for (std::size_t axis = 0; fits && axis < 4; ++axis)
    fits = shape[axis] == 1 || shape[axis] == full[axis];
  if (fits) return;
  const bool is_of_keys =
      input == Input::mask && in.batched && mask.shape() == Shape{full[0], full[3]};
  if (!in.with_heads) full.erase(full.begin() + 1);
  if (!in.batched) full.erase(full.begin());
  axes.problem(input,
               {.expected = "a shape that broadcasts to the " + std::string(name_of(matrix)) + " " +
                            to_string(full),
                .found = to_string(mask.shape()),
                .hint = is_of_keys ? "a mask (B, S) of keys is a key_mask (--key-mask)" : ""});
}

/// Limits the axes of tensors without elements. A file of a few bytes can declare any length, and
/// the computation allocates memory for each row.
void limit_empty_tensors(const TensorMap& tensors) {
  constexpr std::size_t kMaxLength = std::size_t{1} << 20;
  for (const auto& [name, tensor] : tensors)
    for (const std::size_t length : tensor.shape())
      if (tensor.size() == 0 && length > kMaxLength)
        fail_data({.subject = name,
                   .expected = "axis lengths of at most " + std::to_string(kMaxLength) +
                               " in a tensor without elements",
                   .found = to_string(tensor.shape())});
}

DType compute_dtype(DType result) { return result == DType::f64 ? DType::f64 : DType::f32; }

/// The mask extended to `keys` columns; the added columns hide their keys.
Tensor with_hidden_columns(const Tensor& mask, std::size_t keys, MaskPolarity polarity) {
  if (mask.rank() == 0 || mask.shape().back() >= keys) return mask;
  Shape shape = mask.shape();
  const std::size_t columns = shape.back();
  shape.back() = keys;
  Tensor wide(mask.dtype(), shape);
  visit(mask.dtype(), [&]<class T>(Type<T>) {
    const auto hidden = is_float(mask.dtype())
                            ? static_cast<T>(-std::numeric_limits<double>::infinity())
                            : static_cast<T>(polarity == MaskPolarity::ignore);
    const auto from = mask.data<T>();
    const auto to = wide.mutable_data<T>();
    for (std::size_t i = 0; i < to.size(); ++i)
      to[i] = i % keys < columns ? from[i / keys * columns + i % keys] : hidden;
  });
  return wide;
}

void set_dropout_mask(Inputs& in, AxisLengths& axes) {
  const Tensor* given = find(in.tensors, Input::dropout_mask);
  if (given == nullptr) return;
  set_mask_of(Input::dropout_mask, as_flags(Input::dropout_mask, *given, axes),
              {in.B, in.H, in.L, in.S}, in, axes, Output::weights);
}

void set_mask(Inputs& in, AxisLengths& axes) {
  const std::size_t keys = in.P + in.N;
  if (const Tensor* given = find(in.tensors, Input::mask)) {
    Tensor mask = as_mask(Input::mask, *given, in.compute, axes);
    if (in.options.short_mask == ShortMask::hide)
      mask = with_hidden_columns(mask, keys, in.options.mask_polarity);
    set_mask_of(Input::mask, mask, {in.B, in.H, in.L, keys}, in, axes);
  }
  if (const Tensor* given = find(in.tensors, Input::bias)) {
    if (given->dtype() == DType::boolean)
      axes.problem(Input::bias,
                   {.expected = "numbers to add", .found = "booleans", .hint = "use mask"});
    set_mask_of(Input::bias, cast(*given, in.compute), {in.B, in.H, in.L, keys}, in, axes);
  }
  if (const Tensor* given = find(in.tensors, Input::key_mask)) {
    const Tensor mask = as_mask(Input::key_mask, *given, in.compute, axes);
    const bool fits = mask.shape() == Shape{keys} || mask.shape() == Shape{in.B, keys};
    if (!fits)
      return axes.problem(Input::key_mask, {.expected = "shape " + to_string({keys}) + " or " +
                                                        to_string({in.B, keys}),
                                            .found = to_string(mask.shape())});
    in[Input::key_mask] = to_full_layout(Input::key_mask, mask, in);
  }
}

/// Sets the tensors of factors and tables.
void set_tensors(const TensorMap& numbers, Inputs& in) {
  for (const auto& [name, tensor] : numbers) {
    const Input input = *input_named(name);
    const InputKind kind = row_of(input).kind;
    const bool is_set = kind == InputKind::factor || kind == InputKind::table;
    if (is_set && input != Input::bias) in[input] = to_full_layout(input, tensor, in);
  }
}

/// Sets the seeds with all axes: grad_context has those of head_context.
void set_seeds(const TensorMap& numbers, Inputs& in, AxisLengths& axes) {
  for (const auto& [seed, of] : kSeeds) {
    const Tensor* given = find(numbers, seed);
    if (given == nullptr) continue;
    if (of == Output::output && !in[Input::W_O] && !in[Input::W_UV])
      return axes.problem(seed, {.message = "requires W_O or W_UV"});
    const auto fits = [&](Output output) {
      return given->shape() == to_user_shape(output, full_shape(output, in), in);
    };
    if (fits(of))
      in[seed] = to_full_layout(of, *given, in);
    else if (fits(same_numbers_as(of)))
      in[seed] = to_full_layout(same_numbers_as(of), *given, in);
    else
      axes.problem(seed, {.expected = "the shape of " + std::string(name_of(of)) + " " +
                                      to_string(to_user_shape(of, full_shape(of, in), in)),
                          .found = to_string(given->shape())});
  }
}

void set_token_ids(const TensorMap& numbers, Inputs& in, AxisLengths& axes) {
  const Tensor* ids = find(numbers, Input::token_ids);
  if (ids == nullptr) return;
  const std::size_t keys = in.P + in.N;
  const Shape& shape = ids->shape();
  const bool fits = shape == Shape{keys} || shape == Shape{in.B, keys};
  if (ids->dtype() == DType::i64 && fits) {
    in[Input::token_ids] = ids->reshaped({shape.size() == 1 ? 1 : in.B, keys});
    return;
  }
  axes.problem(
      Input::token_ids,
      {.expected = "whole numbers of shape " + to_string({keys}) + " or " + to_string({in.B, keys}),
       .found = std::string(name_of(ids->dtype())) + " " + to_string(shape)});
}

void set_key_lists(const TensorMap& numbers, Inputs& in, AxisLengths& axes) {
  const Tensor* given = find(numbers, Input::key_indices);
  if (given == nullptr) return;
  in.key_lists = KeyLists::checked(*given, in, axes);
  if (in.options.duplicates == Duplicates::count) in[Input::key_indices] = Tensor(DType::i64, {});
}

/// Errors: data, for a rule or a table that is not valid.
void set_rules(const TensorMap& numbers, Inputs& in, AxisLengths& axes) {
  if (!in.options.bias_rule.empty())
    in.bias_rule = std::make_shared<const BiasRule>(in.options.bias_rule, in.tensors, in);
  const Options& options = in.options;
  if (options.mask_rule.empty() && options.chunk == 0 && options.sink_tokens == 0 &&
      !contains(numbers, Input::tree_parents) && !contains(numbers, Input::blocks))
    return;
  TensorMap tables = in.tensors;
  if (!in.options.mask_rule.empty()) in.rules.push_back(in.options.mask_rule);
  add_named_rules(numbers, in, in.rules, tables, axes);
  if (axes.problems().empty() && !in.rules.empty())
    in.mask_rule = std::make_shared<const MaskRule>(in.rules, tables, in);
}

/// Gives each batch item its own token positions if something else by position differs.
void separate_items(Inputs& in) {
  const bool differ =
      (in.mask_rule && in.mask_rule->uses_items()) || (in.key_lists && in.key_lists->uses_items());
  if (differ && in.token_positions.size() == 1)
    in.token_positions = std::vector(in.B, in.token_positions.front());
}

void set_lengths(Inputs& in, const AxisLengths& axes) {
  const auto take = [&](Axis axis, std::size_t& length) {
    if (axes.knows(axis)) length = axes[axis].length;
  };
  in.batched = axes.knows(Axis::B);
  take(Axis::B, in.B), take(Axis::H, in.H), take(Axis::G, in.G);
  take(Axis::L, in.L), take(Axis::S, in.S), take(Axis::P, in.P), take(Axis::N, in.N);
  take(Axis::D, in.D), take(Axis::Dv, in.Dv);
  in.E = in.S - std::min(in.S, in.P + in.N);
}

}  // namespace

std::size_t bytes_of_rule_tables(const TensorMap& tensors) {
  std::size_t bytes = 0;
  const auto add = [&](const Shape& factors) {
    bytes = saturating_sum(bytes, saturating_product(factors));
  };
  for (const auto& [name, tensor] : tensors)
    if (name.starts_with(kMaskTables)) add({tensor.size(), kBytesOfTableElement});
  if (const Tensor* blocks = find(tensors, Input::blocks))
    add({blocks->size(), kBytesOfTableElement});
  if (const Tensor* parents = find(tensors, Input::tree_parents))
    add({parents->size(), kBytesOfTableElement,
         parents->rank() == 0 ? 1 : parents->shape().back()});
  return bytes;
}

std::size_t bytes_of_conversions(const AttentionArguments& given, bool of_all) {
  const DType compute = compute_dtype(result_dtype(given.tensors, given.options));
  std::size_t bytes = bytes_of_rule_tables(given.tensors);
  for (const auto& [name, tensor] : given.tensors) {
    const auto input = input_named(name);
    if (!input) continue;
    const DType dtype = converted_dtype(input, tensor.dtype(), compute);
    const bool is_made = dtype != tensor.dtype() && !(tensor.rows() && is_float(tensor.dtype())) &&
                         (of_all || !may_stay_narrow(*input) || !is_widened_later(tensor, dtype));
    if (is_made) bytes = saturating_sum(bytes, saturating_product({tensor.size(), size_of(dtype)}));
  }
  return bytes;
}

namespace {

/// Whether these tensors have numbers in bfloat16, those that are given.
bool are_in_bf16(const TensorMap& tensors, std::initializer_list<Input> inputs) {
  return std::all_of(inputs.begin(), inputs.end(), [&](Input input) {
    const Tensor* tensor = find(tensors, input);
    if (tensor == nullptr) return true;
    const RowTable* table = row_table_of(*tensor);
    return tensor->dtype() == DType::bf16 && (table == nullptr || !table->is_stored());
  });
}

void set_bf16(const AttentionArguments& given, Inputs& in) {
  const Options& options = given.options;
  if (in.compute != DType::f32 || options.compute == Compute::f32 || in.projected ||
      options.clip_qkv != 0)
    return;
  const bool are_changed = options.score != Score::dot || options.qk_norm != QkNorm::none ||
                           options.rotary.kind != Rotary::Kind::none ||
                           options.query_scale.factor != 0;
  in.has_bf16_factors = !are_changed && are_in_bf16(given.tensors, {Input::Q, Input::K,
                                                                    Input::past_K, Input::bias_K});
  const Input values = contains(given.tensors, Input::V) ? Input::V : Input::K;
  in.has_bf16_values = are_in_bf16(given.tensors, {values, Input::past_V, Input::bias_V});
}

}  // namespace

Inputs make_inputs(const AttentionArguments& given) {
  limit_empty_tensors(given.tensors);
  AxisLengths axes;
  Inputs in;
  static_cast<AttentionArguments&>(in) = given;
  in.result = result_dtype(given.tensors, given.options);
  in.compute = compute_dtype(in.result);
  const Tensor* Q = find(given.tensors, Input::Q);
  in.projected = Q == nullptr;
  set_bf16(given, in);
  in.past_of_memory = contains(given.tensors, Input::memory);
  in.packed = Q == nullptr || !has_head_axis(Q->shape(), given.options);
  in.with_heads = given.options.heads > 0 || !in.packed;
  check_names(given.tensors, axes);
  if (given.options.lse_base != std::numbers::e && given.options.lse_base != 2)
    axes.problem({.subject = "lse_base", .expected = "e or 2", .found = "another number"});
  const TensorMap numbers = as_numbers(given.tensors, in.compute, axes);
  check_shapes(given, axes);
  set_lengths(in, axes);
  if (axes.knows(Axis::L)) in.rows = chosen_rows(given.options.rows, in.L, axes);
  if (axes.knows(Axis::L) && axes.knows(Axis::S) && axes.knows(Axis::H)) {
    set_mask(in, axes);
    set_dropout_mask(in, axes);
    if (axes.knows(Axis::D)) set_rotary_inputs(numbers, in, axes);
    in.token_positions = make_token_positions(numbers, in, axes);
    if (axes.problems().empty()) set_rules(numbers, in, axes);
    if (axes.problems().empty()) set_key_lists(numbers, in, axes);
    separate_items(in);
    set_token_ids(numbers, in, axes);
  }
  if (!axes.problems().empty()) axes.problems().raise(ErrorKind::data);
  set_tensors(numbers, in);
  set_seeds(numbers, in, axes);
  if (!axes.problems().empty()) axes.problems().raise(ErrorKind::data);
  in.key_ranges = key_ranges(in);
  in.scale = score_scale(given.options, in.D);
  if (given.options.alibi) in[Input::alibi_slopes] = standard_slopes(in.H);
  return in;
}

namespace {

/// Whether make_inputs() reads nothing of such a tensor but its shape and its dtype. A bias may be
/// a mask, uint64 may not fit int64, and rows are gathered from a table with a form of its own.
bool is_checked_by_shape(const std::optional<Input>& input, const Tensor& tensor) {
  return input && row_of(*input).kind == InputKind::factor && *input != Input::bias &&
         tensor.dtype() != DType::u64 && !tensor.rows();
}

}  // namespace

bool release_numbers(Inputs& in) {
  for (const auto& [name, tensor] : in.tensors)
    if (!is_checked_by_shape(input_named(name), tensor)) return false;
  TensorMap released;
  for (const auto& [name, tensor] : in.tensors) {
    released.set(name, Tensor(tensor.dtype(), tensor.shape(), std::shared_ptr<const std::byte>()));
    in[*input_named(name)].reset();
  }
  in.tensors = std::move(released);
  return true;
}

bool replace_numbers(Inputs& in, const AttentionArguments& given) {
  if (given.tensors.size() != in.tensors.size() || !(given.options == in.options)) return false;
  std::vector<std::pair<Input, Tensor>> numbers;
  numbers.reserve(given.tensors.size());
  auto released = in.tensors.begin();
  for (const auto& [name, tensor] : given.tensors) {
    const auto& [its_name, form] = *released++;
    const std::optional<Input> input = input_named(name);
    if (name != its_name || tensor.dtype() != form.dtype() || tensor.shape() != form.shape() ||
        !is_checked_by_shape(input, tensor))
      return false;
    numbers.emplace_back(*input, as_number(*input, tensor, in.compute));
  }
  // Equal options, too, since they may have zeros of another sign.
  static_cast<AttentionArguments&>(in) = given;
  in.scale = score_scale(given.options, in.D);
  for (const auto& [input, tensor] : numbers) in[input] = to_full_layout(input, tensor, in);
  return true;
}

}  // namespace attn
