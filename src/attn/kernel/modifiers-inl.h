// Score modifiers: the operations between scaling and softmax, in this order:
//
//   softcap (if it comes first), distance bias, biases, softcap (if it comes last),
//   then -inf for keys that a bias of -inf, a mask or the row's key range hides.
//
// apply_modifiers() is the only implementation of that order. finish_row() applies it to a row of
// scores in memory, score_fused_tiles() to sums that are still in registers.
#pragma once

#include <array>
#include <limits>

#include "attn/kernel/kernels.h"
#include "attn/kernel/masks-inl.h"
#include "attn/kernel/tile-inl.h"

namespace attn::kernel::HWY_NAMESPACE {

/// Elements [first, first + width) of a row, contiguous: a pointer into the row if possible,
/// otherwise a copy in which elements from `keys` on are 0.
template <class X>
HWY_INLINE const X* contiguous(const X* row, std::int64_t stride, std::int64_t first,
                               std::int64_t width, std::int64_t keys, X* copy) {
  row += first * stride;
  if (stride == 1 && first + width <= keys) return row;
  for (std::int64_t i = 0; i < width; ++i) copy[i] = first + i < keys ? row[i * stride] : X(0);
  return copy;
}

/// Copies of the modifiers of a key block, for those that are not contiguous.
template <class T>
struct ModifierCopies {
  T distances[kKeyBlock], biases[2][kKeyBlock];
  std::uint8_t masks[3][kKeyBlock];
};

/// The modifiers of one row and a run of consecutive keys, any number of each kind. The functions
/// return pointers to the first key's element, or nullptr.
template <class T>
class RowModifiers {
 public:
  HWY_INLINE RowModifiers(const AttentionProblem<T>& p, const Row<T>& row, std::int64_t first,
                          std::int64_t width, ModifierCopies<T>& copies) {
    const auto at_first = [&](const auto* elements, std::int64_t stride, auto* copy) {
      const auto keys = static_cast<std::int64_t>(p.S);
      return elements ? contiguous(elements, stride, first, width, keys, copy) : nullptr;
    };
    distances_ = at_first(row.distances, 1, copies.distances);
    for (std::size_t m = 0; m < biases_.size(); ++m)
      biases_[m] = at_first(row.biases[m], p.biases[m].strides.column, copies.biases[m]);
    for (std::size_t m = 0; m < masks_.size(); ++m) {
      masks_[m] = at_first(row.masks[m], p.masks[m].strides.column, copies.masks[m]);
      hides_[m] = p.masks[m].hides;
    }
    begin_ = clamp64(0, row.range.begin - first, width);
    end_ = clamp64(0, row.range.end - first, width);
    limited_ = begin_ > 0 || end_ < width;
  }

  static constexpr std::size_t kBiases = 2, kMasks = 3;
  HWY_INLINE const T* distances() const { return distances_; }
  HWY_INLINE const T* bias(std::size_t m) const { return biases_[m]; }
  HWY_INLINE const std::uint8_t* mask(std::size_t m) const { return masks_[m]; }
  HWY_INLINE bool hides(std::size_t m) const { return hides_[m]; }  ///< as Mask::hides
  HWY_INLINE bool limited() const { return limited_; }  ///< to keys [begin(), end()) of the run
  HWY_INLINE std::int64_t begin() const { return begin_; }
  HWY_INLINE std::int64_t end() const { return end_; }

 private:
  const T* distances_;
  std::array<const T*, kBiases> biases_;
  std::array<const std::uint8_t*, kMasks> masks_;
  std::array<bool, kMasks> hides_;
  bool limited_;
  std::int64_t begin_, end_;
};

/// Which keys a mask's nonzero bytes mark: known at compile time or not.
enum class Marks { none, shown, hidden, either };

/// The same for one row and a panel of keys within its range: distances and, as the template
/// arguments specify, one bias and one mask, all with contiguous elements.
template <class T, bool kBiased, Marks kMarks>
class PanelModifiers {
 public:
  HWY_INLINE PanelModifiers(const Row<T>& row, bool hides, std::int64_t key)
      : row_(row), hides_(hides), key_(key) {}

  static constexpr std::size_t kBiases = kBiased, kMasks = kMarks != Marks::none;
  HWY_INLINE const T* distances() const { return row_.distances ? row_.distances + key_ : nullptr; }
  HWY_INLINE const T* bias(std::size_t) const { return row_.biases[0] + key_; }
  HWY_INLINE const std::uint8_t* mask(std::size_t) const { return row_.masks[0] + key_; }
  HWY_INLINE bool hides(std::size_t) const {
    return kMarks == Marks::either ? hides_ : kMarks == Marks::hidden;
  }
  HWY_INLINE bool limited() const { return false; }
  HWY_INLINE std::int64_t begin() const { return 0; }
  HWY_INLINE std::int64_t end() const { return 0; }

 private:
  const Row<T>& row_;
  bool hides_;
  std::int64_t key_;
};

/// The same for a row and a run of keys without biases, distances and masks: only the row's range
/// hides keys.
template <class T>
class RangeModifiers {
 public:
  HWY_INLINE RangeModifiers(const KeyRange& range, std::int64_t first, std::int64_t width)
      : begin_(clamp64(0, range.begin - first, width)),
        end_(clamp64(0, range.end - first, width)) {}

  static constexpr std::size_t kBiases = 0, kMasks = 0;
  HWY_INLINE const T* distances() const { return nullptr; }
  HWY_INLINE const T* bias(std::size_t) const { return nullptr; }
  HWY_INLINE const std::uint8_t* mask(std::size_t) const { return nullptr; }
  HWY_INLINE bool hides(std::size_t) const { return false; }
  HWY_INLINE bool limited() const { return true; }
  HWY_INLINE std::int64_t begin() const { return begin_; }
  HWY_INLINE std::int64_t end() const { return end_; }

 private:
  std::int64_t begin_, end_;
};

/// Adds biases to scores that are already multiplied by `unit`. The lowest finite numbers, which
/// some models use as a bias to hide keys, stay finite.
template <class T>
class BiasAdder {
 public:
  explicit BiasAdder(T unit)
      : unit_(hn::Set(Tag<T>(), unit)), lowest_(hn::Set(Tag<T>(), lowest_to_multiply(unit))) {}

  /// A distance bias of -inf gives -inf, unless the score is NaN or +inf: it does not hide keys.
  HWY_INLINE Vec<T> distance(Vec<T> score, const T* bias) const {
    return hn::MulAdd(finite_at_least<T>(lowest_, hn::LoadU(Tag<T>(), bias)), unit_, score);
  }
  /// For a bias of -inf the result is unspecified; hide_by_bias() must follow.
  HWY_INLINE Vec<T> bias(Vec<T> score, const T* bias) const {
    return hn::MulAdd(at_least<T>(lowest_, hn::LoadU(Tag<T>(), bias)), unit_, score);
  }

 private:
  Vec<T> unit_, lowest_;
};

/// A panel of one row's scores, in registers.
template <class T>
using PanelScores = Vec<T>[kTileVectors];

/// Sets x = f(x, lane) for each vector x, where `lane` is the index of its first score.
template <class T, class F>
HWY_INLINE void each_vector(PanelScores<T>& scores, F f) {
  unrolled<kTileVectors>([&](std::size_t j) { scores[j] = f(scores[j], j * kLanes<T>); });
}

/// -inf where the bias is -inf, whatever the score.
template <class T>
HWY_INLINE Vec<T> hide_by_bias(Vec<T> score, const T* bias) {
  const Tag<T> d;
  const Vec<T> hidden = hn::Set(d, -kInfinity<T>);
  return hn::IfThenElse(hn::Eq(hn::LoadU(d, bias), hidden), hidden, score);
}

/// -inf where the lane, counted from `lane`, is not in [begin, end).
template <class T>
HWY_INLINE Vec<T> hide_by_range(Vec<T> score, std::size_t lane, std::int64_t begin,
                                std::int64_t end) {
  const Tag<T> d;
  const Vec<T> at = hn::Iota(d, static_cast<T>(lane));
  const auto visible = hn::And(hn::Ge(at, hn::Set(d, static_cast<T>(begin))),
                               hn::Lt(at, hn::Set(d, static_cast<T>(end))));
  return hn::IfThenElse(visible, score, hn::Set(d, -kInfinity<T>));
}

/// score * unit; a finite score stays finite.
template <class T>
HWY_INLINE Vec<T> to_unit(Vec<T> score, Vec<T> unit, Vec<T> lowest) {
  return hn::Mul(finite_at_least<T>(lowest, score), unit);
}

/// Further steps for a row. The default, none, is for scores that are already in the unit of the
/// softmax.
template <class T>
struct Stages {
  const Softcap<T>* cap = nullptr;  ///< nullptr: none
  bool cap_last = false;            ///< after the biases
  T* scaled = nullptr;              ///< receives scaled (and capped) scores; nullptr: not kept
  T* masked = nullptr;              ///< receives masked scores; nullptr: not kept
  bool convert = false;             ///< scores are in units of 1, and are converted at the end
  T unit = 1;                       ///< of the softmax
};

template <class T>
HWY_INLINE void apply_softcap(PanelScores<T>& scores, const Softcap<T>& cap) {
  each_vector<T>(scores, [&](Vec<T> x, std::size_t) { return cap(x); });
}

/// -inf where the mask is nonzero if it `hides`, otherwise where it is zero.
template <class T>
HWY_INLINE void apply_mask(PanelScores<T>& scores, const std::uint8_t* mask, bool hides) {
  const Vec<T> hidden = hn::Set(Tag<T>(), -kInfinity<T>);
  const auto marked = [&](std::size_t j) { return nonzero(mask + j, Tag<T>()); };
  if (hides)
    each_vector<T>(scores,
                   [&](Vec<T> x, std::size_t j) { return hn::IfThenElse(marked(j), hidden, x); });
  else
    each_vector<T>(scores,
                   [&](Vec<T> x, std::size_t j) { return hn::IfThenElse(marked(j), x, hidden); });
}

template <class T>
HWY_INLINE void store_panel(const PanelScores<T>& scores, T* to) {
  unrolled<kTileVectors>(
      [&](std::size_t j) { hn::Store(scores[j], Tag<T>(), to + j * kLanes<T>); });
}

/// Applies the modifiers to a panel of scaled scores that starts at lane `lane` of its run. The
/// result is the input of the softmax.
template <class T, class Modifiers>
HWY_INLINE void apply_modifiers(PanelScores<T>& scores, const Modifiers& modifiers,
                                std::size_t lane, const BiasAdder<T>& adder,
                                const Stages<T>& stages) {
  const Tag<T> d;
  const auto each = [&](auto f) { each_vector<T>(scores, f); };
  if (stages.cap && !stages.cap_last) apply_softcap<T>(scores, *stages.cap);
  if (stages.scaled) store_panel<T>(scores, stages.scaled + lane);
  if (const T* bias = modifiers.distances())
    each([&](Vec<T> x, std::size_t j) { return adder.distance(x, bias + lane + j); });
#pragma GCC unroll 2
  for (std::size_t m = 0; m < Modifiers::kBiases; ++m)
    if (const T* bias = modifiers.bias(m))
      each([&](Vec<T> x, std::size_t j) { return adder.bias(x, bias + lane + j); });
  if (stages.cap && stages.cap_last) apply_softcap<T>(scores, *stages.cap);
#pragma GCC unroll 2
  for (std::size_t m = 0; m < Modifiers::kBiases; ++m)
    if (const T* bias = modifiers.bias(m))
      each([&](Vec<T> x, std::size_t j) { return hide_by_bias<T>(x, bias + lane + j); });
#pragma GCC unroll 3
  for (std::size_t m = 0; m < Modifiers::kMasks; ++m)
    if (const std::uint8_t* mask = modifiers.mask(m))
      apply_mask<T>(scores, mask + lane, modifiers.hides(m));
  if (modifiers.limited())
    each([&](Vec<T> x, std::size_t j) {
      return hide_by_range<T>(x, lane + j, modifiers.begin(), modifiers.end());
    });
  if (stages.masked) store_panel<T>(scores, stages.masked + lane);
  if (stages.convert) {
    const Vec<T> unit = hn::Set(d, stages.unit);
    const Vec<T> lowest = hn::Set(d, lowest_to_multiply(stages.unit));
    each([&](Vec<T> x, std::size_t) { return to_unit<T>(x, unit, lowest); });
  }
}

/// Stores a panel of scores and updates the row's running maximum, a vector.
template <class T>
HWY_INLINE void store_and_update_max(const PanelScores<T>& scores, T* to, Vec<T>& running_max) {
  unrolled<kTileVectors>([&](std::size_t j) {
    hn::Store(scores[j], Tag<T>(), to + j * kLanes<T>);
    running_max = update_max<T>(running_max, scores[j]);
  });
}

/// The source and the target of a row's scores in a run of panels.
template <class T>
struct RowBuffers {
  const T* raw;    ///< scores / scale; may be `out`
  T scale;         ///< of `raw`
  T* out;          ///< the input of the softmax
  T* running_max;  ///< a vector: maximum of the scores in `out`
};

/// Applies modifiers to the panels of a run.
template <class T, class Modifiers>
HWY_INLINE void finish_panels(const Modifiers& modifiers, std::size_t width,
                              const RowBuffers<T>& buffers, const Stages<T>& stages) {
  const Tag<T> d;
  const BiasAdder<T> adder(stages.convert ? T(1) : stages.unit);
  const Vec<T> scale = hn::Set(d, buffers.scale);
  Vec<T> max = hn::Load(d, buffers.running_max);
  for (std::size_t lane = 0; lane < width; lane += kPanel<T>) {
    PanelScores<T> scores;
    unrolled<kTileVectors>([&](std::size_t j) {
      scores[j] = hn::Mul(hn::Load(d, buffers.raw + lane + j * kLanes<T>), scale);
    });
    apply_modifiers<T>(scores, modifiers, lane, adder, stages);
    store_and_update_max<T>(scores, buffers.out + lane, max);
  }
  hn::Store(max, d, buffers.running_max);
}

/// Applies the modifiers to one row and `width` keys from `first` on, whole panels. `stages` keeps
/// no scores unless it converts.
template <class T>
void finish_row(const AttentionProblem<T>& p, const Row<T>& row, std::int64_t first,
                std::size_t width, const RowBuffers<T>& buffers, Stages<T> stages) {
  const auto keys = static_cast<std::int64_t>(width);
  if (!stages.convert && !p.distances.data && !has_biases(p) && !has_masks(p))
    return finish_panels<T>(RangeModifiers<T>(row.range, first, keys), width, buffers, Stages<T>());
  ModifierCopies<T> copies;
  const RowModifiers<T> modifiers(p, row, first, keys, copies);
  const Softcap<T> softcap(p.softcap);
  stages.cap = p.softcap > 0 ? &softcap : nullptr;
  stages.cap_last = p.softcap_last;
  finish_panels<T>(modifiers, width, buffers, stages);
}

/// Stores -inf in `count` elements.
template <class T>
HWY_INLINE void hide_all(T* scores, std::size_t count) {
  for (std::size_t lane = 0; lane < count; lane += kLanes<T>)
    hn::Store(hn::Set(Tag<T>(), -kInfinity<T>), Tag<T>(), scores + lane);
}

/// finish_row() of a row that sees none of the keys.
template <class T>
void hide_row(const AttentionProblem<T>& p, std::size_t width, const RowBuffers<T>& buffers,
              const Stages<T>& stages) {
  const Tag<T> d;
  hide_all(buffers.out, width);
  if (stages.masked) hide_all(stages.masked, width);
  if (!stages.scaled) return;
  const Softcap<T> softcap(p.softcap);
  const bool caps = p.softcap > 0 && !p.softcap_last;
  for (std::size_t lane = 0; lane < width; lane += kLanes<T>) {
    const Vec<T> score = hn::Mul(hn::Load(d, buffers.raw + lane), hn::Set(d, buffers.scale));
    hn::Store(caps ? softcap(score) : score, d, stages.scaled + lane);
  }
}

/// Whether score_fused_tiles() can apply all modifiers: distances, one bias and one mask, with
/// contiguous elements.
template <class T>
bool can_fuse_modifiers(const AttentionProblem<T>& p) {
  const auto contiguous = [](const auto& each) { return !each.data || each.strides.column == 1; };
  return p.softcap == 0 && contiguous(p.biases[0]) && !p.biases[1].data && contiguous(p.masks[0]) &&
         !p.masks[1].data && !p.masks[2].data;
}

/// Panels of keys that are within the key ranges of all rows of a group.
template <class T>
struct WholePanels {
  const Row<T>* row;   ///< of the group
  std::int64_t first;  ///< key
  std::size_t count;
  bool hides;     ///< nonzero bytes of the mask hide keys
  T scale, unit;  ///< of the sums; of the softmax
};

/// Scores of `rows` rows, whole tiles, with modifiers applied before they leave the registers.
/// `query`, `out` and `running_max` as in score_rows().
template <class T, Term kTerm, bool kBiased, Marks kMarks>
HWY_NOINLINE void score_fused_tiles(std::size_t rows, const WholePanels<T>& panels,
                                    std::size_t depth, const T* query, const T* keys, T* out,
                                    std::size_t out_stride, T* running_max) {
  const Tag<T> d;
  const Vec<T> scale = hn::Set(d, panels.scale);
  const BiasAdder<T> adder(panels.unit);
  multiply_panels<T, kTerm, kTileRows, kTileVectors>(
      {0, rows}, panels.count, depth, query, keys, out, out_stride,
      [&](std::size_t row, std::size_t panel, const PanelScores<T>& sums, T* at) ATTN_INLINE {
        PanelScores<T> scores;  // a copy, as other functions get its address
        unrolled<kTileVectors>([&](std::size_t j)
                                   ATTN_INLINE { scores[j] = hn::Mul(sums[j], scale); });
        const std::int64_t key = panels.first + static_cast<std::int64_t>(panel * kPanel<T>);
        const PanelModifiers<T, kBiased, kMarks> modifiers(panels.row[row], panels.hides, key);
        // Prefetches the next panel's modifiers, so that they are in the cache when it is
        // multiplied.
        if (kBiased) prefetch_elements(modifiers.bias(0) + kPanel<T>, kPanel<T>);
        if (kMarks != Marks::none) prefetch_elements(modifiers.mask(0) + kPanel<T>, kPanel<T>);
        apply_modifiers<T>(scores, modifiers, 0, adder, Stages<T>());
        Vec<T> max = hn::Load(d, running_max + row * kLanes<T>);
        store_and_update_max<T>(scores, at, max);
        hn::Store(max, d, running_max + row * kLanes<T>);
      });
}

}  // namespace attn::kernel::HWY_NAMESPACE
