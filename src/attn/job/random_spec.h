// Random tensors as a job writes them: {"randint": {"low": 0, "high": 3, "shape": [3, 3]}}.
//
// Names of methods and arguments, defaults and numbers are those of NumPy, PyTorch, JAX or Python,
// whichever has the generator (job/random_methods.h). The other name of shape, size, is accepted,
// too. Without a shape the result is one number.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "attn/io/json_write.h"
#include "attn/job/random_methods.h"
#include "attn/tensor/tensor.h"

namespace attn {

/// `seed` is an integer or a list of them, as a string of digits if 64 bits cannot hold it
/// (default_rng accepts any size); `generator` is a name of kGenerators that is not refused.
/// Errors: data, for a negative number or one that the generator refuses.
RandomStream make_stream(const Json& seed, const std::string& generator);

/// Errors: data, if the generator has no such method. The message suggests one, as flags.
void require_method(std::string_view generator, const std::string& name);

/// Calls the method that is the only member of `spec`, an object; `values`, if any, is the argument
/// of that name. The tensor is unnamed; the parameters of a layer have names. Errors: data, naming
/// the method or argument and the most similar known one.
TensorMap draw(const Json& spec, RandomStream& stream, const Tensor* values = nullptr);

/// The same for one tensor. Errors: also data, for a layer.
Tensor random_tensor(const Json& spec, RandomStream& stream);

/// The memory, in bytes and at most 2^63, of what draw() returns, of the `n` integers that it is
/// chosen from, and of three copies of `values`, all as float64. An invalid shape or count is not
/// an error here: draw() reports it.
std::size_t random_tensor_bytes(const Json& spec, const Tensor* values = nullptr);

std::vector<std::string> generator_names();  ///< those that are not refused
/// Those that have the method.
std::vector<std::string> generators_with(const std::string& method);
std::vector<std::string> random_methods();    ///< of all generators
bool draws_layer(const std::string& method);  ///< whether the method draws several tensors
std::vector<std::string> random_arguments(const std::string& method);  ///< in any generator
std::string random_methods_help();  ///< every method and its arguments, a line each

}  // namespace attn
