// Every choice in the mathematics, with its default. What each means for the numbers is written
// out in docs/semantics.md.
//
// AxisList used everywhere in attn: B batch, H query heads, G key/value heads (H % G == 0),
// L queries, S keys, D query/key width, Dv value width, M model width.
#pragma once

#include <cstdint>
#include <numbers>
#include <optional>
#include <vector>

namespace attn {

/// How raw scores become scaled ones.
struct Scale {
  enum class Kind {
    automatic,  ///< scores / sqrt(D); cosine scores as they are
    none,       ///< scores as they are
    number,     ///< number * scores
  };
  Kind kind = Kind::automatic;
  double number = 1;  ///< with Kind::number; any sign
  bool operator==(const Scale&) const = default;
};

/// How similar a query q and a key k are (core/score.h); the tensors that each may be given.
enum class Score {
  dot,       ///< q . k
  cosine,    ///< q . k / (|q| |k|); NaN where a vector is zero
  l2,        ///< -|q - k|^2
  general,   ///< q W_score k
  additive,  ///< v_score . tanh(q W_score_Q + k W_score_K + b_score)
  concat,    ///< v_score . tanh([q k] W_score + b_score)
};

/// How masked scores become weights (core/normalise.h).
enum class Normaliser { softmax, sparsemax, entmax15, hardmax, sigmoid, top_k, none };

/// Where query i stands among the keys: at i + offset, which is what causality, the window and
/// everything that counts distances start from. i is the query's place among all L, whatever `rows`
/// says. Places and lengths are counted document by document where there are documents.
enum class Alignment {
  top_left,      ///< offset: the past's keys; the first query stands at the first key that is new
  bottom_right,  ///< offset: keys - queries; the last query stands at the last key
};

/// Which keys around its place a query sees: [i + offset - left, i + offset + right]; -1 is open.
struct Window {
  std::int64_t left = -1, right = -1;
  bool operator==(const Window&) const = default;
};

enum class SoftcapOrder {
  before_mask,  ///< of the scaled scores
  after_mask,   ///< of what is left when the mask and all biases are added; hidden stays hidden
};

enum class MaskPolarity {
  attend,  ///< true in a boolean mask: may be seen
  ignore,  ///< true: hidden
};

/// A mask with fewer columns than there are keys (or with one, where there are more).
enum class ShortMask {
  refuse,  ///< an error; one column is broadcast
  hide,    ///< keys beyond its columns are hidden
};

enum class SoftmaxAxis {
  keys,  ///< each query's weights sum to 1
  all,   ///< a head's whole matrix does (scipy.special.softmax without an axis): its selected rows
};

/// The weights of a query that sees no key (with SoftmaxAxis::all: of a matrix in which none does).
enum class EmptyRows { zero, uniform, nan };

/// The axes of 4-D queries, keys and values.
enum class Layout {
  bhld,  ///< (B, H, L, D)
  blhd,  ///< (B, L, H, D)
};

/// What is done to each head's queries and keys before they meet: x / sqrt(mean(x^2) + epsilon), or
/// x / max(|x|, epsilon); then times q_norm, or k_norm, where that is given.
enum class QkNorm { none, rms, l2 };

/// Rotary positions (core/rotary.h).
struct Rotary {
  enum class Kind {
    none,
    half,         ///< pairs of columns (k, k + width / 2)
    interleaved,  ///< pairs (2k, 2k + 1)
  };
  enum class Scaling { none, linear, ntk, yarn, llama3 };

  Kind kind = Kind::none;
  std::int64_t width = 0;  ///< the first so many columns are turned; 0: all D
  double base = 10000;
  Scaling scaling = Scaling::none;
  double factor = 1;                 ///< how much longer than what the model was trained on
  std::int64_t original_length = 0;  ///< what it was trained on; yarn and llama3
  double low_frequency_factor = 1, high_frequency_factor = 4;  ///< llama3
  double beta_fast = 32, beta_slow = 1;                        ///< yarn
  double attention_factor = 0;  ///< yarn, on cosines and sines; 0: 0.1 log(factor) + 1
  bool operator==(const Rotary&) const = default;
};

/// Which bucket of relative_bias a distance falls in (core/relative_bias.h).
struct RelativeBias {
  enum class Direction { automatic, both, past };  ///< automatic: past where causal
  Direction direction = Direction::automatic;
  std::int64_t max_distance = 128;  ///< from there on all share the last bucket
  bool operator==(const RelativeBias&) const = default;
};

/// Precision of the softmax alone: its scores are rounded to it, and so are its weights.
enum class SoftmaxPrecision { automatic, f16, bf16, f32, f64 };

enum class Compute {
  automatic,  ///< the widest float given; float64 for integers; float32 for f16 and bf16
  f32,
  f64,
};

/// Which code computes scores, weights and context.
enum class Path {
  automatic,  ///< the fast kernels where they know all that is asked for, otherwise the reference
  reference,  ///< the formula step by step, in long-established BLAS: what the kernels are held to
};

/// What is added to the embeddings before they are projected:
///   inputs = embedding_scale * embeddings + positions,
///   positions[p, 2i] = sin(t), positions[p, 2i+1] = cos(t), t = (first + p) / base^(2i / M)
/// (Vaswani et al. 2017, section 3.5, arXiv:1706.03762). Memory gets neither. The embedding scale
/// holds with Kind::none, too.
struct Position {
  enum class Kind { none, sinusoidal };
  /// standard: base^(2i / M) for the pair of columns (2i, 2i+1). doubled: base^(4i / M), which a
  /// loop over the even columns c = 2i writes as base^(2c / M).
  enum class Exponent { standard, doubled };

  Kind kind = Kind::none;
  double base = 10000;
  std::int64_t first = 0;  ///< the position of the first token
  Exponent exponent = Exponent::standard;
  /// The last column of an odd M, a sine without its cosine, is 0 in `positions` and in `inputs`
  /// (not even the embedding is there): what a loop over pairs of columns leaves in zeros.
  bool last_column_zero = false;
  double embedding_scale = 1;
  bool embedding_scale_sqrt = false;  ///< embedding_scale = sqrt(M)
  bool operator==(const Position&) const = default;
};

struct Options {
  std::int64_t heads = 0;     ///< H; 0: not given, so 2-D and 3-D inputs are one head
  std::int64_t kv_heads = 0;  ///< G; 0: as many as heads
  Layout layout = Layout::bhld;
  bool batch_second = false;  ///< 3-D inputs and results are (L, B, M) instead of (B, L, M)
  Score score = Score::dot;
  Scale scale;
  double softcap = 0;  ///< c > 0: c * tanh(x / c); 0: off
  SoftcapOrder softcap_order = SoftcapOrder::before_mask;
  bool alibi = false;     ///< the standard slopes (core/alibi.h); alibi_slopes are others
  RelativeBias relative;  ///< with relative_bias
  bool zero_key = false;  ///< one more key and value of zeros, which every query sees
  MaskPolarity mask_polarity = MaskPolarity::attend;
  ShortMask short_mask = ShortMask::refuse;
  bool causal = false;  ///< query i sees key j when j <= i + offset
  Alignment alignment = Alignment::top_left;
  Window window;
  Normaliser normaliser = Normaliser::softmax;
  std::int64_t top_k = 0;  ///< with Normaliser::top_k: how many keys a query weighs
  double temperature = 1;  ///< divides what is normalised
  SoftmaxAxis softmax_axis = SoftmaxAxis::keys;
  SoftmaxPrecision softmax_precision = SoftmaxPrecision::automatic;
  EmptyRows empty_rows = EmptyRows::zero;
  double lse_base = std::numbers::e;  ///< of the logarithm in logsumexp: e or 2
  Position position;
  QkNorm qk_norm = QkNorm::none;
  double qk_norm_epsilon = 0;  ///< 0: 1e-6 of rms, 1e-12 of l2
  Rotary rotary;
  /// The queries wanted, negative from the end; empty: all. The others are as if never given, save
  /// that masks, causality and positions count all L.
  std::vector<std::int64_t> rows;
  Compute compute = Compute::automatic;
  Path path = Path::automatic;
  bool operator==(const Options&) const = default;
};

}  // namespace attn
