// Weights in files: of results, of bundles, and of other programs.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "attn/run/result_file.h"
#include "attn/tensor/tensor.h"

namespace attn {

/// The inputs, with the files of each folder in its place.
std::vector<std::string> files_of(const std::vector<std::string>& inputs);

/// Weights or row statistics as (layers, B, H, ...), and which of the first three axes they have.
struct HeadAxes {
  std::size_t layers = 1, items = 1, heads = 1;
  bool has_layers = false, has_items = false, has_heads = false;
  std::vector<std::int64_t> numbers = {};  ///< of the layers in their model; empty: 0, 1, ...

  std::int64_t number_of(std::size_t layer) const {
    return numbers.empty() ? static_cast<std::int64_t>(layer) : numbers[layer];
  }
  std::size_t count() const { return layers * items * heads; }
};

/// All tensors of "FILE", or the one of "FILE#NAME", with what the file states about its job.
ResultFile result_of(const TensorRef& ref, TensorFiles& files);

/// The names of `weights`, or of all tensors that may be weights, in natural order: floating-point
/// numbers, or the only tensor, under names that neither the keys nor the other outputs of a job
/// have. Errors: data, if there are none.
std::vector<std::string> weights_in(const TensorMap& tensors);

/// The axes of a tensor of a result before the last `inner` ones: layers, batch, heads, of which
/// some may be missing. Errors: data, for too few or too many axes, and for a tensor
/// without elements whose other axes have a product above 2^20.
HeadAxes head_axes(const ResultFile& result, const std::string& name, std::size_t inner);

/// Warns if the first of four axes may be layers: it is taken as the batch, but only provenance
/// could say so.
void warn_of_batch(const ResultFile& result, const std::string& label, const Shape& shape,
                   const HeadAxes& axes);

}  // namespace attn
