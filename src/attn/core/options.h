// Every choice in the mathematics, with its default. What each means for the numbers is written
// out in docs/semantics.md.
//
// Letters used everywhere in attn: B batch, H query heads, G key/value heads (H % G == 0),
// L queries, S keys, D query/key width, Dv value width, M model width.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

namespace attn {

/// How raw scores become scaled ones: scaled = factor * scores.
struct Scale {
  enum class Kind { automatic, none, number };
  Kind kind = Kind::automatic;  ///< automatic: 1/sqrt(D); none: 1
  double number = 1;            ///< with Kind::number; any sign
};

enum class Score {
  dot,     ///< q . k
  cosine,  ///< q . k / (|q| |k|)
};

/// Query i sees key j when j <= i + offset.
enum class Causal {
  none,
  top_left,      ///< offset 0: the first query sees the first key only
  bottom_right,  ///< offset S - L: the last query sees every key
};

/// Which keys around i + offset a query sees: [i + offset - left, i + offset + right]; -1 is open.
struct Window {
  std::int64_t left = -1, right = -1;
};

enum class MaskPolarity {
  attend,  ///< true in a boolean mask: may be seen
  ignore,  ///< true: hidden
};

enum class SoftmaxAxis {
  keys,  ///< each query's weights sum to 1
  all,   ///< the whole (L, S) matrix of a head sums to 1 (scipy.special.softmax without an axis)
};

/// The weights of a query that sees no key.
enum class EmptyRows { zero, uniform, nan };

/// The axes of 4-D queries, keys and values.
enum class Layout {
  bhld,  ///< (B, H, L, D)
  blhd,  ///< (B, L, H, D)
};

enum class Compute {
  automatic,  ///< the widest float given; float64 for integers; float32 for f16 and bf16
  f32,
  f64,
};

/// What is added to the embeddings before they are projected:
///   inputs = embedding_scale * embeddings + positions,
///   positions[p, 2i] = sin(t), positions[p, 2i+1] = cos(t), t = (first + p) / base^(2i / M)
/// (Vaswani et al. 2017, section 3.5, arXiv:1706.03762).
struct Position {
  enum class Kind { none, sinusoidal };
  /// standard: base^(2i / M) for the pair of columns (2i, 2i+1). doubled: base^(4i / M), which a
  /// loop over the even columns c = 2i writes as base^(2c / M).
  enum class Exponent { standard, doubled };

  Kind kind = Kind::none;
  double base = 10000;
  std::int64_t first = 0;  ///< the position of the first token
  Exponent exponent = Exponent::standard;
  bool even_columns_only = false;  ///< leave the last column of an odd width alone
  double embedding_scale = 1;
  bool embedding_scale_sqrt = false;  ///< embedding_scale = sqrt(M)
};

struct Options {
  std::int64_t heads = 0;     ///< H; 0: not given, so 2-D and 3-D inputs are one head
  std::int64_t kv_heads = 0;  ///< G; 0: as many as heads
  Layout layout = Layout::bhld;
  Score score = Score::dot;
  Scale scale;
  double softcap = 0;  ///< c > 0: c * tanh(scaled / c), before the mask; 0: off
  MaskPolarity mask_polarity = MaskPolarity::attend;
  Causal causal = Causal::none;
  Window window;
  SoftmaxAxis softmax_axis = SoftmaxAxis::keys;
  EmptyRows empty_rows = EmptyRows::zero;
  Position position;
  std::vector<std::int64_t> rows;  ///< the queries wanted, negative from the end; empty: all
  Compute compute = Compute::automatic;
};

}  // namespace attn
