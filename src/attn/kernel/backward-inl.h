// One step of the backward pass: a block of queries of one head and a block of keys (see
// backward.h). Scores are those of the forward pass, with all modifiers.
#pragma once

#include <array>
#include <limits>

#include "attn/kernel/begin-inl.h"
#include "attn/kernel/finish-inl.h"
#include "attn/kernel/pack_keys-inl.h"
#include "attn/kernel/values-inl.h"

namespace attn::kernel::HWY_NAMESPACE {

/// Keys of one step, whole panels. Two matrices of weights, and keys, values and their gradients
/// with up to 64 elements, fit into a level 2 cache of 512 KiB, or, as processors with AVX-512 have
/// it, of 1 MiB.
inline constexpr std::size_t kBackwardKeys = HWY_TARGET == HWY_AVX3 ? 384 : 192;

/// Calls f(Constant<vectors>, first column) for each panel of a matrix of `columns` columns.
template <class T, class F>
void in_panels_of_columns(std::size_t columns, F f) {
  in_powers_of_two<kTileVectors>((columns + kLanes<T> - 1) / kLanes<T>,
                                 [&](auto v, std::size_t at) ATTN_INLINE { f(v, at * kLanes<T>); });
}

/// Rows [first, first + count) of a matrix, contiguous: in place, or converted into `buffer`.
template <class T>
const T* contiguous_rows(const Matrix& matrix, std::size_t first, std::size_t count,
                         std::size_t columns, T* buffer) {
  const Rows<T> source(matrix, columns);
  if (source.in_place() && matrix.row == static_cast<std::int64_t>(columns))
    return source.at(first, nullptr);
  for (std::size_t i = 0; i < count; ++i) {
    T* to = buffer + i * columns;
    const T* from = source.at(first + i, to);
    for (std::size_t j = 0; from != to && j < columns; ++j) to[j] = from[j];
  }
  return buffer;
}

/// Reads one element of each cache line. A product reads a few elements of a few rows at a time, so
/// the processor fetches rows that are not in the level 2 cache one after another; here they
/// arrive together.
template <class T>
HWY_INLINE void read_lines(const T* from, std::size_t count) {
  for (std::size_t i = 0; i < count; i += 64 / sizeof(T))
    static_cast<void>(*static_cast<const volatile T*>(from + i));
}

/// Starts to fetch the cache lines of [to, to + count), which will be written.
template <class T>
HWY_INLINE void prefetch_for_writing(T* to, std::size_t count) {
  for (std::size_t i = 0; i < count; i += 64 / sizeof(T)) __builtin_prefetch(to + i, 1);
}

/// Packs the right factor of a product, `rows` times `scale`, in panels of columns; the last ones
/// have fewer vectors. A product with a hidden key or query is 0 * x, so NaN and infinite elements
/// become 0. Returns whether there are none.
template <class T>
HWY_NOINLINE bool pack_factor(const T* rows, std::size_t count, std::size_t columns, T scale,
                              T* panels) {
  const Tag<T> d;
  bool finite = true;
  in_panels_of_columns<T>(columns, [&](auto v, std::size_t column) ATTN_INLINE {
    constexpr std::size_t kVectors = decltype(v)::value, kWidth = kVectors * kLanes<T>;
    T* const panel = panels + column * count;
    Vec<T> probes[kVectors];  // 0 * x + probe is 0 as long as every x is finite
    unrolled<kVectors>([&](std::size_t n) ATTN_INLINE { probes[n] = hn::Zero(d); });
    if (column + kWidth <= columns) {
      for (std::size_t i = 0; i < count; ++i)
        unrolled<kVectors>([&](std::size_t n) ATTN_INLINE {
          const Vec<T> x = hn::LoadU(d, rows + i * columns + column + n * kLanes<T>);
          probes[n] = hn::MulAdd(x, hn::Zero(d), probes[n]);
          hn::Store(hn::Mul(x, hn::Set(d, scale)), d, panel + i * kWidth + n * kLanes<T>);
        });
    } else {
      for (std::size_t i = 0; i < count; ++i)
        for (std::size_t j = 0; j < kWidth; ++j) {
          const T x = column + j < columns ? rows[i * columns + column + j] : T(0);
          if (!is_finite(x)) probes[0] = hn::Set(d, x - x);
          panel[i * kWidth + j] = x * scale;
        }
    }
    Vec<T> probe = probes[0];
    for (std::size_t n = 1; n < kVectors; ++n) probe = hn::Add(probe, probes[n]);
    if (is_finite(total<T>(probe))) return;
    finite = false;
    for (std::size_t j = 0; j < count * kWidth; ++j)
      if (!is_finite(panel[j])) panel[j] = 0;
  });
  return finite;
}

template <class T>
void backward_begin(const BackwardKeys<T>& keys) {
  const AttentionProblem<T>& p = keys.in.problem;
  const BackwardScratch<T>& s = keys.scratch;
  const Matrix k = matrix_of(p.k, keys.b, keys.g), v = matrix_of(p.v, keys.b, keys.g);
  for (std::size_t key = 0; key < keys.count; key += kPanel<T>) {
    const std::size_t count = HWY_MIN(kPanel<T>, keys.count - key);
    pack_keys(k, FactorForm::numbers, keys.first + key, count, p.S, p.D, s.widened,
              s.key_panels + key * p.D);
    pack_keys(v, FactorForm::numbers, keys.first + key, count, p.S, p.Dv, s.widened,
              s.value_panels + key * p.Dv);
  }
  const Rows<T> rows(k, p.D);
  for (std::size_t key = 0; key < keys.count; ++key) {
    T* to = s.key_factor + key * s.depth;
    if (copy_row(rows.at(keys.first + key, s.widened), p.D, s.depth, to)) continue;
    for (std::size_t j = 0; j < p.D; ++j)
      if (!is_finite(to[j])) to[j] = 0;
  }
  fill(s.grad_key, keys.count * s.depth, T(0));
  fill(s.grad_value, keys.count * s.value_depth, T(0));
}

/// Columns [from, to) of the weights and slopes of a tile of rows; the others are 0.
struct Columns {
  std::size_t from = 0, to = 0;
  bool empty() const { return from == to; }
};

/// A tile of A^T B, added to rows of `out`: sums over rows [from, to) of `a` and of the panel `b`,
/// whose columns are the rows and columns of the tile.
template <class T, std::size_t Rows, std::size_t Vectors>
HWY_INLINE void add_transposed_tile(std::size_t from, std::size_t to, const T* a,
                                    std::size_t a_stride, const T* b, T* out,
                                    std::size_t out_stride) {
  constexpr std::size_t kWidth = Vectors * kLanes<T>;
  const Tag<T> d;
  Vec<T> sums[Rows][Vectors];
  unrolled<Rows>([&](std::size_t i) ATTN_INLINE {
    unrolled<Vectors>([&](std::size_t j) ATTN_INLINE { sums[i][j] = hn::Zero(d); });
  });
  a += from * a_stride;
  b += from * kWidth;
#pragma GCC unroll 1
  for (std::size_t k = from; k < to; ++k, a += a_stride, b += kWidth) {
    Vec<T> b_row[Vectors];
#pragma GCC unroll 8
    for (std::size_t j = 0; j < Vectors; ++j) b_row[j] = hn::LoadU(d, b + j * kLanes<T>);
#pragma GCC unroll 16
    for (std::size_t i = 0; i < Rows; ++i) {
      const Vec<T> a_element = hn::Set(d, a[i]);
#pragma GCC unroll 8
      for (std::size_t j = 0; j < Vectors; ++j)
        sums[i][j] = hn::MulAdd(a_element, b_row[j], sums[i][j]);
    }
  }
#pragma GCC unroll 16
  for (std::size_t i = 0; i < Rows; ++i)
#pragma GCC unroll 8
    for (std::size_t j = 0; j < Vectors; ++j) {
      T* at = out + i * out_stride + j * kLanes<T>;
      hn::Store(hn::Add(hn::Load(d, at), sums[i][j]), d, at);
    }
}

/// Adds the transpose of a step's `weights` (rows, weights_stride) times a packed factor of
/// `columns` columns to the sums of keys [keys.from, keys.to), `width` apart, in tiles of keys.
/// Each tile uses only the rows that may see it. All tiles are multiplied by a panel, which the
/// level 1 cache holds, before the next one.
template <class T>
HWY_NOINLINE void add_transposed(const Columns* visible, std::size_t rows, const Columns& keys,
                                 const T* weights, std::size_t weights_stride, const T* panels,
                                 std::size_t columns, T* out, std::size_t width) {
  const std::size_t tiles = (rows + kTileRows - 1) / kTileRows;
  struct Tile {
    std::size_t key, keys, from, to;
  };
  static_assert(kBackwardKeys % kTileRows == 0);
  Tile visited[kBackwardKeys / kTileRows];
  std::size_t count = 0;
  for (std::size_t key = keys.from; key < keys.to; key += kTileRows) {
    const std::size_t end = HWY_MIN(key + kTileRows, keys.to);
    const auto sees = [&](std::size_t t) { return visible[t].from < end && key < visible[t].to; };
    std::size_t first = 0, last = tiles;
    while (first < last && !sees(first)) ++first;
    while (first < last && !sees(last - 1)) --last;
    if (first == last) continue;
    visited[count++] = {key, end - key, first * kTileRows, HWY_MIN(last * kTileRows, rows)};
  }
  in_panels_of_columns<T>(columns, [&](auto v, std::size_t column) ATTN_INLINE {
    constexpr std::size_t kVectors = decltype(v)::value;
    for (std::size_t t = 0; t < count; ++t) {
      const Tile& tile = visited[t];
      with_constant<kTileRows>(tile.keys, [&](auto r) ATTN_INLINE {
        add_transposed_tile<T, decltype(r)::value, kVectors>(
            tile.from, tile.to, weights + tile.key, weights_stride, panels + column * rows,
            out + tile.key * width + column, width);
      });
    }
  });
}

/// One step of the backward pass.
template <class T>
class BackwardStep {
 public:
  BackwardStep(const BackwardKeys<T>& keys, std::size_t first, std::size_t rows)
      : keys_(keys), p_(keys.in.problem), s_(keys.scratch), first_(first), rows_(rows) {}

  void run() {
    const Results<T> no_results;
    make_rows(p_, no_results, first_, rows_, s_.row);
    const Span all{static_cast<std::int64_t>(keys_.first),
                   static_cast<std::int64_t>(keys_.first + keys_.count)};
    const Reach reach = reach_of(s_.row, rows_);
    hull_ = in_panels(columns(intersection(all, {reach.first, reach.last})));
    if (hull_.empty()) return leave_queries(0, rows_);
    fill(s_.running_max, rows_ * kLanes<T>, -kInfinity<T>);  // is computed, but not used

    QueryBlock<T> block{
        .problem = p_, .first = first_, .rows = rows_, .kv = {}, .scratch = score_scratch()};
    block.query = load_queries(p_, FactorForm::numbers, s_.row, rows_,
                               p_.head_scales != nullptr && s_.raw == nullptr, s_.query);
    query_ = block.query;
    grad_ = load_grad();
    for (std::size_t i = 0; i < rows_; i += kGroupRows)
      groups_of_rows(block, i, HWY_MIN(i + kGroupRows, rows_), all);
    add_to_keys();
  }

 private:
  Columns columns(Span keys) const {
    if (keys.empty()) return {};
    return {static_cast<std::size_t>(keys.first) - keys_.first,
            static_cast<std::size_t>(keys.last) - keys_.first};
  }

  /// The panels that contain `some`.
  static Columns in_panels(Columns some) {
    if (some.empty()) return {};
    return {some.from - some.from % kPanel<T>, round_up(some.to, kPanel<T>)};
  }

  Scratch<T> score_scratch() const {
    Scratch<T> scratch;
    scratch.row = s_.row;
    scratch.reach = s_.reach;
    scratch.full_rows = true;
    scratch.scores = s_.weights;
    scratch.raw = s_.raw, scratch.scaled = s_.scaled, scratch.masked = s_.masked;
    scratch.score_stride = s_.stride;
    scratch.running_max = s_.running_max;
    scratch.widened = s_.widened;
    return scratch;
  }

  const T* load_grad() const {
    const std::size_t head = first_ / p_.L % p_.H;
    return contiguous_rows(matrix_of(keys_.in.grad_context, keys_.b, head), first_ % p_.L, rows_,
                           p_.Dv, s_.grad);
  }

  /// group_of_rows() for rows [i, end): together if all of them see all keys, otherwise by tiles.
  void groups_of_rows(QueryBlock<T>& block, std::size_t i, std::size_t end, Span all) {
    const Reach reach = reach_of(s_.row + i, end - i);
    const bool all_visible = !has_masks(p_) && !has_biases(p_) && reach.all_first <= all.first &&
                             reach.all_last >= all.last;
    block.group_rows = all_visible ? kGroupRows : kTileRows;
    for (; i < end; i += block.group_rows) {
      s_.reach[i / block.group_rows] = reach_of(s_.row + i, HWY_MIN(block.group_rows, end - i));
      group_of_rows(RowGroup<T>(block, i), all);
    }
  }

  /// Computes weights, slopes and gradients of the queries for a group of rows.
  void group_of_rows(const RowGroup<T>& group, Span all) {
    const Span visible = score_keys_of(group, all, s_.key_panels, Matrix{}, 0);
    const Columns reached = columns(group.reached(visible)), here = in_panels(reached);
    for (std::size_t r = 0; r < group.rows; r += kTileRows)
      visible_[(group.i + r) / kTileRows] = reached;
    T* const weights = s_.weights + group.i * s_.stride;
    T* const slopes = s_.slopes + group.i * s_.stride;
    for (std::size_t r = 0; r < group.rows; ++r)
      for (T* row : {weights + r * s_.stride, slopes + r * s_.stride}) {
        const std::size_t from = here.empty() ? hull_.to : here.from;
        fill(row + hull_.from, from - hull_.from, T(0));
        if (!here.empty()) fill(row + here.to, hull_.to - here.to, T(0));
      }
    if (here.empty()) return leave_queries(group.i, group.rows);
    multiply_by_values(group, reached, slopes);
    for (std::size_t r = 0; r < group.rows; ++r) {
      prefetch(group.i + r);
      differentiate(group.i + r, here);
    }
    if (keys_.out.q) add_to_queries(group, reached);
  }

  /// Prefetches the gradients of query i, and the query that is visited kGroupRows queries later:
  /// blocks follow one another from the last to the first. A few lines for each query do not delay
  /// the products.
  HWY_INLINE void prefetch(std::size_t i) const {  // GCC would remove a call without effects
    if (keys_.out.q) prefetch_for_writing(keys_.out.q + (first_ + i) * p_.D, p_.D);
    auto next = static_cast<std::ptrdiff_t>(i + kGroupRows);
    if (i + kGroupRows >= rows_) next -= static_cast<std::ptrdiff_t>(rows_ + kBackwardRows);
    if (next < 0 && first_ % p_.L == 0) return;
    prefetch_elements(query_ + next * static_cast<std::ptrdiff_t>(p_.D), p_.D);
    prefetch_elements(grad_ + next * static_cast<std::ptrdiff_t>(p_.Dv), p_.Dv);
  }

  /// slopes = grad_context V^T / temperature, for the vectors that contain `reached`.
  void multiply_by_values(const RowGroup<T>& group, Columns reached, T* slopes) const {
    const Columns here = in_panels(reached);
    const std::size_t whole = (reached.to - here.from) / kPanel<T>;
    const auto multiply = [&](std::size_t from, std::size_t panels, std::size_t vectors) {
      score_rows<T>(group.rows, vectors, panels, p_.Dv, grad_ + group.i * p_.Dv,
                    s_.value_panels + from * p_.Dv, 1 / p_.temperature, slopes + from, s_.stride,
                    nullptr);
    };
    if (whole > 0) multiply(here.from, whole, kTileVectors);
    const std::size_t end = here.from + whole * kPanel<T>;
    if (end < reached.to) multiply(end, 1, (reached.to - end + kLanes<T> - 1) / kLanes<T>);
  }

  /// Turns scores into weights, and gradients of these into gradients of scaled scores.
  void differentiate(std::size_t i, Columns here) {
    const Row<T>& row = s_.row[i];
    T* const weights = s_.weights + i * s_.stride;
    T* const slopes = s_.slopes + i * s_.stride;
    const std::size_t flat = first_ + i;
    const T log = keys_.in.logsumexp[flat];
    // All weights are NaN if a visible score is infinite.
    const T shift = log == kInfinity<T> ? std::numeric_limits<T>::quiet_NaN() : in_base_2(log);
    const T rest = keys_.in.remainder ? keys_.in.remainder[flat] : T(0);
    const T extra = keys_.in.grad_logsumexp ? keys_.in.grad_logsumexp[flat] : T(0);
    const T center = (keys_.in.delta[flat] - extra) / p_.temperature;
    if (row.dropout)
      weigh<true>(weights, slopes, here, {shift, rest}, center, dropout_of(row, here));
    else
      weigh<false>(weights, slopes, here, {shift, rest}, center, nullptr);
    if (!(p_.softcap > 0)) return add_to_biases(row, slopes, here);
    if (!p_.softcap_last) add_to_biases(row, slopes, here);
    apply_cap((p_.softcap_last ? s_.masked : s_.scaled) + i * s_.stride, slopes, here);
    if (p_.softcap_last) add_to_biases(row, slopes, here);
  }

  const std::uint8_t* dropout_of(const Row<T>& row, Columns here) {
    return contiguous(
        row.dropout, p_.dropout.strides.column, static_cast<std::int64_t>(keys_.first + here.from),
        static_cast<std::int64_t>(here.to - here.from), static_cast<std::int64_t>(p_.S), dropped_);
  }

  template <bool kDropout>
  HWY_INLINE void weigh(T* weights, T* slopes, Columns here, std::array<T, 2> log, T center,
                        const std::uint8_t* mask) const {
    const Tag<T> d;
    const Vec<T> shift = hn::Set(d, log[0]), rest = hn::Set(d, log[1]), mean = hn::Set(d, center);
    const Vec<T> factor = hn::Set(d, p_.dropout_factor);
    const bool hides = p_.dropout.hides;
    for (std::size_t j = here.from; j < here.to; j += kPanel<T>) {
      Vec<T> w[kTileVectors];
      unrolled<kTileVectors>([&](std::size_t n) {
        w[n] = hn::Sub(hn::Sub(hn::Load(d, weights + j + n * kLanes<T>), shift), rest);
      });
      exp2_each<T>(w);
      unrolled<kTileVectors>([&](std::size_t n) {
        const std::size_t at = j + n * kLanes<T>;
        // The difference is NaN for all keys if a visible one is NaN.
        const auto hidden = hn::Eq(hn::Load(d, weights + at), hn::Set(d, -kInfinity<T>));
        const Vec<T> weight = hn::IfThenZeroElse(hidden, w[n]);
        Vec<T> kept = weight, slope = hn::Load(d, slopes + at);
        if constexpr (kDropout) {
          const auto marked = nonzero(mask + at - here.from, d);
          const auto kept_if = [&](Vec<T> x) {
            const Vec<T> scaled = hn::Mul(x, factor);
            return hides ? hn::IfThenZeroElse(marked, scaled) : hn::IfThenElseZero(marked, scaled);
          };
          kept = kept_if(weight), slope = kept_if(slope);
        }
        hn::Store(kept, d, weights + at);
        hn::Store(
            hn::IfThenZeroElse(hn::Eq(weight, hn::Zero(d)), hn::Mul(weight, hn::Sub(slope, mean))),
            d, slopes + at);
      });
    }
  }

  /// The derivative of c tanh(x / c) is 1 - tanh^2.
  void apply_cap(const T* capped, T* slopes, Columns here) const {
    const Tag<T> d;
    const Vec<T> inverse = hn::Set(d, 1 / p_.softcap), one = hn::Set(d, T(1));
    for (std::size_t j = here.from; j < here.to; j += kLanes<T>) {
      const Vec<T> tanh = hn::Mul(hn::Load(d, capped + j), inverse);
      const Vec<T> slope = hn::Load(d, slopes + j);
      hn::Store(hn::IfThenZeroElse(hn::Eq(slope, hn::Zero(d)),
                                   hn::Mul(slope, hn::NegMulAdd(tanh, tanh, one))),
                d, slopes + j);
    }
  }

  void add_to_biases(const Row<T>& row, const T* slopes, Columns here) const {
    const std::size_t end = HWY_MIN(here.to, keys_.count);
    for (std::size_t m = 0; m < keys_.out.biases.size(); ++m) {
      if (!keys_.out.biases[m]) continue;
      const std::int64_t stride = p_.biases[m].strides.column;
      T* const to = keys_.out.biases[m] + (row.biases[m] - p_.biases[m].data) +
                    static_cast<std::int64_t>(keys_.first) * stride;
      for (std::size_t j = here.from; j < end; ++j)
        to[static_cast<std::int64_t>(j) * stride] += slopes[j];
    }
  }

  /// Adds nothing to the gradients of queries that see no key.
  void leave_queries(std::size_t i, std::size_t rows) const {
    if (!keys_.adds_to_queries) fill(s_.grad_query + i * s_.depth, rows * s_.depth, T(0));
  }

  /// scale * head_scale * slopes K for a group of rows.
  void add_to_queries(const RowGroup<T>& group, Columns reached) const {
    PerRow<T> scale, one;
    for (std::size_t r = 0; r < group.rows; ++r)
      scale.of[r] = p_.scale * s_.row[group.i + r].head_scale, one.of[r] = 1;
    const ValueBlock<T> factor{s_.key_factor, 0, 0, s_.depth, false, true};
    ValueProduct<T> product{};
    product.from = reached.from;
    product.to = reached.to;
    product.weights = s_.slopes + group.i * s_.stride;
    product.weights_stride = s_.stride;
    const Sums<T> to{s_.grad_query + group.i * s_.depth, s_.depth,
                     keys_.adds_to_queries ? one.of : nullptr, scale.of};
    in_tiles(group.rows,
             [&](const TileRows& some) { multiply_values(some, factor, s_.depth, product, to); });
  }

  void add_to_keys() {
    const Columns keys{hull_.from, HWY_MIN(hull_.to, keys_.count)};
    if (keys_.out.v) {
      const bool finite = pack_factor(grad_, rows_, p_.Dv, T(1), s_.panels);
      add_transposed(visible_, rows_, keys, s_.weights, s_.stride, s_.panels, p_.Dv, s_.grad_value,
                     s_.value_depth);
      if (!finite) add_non_finite_grads(keys);
    }
    if (keys_.out.k) {
      const T scale = s_.raw == nullptr ? T(1) : s_.row[0].head_scale;  // or `query_` has it
      pack_factor(query_, rows_, p_.D, scale, s_.panels);
      add_transposed(visible_, rows_, keys, s_.slopes, s_.stride, s_.panels, p_.D, s_.grad_key,
                     s_.depth);
    }
  }

  /// Adds NaN and infinite gradients of the context to the values that they depend on.
  void add_non_finite_grads(Columns keys) const {
    for (std::size_t i = 0; i < rows_; ++i)
      for (std::size_t j = 0; j < p_.Dv; ++j) {
        const T grad = grad_[i * p_.Dv + j];
        if (is_finite(grad)) continue;
        for (std::size_t key = keys.from; key < keys.to; ++key) {
          const T weight = s_.weights[i * s_.stride + key];
          if (weight != 0) s_.grad_value[key * s_.value_depth + j] += weight * grad;
        }
      }
  }

  const BackwardKeys<T>& keys_;
  const AttentionProblem<T>& p_;
  const BackwardScratch<T>& s_;
  std::size_t first_, rows_;  ///< flat rows
  Columns hull_;              ///< of the panels that any row may see
  Columns visible_[kBackwardRows / kTileRows];
  const T* query_ = nullptr;  ///< (rows, D)
  const T* grad_ = nullptr;   ///< (rows, Dv)
  std::uint8_t dropped_[kBackwardKeys];
};

template <class T>
void backward_rows(const BackwardKeys<T>& keys, std::size_t first, std::size_t rows) {
  BackwardStep<T>(keys, first, rows).run();
}

template <class T>
void backward_write(const BackwardSums<T>& sums, bool add, T* to) {
  const Tag<T> d;
  const Vec<T> scale = hn::Set(d, sums.scale);
  for (std::size_t i = 0; i < sums.rows; ++i, to += sums.columns) {
    const T* from = sums.from + i * sums.stride;
    std::size_t j = 0;
    for (; j + kLanes<T> <= sums.columns; j += kLanes<T>) {
      const Vec<T> sum = hn::Mul(hn::LoadU(d, from + j), scale);
      hn::StoreU(add ? hn::Add(hn::LoadU(d, to + j), sum) : sum, d, to + j);
    }
    for (; j < sums.columns; ++j) {
      const T sum = from[j] * sums.scale;
      to[j] = add ? to[j] + sum : sum;
    }
  }
}

}  // namespace attn::kernel::HWY_NAMESPACE
