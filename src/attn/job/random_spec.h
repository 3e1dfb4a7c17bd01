// Random tensors as a job writes them: {"randint": {"low": 0, "high": 3, "shape": [3, 3]}}.
//
//   RandomState   randint {low = 0, high, shape, dtype}   rand, random_sample, randn,
//                 standard_normal {shape}   uniform {low = 0, high = 1, shape}
//                 normal {loc = 0, scale = 1, shape}   permutation {n | values}
//                 shuffle {values}   choice {n | values, shape, replace = true, p}
//   default_rng   random {shape, dtype}   integers {low = 0, high, shape, dtype, endpoint = false}
//                 uniform {low = 0, high = 1, shape}
//
// Names, defaults and numbers are NumPy's. Without a shape a draw gives one number.
#pragma once

#include <cstdint>
#include <string>
#include <variant>
#include <vector>

#include "attn/io/json.h"
#include "attn/random/generator.h"
#include "attn/random/random_state.h"
#include "attn/tensor/tensor.h"

namespace attn {

/// The one stream that all random tensors of a job are drawn from.
using Stream = std::variant<RandomState, Generator>;

/// `seed` is a whole number or a list of them, digits in a string where 64 bits do not hold one
/// (default_rng takes any size); `generator` is "RandomState" or "default_rng".
/// Errors: data, for a negative number or one beyond what NumPy takes.
Stream make_stream(const Json& seed, const std::string& generator);

/// `spec` is an object with one member, the method; `values`, if any, stands for the argument of
/// that name. Errors: data, naming the method or argument and the nearest known one.
Tensor draw(const Json& spec, Stream& stream, const Tensor* values = nullptr);

/// What the tensor will take, as far as a shape or a count says; the faults of either are for
/// draw() to tell. Never more than 2^63.
std::uint64_t bytes_of_draw(const Json& spec);

std::vector<std::string> draw_methods();                             ///< of both generators
std::vector<std::string> draw_arguments(const std::string& method);  ///< in either generator
std::string draw_help();  ///< every method and what it takes, a line each

}  // namespace attn
