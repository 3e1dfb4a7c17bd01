#include "attn/tensor/gathered_rows.h"

#include <algorithm>
#include <cstring>

namespace attn {
namespace {

/// Calls row(source, out): the numbers of head g of row `row` start at element `source` of the
/// pool, and become row `out` of the order.
template <class Row>
void for_each_row(const RowTable& t, bool by_head, Row row_of) {
  const RowTable::Starts& rows = *t.rows;
  for (std::size_t row = 0; row < rows.size(); ++row) {
    if (rows[row] == RowTable::kZeros) continue;
    const std::size_t item = row / t.keys, key = row % t.keys;
    for (std::size_t g = 0; g < t.heads; ++g) {
      const std::int64_t from = t.first + rows[row] + static_cast<std::int64_t>(g) * t.head;
      row_of(row, g, static_cast<std::size_t>(from),
             by_head ? (item * t.heads + g) * t.keys + key : row * t.heads + g);
    }
  }
}

template <class T>
void apply_factors(const RowFactors& f, std::size_t row, std::size_t g, std::size_t width, T* x) {
  const auto head = static_cast<std::int64_t>(g / f.group) * f.head;
  auto at = static_cast<std::size_t>(head + (f.starts.empty() ? 0 : f.starts[row]));
  for (std::size_t column = 0; column < width; column += f.columns, ++at) {
    const auto factor = static_cast<T>(f.factors[at]);
    const auto zero = static_cast<T>(f.zeros.empty() ? 0 : f.zeros[at]);
    for (std::size_t i = column; i < std::min(column + f.columns, width); ++i)
      x[i] = (x[i] - zero) * factor;
  }
}

/// The numbers of all rows without `rest`, computed in T; rows start `columns` apart in `to`.
template <class T>
void decode_rows(const RowTable& t, bool by_head, std::size_t columns, T* to) {
  visit(t.pool.dtype(), [&]<class Stored>(Type<Stored>) {
    const Stored* const pool = t.pool.data<Stored>().data();
    for_each_row(
        t, by_head, [&](std::size_t row, std::size_t g, std::size_t from, std::size_t into) {
          T* const out = to + into * columns;
          if (t.code != Code::none)
            decode(t.code, reinterpret_cast<const std::uint8_t*>(pool + from), 0, t.width, out);
          else
            for (std::size_t i = 0; i < t.width; ++i) out[i] = static_cast<T>(pool[from + i]);
          if (t.factors) apply_factors(*t.factors, row, g, t.width, out);
        });
  });
}

/// The numbers of all rows, computed in T.
template <class T>
Tensor decoded_rows(const RowTable& table, bool by_head, Shape shape) {
  Tensor all(dtype_of<T>, std::move(shape));
  if (all.size() == 0) return all;
  T* to = all.mutable_data<T>().data();
  for (const RowTable* part = &table; part != nullptr; part = part->rest.get()) {
    decode_rows(*part, by_head, table.columns(), to);
    to += part->width;
  }
  return all;
}

}  // namespace

DType common_dtype(DType one, DType other) {
  if (one == other) return one;
  if (is_float(one) != is_float(other)) return is_float(one) ? one : other;
  const bool is_double = one == DType::f64 || other == DType::f64 || !is_float(one);
  return is_double ? DType::f64 : DType::f32;
}

DType RowTable::dtype() const { return rest ? common_dtype(own_dtype, rest->dtype()) : own_dtype; }

RowTable joined_columns(RowTable first, RowTable second) {
  const bool is_mixed = first.pool.dtype() != second.pool.dtype();
  for (RowTable* table : {&first, &second}) {
    const DType dtype = table->pool.dtype();  // the kernels read floats and single bytes
    const bool is_read = is_float(dtype) || dtype == DType::i8 || dtype == DType::u8;
    if (is_mixed && !is_read) table->pool = cast(table->pool, DType::f64);
  }
  first.rest = std::make_shared<const RowTable>(std::move(second));
  return first;
}

RowTable limited_to(RowTable table, std::size_t columns) {
  if (columns > table.width && table.rest)
    table.rest = std::make_shared<const RowTable>(limited_to(*table.rest, columns - table.width));
  else
    table.width = columns, table.rest = nullptr;
  return table;
}

Shape GatheredRows::shape() const {
  const RowTable& t = *table_;
  return by_head_ ? Shape{t.items, t.heads, t.keys, t.columns()}
                  : Shape{t.items, t.keys, t.heads, t.columns()};
}

const std::byte* GatheredRows::data() const {
  const std::lock_guard lock(mutex_);
  if (!all_) all_ = cast(gather(), dtype_);
  return all_->raw();
}

Tensor GatheredRows::gather() const {
  const RowTable& t = *table_;
  if (t.is_stored() && dtype_ == DType::f64) return decoded_rows<double>(t, by_head_, shape());
  if (t.is_stored()) return decoded_rows<float>(t, by_head_, shape());
  Tensor all(t.pool.dtype(), shape());
  if (all.size() == 0) return all;
  const std::size_t element = size_of(t.pool.dtype()), row_bytes = t.columns() * element;
  std::byte* to = all.mutable_raw();
  for (const RowTable* part = &t; part != nullptr; part = part->rest.get()) {
    const std::size_t bytes = part->width * element;
    for_each_row(*part, by_head_,
                 [&](std::size_t, std::size_t, std::size_t from, std::size_t into) {
                   std::memcpy(to + into * row_bytes, part->pool.raw() + from * element, bytes);
                 });
    to += bytes;
  }
  return all;
}

Tensor gathered_tensor(std::shared_ptr<const RowTable> table, DType dtype, bool by_head,
                       bool is_computed) {
  auto rows = std::make_shared<const GatheredRows>(std::move(table), dtype, by_head, is_computed);
  Shape shape = rows->shape();
  return Tensor(dtype, std::move(shape), std::move(rows));
}

Tensor tensor_of(RowTable table, bool by_head) {
  const DType dtype = table.dtype();
  return gathered_tensor(std::make_shared<const RowTable>(std::move(table)), dtype, by_head);
}

Tensor computed_rows(const Tensor& tensor, DType compute) {
  const GatheredRows* rows = tensor.rows();
  if (rows == nullptr || !rows->table()->has_factors() || !is_float(compute)) return tensor;
  return gathered_tensor(rows->table(), compute, rows->by_head(), true).reshaped(tensor.shape());
}

Tensor coded_tensor(Code code, const Tensor& codes) {
  Shape shape = codes.shape();
  const std::size_t bytes = shape.empty() ? 1 : shape.back();
  const std::size_t width = bytes * codes_per_byte(code);
  if (!shape.empty()) shape.back() = width;
  RowTable table{codes, 1, bytes == 0 ? 0 : codes.size() / bytes, 1, width};
  table.code = code;
  RowTable::Starts rows(table.keys);
  for (std::size_t row = 0; row < rows.size(); ++row)
    rows[row] = static_cast<std::int64_t>(row * bytes);
  table.rows = std::make_shared<const RowTable::Starts>(std::move(rows));
  return gathered_tensor(std::make_shared<const RowTable>(std::move(table)), DType::f32, true)
      .reshaped(std::move(shape));
}

namespace {

/// A tensor of this shape, whose rows start at these elements of the pool.
Tensor with_starts(const Tensor& pool, RowTable::Starts starts, DType dtype, const Shape& shape) {
  RowTable table{pool, 1, starts.size(), 1, shape.back()};
  table.own_dtype = pool.dtype();
  table.rows = std::make_shared<const RowTable::Starts>(std::move(starts));
  return gathered_tensor(std::make_shared<const RowTable>(std::move(table)), dtype, true)
      .reshaped(shape);
}

/// Where each row of these starts in the pool, in their order.
RowTable::Starts starts_of(const GatheredRows& gathered) {
  const RowTable& table = *gathered.table();
  RowTable::Starts starts(table.rows->size() * table.heads, RowTable::kZeros);
  for_each_row(table, gathered.by_head(),
               [&](std::size_t, std::size_t, std::size_t from, std::size_t into) {
                 starts[into] = static_cast<std::int64_t>(from);
               });
  return starts;
}

}  // namespace

Tensor as_gathered(const Tensor& tensor) {
  if (tensor.rows() != nullptr || tensor.rank() == 0 || tensor.size() == 0) return tensor;
  const std::size_t width = tensor.shape().back();
  RowTable::Starts starts(tensor.size() / width);
  for (std::size_t row = 0; row < starts.size(); ++row)
    starts[row] = static_cast<std::int64_t>(row * width);
  return with_starts(tensor, std::move(starts), tensor.dtype(), tensor.shape());
}

Tensor rows_from(const Tensor& tensor, const Shape& shape,
                 const std::function<std::size_t(std::size_t)>& source) {
  const std::size_t width = shape.back(), count = width == 0 ? 0 : element_count(shape) / width;
  const GatheredRows* const gathered = tensor.rows();
  if (gathered != nullptr && !gathered->table()->is_stored() && !gathered->table()->rest &&
      gathered->table()->width == width) {
    const RowTable::Starts all = starts_of(*gathered);
    RowTable::Starts starts(count);
    for (std::size_t row = 0; row < count; ++row) starts[row] = all[source(row)];
    return with_starts(gathered->table()->pool, std::move(starts), tensor.dtype(), shape);
  }
  Tensor result(tensor.dtype(), shape);
  const std::size_t bytes = width * size_of(tensor.dtype());
  const std::byte* const from = tensor.raw();
  std::byte* to = result.mutable_raw();
  for (std::size_t row = 0; row < count; ++row, to += bytes)
    std::memcpy(to, from + source(row) * bytes, bytes);
  return result;
}

Tensor take_along(const Tensor& tensor, std::size_t axis, const std::vector<std::size_t>& indices) {
  Shape shape = tensor.shape();
  const std::size_t length = shape[axis];
  shape[axis] = indices.size();
  // One row for each index of the axis if its elements are one behind the other.
  const bool is_gathered = tensor.rows() != nullptr && axis + 1 < shape.size();
  std::size_t rows = 1, width = is_gathered ? shape.back() : 1;
  for (std::size_t k = axis + 1; k < shape.size(); ++k) (is_gathered ? rows : width) *= shape[k];
  if (is_gathered) rows /= std::max<std::size_t>(1, width);
  const std::size_t count = width == 0 ? 0 : element_count(shape) / width;
  return rows_from(tensor, {count, width},
                   [&](std::size_t row) {
                     const std::size_t outer = row / rows / indices.size();
                     return (outer * length + indices[row / rows % indices.size()]) * rows +
                            row % rows;
                   })
      .reshaped(shape);
}

const RowTable* row_table_of(const Tensor& tensor) {
  const GatheredRows* rows = tensor.rows();
  if (rows == nullptr) return nullptr;
  const RowTable& t = *rows->table();
  const bool in_order = rows->by_head() || t.heads <= 1 || t.keys <= 1;
  return in_order && tensor.shape() == Shape{t.items, t.heads, t.keys, t.columns()} ? &t : nullptr;
}

}  // namespace attn
