// Layers that a file has as separate tensors: arr_0, arr_1, ... of numpy.savez, or layer_0, ...
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "attn/io/read_budget.h"
#include "attn/tensor/tensor.h"

namespace attn {

struct LayerName {
  std::string series;  ///< "arr_{layer}", "layers.{layer}.attn"
  std::string rest;    ///< of the name: "", "attn"
  std::int64_t layer = 0;
};

/// Whether this is "JOB/OUTPUT", as bundles of attn batch name the outputs of their jobs.
bool is_output_of_job(const std::string& name);

/// Of "arr_3", or of a name with a number after "layer" or "layers". Nothing for the outputs of
/// jobs in a bundle.
std::optional<LayerName> layer_in_name(const std::string& name);

struct LayerTensors {
  std::string name;                   ///< "arr_{layer}"
  std::string rest;                   ///< of it, without the layer: "", "attn"
  std::vector<std::int64_t> numbers;  ///< of the layers, ascending
  Tensor tensor;                      ///< with an axis of layers before the others
};

/// Joins the layers of the series `wanted`, or, if it is "", of the only series among the tensors.
/// Nothing if there is no such series of at least two tensors with the same shape and dtype.
std::optional<LayerTensors> join_layers(const TensorMap& tensors, const std::string& wanted);

}  // namespace attn
