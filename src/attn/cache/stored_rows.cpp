#include "attn/cache/stored_rows.h"

#include <algorithm>
#include <cstring>
#include <utility>
#include <vector>

#include "attn/base/error.h"
#include "attn/base/text.h"
#include "attn/problem/layout.h"
#include "attn/tensor/gathered_rows.h"
#include "attn/tensor/shape.h"

namespace attn {
namespace {

Code code_of(StoredType type) {
  switch (type) {
    case StoredType::as_given:
      return Code::none;
    case StoredType::e4m3:
    case StoredType::flashmla_v32:
    case StoredType::flashmla_model1:
      return Code::e4m3;
    case StoredType::e5m2:
      return Code::e5m2;
    case StoredType::e4m3fnuz:
      return Code::e4m3fnuz;
    case StoredType::e5m2fnuz:
      return Code::e5m2fnuz;
    case StoredType::nvfp4:
    case StoredType::mxfp4:
      break;
  }
  return Code::e2m1;
}

/// The columns that share a scale; 0: any number.
std::size_t block_of(StoredType type) {
  return type == StoredType::nvfp4 ? 16 : type == StoredType::mxfp4 ? 32 : 0;
}

std::size_t length_of(char axis, const Pool& pool) {
  return axis == 'P'   ? pool.pages
         : axis == 's' ? pool.slots
         : axis == 'G' ? pool.heads
                       : pool.width;
}

/// Those of `letters` that the pool has.
std::string axes_in(std::string_view letters, const Pool& pool) {
  std::string axes;
  for (const char axis : letters)
    if (pool.axes.find(axis) != std::string::npos) axes += axis;
  return axes;
}

/// Whether a scale of this shape may have these axes. `block`: the columns that must share a scale.
bool scale_fits(const Shape& shape, const std::string& axes, const Pool& pool, std::size_t block) {
  if (shape.size() != axes.size()) return false;
  for (std::size_t i = 0; i < shape.size(); ++i) {
    const std::size_t length = length_of(axes[i], pool), found = shape[i];
    const bool is_whole = found == 1 || found == length;
    const bool is_part = found > 0 && found <= length && length % found == 0;
    const bool may_be_part = axes[i] == 'D' || (axes[i] == 'G' && pool.of == Pool::Of::queries);
    if (axes[i] == 'D' && block > 0 ? (length % block != 0 || found != length / block)
                                    : !is_whole && !(may_be_part && is_part))
      return false;
  }
  return true;
}

/// The axes of a scale; nullopt if it fits nothing.
std::optional<std::string> axes_of_scale(const Shape& shape, const Pool& pool, std::size_t block) {
  if (block > 0)
    return scale_fits(shape, pool.axes, pool, block) ? std::optional(pool.axes) : std::nullopt;
  if (shape.empty() || shape == Shape{1}) return "";
  const std::string tokens = pool.axes.substr(0, pool.axes.size() - 1);
  for (const std::string& axes : {pool.axes, tokens, axes_in("PG", pool), axes_in("G", pool)})
    if (scale_fits(shape, axes, pool, 0)) return axes;
  return std::nullopt;
}

/// "(P, page size, G)", with the name of columns instead of D.
std::string names_of(const std::string& axes, const Pool& pool, const std::string& columns) {
  using enum Pool::Of;
  std::vector<std::string> names;
  for (const char axis : axes)
    names.push_back(axis == 'P'   ? (pool.of == pages ? "P" : "B")
                    : axis == 's' ? (pool.of == pages  ? "page size"
                                     : pool.of == keys ? "S"
                                                       : "L")
                    : axis == 'G' ? (pool.of == queries ? "H" : "G")
                                  : columns);
  return "(" + join(names, ", ") + ")";
}

/// "one number, or axes (G), (B, G), (B, G, S) or (B, G, S, N), where N divides D, of (B, G, S, D),
/// which is (2, 8, 100, 64)".
std::string expected_shapes(const Pool& pool, std::size_t block) {
  Shape shape;
  for (const char axis : pool.axes) shape.push_back(length_of(axis, pool));
  if (block > 0) {
    shape.back() /= block;
    const std::string columns = std::to_string(block);
    return names_of(pool.axes, pool, "D/" + columns) + ", which is " + to_string(shape) +
           ", a scale for " + columns + " columns";
  }
  std::vector<std::string> axes;
  const std::string tokens = pool.axes.substr(0, pool.axes.size() - 1);
  for (const std::string& some : {axes_in("G", pool), axes_in("PG", pool), tokens, pool.axes})
    if (const std::string text = names_of(some, pool, "N");
        !some.empty() && std::find(axes.begin(), axes.end(), text) == axes.end())
      axes.push_back(text);
  return "one number, or axes " + join_or(axes) + ", where N divides D, of " +
         names_of(pool.axes, pool, "D") + ", which is " + to_string(shape);
}

/// The numbers of a scale. Errors: data, for integers that are no codes.
Tensor scale_numbers(const Tensor& scale, StoredType type) {
  const bool is_coded =
      scale.dtype() == DType::u8 || (is_integer(scale.dtype()) && block_of(type) > 0);
  if (!is_coded) return cast(scale, DType::f64);
  const Code code = type == StoredType::nvfp4 ? Code::e4m3 : Code::e8m0;
  return cast(coded_tensor(code, cast(scale, DType::u8)), DType::f64);
}

/// The bytes of int8 elements, as uint8.
Tensor as_bytes(const Tensor& tensor) {
  Tensor bytes(DType::u8, tensor.shape());
  if (bytes.size() > 0) std::memcpy(bytes.mutable_raw(), tensor.raw(), bytes.size());
  return bytes;
}

std::vector<double> elements(const Tensor& numbers) {
  const auto data = numbers.data<double>();
  return {data.begin(), data.end()};
}

/// The axes of the scale, or without one of the zero point; nullopt: the pool has no scales, or
/// some do not fit, which is reported.
std::optional<std::string> checked_axes(const Pool& pool, const Storage& storage,
                                        const AttentionArguments& given, ProblemList& problems) {
  const Tensor* scale = find(given.tensors, storage.scale);
  const Tensor* zero = storage.zero_point ? find(given.tensors, *storage.zero_point) : nullptr;
  const Tensor* global =
      storage.global_scale ? find(given.tensors, *storage.global_scale) : nullptr;
  const StoredType type = given.options.*storage.type;
  const std::size_t block = block_of(type);
  if (scale == nullptr && zero == nullptr && global == nullptr && block == 0) return std::nullopt;
  const auto refuse = [&](Input input, std::string expected, std::string found) {
    report(problems, input, std::move(expected), std::move(found));
    return std::nullopt;
  };
  if (global != nullptr && global->size() != 1)
    return refuse(*storage.global_scale, "one number", to_string(global->shape()));
  if (block > 0 && pool.width % block != 0)
    return refuse(storage.of,
                  "a width that is a multiple of " + std::to_string(block) + " for " +
                      std::string(storage.type_key),
                  std::to_string(pool.width));
  const Shape shape = scale ? scale->shape() : zero ? zero->shape() : Shape{};
  const std::optional<std::string> axes = axes_of_scale(shape, pool, block);
  if (!axes || (scale == nullptr && block > 0))
    return refuse(scale || block > 0 ? storage.scale : *storage.zero_point,
                  expected_shapes(pool, block), scale || zero ? to_string(shape) : "none");
  if (zero != nullptr && zero->size() != 1 && zero->shape() != shape)
    return refuse(*storage.zero_point, "one number, or shape " + to_string(shape),
                  to_string(zero->shape()));
  if (scale != nullptr && is_integer(scale->dtype())) try {
      scale_numbers(*scale, type);
    } catch (const Error& error) {
      problems.add({.subject = std::string(name_of(storage.scale)), .message = error.what()});
      return std::nullopt;
    }
  return axes;
}

}  // namespace

void report(ProblemList& problems, Input input, std::string expected, std::string found) {
  problems.add({.subject = std::string(name_of(input)),
                .expected = std::move(expected),
                .found = std::move(found)});
}

const Storage* storage_described_by(Input input) {
  for (const Storage& storage : kStorage)
    if (input == storage.scale || input == storage.zero_point || input == storage.global_scale)
      return &storage;
  return input == kRotaryStorage.scale ? &kRotaryStorage : nullptr;
}

Stored stored_elements(Input input, const Tensor& tensor, const Storage& storage,
                       const Options& options, ProblemList& problems) {
  const StoredType type = options.*storage.type;
  const GatheredRows* rows = tensor.rows();
  Stored stored{tensor};
  if (rows != nullptr && rows->table()->code != Code::none) {
    stored.code = rows->table()->code;
    Shape shape = tensor.shape();
    if (!shape.empty()) shape.back() /= codes_per_byte(stored.code);
    stored.data = rows->table()->pool.reshaped(shape);
  } else if (type != StoredType::as_given) {
    stored.code = code_of(type);
    if (is_integer(tensor.dtype())) try {
        stored.data = tensor.dtype() == DType::i8 ? as_bytes(tensor) : cast(tensor, DType::u8);
      } catch (const Error& error) {
        problems.add({.subject = std::string(name_of(input)), .message = error.what()});
      }
    else
      report(problems, input, "uint8 elements, the codes of " + std::string(storage.type_key),
             std::string(name_of(tensor.dtype())));
  }
  if (type != StoredType::as_given && stored.code != code_of(type))
    report(problems, input, "the codes of " + std::string(storage.type_key),
           "those of another type in the file");
  return stored;
}

std::pair<Pool, Pool> pools_of(const Stored& stored, const Shape& shape, std::string_view axes) {
  Pool pool;
  pool.data = stored.data, pool.code = stored.code;
  std::int64_t stride = 1, values = 0;
  for (std::size_t i = axes.size(); i-- > 0;) {
    const std::size_t length = shape[i];
    if (axes[i] == 'P') pool.pages = length, pool.page = stride;
    if (axes[i] == 's') pool.slots = length, pool.slot = stride;
    if (axes[i] == 'G') pool.heads = length, pool.head = stride;
    if (axes[i] == 'h') pool.heads = length / 2, pool.head = 2 * stride, values = stride;
    if (axes[i] == '2') values = stride;
    if (axes[i] == 'D') pool.width = length * codes_per_byte(stored.code);
    if (axes[i] != '1' && axes[i] != '2') pool.axes.insert(0, 1, axes[i] == 'h' ? 'G' : axes[i]);
    stride *= static_cast<std::int64_t>(length);
  }
  std::pair<Pool, Pool> both{pool, pool};
  both.second.first = values;
  return both;
}

void check_scales(const Pool& pool, const Storage& storage, const AttentionArguments& given,
                  ProblemList& problems) {
  checked_axes(pool, storage, given, problems);
}

PoolRows::PoolRows(const Pool& pool, const Storage& storage, const AttentionArguments& given,
                   std::size_t items, std::size_t keys, ProblemList& problems, const PoolRows* like)
    : pool_(pool),
      table_{pool.data, items, keys, pool.heads, pool.width, pool.head, {}, pool.first, pool.code},
      shares_rows_(like != nullptr && like->pool_.page == pool.page &&
                   like->pool_.slot == pool.slot) {
  rows_ = shares_rows_ ? like->rows_
                       : std::make_shared<RowTable::Starts>(items * keys, RowTable::kZeros);
  table_.rows = rows_;
  add_factors(storage, given, problems);
  const bool is_number =
      pool.code == Code::none && (is_float(pool.data.dtype()) || !table_.factors);
  if (is_number) table_.own_dtype = pool.data.dtype();
}

void PoolRows::add_factors(const Storage& storage, const AttentionArguments& given,
                           ProblemList& problems) {
  const std::optional<std::string> axes = checked_axes(pool_, storage, given, problems);
  if (!axes) return;
  const Tensor* scale = find(given.tensors, storage.scale);
  const Tensor* zero = storage.zero_point ? find(given.tensors, *storage.zero_point) : nullptr;
  const Tensor* global =
      storage.global_scale ? find(given.tensors, *storage.global_scale) : nullptr;
  const Shape shape = scale ? scale->shape() : zero ? zero->shape() : Shape{};
  const DType dtype = table_.pool.dtype();
  if (!is_float(dtype) && dtype != DType::i8 && dtype != DType::u8)
    table_.pool = cast(table_.pool, DType::f64);
  RowFactors& factors = table_.factors.emplace();
  factors.factors.assign(element_count(shape), 1.0);
  if (scale != nullptr)
    factors.factors = elements(scale_numbers(*scale, given.options.*storage.type));
  if (global != nullptr) factors.global = cast(*global, DType::f64).data<double>()[0];
  for (double& factor : factors.factors) factor *= factors.global;
  if (zero != nullptr) {
    factors.zeros = elements(cast(*zero, DType::f64));
    if (zero->size() == 1) factors.zeros.assign(factors.factors.size(), factors.zeros[0]);
  }
  factors.columns = pool_.width;
  std::int64_t step = 1;
  for (std::size_t i = axes->size(); i-- > 0;) {
    const auto length = static_cast<std::int64_t>(shape[i]);
    const std::int64_t stride = length == 1 ? 0 : step;
    const char axis = (*axes)[i];
    if (axis == 'D') factors.columns = pool_.width / std::max<std::size_t>(1, shape[i]);
    if (axis == 'G')
      factors.head = stride,
      factors.group = std::max<std::size_t>(1, pool_.heads / std::max<std::size_t>(1, shape[i]));
    if (axis == 's') factors_of_slot_ = stride;
    if (axis == 'P') factors_of_page_ = stride;
    step *= length;
  }
  if (factors_of_page_ != 0 || factors_of_slot_ != 0) factors.starts.resize(rows_->size());
}

void PoolRows::set(std::size_t row, std::size_t page, std::size_t slot, std::size_t count) {
  const auto p = static_cast<std::int64_t>(page), s = static_cast<std::int64_t>(slot);
  const auto fill = [&](std::vector<std::int64_t>& starts, std::int64_t first, std::int64_t step) {
    for (std::size_t i = row; i < row + count; ++i, first += step) starts[i] = first;
  };
  if (!shares_rows_) fill(*rows_, p * pool_.page + s * pool_.slot, pool_.slot);
  if (table_.factors && !table_.factors->starts.empty())
    fill(table_.factors->starts, p * factors_of_page_ + s * factors_of_slot_, factors_of_slot_);
}

namespace {

/// The letters and the lengths of a given tensor's axes in its bytes or elements, with heads apart.
struct GivenAxes {
  std::string letters;
  Shape shape;
};

std::optional<GivenAxes> axes_of(Input input, const Shape& shape, const Options& options) {
  if (shape.size() < 2) return std::nullopt;
  const bool with_heads = options.heads > 0 || has_head_axis(shape, options);
  const AxisList axes = user_axes(input, shape, options, with_heads);
  if (axes.size() != shape.size()) return std::nullopt;
  GivenAxes given;
  for (std::size_t i = 0; i < axes.size(); ++i) {
    const Axis axis = axes[i];
    if (!is_packed(axis)) {
      given.letters += axis == Axis::B                      ? 'P'
                       : is_head(axis)                      ? 'G'
                       : axis == Axis::L || axis == Axis::N ? 's'
                                                            : 'D';
      given.shape.push_back(shape[i]);
      continue;
    }
    const std::int64_t of_keys = options.kv_heads > 0 ? options.kv_heads : options.heads;
    const std::int64_t heads = input == Input::Q ? options.heads : of_keys;
    const auto count = static_cast<std::size_t>(std::max<std::int64_t>(1, heads));
    const bool is_split = options.heads > 0 && shape[i] % count == 0;
    given.letters += is_split ? "GD" : "D";
    if (is_split) given.shape.push_back(count);
    given.shape.push_back(is_split ? shape[i] / count : shape[i]);
  }
  return given;
}

/// Whether keys or values become a table of rows, which the kernels read without a copy: large
/// tensors with heads behind keys, which are not transposed. Below kLarge, a copy takes no longer
/// than a table.
bool is_read_in_rows(const Storage& storage, const AttentionArguments& given) {
  constexpr std::size_t kLarge = std::size_t{1} << 20;
  const Tensor& tensor = at(given.tensors, storage.of);
  if (storage.of == Input::Q || !is_float(tensor.dtype())) return false;
  if (tensor.bytes() < kLarge) return false;
  const Tensor* queries = find(given.tensors, Input::Q);
  const std::optional<GivenAxes> axes = axes_of(storage.of, tensor.shape(), given.options);
  if (!axes || (queries != nullptr && queries->rank() != tensor.rank())) return false;
  const auto place = [&](char axis) { return axes->letters.find(axis); };
  const auto is_behind_keys = [&](char axis) {
    return place(axis) != std::string::npos && place(axis) > place('s') &&
           axes->shape[place(axis)] > 1;
  };
  return !is_behind_keys('P') && is_behind_keys('G');
}

bool is_stored(const Storage& storage, const AttentionArguments& given) {
  const Tensor* tensor = find(given.tensors, storage.of);
  if (tensor == nullptr) return false;
  const GatheredRows* rows = tensor->rows();
  const bool is_coded = rows != nullptr && rows->table()->code != Code::none;
  const bool has_columns_of_values = storage.of == Input::K && given.options.value_width > 0;
  return is_coded || is_read_in_rows(storage, given) || has_columns_of_values ||
         given.options.*storage.type != StoredType::as_given ||
         contains(given.tensors, storage.scale) || contains(given.tensors, *storage.zero_point) ||
         contains(given.tensors, *storage.global_scale);
}

/// The numbers of a stored tensor with the axes in which it is given.
Tensor numbers_of_tensor(const Storage& storage, const AttentionArguments& given,
                         ProblemList& problems) {
  const Tensor& tensor = at(given.tensors, storage.of);
  const Stored stored = stored_elements(storage.of, tensor, storage, given.options, problems);
  const std::optional<GivenAxes> axes = axes_of(storage.of, stored.data.shape(), given.options);
  if (!axes) {
    report(problems, storage.of, "2 to 4 axes", to_string(tensor.shape()));
    return tensor;
  }
  Pool pool = pools_of(stored, axes->shape, axes->letters).first;
  pool.of = storage.of == Input::Q ? Pool::Of::queries : Pool::Of::keys;
  const auto before = [&](char a, char b) { return axes->letters.find(a) < axes->letters.find(b); };
  // Batch items are items of the table if they come first.
  const bool has_items = pool.pages == 1 || before('P', 's');
  const std::size_t items = has_items ? pool.pages : 1;
  const std::size_t keys = has_items ? pool.slots : pool.pages * pool.slots;
  PoolRows rows(pool, storage, given, items, keys, problems);
  for (std::size_t page = 0; page < pool.pages; ++page)
    if (has_items)
      rows.set(page * keys, page, 0, keys);
    else
      for (std::size_t slot = 0; slot < pool.slots; ++slot)
        rows.set(slot * pool.pages + page, page, slot, 1);
  Shape shape = stored.data.shape();
  shape.back() *= codes_per_byte(stored.code);
  return tensor_of(std::move(rows).table(), before('G', 's')).reshaped(shape);
}

/// The first Options::value_width columns of each head of K.
Tensor values_of(const Tensor& K, const Options& options, ProblemList& problems) {
  const GatheredRows& rows = *K.rows();
  const std::size_t width = rows.table()->columns();
  const auto columns = static_cast<std::size_t>(options.value_width);
  if (columns > width) {
    problems.add({.subject = "value_width",
                  .expected = "at most " + std::to_string(width) + ", the width of K",
                  .found = std::to_string(columns)});
    return K;
  }
  Shape shape = K.shape();
  shape.back() = shape.back() / width * columns;
  return tensor_of(limited_to(*rows.table(), columns), rows.by_head()).reshaped(shape);
}

}  // namespace

bool has_stored(const AttentionArguments& given) {
  return std::any_of(kStorage.begin(), kStorage.end(),
                     [&](const Storage& storage) { return is_stored(storage, given); });
}

std::size_t bytes_of_rows(const Tensor& stored, std::size_t rows, const Storage& storage,
                          const TensorMap& tensors) {
  std::size_t bytes = saturating_product({rows, sizeof(std::int64_t)});
  const Tensor* scale = find(tensors, storage.scale);
  if (scale == nullptr && storage.zero_point) scale = find(tensors, *storage.zero_point);
  if (scale == nullptr) return bytes;
  // Where the factors of each row start; factors and zero points; elements that become float64.
  bytes = saturating_sum(bytes, saturating_product({rows, sizeof(std::int64_t)}));
  bytes = saturating_sum(bytes, saturating_product({2, scale->size(), sizeof(double)}));
  const bool is_read = is_float(stored.dtype()) || size_of(stored.dtype()) == 1;
  if (is_read) return bytes;
  return saturating_sum(bytes, saturating_product({stored.size(), sizeof(double)}));
}

std::size_t bytes_of_stored(const AttentionArguments& given) {
  std::size_t bytes = 0;
  for (const Storage& storage : kStorage)
    if (is_stored(storage, given)) {
      const Tensor& stored = at(given.tensors, storage.of);
      const std::optional<GivenAxes> axes = axes_of(storage.of, stored.shape(), given.options);
      std::size_t rows = axes ? 1 : stored.size();
      for (std::size_t i = 0; axes && i < axes->shape.size(); ++i)
        if (axes->letters[i] == 'P' || axes->letters[i] == 's') rows *= axes->shape[i];
      bytes = saturating_sum(bytes, bytes_of_rows(stored, rows, storage, given.tensors));
    }
  return bytes;
}

TensorMap with_stored_numbers(const AttentionArguments& given) {
  ProblemList problems;
  TensorMap all;
  for (const auto& [name, tensor] : given.tensors) {
    const std::optional<Input> input = input_named(name);
    const Storage* described = input ? storage_described_by(*input) : nullptr;
    if (described != nullptr && contains(given.tensors, described->of)) continue;
    const bool is_one = input && (input == Input::Q || input == Input::K || input == Input::V) &&
                        is_stored(storage_of(*input), given);
    all.set(name, is_one ? numbers_of_tensor(storage_of(*input), given, problems) : tensor);
  }
  if (const Tensor* K = find(all, Input::K); K != nullptr && given.options.value_width > 0)
    if (problems.empty())
      all.set(std::string(name_of(Input::V)), values_of(*K, given.options, problems));
  if (!problems.empty()) problems.raise(ErrorKind::data);
  return all;
}

}  // namespace attn
