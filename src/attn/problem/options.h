// The options of the computation and their defaults; docs/semantics.md defines them.
//
// Axes: B batch, H query heads, G key/value heads (H % G == 0),
// L queries, S keys, D query/key width, Dv value width, M model width.
#pragma once

#include <cstdint>
#include <numbers>
#include <optional>
#include <string>
#include <vector>

namespace attn {

/// How raw scores become scaled ones.
struct Scale {
  enum class Kind {
    automatic,  ///< scores / sqrt(D) for Score::dot, otherwise the scores as they are
    none,       ///< scores as they are
    number,     ///< number * scores
  };
  Kind kind = Kind::automatic;
  double number = 1;  ///< with Kind::number; any sign
  bool operator==(const Scale&) const = default;
};

/// Score of a query q and a key k (attention/score.h).
enum class Score {
  dot,       ///< q . k
  cosine,    ///< q . k / (|q| |k|); NaN if a vector is zero
  l2,        ///< -|q - k|^2
  general,   ///< q W_score k
  additive,  ///< v_score . tanh(q W_score_Q + k W_score_K + b_score)
  concat,    ///< v_score . tanh([q k] W_score + b_score)
};

/// How masked scores become weights (attention/normalise.h).
enum class Normaliser { softmax, sparsemax, entmax15, hardmax, sigmoid, top_k, none };

/// Query i has position i + offset among the keys. Causality, the window and all distances refer to
/// this position. i is the index among all L queries, even if `rows` selects some of them.
/// Positions and lengths are relative to a document if there are documents.
enum class Alignment {
  top_left,      ///< offset: number of past keys; the first query is at the first new key
  bottom_right,  ///< offset: keys - queries; the last query is at the last key
};

/// The largest magnitude of Options::causal_offset; more than the distance of any two tokens.
inline constexpr std::int64_t kMaxOffset = 1'000'000'000'000;

/// A query sees the keys i + offset - left to i + offset + right; -1: no limit.
struct Window {
  std::int64_t left = -1, right = -1;
  bool operator==(const Window&) const = default;
};

enum class SoftcapOrder {
  before_mask,  ///< applied to scaled scores
  after_mask,   ///< applied after the mask and all biases; hidden keys stay hidden
};

enum class MaskPolarity {
  attend,  ///< true in a boolean mask: visible
  ignore,  ///< true: hidden
};

/// A mask with fewer columns than keys.
enum class ShortMask {
  refuse,  ///< an error, unless one column is broadcast
  hide,    ///< keys beyond its columns are hidden
};

/// A key that is listed more than once for a query (problem/key_lists.h).
enum class Duplicates {
  error,
  once,   ///< counts once
  count,  ///< counts as often as it is listed
};

/// What the numbers of key_indices count.
enum class IndexSpace {
  sequence,  ///< the keys of the query's own sequence
  cache,     ///< the slots of a pool of pages: page * page size + slot
};

enum class SoftmaxAxis {
  keys,  ///< the weights of each query sum to 1
  all,   ///< those of a head's selected rows do (scipy.special.softmax without an axis)
};

/// The weights of a query that sees no key (with SoftmaxAxis::all: of a matrix without visible
/// keys). Padded queries have weights 0.
enum class EmptyRows { zero, uniform, nan };

/// The logsumexp of a query that sees no key.
enum class EmptyLogsumexp { minus_infinity, infinity };

/// The axes of queries, keys and values with heads as an axis: 4-D ones, or 3-D ones with thd.
enum class Layout {
  bhld,  ///< (B, H, L, D)
  blhd,  ///< (B, L, H, D)
  thd,   ///< (L, H, D): the tokens of one sequence or of several packed ones
};

/// The axes of K_pages, V_pages and KV_pages (cache/pages.h).
enum class PoolLayout { nhd, hnd, interleaved };

/// What the elements of Q, K or V are (cache/stored_rows.h).
enum class StoredType {
  as_given,  ///< numbers, or the codes that a file declares
  e4m3,
  e5m2,
  e4m3fnuz,
  e5m2fnuz,
  nvfp4,         ///< e2m1 with an e4m3 scale for 16 columns
  mxfp4,         ///< e2m1 with an e8m0 scale for 32 columns
  flashmla_v32,  ///< caches with codes, scales and rotary columns (cache/flashmla.h)
  flashmla_model1,
};

/// The axes of W_Q, W_K, W_V, W_O and W_gate in the job. make_job() converts them to (in, out);
/// afterwards the option is used only in messages.
enum class WeightsLayout {
  in_out,  ///< (in, out): x W
  out_in,  ///< (out, in): x W^T, as torch.nn.Linear saves its weight
};

/// Normalisation of queries and keys, or of the embeddings (attention/qk_norm.h).
enum class QkNorm { none, rms, l2, layer };

/// The columns of a query or key that are normalised together.
enum class QkNormAxis {
  head,  ///< those of each head, D
  all,   ///< those of all heads, H * D
};

/// Rotary positions (attention/rotary.h).
struct Rotary {
  enum class Kind {
    none,
    half,         ///< pairs of columns (k, k + width / 2)
    interleaved,  ///< pairs (2k, 2k + 1)
  };
  enum class Scaling { none, linear, ntk, dynamic_ntk, yarn, llama3, longrope };

  Kind kind = Kind::none;
  std::int64_t width = 0;  ///< number of leading columns that are rotated; 0: all D
  double base = 10000;
  Scaling scaling = Scaling::none;
  double factor = 1;                 ///< context length relative to the trained one
  std::int64_t original_length = 0;  ///< trained context length; unused by linear and ntk
  double low_frequency_factor = 1, high_frequency_factor = 4;  ///< llama3
  double beta_fast = 32, beta_slow = 1;                        ///< yarn
  bool truncate = true;         ///< yarn: round the ends of the ramp to whole pairs
  double attention_factor = 0;  ///< yarn, longrope: scales cosines and sines; 0: by `factor`
  bool operator==(const Rotary&) const = default;
};

/// Factor on each query by its position (attention/query_scale.h).
struct QueryScale {
  double factor = 0;        ///< 0: off
  std::int64_t length = 0;  ///< number of positions with the same factor
  std::int64_t first = 1;   ///< added to the position: 1 in Llama 4
  bool operator==(const QueryScale&) const = default;
};

/// The bucket of relative_bias for a distance (problem/position_bias.h).
struct RelativeBias {
  enum class Direction { automatic, both, past };  ///< automatic: past where causal
  Direction direction = Direction::automatic;
  std::int64_t max_distance = 128;  ///< distances >= max_distance share the last bucket
  bool operator==(const RelativeBias&) const = default;
};

/// Precision of the softmax: its scores and weights are rounded to it.
enum class SoftmaxPrecision { automatic, f16, bf16, f32, f64 };

enum class Compute {
  automatic,  ///< the widest float given; float64 for integers; float32 for f16 and bf16
  f32,
  f64,
};

/// The implementation of scores, weights and context.
enum class Path {
  automatic,  ///< the fused kernels if they support the problem, otherwise the reference
  reference,  ///< the formula step by step, with BLAS; the kernels are tested against it
};

/// Positional encoding, added to the embeddings before they are projected:
///   inputs = embedding_scale * embeddings + positions,
///   positions[p, 2i] = sin(t), positions[p, 2i+1] = cos(t), t = (first + p) / base^(2i / M)
/// (Vaswani et al. 2017, section 3.5, arXiv:1706.03762). Memory gets neither. The
/// embedding scale applies with Kind::none, too.
struct Position {
  enum class Kind { none, sinusoidal };
  /// standard: base^(2i / M) for the pair of columns (2i, 2i+1). doubled: base^(4i / M), which a
  /// loop over the even columns c = 2i writes as base^(2c / M).
  enum class Exponent { standard, doubled };

  Kind kind = Kind::none;
  double base = 10000;
  std::int64_t first = 0;  ///< the position of the first token
  Exponent exponent = Exponent::standard;
  /// Sets the last column of an odd M, a sine without its cosine, to 0 in `positions` and `inputs`
  /// (the embedding is dropped as well), as a loop over pairs of columns of zeros does.
  bool last_column_zero = false;
  double embedding_scale = 1;
  bool embedding_scale_sqrt = false;  ///< embedding_scale = sqrt(M)
  bool operator==(const Position&) const = default;
};

struct Options {
  std::int64_t heads = 0;     ///< H; 0: not given, 2-D and 3-D inputs have one head
  std::int64_t kv_heads = 0;  ///< G; 0: as many as heads
  Layout layout = Layout::bhld;
  PoolLayout page_layout = PoolLayout::nhd;  ///< make_job() replaces pages by keys and values
  /// make_job() replaces stored queries, keys and values by numbers.
  StoredType q_type = StoredType::as_given, k_type = q_type, v_type = q_type, k_pe_type = q_type;
  std::int64_t value_width = 0;  ///< V is so many columns of K, also made by make_job(); 0: no
  WeightsLayout weights_layout = WeightsLayout::in_out;
  bool batch_second = false;  ///< 3-D inputs and results are (L, B, M) instead of (B, L, M)
  Score score = Score::dot;
  Scale scale;
  double softcap = 0;  ///< c > 0: c * tanh(x / c); 0: off
  SoftcapOrder softcap_order = SoftcapOrder::before_mask;
  bool alibi = false;  ///< with the standard slopes (problem/position_bias.h), unlike alibi_slopes
  RelativeBias relative;  ///< with relative_bias
  bool zero_key = false;  ///< appends a key and value of zeros that every query sees
  MaskPolarity mask_polarity = MaskPolarity::attend;
  ShortMask short_mask = ShortMask::refuse;
  bool causal = false;  ///< query i sees key j when j <= i + offset
  Alignment alignment = Alignment::top_left;
  std::optional<std::int64_t> causal_offset;  ///< replaces the offset of `alignment`
  Window window;
  std::string bias_rule;  ///< is added to the scores (problem/bias_rule.h); "": none
  std::string mask_rule;  ///< hides the keys for which it is false (problem/mask_rule.h); "": none
  std::int64_t chunk = 0, sink_tokens = 0;  ///< problem/named_masks.h; 0: not given
  std::vector<std::int64_t> block_size;     ///< of `blocks`: queries, keys
  std::int64_t index_block = 1;             ///< keys of each of key_indices
  Duplicates duplicates = Duplicates::error;
  IndexSpace index_space = IndexSpace::sequence;  ///< make_job() translates other numbers
  Normaliser normaliser = Normaliser::softmax;
  std::int64_t top_k = 0;  ///< Normaliser::top_k: number of keys with a weight
  double temperature = 1;  ///< divides masked scores, but not sinks, before normalisation
  SoftmaxAxis softmax_axis = SoftmaxAxis::keys;
  SoftmaxPrecision softmax_precision = SoftmaxPrecision::automatic;
  EmptyRows empty_rows = EmptyRows::zero;
  double o_scale = 1;                 ///< divides the context, after its gates
  std::optional<double> dropout_p;    ///< in [0, 1), with dropout_mask
  double lse_base = std::numbers::e;  ///< of the logarithm in logsumexp: e or 2
  bool lse_sinks = true;              ///< the output logsumexp counts the sinks
  EmptyLogsumexp lse_empty = EmptyLogsumexp::minus_infinity;
  Position position;
  double clip_qkv = 0;  ///< X > 0: limits projected queries, keys and values to [-X, X]; 0: off
  QkNorm input_norm = QkNorm::none;  ///< of the output `inputs`; not l2
  double input_norm_epsilon = 0;     ///< 0: 1e-6 of rms, 1e-5 of layer
  QkNorm qk_norm = QkNorm::none;
  QkNormAxis qk_norm_axis = QkNormAxis::head;
  double qk_norm_epsilon = 0;  ///< 0: 1e-6 of rms, 1e-12 of l2, 1e-5 of layer
  double norm_offset = 0;      ///< added to the weights of both norms: 1 in Gemma
  Rotary rotary;
  QueryScale query_scale;
  /// Indices of the queries to compute, negative from the end; empty: all. Masks, causality and
  /// positions still refer to all L queries.
  std::vector<std::int64_t> rows;
  Compute compute = Compute::automatic;
  /// Queries, keys, weights and values are rounded to bfloat16 before they are multiplied in
  /// float32. Without effect in float64, where only error bounds count the rounding.
  bool bf16_products = false;
  Path path = Path::automatic;
  bool operator==(const Options&) const = default;
};

/// Lets logsumexp be the natural one, with which weights are exp(masked score - logsumexp).
inline void report_natural_logsumexp(Options& options) {
  options.lse_base = std::numbers::e;
  options.lse_sinks = true;
  options.lse_empty = EmptyLogsumexp::minus_infinity;
}

}  // namespace attn
