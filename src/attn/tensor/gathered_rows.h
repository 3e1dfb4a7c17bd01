// Keys or values whose rows are anywhere in a larger tensor, such as a pool of pages, behind those
// of other heads, or stored as codes or with scales. They are copied and decoded when their
// elements are first read; the kernels read the rows where they are.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <vector>

#include "attn/base/number_code.h"
#include "attn/tensor/tensor.h"

namespace attn {

/// Scales of stored elements: number = (element - zero) * factor, in the type of the computation.
struct RowFactors {
  std::vector<double> factors, zeros = {};  ///< zeros: of the same places, or empty
  /// Where the factors of head 0 of each row of RowTable::rows start; empty: at 0.
  std::vector<std::int64_t> starts = {};
  std::int64_t head = 0;    ///< from the factors of a group of heads to those of the next
  std::size_t group = 1;    ///< neighbouring heads that share factors
  std::size_t columns = 1;  ///< neighbouring columns that share a factor
  double global = 1;        ///< the part of all factors that is the same
};

/// The row of head g of key j of an item starts at element first + rows[item * keys + j] + g * head
/// of the pool, and has `width` numbers, which those of `rest` follow. -1 in `rows`: all heads of
/// the key are zeros.
struct RowTable {
  using Starts = std::vector<std::int64_t>;
  static constexpr std::int64_t kZeros = -1;
  Tensor pool;
  std::size_t items = 0, keys = 0, heads = 0, width = 0;
  std::int64_t head = 0;
  std::shared_ptr<const Starts> rows = {};  ///< those of values may be those of keys
  std::int64_t first = 0;
  Code code = Code::none;  ///< others: the elements of the pool are uint8
  std::optional<RowFactors> factors = {};
  DType own_dtype = DType::f32;               ///< of the numbers without those of `rest`
  std::shared_ptr<const RowTable> rest = {};  ///< of the same items, keys and heads; may be nullptr

  std::size_t columns() const { return width + (rest ? rest->columns() : 0); }
  DType dtype() const;  ///< that represents all numbers
  bool is_decoded() const { return code != Code::none || factors; }  ///< without `rest`
  bool has_factors() const { return factors || (rest && rest->has_factors()); }
  /// Whether the numbers are not the elements of pools of one dtype.
  bool is_stored() const {
    return is_decoded() || (rest && (rest->is_stored() || rest->pool.dtype() != pool.dtype()));
  }
};

/// Calls part(first, width) for the elements [first, first + width) of the pool that each row and
/// head has, without those of `rest`.
template <class Part>
void for_each_part(const RowTable& table, Part part) {
  for (const std::int64_t row : *table.rows)
    for (std::size_t g = 0; row != RowTable::kZeros && g < table.heads; ++g)
      part(static_cast<std::size_t>(table.first + row + static_cast<std::int64_t>(g) * table.head),
           table.width);
}

/// That of numbers of both: the same, the float of a float and an integer, otherwise f32, or f64 if
/// one is f64 or both are integers.
DType common_dtype(DType one, DType other);

/// The columns of `first`, then those of `second`.
RowTable joined_columns(RowTable first, RowTable second);

/// The first `columns` columns of each row.
RowTable limited_to(RowTable table, std::size_t columns);

/// The rows of a table in an order, as elements of a dtype. Thread-safe.
class GatheredRows final : public DeferredElements {
 public:
  /// The order is (items, heads, keys, width) if `by_head`, otherwise (items, keys, heads, width).
  GatheredRows(std::shared_ptr<const RowTable> table, DType dtype, bool by_head, bool is_computed)
      : table_(std::move(table)), dtype_(dtype), by_head_(by_head), is_computed_(is_computed) {}

  const std::shared_ptr<const RowTable>& table() const { return table_; }
  DType dtype() const { return dtype_; }
  bool by_head() const { return by_head_; }
  /// Whether `dtype` is the type of the computation, in which factors were applied. Before, cast()
  /// to a wider type computes them in that type.
  bool is_computed() const { return is_computed_; }
  Shape shape() const;

  /// The elements in order, which the first call gathers.
  const std::byte* data() const override;
  const GatheredRows* rows() const override { return this; }

 private:
  Tensor gather() const;

  std::shared_ptr<const RowTable> table_;
  DType dtype_;
  bool by_head_, is_computed_;
  mutable std::mutex mutex_;
  mutable std::optional<Tensor> all_;  ///< guarded by mutex_
};

Tensor gathered_tensor(std::shared_ptr<const RowTable> table, DType dtype, bool by_head,
                       bool is_computed = false);

/// The same with RowTable::dtype().
Tensor tensor_of(RowTable table, bool by_head);

/// The tensor with its numbers in the type of the computation; only rows with factors may change.
Tensor computed_rows(const Tensor& tensor, DType compute);

/// float32 numbers that are stored as codes, in a tensor of uint8 of the given shape, in which the
/// last axis has codes_per_byte() times as many columns.
Tensor coded_tensor(Code code, const Tensor& codes);

/// The same tensor as a table of its rows, the last axis, so that rows_from(), take_along() and
/// cast() need no copy.
Tensor as_gathered(const Tensor& tensor);

/// Rows of a tensor, which are its last axis: row i of the result, whose shape has as many, is row
/// source(i). Without a copy if the tensor is gathered from elements of one dtype.
Tensor rows_from(const Tensor& tensor, const Shape& shape,
                 const std::function<std::size_t(std::size_t)>& source);

/// The elements with these indices on an axis; without a copy as rows_from(), if it is not the
/// last.
Tensor take_along(const Tensor& tensor, std::size_t axis, const std::vector<std::size_t>& indices);

/// The table of a tensor (items, heads, keys, width); nullptr if it has none, or another order.
const RowTable* row_table_of(const Tensor& tensor);

}  // namespace attn
