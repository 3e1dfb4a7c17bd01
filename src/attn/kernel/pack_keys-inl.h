// Packing of keys (see kernels.h), with conversion to T.
#pragma once

#include "attn/kernel/unpacked_keys-inl.h"

namespace attn::kernel::HWY_NAMESPACE {

template <class T>
void pack_keys(const Matrix& k, std::size_t first, std::size_t count, std::size_t all,
               std::size_t D, T* widened, T* panel) {
  constexpr std::size_t kColumns = kColumnsAtOnce<T>;
  const KeyRows<T> rows = key_rows(k, first, count, all, D, widened);
  for (std::size_t at = 0; at < kPanel<T>; at += kKeysAtOnce<T>, panel += kKeysAtOnce<T>) {
    const KeyRows<T> keys = rows.from(at, kKeysAtOnce<T>);
    KeyCursor<T> cursor(keys);
    std::size_t column = 0;
    for (; column + kColumns <= D; column += kColumns) {
      if (keys.next) prefetch_keys(keys.next, keys.step, column);
      Vec<T> columns[kKeyVectors][kColumns];
      transpose_keys<0>(cursor, columns[0]);
      transpose_keys<1>(cursor, columns[1]);
      cursor.advance(kColumns);
#pragma GCC unroll 8
      for (std::size_t i = 0; i < kColumns; ++i)
        for (std::size_t j = 0; j < kKeyVectors; ++j)
          hn::Store(columns[j][i], Tag<T>(), panel + (column + i) * kPanel<T> + j * kLanes<T>);
    }
    for (; column < D; ++column)
      for (std::size_t i = 0; i < kKeysAtOnce<T>; ++i)
        panel[column * kPanel<T> + i] = keys.at(i)[column];
  }
}

}  // namespace attn::kernel::HWY_NAMESPACE
