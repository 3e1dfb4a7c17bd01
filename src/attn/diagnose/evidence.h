// A wrong result, and how far a variant explains it.
#pragma once

#include <cstddef>
#include <optional>
#include <vector>

#include "attn/bounds/expected_error.h"
#include "attn/diagnose/variant.h"
#include "attn/metrics/comparison.h"
#include "attn/problem/axis.h"
#include "attn/problem/output_table.h"

namespace attn {

class Pattern;

/// A variant is named if it explains at least this share of the elements.
inline constexpr double kExplained = 0.99;

struct Excerpt;

/// A result of a kernel that differs from its job.
struct Evidence {
  Request output;           ///< an Output or a Gradient
  const Tensor& result;     ///< of the shape of `reference`
  const Tensor& reference;  ///< the job's output in f64
  const Tensor* bounds;     ///< of the reference, f64; nullptr: use `tolerance`
  Tolerance tolerance;
  const Precision* precision;        ///< that of `bounds`
  Matrices view;                     ///< of all these tensors
  const Excerpt* excerpt = nullptr;  ///< nullptr: the tensors are complete

  double bound_at(std::size_t element) const;  ///< of the reference
};

/// What Evidence has of a result that is compared in parts.
struct Excerpt {
  const HeadSample* heads = nullptr;    ///< which items and heads; nullptr: all, but not all rows
  const Evidence* some_rows = nullptr;  ///< some rows of all heads
  const Pattern* pattern = nullptr;     ///< where all elements are wrong
};

/// How much of a result is a sample: queries, and key/value heads of all items.
struct SampleSize {
  std::size_t queries = 0, all_queries = 0;
  std::size_t heads = 0, all_heads = 0;
};

/// How many elements a variant explains: those within its error bound, or NaN or infinite like it.
struct Fit {
  std::size_t elements = 0, outside = 0;
  std::size_t finite = 0;
  double squares = 0;        ///< of the errors of finite elements
  double wrong_squares = 0;  ///< the same of elements that differ from the job
  std::vector<bool> is_outside = {};

  double explained() const {
    return elements == 0 ? 1 : 1 - static_cast<double>(outside) / static_cast<double>(elements);
  }
  double rms() const;
  void add(const Fit& other);
};

/// `bounds` may be nullptr: those of the tolerance. `wrong`: elements that differ from the job;
/// empty: those outside.
Fit fit(const Tensor& result, const Tensor& values, const Tensor* bounds,
        const Tolerance& tolerance, DType dtype, const std::vector<bool>& wrong);

/// Whether an element is explained.
bool is_within(double a, double b, double bound);

/// The bound that a tolerance gives for a reference value.
double bound_of(const Tolerance& tolerance, double value, DType dtype);
/// The bound of this element, f64, or without bounds that of the tolerance.
inline double bound_of(const Tensor* bounds, std::size_t element, const Tolerance& tolerance,
                       double value, DType dtype) {
  return bounds != nullptr ? bounds->data<double>()[element] : bound_of(tolerance, value, dtype);
}

/// The largest error of each row relative to its bound, over all items, heads and columns:
/// infinite for NaN or infinities that differ.
std::vector<double> row_errors(const Evidence& evidence);

/// The same of each matrix (B, H).
std::vector<double> matrix_errors(const Evidence& evidence);

/// Items and key/value heads that represent a large problem, with the query heads that share these:
/// those with the largest error and the smallest, and up to two others. `errors`: of each matrix
/// (B, H). `elements`: of the inputs of a key/value head. Empty if these are all.
HeadSample sampled_heads(const std::vector<double>& errors, std::size_t B, std::size_t H,
                         std::size_t G, std::size_t elements);

/// At most `count` indices: those of the largest and the smallest number, and others at equal
/// distances.
std::vector<std::size_t> spread(const std::vector<double>& numbers, std::size_t count);

/// Rows that represent all, at most `count`, in an order in which any number of the first are
/// representative: the first and last four, the worst and best, those around `edges` and
/// around multiples of 16, 64 and 128, and others at random.
std::vector<std::size_t> sampled_rows(const std::vector<double>& errors, std::size_t count,
                                      const std::vector<std::size_t>& edges);

}  // namespace attn
