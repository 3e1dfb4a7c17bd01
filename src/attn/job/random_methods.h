// The generators of random numbers that a job can name, and their methods: one table.
#pragma once

#include <array>
#include <functional>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "attn/job/random_arguments.h"
#include "attn/random/generator.h"
#include "attn/random/jax_random.h"
#include "attn/random/python_random.h"
#include "attn/random/random_state.h"
#include "attn/random/torch_generator.h"

namespace attn {

struct GeneratorRow {
  std::string_view name;     ///< a value of the key "generator"
  std::string_view refusal;  ///< why it cannot be reproduced; empty if it can
};

inline constexpr auto kGenerators = std::to_array<GeneratorRow>({
    {"RandomState", ""},
    {"default_rng", ""},
    {"torch", ""},
    {"jax", ""},
    {"jax-original", ""},  // jax_threefry_partitionable is False
    {"python", ""},
    {"torch-mkl",
     "on Intel CPUs, PyTorch draws bernoulli_(p) and dropout from MKL's generator, which attn does "
     "not have; give the mask as a tensor"},
    {"torch-cuda",
     "the numbers of PyTorch's CUDA generator depend on the GPU; save them with torch.save and "
     "give them as tensors"},
});

/// The source of all random tensors of a job.
struct RandomStream {
  std::string_view generator;  ///< its name in kGenerators
  std::variant<RandomState, Generator, TorchGenerator, JaxRandom, PythonRandom> source;
};

struct RandomMethod {
  std::string name;
  std::vector<std::string> arguments;
  /// The tensor, which is unnamed; or of a layer all of its parameters, by their names.
  std::function<TensorMap(RandomStream&, const RandomArguments&)> draw;
  bool is_layer = false;
};

/// The methods of a generator of kGenerators that is not refused.
const std::vector<RandomMethod>& methods_of(std::string_view generator);

}  // namespace attn
