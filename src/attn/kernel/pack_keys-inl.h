// Packing of keys (see kernels.h), with conversion to T.
#pragma once

#include "attn/kernel/unpacked_keys-inl.h"

namespace attn::kernel::HWY_NAMESPACE {

/// Packs keys into a panel, where keys_at(at, count) are `count` keys from key `at` of the panel
/// on.
template <class T, class Keys>
HWY_INLINE void pack_panel(std::size_t depth, Keys keys_at, T* panel) {
  constexpr std::size_t kColumns = kColumnsAtOnce<T>, kVectors = 2, kKeys = kVectors * kLanes<T>;
  for (std::size_t at = 0; at < kPanel<T>; at += kKeys, panel += kKeys) {
    const KeyRows<T> keys = keys_at(at, kKeys);
    KeyCursor<T, kVectors> cursor(keys);
    std::size_t column = 0;
    for (; column + kColumns <= depth; column += kColumns) {
      if (keys.next) prefetch_keys<kKeys>(keys, column);
      Vec<T> columns[kVectors][kColumns];
      transpose_keys(cursor, columns);
      cursor.advance(kColumns);
#pragma GCC unroll 8
      for (std::size_t i = 0; i < kColumns; ++i)
        for (std::size_t j = 0; j < kVectors; ++j)
          hn::Store(columns[j][i], Tag<T>(), panel + (column + i) * kPanel<T> + j * kLanes<T>);
    }
    for (; column < depth; ++column)
      for (std::size_t i = 0; i < kKeys; ++i) panel[column * kPanel<T> + i] = keys.at(i)[column];
  }
}

template <class T, class Panel>
HWY_NOINLINE void pack_copies(const Panel& keys, T* panel) {
  pack_panel(
      keys.depth(), [&](std::size_t at, std::size_t count) { return keys.copied(at, count); },
      panel);
}

/// pack_keys() for keys that only one block uses, which come from main memory.
template <class T>
void pack_copied_keys(const KeyPanel<T>& keys, FactorForm factors, T* panel) {
  if (factors == FactorForm::numbers) return pack_copies(keys, panel);
  if constexpr (std::is_same_v<T, float>) pack_copies(RoundedPanel<T>{keys, factors}, panel);
}

template <class T>
void pack_keys(const Matrix& k, FactorForm factors, std::size_t first, std::size_t count,
               std::size_t all, std::size_t D, T* widened, T* panel) {
  const KeyPanel<T> keys{k, D, first, count, all, widened};
  if (factors != FactorForm::numbers) return pack_copied_keys(keys, factors, panel);
  pack_panel(
      D,
      [&](std::size_t at, std::size_t count_at_once) {
        return keys.in_place_or_copied(at, count_at_once, std::numeric_limits<std::int64_t>::max(),
                                       0);
      },
      panel);
}

}  // namespace attn::kernel::HWY_NAMESPACE
