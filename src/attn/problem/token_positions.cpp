#include "attn/problem/token_positions.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <optional>

namespace attn {

bool is_left_out(const Position& position, std::size_t column, std::size_t M) {
  return position.last_column_zero && M % 2 == 1 && column == M - 1;
}

namespace {

double embedding_scale(const Position& position, std::size_t M) {
  return position.embedding_scale_sqrt ? std::sqrt(static_cast<double>(M))
                                       : position.embedding_scale;
}

}  // namespace

Tensor sinusoidal_positions(const Position& position, std::size_t L, std::size_t M) {
  Tensor positions(DType::f64, {L, M});
  const auto out = positions.mutable_data<double>();
  const double doubled = position.exponent == Position::Exponent::doubled ? 2 : 1;
  for (std::size_t p = 0; p < L && M > 0; ++p)
    for (std::size_t column = 0; column < M; ++column) {
      if (is_left_out(position, column, M)) continue;
      const auto even = static_cast<double>(column - column % 2);
      const double index = static_cast<double>(position.first) + static_cast<double>(p);
      const double term = index / std::pow(position.base, doubled * even / static_cast<double>(M));
      out[p * M + column] = column % 2 == 0 ? std::sin(term) : std::cos(term);
    }
  return positions;
}

Tensor add_positions(const Tensor& embeddings, const Position& position, DType compute) {
  const std::size_t L = embeddings.shape()[1], M = embeddings.shape()[2];
  const double scale = embedding_scale(position, M);
  const bool sinusoidal = position.kind == Position::Kind::sinusoidal;
  if (!sinusoidal && scale == 1) return embeddings;
  Tensor inputs = cast(embeddings, DType::f64);
  const Tensor positions =
      sinusoidal ? sinusoidal_positions(position, L, M) : Tensor(DType::f64, {L, M});
  const auto added = positions.data<double>();
  const auto out = inputs.mutable_data<double>();
  for (std::size_t i = 0; i < out.size(); ++i)
    out[i] =
        sinusoidal && is_left_out(position, i % M, M) ? 0 : scale * out[i] + added[i % (L * M)];
  return cast(inputs, compute);
}

namespace {

using Ids = std::vector<std::int64_t>;

/// One number for each batch item, or one for all; empty if the tensor is absent or invalid.
std::optional<Ids> lengths(Input input, const TensorMap& numbers, std::size_t B,
                           std::size_t max_length, AxisLengths& axes) {
  const Tensor* tensor = find(numbers, input);
  if (tensor == nullptr) return std::nullopt;
  if (tensor->dtype() != DType::i64 || tensor->rank() > 1 ||
      (tensor->size() != 1 && tensor->size() != B)) {
    axes.problem(
        input,
        {.expected = "one whole number for each of the " + std::to_string(B) + " batch items",
         .found = std::string(name_of(tensor->dtype())) + " " + to_string(tensor->shape())});
    return std::nullopt;
  }
  const auto data = tensor->data<std::int64_t>();
  for (const std::int64_t length : data)
    if (length < 0 || length > static_cast<std::int64_t>(max_length)) {
      axes.problem(input, {.expected = "lengths from 0 to " + std::to_string(max_length),
                           .found = std::to_string(length)});
      return std::nullopt;
    }
  Ids all(data.begin(), data.end());
  all.resize(std::max<std::size_t>(B, 1), all.empty() ? 0 : all[0]);
  return all;
}

/// Segment ids of shape (N) or (B, N).
std::optional<Tensor> ids(Input input, const TensorMap& numbers, std::size_t B, std::size_t N,
                          AxisLengths& axes) {
  const Tensor* tensor = find(numbers, input);
  if (tensor == nullptr) return std::nullopt;
  const Shape& shape = tensor->shape();
  if (tensor->dtype() == DType::i64 && (shape == Shape{N} || shape == Shape{B, N})) return *tensor;
  axes.problem(input,
               {.expected = "whole numbers of shape " + to_string({N}) + " or " + to_string({B, N}),
                .found = std::string(name_of(tensor->dtype())) + " " + to_string(shape)});
  return std::nullopt;
}

/// cu_seqlens (n + 1), 0 = cu[0] <= cu[1] <= ... <= cu[n] = N, as segment ids (N).
std::optional<Tensor> packed_ids(Input input, const TensorMap& numbers, std::size_t N,
                                 AxisLengths& axes) {
  const Tensor* tensor = find(numbers, input);
  if (tensor == nullptr) return std::nullopt;
  const bool list = tensor->dtype() == DType::i64 && tensor->rank() == 1 && tensor->size() > 0;
  const Ids cu = list
                     ? Ids(tensor->data<std::int64_t>().begin(), tensor->data<std::int64_t>().end())
                     : Ids{-1};
  if (cu.front() != 0 || cu.back() != static_cast<std::int64_t>(N) ||
      !std::is_sorted(cu.begin(), cu.end())) {
    const std::string ends = std::to_string(cu.front()) + " to " + std::to_string(cu.back());
    axes.problem(input, {.expected = "non-decreasing whole numbers from 0 to " + std::to_string(N),
                         .found = !list ? std::string(name_of(tensor->dtype())) + " " +
                                              to_string(tensor->shape())
                                  : std::is_sorted(cu.begin(), cu.end()) ? ends
                                                                         : "decreasing numbers"});
    return std::nullopt;
  }
  Tensor documents(DType::i64, {N});
  const auto out = documents.mutable_data<std::int64_t>();
  for (std::size_t d = 0; d + 1 < cu.size(); ++d)
    std::fill(out.begin() + cu[d], out.begin() + cu[d + 1], static_cast<std::int64_t>(d));
  return documents;
}

/// How many queries, keys and past keys a document has.
struct Count {
  std::int64_t queries = 0, keys = 0, past = 0;
};

/// The counts of each document. Neighbours are mostly of the same document.
class Counts {
 public:
  Count& operator[](std::int64_t id) {
    if (latest_ == nullptr || id != latest_id_) latest_ = &counts_[id], latest_id_ = id;
    return *latest_;
  }

 private:
  std::map<std::int64_t, Count> counts_;
  Count* latest_ = nullptr;
  std::int64_t latest_id_ = 0;
};

/// The tokens of one batch item, without positions.
TokenPositions::Side tokens_of(const std::optional<Tensor>& documents,
                               const std::optional<Ids>& lengths, std::size_t b, std::size_t N) {
  TokenPositions::Side side;
  side.count = N;
  side.length = lengths ? static_cast<std::size_t>((*lengths)[b]) : N;
  if (!documents) return side;
  const auto all = documents->data<std::int64_t>().subspan(documents->rank() == 2 ? b * N : 0, N);
  side.documents.assign(all.begin(), all.end());
  for (std::int64_t& id : side.documents) id = std::max<std::int64_t>(id, TokenPositions::kPadding);
  return side;
}

std::int64_t offset_of(const Count& count, const Options& options) {
  if (options.causal_offset) return *options.causal_offset;
  return options.alignment == Alignment::top_left ? count.past : count.keys - count.queries;
}

/// Sets the offsets of one document. Keys and queries before the first key have negative positions.
void set_offsets(TokenPositions& tokens, std::size_t P, const Options& options) {
  auto& [queries, keys] = tokens;
  const auto begin = static_cast<std::int64_t>(keys.begin);
  const auto length = static_cast<std::int64_t>(keys.length);
  const Count count{.queries = static_cast<std::int64_t>(queries.length),
                    .keys = length,
                    .past = std::min(static_cast<std::int64_t>(P), length)};
  queries.offset = offset_of(count, options) - begin;
  keys.offset = -begin;
}

/// Sets the positions within each document. The offset of the queries does not count padding.
void set_positions(TokenPositions& tokens, std::size_t P, const Options& options) {
  auto& [queries, keys] = tokens;
  Counts counts, seen;
  for (std::size_t i = 0; i < queries.length; ++i) ++counts[queries.document(i)].queries;
  for (std::size_t j = 0; j < keys.length; ++j) {
    ++counts[keys.document(j)].keys;
    if (j < P) ++counts[keys.document(j)].past;
  }
  queries.positions.reserve(queries.count);
  keys.positions.reserve(keys.count);
  for (std::size_t i = 0; i < queries.count; ++i) {
    const std::int64_t id = queries.document(i);
    queries.positions.push_back(seen[id].queries++ + offset_of(counts[id], options));
  }
  for (std::size_t j = 0; j < keys.count; ++j)
    keys.positions.push_back(seen[keys.document(j)].keys++);
}

}  // namespace

std::vector<TokenPositions> make_token_positions(const TensorMap& numbers, const Inputs& in,
                                                 AxisLengths& axes) {
  const std::size_t S = in.P + in.N;
  const auto query_lengths = lengths(Input::query_lengths, numbers, in.B, in.L, axes);
  const auto key_lengths = lengths(Input::key_lengths, numbers, in.B, S, axes);
  const auto key_starts = lengths(Input::key_starts, numbers, in.B, S, axes);
  const bool packed =
      contains(numbers, Input::cu_seqlens_q) || contains(numbers, Input::cu_seqlens_k);
  const auto of = [&](Input cu, Input documents, std::size_t N) {
    return packed ? packed_ids(cu, numbers, N, axes) : ids(documents, numbers, in.B, N, axes);
  };
  const auto queries = of(Input::cu_seqlens_q, Input::documents, in.L);
  auto keys = of(Input::cu_seqlens_k, Input::key_documents, S);
  const Input q = packed ? Input::cu_seqlens_q : Input::documents,
              k = packed ? Input::cu_seqlens_k : Input::key_documents;
  if (contains(numbers, q) && !contains(numbers, k)) {
    if (S == in.L)
      keys = queries;
    else
      axes.problem(k, {.message = "required because there are " + std::to_string(S) + " keys but " +
                                  std::to_string(in.L) + " queries"});
  }
  const Tensor* cu = find(numbers, Input::cu_seqlens_q);
  const std::size_t sequences = cu != nullptr && cu->size() > 0 ? cu->size() - 1 : in.B;
  const auto prefixes = lengths(Input::prefix_lengths, numbers, sequences, S, axes);
  if (key_starts && (queries || keys))
    axes.problem(Input::key_starts, {.message = "documents have no padding before their keys",
                                     .hint = "omit key_starts, or the documents"});
  if (!axes.problems().empty()) return {};
  const bool same = !query_lengths && !key_lengths && !key_starts && (!prefixes || packed) &&
                    !(queries && queries->rank() == 2) && !(keys && keys->rank() == 2);
  std::vector<TokenPositions> all;
  for (std::size_t b = 0; b < (same ? 1 : in.B); ++b) {
    TokenPositions& tokens = all.emplace_back(TokenPositions{
        tokens_of(queries, query_lengths, b, in.L), tokens_of(keys, key_lengths, b, S)});
    if (prefixes) tokens.keys.prefixes = packed ? *prefixes : Ids{(*prefixes)[b]};
    if (key_starts) tokens.keys.begin = static_cast<std::size_t>((*key_starts)[b]);
    if (queries || keys)
      set_positions(tokens, in.P, in.options);
    else
      set_offsets(tokens, in.P, in.options);
  }
  return all;
}

}  // namespace attn
