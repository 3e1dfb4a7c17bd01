// The part of the backward kernels that does not depend on the instruction set: one block of keys
// and its scratch memory.
#pragma once

#include <cstddef>

#include "attn/kernel/backward.h"
#include "attn/kernel/rows.h"

namespace attn::kernel {

struct Reach;

/// Queries of one step, whole groups of rows. Geometry has the number of keys.
inline constexpr std::size_t kBackwardRows = 96;

template <class T>
struct BackwardScratch {
  Row<T>* row = nullptr;   ///< (rows)
  Reach* reach = nullptr;  ///< of each tile of rows
  T* query = nullptr;      ///< (rows, D), if queries cannot be read in place
  T* grad = nullptr;       ///< (rows, Dv), of the context, likewise
  T* panels = nullptr;     ///< (rows, max(depth, value_depth)): a right factor, packed
  T* weights = nullptr;    ///< (rows, stride): scores, then weights after dropout
  T* slopes = nullptr;     ///< (rows, stride): grad_A, then grad_scaled
  T *raw = nullptr, *scaled = nullptr, *masked = nullptr;  ///< (rows, stride), with a softcap
  T* running_max = nullptr;                                ///< (rows, lanes)
  T* widened = nullptr;                                    ///< (panel, max(D, Dv))
  T* key_panels = nullptr;                                 ///< keys, packed
  T* value_panels = nullptr;                               ///< values, packed as keys
  T* key_factor = nullptr;                                 ///< (keys, depth): keys, all finite
  T* grad_query = nullptr;  ///< (rows, depth): what the block adds to grad_Q, or grad_Q itself
  T* grad_key = nullptr;    ///< (keys, depth): sums of grad_K / scale
  T* grad_value = nullptr;  ///< (keys, value_depth): sums of grad_V
  std::size_t stride = 0, depth = 0, value_depth = 0;  ///< the last two in whole vectors
};

/// Keys [first, first + count) of a batch item and key/value head.
template <class T>
struct BackwardKeys {
  const BackwardProblem<T>& in;
  const BackwardResults<T>& out;
  std::size_t b = 0, g = 0, first = 0, count = 0;
  BackwardScratch<T> scratch;
  bool adds_to_queries = false;  ///< grad_query has the parts of earlier keys
};

/// Rows of sums in scratch memory, `stride` apart.
template <class T>
struct BackwardSums {
  const T* from;
  std::size_t stride, rows, columns;
  T scale = 1;
};

}  // namespace attn::kernel
