#include "attn/cache/latent.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <string>
#include <utility>

#include "attn/base/error.h"
#include "attn/cache/stored_rows.h"
#include "attn/problem/input_table.h"
#include "attn/problem/layout.h"
#include "attn/tensor/gathered_rows.h"
#include "attn/tensor/shape.h"

namespace attn {
namespace {

constexpr std::array kReplaced = {Input::Q_nope,         Input::Q_pe,      Input::CKV,
                                  Input::K_pe,           Input::k_scale,   Input::k_zero_point,
                                  Input::k_global_scale, Input::k_pe_scale};

/// The elements of a and b beside each other; all axes but the last are the same.
Tensor beside(const Tensor& a, const Tensor& b) {
  const DType dtype = common_dtype(a.dtype(), b.dtype());
  Shape shape = a.shape();
  shape.back() += b.shape().back();
  Tensor both(dtype, shape);
  if (both.size() == 0) return both;
  std::byte* to = both.mutable_raw();
  const std::size_t rows = both.size() / shape.back();
  for (const Tensor* part : {&a, &b}) {
    const Tensor elements = cast(*part, dtype);
    const std::size_t bytes = elements.bytes() / rows;
    for (std::size_t row = 0; row < rows; ++row)
      if (bytes > 0)
        std::memcpy(to + row * shape.back() * size_of(dtype), elements.raw() + row * bytes, bytes);
    to += bytes;
  }
  return both;
}

void check_latent_queries(const Tensor& nope, const Tensor& pe, const Options& options,
                          ProblemList& problems) {
  if (!has_head_axis(nope.shape(), options))
    return report(problems, Input::Q_nope, "4 axes, or 3 with layout thd", to_string(nope.shape()));
  const auto without_width = [](const Tensor& tensor) {
    return Shape(tensor.shape().begin(), tensor.shape().end() - (tensor.rank() > 0));
  };
  if (pe.rank() != nope.rank() || without_width(pe) != without_width(nope))
    report(problems, Input::Q_pe, "the axes of Q_nope " + to_string(nope.shape()) + " but the last",
           to_string(pe.shape()));
}

/// CKV or K_pe, whose rows have the width of `queries`.
RowTable table_of_part(Input input, Input queries, const Storage& storage,
                       const AttentionArguments& given, ProblemList& problems) {
  const Stored stored =
      stored_elements(input, at(given.tensors, input), storage, given.options, problems);
  const bool is_packed = given.options.layout == Layout::thd;
  const Shape& shape = stored.data.shape();
  const Shape& of_queries = at(given.tensors, queries).shape();
  const std::size_t width = of_queries.back();
  const bool fits = shape.size() == (is_packed ? 2 : 3) &&
                    shape.back() * codes_per_byte(stored.code) == width &&
                    (is_packed || shape[0] == of_queries[0]);
  if (!fits) {
    report(problems, input,
           (is_packed ? "(S, " : "(" + std::to_string(of_queries[0]) + ", S, ") +
               std::to_string(width) + ") to match " + std::string(name_of(queries)) + " " +
               to_string(of_queries),
           to_string(at(given.tensors, input).shape()));
    return {};
  }
  Pool pool = pools_of(stored, shape, is_packed ? "sD" : "PsD").first;
  pool.of = Pool::Of::keys;
  PoolRows rows(pool, storage, given, pool.pages, pool.slots, problems);
  for (std::size_t item = 0; item < pool.pages; ++item)
    rows.set(item * pool.slots, item, 0, pool.slots);
  return std::move(rows).table();
}

}  // namespace

bool has_latent(const TensorMap& tensors) { return contains(tensors, Input::Q_nope); }

const Tensor* given_queries(const TensorMap& tensors) {
  return find(tensors, has_latent(tensors) ? Input::Q_nope : Input::Q);
}

std::size_t bytes_of_latent(const TensorMap& tensors) {
  std::size_t bytes = 0;
  for (const Input input : {Input::Q_nope, Input::Q_pe})
    bytes = saturating_sum(bytes, saturating_product({at(tensors, input).size(), sizeof(double)}));
  for (const auto& [input, storage] :
       {std::pair(Input::CKV, &storage_of(Input::K)), std::pair(Input::K_pe, &kRotaryStorage)})
    if (const Tensor* given = find(tensors, input); given != nullptr && given->rank() > 0) {
      const std::size_t rows = given->size() / std::max<std::size_t>(1, given->shape().back());
      bytes = saturating_sum(bytes, bytes_of_rows(*given, rows, *storage, tensors));
    }
  return bytes;
}

TensorMap with_latent_rows(const TensorMap& tensors, Options& options) {
  ProblemList problems;
  const Tensor &nope = at(tensors, Input::Q_nope), &pe = at(tensors, Input::Q_pe);
  check_latent_queries(nope, pe, options, problems);
  if (!problems.empty()) problems.raise(ErrorKind::data);
  options.value_width = static_cast<std::int64_t>(nope.shape().back());
  const bool has_rows = contains(tensors, Input::CKV);
  TensorMap all;
  for (const auto& [name, tensor] : tensors) {
    const auto input = input_named(name);
    const bool is_replaced =
        input && std::find(kReplaced.begin(), kReplaced.end(), *input) != kReplaced.end() &&
        (has_rows || *input == Input::Q_nope || *input == Input::Q_pe);
    if (!is_replaced) all.set(name, tensor);
  }
  all.set(std::string(name_of(Input::Q)), beside(nope, pe));
  if (!has_rows) return all;
  const RowTable latent =
      table_of_part(Input::CKV, Input::Q_nope, storage_of(Input::K), {tensors, options}, problems);
  RowTable rotated =
      table_of_part(Input::K_pe, Input::Q_pe, kRotaryStorage, {tensors, options}, problems);
  if (problems.empty() && (rotated.items != latent.items || rotated.keys != latent.keys))
    report(problems, Input::K_pe,
           "as many keys as CKV " + to_string(at(tensors, Input::CKV).shape()),
           to_string(at(tensors, Input::K_pe).shape()));
  if (!problems.empty()) problems.raise(ErrorKind::data);
  const auto set = [&](Input input, RowTable table) {
    const Tensor rows = tensor_of(std::move(table), options.layout == Layout::bhld);
    const Shape& shape = rows.shape();
    all.set(std::string(name_of(input)),
            options.layout == Layout::thd ? rows.reshaped({shape[1], shape[2], shape[3]}) : rows);
  };
  set(Input::V, latent);
  set(Input::K, joined_columns(latent, std::move(rotated)));
  return all;
}

void require_scale(const Options& options) {
  if (options.value_width == 0 || options.scale.kind != Scale::Kind::automatic) return;
  fail_data({.subject = "scale",
             .expected = "a number: latent attention has no default; it is 1/sqrt of the width "
                         "of a head's query before W_UK was absorbed, such as 0.0722 for 192",
             .found = "none"});
}

}  // namespace attn
