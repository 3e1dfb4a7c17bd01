#include "attn/tensor/gathered_rows.h"

#include <cstring>

namespace attn {

Shape GatheredRows::shape() const {
  const RowTable& t = *table_;
  return by_head_ ? Shape{t.items, t.heads, t.keys, t.width}
                  : Shape{t.items, t.keys, t.heads, t.width};
}

const std::byte* GatheredRows::data() const {
  const std::lock_guard lock(mutex_);
  if (!all_) all_ = cast(gather(), dtype_);
  return all_->raw();
}

Tensor GatheredRows::gather() const {
  const RowTable& t = *table_;
  Tensor all(t.pool.dtype(), shape());
  if (all.size() == 0) return all;
  const std::size_t element = size_of(t.pool.dtype()), bytes = t.width * element;
  std::byte* const to = all.mutable_raw();
  for (std::size_t row = 0; row < t.rows.size(); ++row) {
    if (t.rows[row] == RowTable::kZeros) continue;
    const std::size_t item = row / t.keys, key = row % t.keys;
    for (std::size_t g = 0; g < t.heads; ++g) {
      const std::int64_t from = t.rows[row] + static_cast<std::int64_t>(g) * t.head;
      const std::size_t into = by_head_ ? (item * t.heads + g) * t.keys + key : row * t.heads + g;
      std::memcpy(to + into * bytes, t.pool.raw() + static_cast<std::size_t>(from) * element,
                  bytes);
    }
  }
  return all;
}

Tensor gathered_tensor(std::shared_ptr<const RowTable> table, DType dtype, bool by_head) {
  return Tensor(std::make_shared<const GatheredRows>(std::move(table), dtype, by_head));
}

const RowTable* row_table_of(const Tensor& tensor) {
  const GatheredRows* rows = tensor.rows();
  if (rows == nullptr) return nullptr;
  const RowTable& t = *rows->table();
  const bool in_order = rows->by_head() || t.heads <= 1 || t.keys <= 1;
  return in_order && tensor.shape() == Shape{t.items, t.heads, t.keys, t.width} ? &t : nullptr;
}

}  // namespace attn
