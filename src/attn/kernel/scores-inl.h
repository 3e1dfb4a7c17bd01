// Scores of a block of queries and a panel of keys: softcap, biases and what is hidden.
#pragma once

#include "attn/kernel/kernels.h"
#include "attn/kernel/pack-inl.h"
#include "attn/kernel/simd-inl.h"
#include "attn/kernel/tile-inl.h"

namespace attn::kernel::HWY_NAMESPACE {

/// How much of a panel the masks let the rows of a tile see.
enum class Seen { none, some, all };

HWY_INLINE std::int64_t lesser(std::int64_t a, std::int64_t b) { return a < b ? a : b; }
HWY_INLINE std::int64_t greater(std::int64_t a, std::int64_t b) { return a > b ? a : b; }
HWY_INLINE std::int64_t between(std::int64_t low, std::int64_t x, std::int64_t high) {
  return x < low ? low : x > high ? high : x;
}

/// Whether any and whether all of `count` elements let a key be seen.
struct AnyAll {
  bool any = false, all = true;
};
template <class X, class IsSeen>
HWY_INLINE AnyAll any_all(const X* x, std::int64_t stride, std::int64_t count, IsSeen is_seen) {
  unsigned any = 0, all = 1;
  if (stride == 1) {  // by itself, so that it is compiled to vectors
    for (std::int64_t i = 0; i < count; ++i) {
      const unsigned seen = is_seen(x[i]);
      any |= seen;
      all &= seen;
    }
  } else {
    for (std::int64_t i = 0; i < count; ++i) {
      const unsigned seen = is_seen(x[i * stride]);
      any |= seen;
      all &= seen;
    }
  }
  return {any != 0, all != 0};
}

/// What mask and bias say about keys [first, first + count) in any of the tile's rows.
template <class T>
Seen seen_by_masks(const Problem<T>& p, const Row<T>* row, std::size_t rows, std::int64_t first,
                   std::int64_t count) {
  if (!p.mask && !p.bias) return Seen::all;
  AnyAll seen;
  for (std::size_t i = 0; i < rows; ++i) {
    if (i > 0 && row[i].mask == row[i - 1].mask && row[i].bias == row[i - 1].bias) continue;
    AnyAll here{true, true};
    if (p.mask)
      here = any_all(row[i].mask + first * p.mask_strides.column, p.mask_strides.column, count,
                     [](std::uint8_t m) -> unsigned { return m != 0; });
    if (p.bias && here.any) {
      const AnyAll biased =
          any_all(row[i].bias + first * p.bias_strides.column, p.bias_strides.column, count,
                  [](T x) -> unsigned { return !(x == -kInfinity<T>); });
      here = {biased.any, here.all && biased.all};
    }
    seen = {seen.any || here.any, seen.all && here.all};
    if (seen.any && (!seen.all || p.bias)) return Seen::some;  // a bias has to be added anyway
  }
  return !seen.any ? Seen::none : seen.all ? Seen::all : Seen::some;
}

/// `count` of a row's elements from key `first` on, contiguous: where they stand if a whole panel
/// of them is there, otherwise copied, zeros in place of those that are not.
template <class T, class X>
HWY_INLINE const X* contiguous(const X* row, std::int64_t stride, std::int64_t first,
                               std::int64_t count, X (&copy)[kPanel<T>]) {
  row += first * stride;
  if (stride == 1 && count >= static_cast<std::int64_t>(kPanel<T>)) return row;
  for (std::int64_t i = 0; i < static_cast<std::int64_t>(kPanel<T>); ++i)
    copy[i] = i < count ? row[i * stride] : X(0);
  return copy;
}

/// Which lanes' bytes are not zero.
HWY_INLINE hn::Mask<Tag<float>> nonzero(const std::uint8_t* bytes, Tag<float> d) {
  const hn::RebindToUnsigned<Tag<float>> du;
  const hn::Rebind<std::uint8_t, Tag<float>> d8;
  return hn::MaskFromVec(hn::BitCast(
      d, hn::VecFromMask(du, hn::Ne(hn::PromoteTo(du, hn::LoadU(d8, bytes)), hn::Zero(du)))));
}
HWY_INLINE hn::Mask<Tag<double>> nonzero(const std::uint8_t* bytes, Tag<double> d) {
  const hn::RebindToUnsigned<Tag<double>> du;
  const hn::Rebind<std::uint32_t, Tag<double>> d32;
  const hn::Rebind<std::uint8_t, Tag<double>> d8;
  const auto wide = hn::PromoteTo(du, hn::PromoteTo(d32, hn::LoadU(d8, bytes)));
  return hn::MaskFromVec(hn::BitCast(d, hn::VecFromMask(du, hn::Ne(wide, hn::Zero(du)))));
}

/// Whether anything but hiding comes between the scaled scores and the softmax.
template <class T>
HWY_INLINE bool has_terms(const Problem<T>& p) {
  return p.bias || p.alibi || p.softcap > 0;
}

/// Scores in the strip are in units of log(2), as exp2() takes them. Where terms are added it is
/// finish_scores() that makes them that; otherwise it is part of the scale.
template <class T>
HWY_INLINE T strip_scale(const Problem<T>& p) {
  return has_terms(p) ? p.scale : static_cast<T>(p.scale * kLog2e);
}

/// The scores of a tile's rows and one panel of keys, to be worked on in steps.
template <class T>
class PanelScores {
 public:
  PanelScores(const Problem<T>& p, const Row<T>* row, std::size_t rows, std::int64_t first,
              std::size_t vectors, T* scores, std::size_t stride)
      : p_(p),
        row_(row),
        rows_(rows),
        first_(first),
        vectors_(vectors),
        scores_(scores),
        stride_(stride) {}

  void softcap() const {
    const T cap = p_.softcap;
    for (std::size_t r = 0; r < rows_; ++r)
      each(r, [=](Vec<T> score, std::size_t) { return HWY_NAMESPACE::softcap<T>(score, cap); });
  }

  void add_alibi() const {
    for (std::size_t r = 0; r < rows_; ++r) {
      const Vec<T> slope = hn::Set(Tag<T>(), row_[r].slope);
      const auto ahead = static_cast<T>(first_ - row_[r].center);
      each(r, [=](Vec<T> score, std::size_t lane) {
        const Vec<T> distance = hn::Abs(hn::Iota(Tag<T>(), ahead + static_cast<T>(lane)));
        return hn::NegMulAdd(slope, distance, score);
      });
    }
  }

  /// Also turns to units of log(2): a bias of the lowest finite numbers, which hides by outweighing
  /// only, has to stay finite.
  void add_bias() const {
    const Tag<T> d;
    const Vec<T> hidden = hn::Set(d, -kInfinity<T>), log2e = hn::Set(d, static_cast<T>(kLog2e));
    const Vec<T> lowest = hn::Set(d, std::numeric_limits<T>::lowest());
    T copy[kPanel<T>];
    for (std::size_t r = 0; r < rows_; ++r) {
      const T* bias = contiguous<T>(row_[r].bias, p_.bias_strides.column, first_, keys(), copy);
      each(r, [=](Vec<T> score, std::size_t lane) {
        const Vec<T> term = hn::LoadU(d, bias + lane);
        const Vec<T> sum = hn::Add(score, term), scaled = hn::Mul(sum, log2e);
        const auto overflows = hn::And(hn::Lt(scaled, lowest), hn::Ge(sum, lowest));
        return hn::IfThenElse(hn::Eq(term, hidden), hidden,
                              hn::IfThenElse(overflows, lowest, scaled));
      });
    }
  }

  void hide_masked() const {
    const Vec<T> hidden = hn::Set(Tag<T>(), -kInfinity<T>);
    std::uint8_t copy[kPanel<T>];
    for (std::size_t r = 0; r < rows_; ++r) {
      const auto* mask = contiguous<T>(row_[r].mask, p_.mask_strides.column, first_, keys(), copy);
      each(r, [=](Vec<T> score, std::size_t lane) {
        return hn::IfThenElse(nonzero(mask + lane, Tag<T>()), score, hidden);
      });
    }
  }

  /// Hides what causal, window and lengths do.
  void hide_unreached() const {
    const Tag<T> d;
    const Vec<T> hidden = hn::Set(d, -kInfinity<T>);
    for (std::size_t r = 0; r < rows_; ++r) {
      const std::int64_t from = row_[r].first - first_, to = row_[r].last - first_;
      if (from <= 0 && to >= kWidth) continue;
      const Vec<T> least = hn::Set(d, static_cast<T>(between(0, from, kWidth)));
      const Vec<T> limit = hn::Set(d, static_cast<T>(between(0, to, kWidth)));
      each(r, [=](Vec<T> score, std::size_t lane) {
        const Vec<T> at = hn::Iota(d, static_cast<T>(lane));
        return hn::IfThenElse(hn::And(hn::Ge(at, least), hn::Lt(at, limit)), score, hidden);
      });
    }
  }

  /// Multiplies by `factor`, hides what has not been computed and raises running_max, a vector a
  /// row.
  void raise_max(T factor, T* running_max) const {
    const Tag<T> d;
    for (std::size_t r = 0; r < rows_; ++r) {
      Vec<T> most = hn::Load(d, running_max + r * kLanes<T>);
      each(r, [&](Vec<T> score, std::size_t) {
        score = hn::Mul(score, hn::Set(d, factor));
        most = hn::Max(most, score);
        return score;
      });
      hn::Store(most, d, running_max + r * kLanes<T>);
      for (std::size_t lane = vectors_ * kLanes<T>; lane < kPanel<T>; lane += kLanes<T>)
        hn::Store(hn::Set(d, -kInfinity<T>), d, scores_ + r * stride_ + lane);
    }
  }

 private:
  static constexpr auto kWidth = static_cast<std::int64_t>(kPanel<T>);

  std::int64_t keys() const { return lesser(kWidth, static_cast<std::int64_t>(p_.S) - first_); }

  /// score = f(score, its lane in the panel), for the computed vectors of row r.
  template <class F>
  HWY_INLINE void each(std::size_t r, F f) const {
    T* row = scores_ + r * stride_;
    for (std::size_t lane = 0; lane < vectors_ * kLanes<T>; lane += kLanes<T>)
      hn::Store(f(hn::Load(Tag<T>(), row + lane), lane), Tag<T>(), row + lane);
  }

  const Problem<T>& p_;
  const Row<T>* row_;
  const std::size_t rows_;
  const std::int64_t first_;
  const std::size_t vectors_;  ///< those computed; the rest of the panel is hidden
  T* const scores_;
  const std::size_t stride_;
};

/// strip = scale * raw for `rows` rows of a panel, and the running maximum as score_tile() has it.
template <class T>
void scale_raw(std::size_t rows, std::size_t vectors, const T* raw, T* strip, std::size_t stride,
               T scale, T* running_max) {
  const Tag<T> d;
  for (std::size_t i = 0; i < rows; ++i)
    for (std::size_t j = 0; j < vectors; ++j) {
      const std::size_t at = i * stride + j * kLanes<T>;
      const Vec<T> score = hn::Mul(hn::Load(d, raw + at), hn::Set(d, scale));
      hn::Store(score, d, strip + at);
      if (running_max == nullptr) continue;
      T* most = running_max + i * kLanes<T>;
      hn::Store(hn::Max(hn::Load(d, most), score), d, most);
    }
}

HWY_INLINE Span intersection(Span a, Span b) {
  return {greater(a.first, b.first), lesser(a.last, b.last)};
}

HWY_INLINE Span key_block_span(std::size_t number) {
  const auto first = static_cast<std::int64_t>(number * kKeyBlock);
  return {first, first + static_cast<std::int64_t>(kKeyBlock)};
}

/// A few rows of a block, as many as the micro-kernel takes at once.
template <class T>
struct TileView {
  const Problem<T>& p;
  const Scratch<T>& s;
  std::size_t i, rows;  ///< rows [i, i + rows) of the block
  const Tile& reach;
  T* strip;  ///< of the first row

  TileView(const RowBlock<T>& block, std::size_t row)
      : p(block.problem),
        s(block.scratch),
        i(row),
        rows(HWY_MIN(kTileRows, block.rows - row)),
        reach(s.tile[row / kTileRows]),
        strip(s.strip + (s.whole_rows ? row * s.strip_stride : 0)) {}

  /// How many panels from key `first` to key `end` on hide nothing by causal, window and lengths
  /// and add no terms.
  std::size_t plain_panels(std::int64_t first, std::int64_t end) const {
    if (has_terms(p) || first < reach.all_first) return 0;
    return static_cast<std::size_t>(greater(0, lesser(end, reach.all_last) - first)) / kPanel<T>;
  }
};

/// Scores against the panel of keys that starts at `first`, of which the masks show `masks`, into
/// column `column` of the strip.
template <class T>
void score_panel(const TileView<T>& tile, std::int64_t first, Seen masks, const T* keys,
                 std::size_t column) {
  const auto& [p, s, i, rows, reach, strip] = tile;
  const T* query = s.query + i * p.D;
  T* running_max = s.running_max + i * kLanes<T>;
  constexpr auto kWidth = static_cast<std::int64_t>(kPanel<T>);
  const auto width = static_cast<std::size_t>(between(0, reach.last - first, kWidth));
  const bool reached = width > 0 && reach.first < first + kWidth;
  const std::size_t vectors =
      reached && masks != Seen::none ? round_up(width, kLanes<T>) / kLanes<T> : 0;
  const bool plain = masks == Seen::all && tile.plain_panels(first, first + kWidth) == 1;
  T* plain_max = plain ? running_max : nullptr;
  if (s.raw != nullptr) {
    T* raw = s.raw + i * s.strip_stride + column;
    score_tile<T>(rows, kTileVectors, 1, p.D, query, keys, T(1), raw, s.strip_stride, nullptr);
    scale_raw<T>(rows, vectors, raw, strip + column, s.strip_stride, strip_scale(p), plain_max);
  } else if (vectors > 0) {
    score_tile<T>(rows, vectors, 1, p.D, query, keys, strip_scale(p), strip + column,
                  s.strip_stride, plain_max);
  }
  if (plain || !reached) return;
  const PanelScores<T> scores(p, s.row + i, rows, first, vectors, strip + column, s.strip_stride);
  if (p.softcap > 0) scores.softcap();
  if (p.alibi) scores.add_alibi();
  if (p.bias) scores.add_bias();
  if (p.mask) scores.hide_masked();
  scores.hide_unreached();
  scores.raise_max(has_terms(p) && !p.bias ? static_cast<T>(kLog2e) : T(1), running_max);
}

/// The panel of keys that starts at `first`, packed into scratch.
template <class T>
const T* pack_panel(const RowBlock<T>& block, std::size_t first, T* panel) {
  const Problem<T>& p = block.problem;
  pack_keys(block.kv.k, first, HWY_MIN(kPanel<T>, p.S - first), p.D, block.scratch.widened, panel);
  return panel;
}

/// Key block `number` as panels; nullptr when each is best packed as it is used, there being but
/// one tile of rows to use it.
template <class T>
const T* key_panels(const RowBlock<T>& block, std::size_t number) {
  const Problem<T>& p = block.problem;
  const std::size_t from = number * kKeyBlock, to = HWY_MIN(p.S, from + kKeyBlock);
  if (block.kv.keys != nullptr) return block.kv.keys + from * p.D;
  if (block.rows <= kTileRows) return nullptr;
  T* panels = block.scratch.key_block;
  for (std::size_t key = from; key < to; key += kPanel<T>)
    pack_panel(block, key, panels + (key - from) * p.D);
  return panels;
}

/// Scores against key block `number` (its key_panels()) into the strip from `column` on; the span
/// of whole panels outside of which nothing is seen.
template <class T>
Span score_block(const RowBlock<T>& block, const TileView<T>& tile, std::size_t number,
                 const T* keys, std::size_t column) {
  const auto& [p, s, i, rows, reach, strip] = tile;
  const Span all = key_block_span(number);
  const std::int64_t end = lesser(static_cast<std::int64_t>(p.S), all.last);
  constexpr auto kWidth = static_cast<std::int64_t>(kPanel<T>);
  const bool simple = keys != nullptr && s.raw == nullptr && p.mask == nullptr;
  Span seen;
  for (std::int64_t first = all.first; first < end; first += kWidth) {
    const std::int64_t last = lesser(end, first + kWidth);
    const bool reached = reach.first < last && reach.last > first;
    if (!reached && !s.raw) continue;
    const auto at = static_cast<std::size_t>(first - all.first);
    if (const std::size_t panels = simple ? tile.plain_panels(first, end) : 0; panels > 0) {
      score_tile<T>(rows, kTileVectors, panels, p.D, s.query + i * p.D, keys + at * p.D,
                    strip_scale(p), strip + column + at, s.strip_stride,
                    s.running_max + i * kLanes<T>);
      const std::int64_t done = first + static_cast<std::int64_t>(panels) * kWidth;
      seen = {lesser(seen.first, first), done};
      first = done - kWidth;
      continue;
    }
    const Seen masks =
        reached ? seen_by_masks(p, s.row + i, rows, first, last - first) : Seen::none;
    if (masks != Seen::none) seen = {lesser(seen.first, first), last};
    const T* panel = keys + at * p.D;
    if (keys == nullptr && (masks != Seen::none || s.raw))
      panel = pack_panel(block, static_cast<std::size_t>(first), s.key_block);
    score_panel(tile, first, masks, panel, column + at);
  }
  return seen;
}

}  // namespace attn::kernel::HWY_NAMESPACE
