#include "attn/job/random_methods.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "attn/base/error.h"
#include "attn/base/text.h"
#include "attn/random/selection.h"

namespace attn {
namespace {

using Args = const RandomArguments&;

/// Whether the method draws from 'values', not from the integers below 'n'. Errors: data, unless
/// exactly one of them is given.
bool draws_from_values(Args a) {
  if (a.has("values") == a.has("n")) fail_data("expected either 'n' or 'values'");
  return a.has("values");
}

/// The rows of 'values' at the indices that draw(n) returns, or these indices below 'n'.
template <class Draw>
Tensor picked_by(Args a, const Draw& draw) {
  if (!draws_from_values(a)) return draw(a.count("n"));
  const Tensor values = a.values();
  require_rows(values);
  return picked(values, draw(static_cast<std::int64_t>(values.shape()[0])));
}

// numpy.random.RandomState

Tensor draw_sample(RandomState& state, Args a) { return state.random_sample(a.shape()); }

Tensor draw_standard(RandomState& state, Args a) { return state.standard_normal(a.shape()); }

template <class Source>
Tensor draw_normal(Source& source, Args a) {
  return source.normal(a.number("loc", 0), a.number("scale", 1), a.shape());
}

template <class Source>
Tensor draw_uniform(Source& source, Args a) {
  return source.uniform(a.number("low", 0), a.number("high", 1), a.shape());
}

template <class Source>
Tensor draw_permutation(Source& source, Args a) {
  return picked_by(a, [&](std::int64_t n) { return source.permutation(n); });
}

template <class Source>
Tensor draw_shuffle(Source& source, Args a) {
  Tensor values = a.values();
  source.shuffle(values);
  return values;
}

Tensor draw_choice(RandomState& state, Args a) {
  const bool replace = a.boolean("replace", true);
  return draws_from_values(a) ? state.choice(a.values(), a.shape(), replace, a.numbers("p"))
                              : state.choice(a.count("n"), a.shape(), replace, a.numbers("p"));
}

// numpy.random.default_rng

/// Whether 'dtype' is float32 and not float64. Errors: data, if it is another one.
bool is_float32(Args a) {
  const DType dtype = a.dtype(DType::f64);
  if (dtype != DType::f64 && dtype != DType::f32)
    fail_data({.subject = "dtype",
               .expected = "float64 or float32",
               .found = std::string(name_of(dtype))});
  return dtype == DType::f32;
}

Tensor draw_rng_choice(Generator& generator, Args a) {
  const bool replace = a.boolean("replace", true), shuffled = a.boolean("shuffle", true);
  return draws_from_values(a)
             ? generator.choice(a.values(), a.shape(), replace, a.numbers("p"), shuffled)
             : generator.choice(a.count("n"), a.shape(), replace, a.numbers("p"), shuffled);
}

Tensor draw_integers(Generator& generator, Args a) {
  const int128 high = a.integer("high") + (a.boolean("endpoint", false) ? 1 : 0);
  return generator.integers(a.integer("low", 0), high, a.dtype(DType::i64), a.shape());
}

// torch

Tensor torch_bernoulli(TorchGenerator& torch, Args a) {
  if (a.has("values") == a.has("p")) fail_data("expected either 'p' or 'values'");
  if (a.has("values")) {
    const DType given = a.dtype_of_values(DType::f32) == DType::f64 ? DType::f64 : DType::f32;
    return torch.bernoulli(cast(a.values(), a.dtype(given)));
  }
  return torch.bernoulli(a.number("p", 0), a.dtype(DType::f32), a.shape());
}

Kaiming kaiming_options(Args a) {
  const std::string mode = a.word("mode", "fan_in");
  if (mode != "fan_in" && mode != "fan_out")
    fail_data(
        {.subject = "mode", .expected = "fan_in or fan_out", .found = "'" + printable(mode) + "'"});
  return {.a = a.number("a", 0),
          .fan_out = mode == "fan_out",
          .nonlinearity = a.word("nonlinearity", "leaky_relu")};
}

std::size_t width(Args a, const char* name) { return static_cast<std::size_t>(a.count(name)); }

/// torch.nn.Embedding: its weight, or the rows that are looked up in it.
Tensor torch_embedding(TorchGenerator& torch, Args a) {
  const std::size_t rows = width(a, "num_embeddings"), columns = width(a, "embedding_dim");
  const Shape indices = a.sizes("indices");
  for (const std::size_t index : indices)
    if (index >= rows)
      fail_data({.subject = "indices",
                 .expected = rows == 0 ? "no indices, because num_embeddings is 0"
                                       : "0 to " + std::to_string(rows - 1),
                 .found = std::to_string(index)});
  const Tensor weight = torch.normal(0, 1, a.dtype(DType::f32), {rows, columns});
  if (!a.has("indices")) return weight;
  Tensor selected(DType::i64, {indices.size()});
  std::copy(indices.begin(), indices.end(), selected.mutable_data<std::int64_t>().begin());
  return picked(weight, selected);
}

TensorMap torch_attention(TorchGenerator& torch, Args a) {
  const std::size_t embed = width(a, "embed_dim");
  const AttentionWidths widths = {.embed = embed,
                                  .key = a.has("kdim") ? width(a, "kdim") : embed,
                                  .value = a.has("vdim") ? width(a, "vdim") : embed};
  return attention_layer(torch, widths, a.boolean("bias", true), a.dtype(DType::f32));
}

// jax.random

ThreefryKey jax_key(JaxRandom& jax, Args a) { return jax.key(a.word("key", "")); }

// random of CPython

Tensor python_choice(PythonRandom& random, Args a) {
  return picked_by(a, [&](std::int64_t n) { return random.choice(n, a.shape()); });
}

Tensor python_choices(PythonRandom& random, Args a) {
  return picked_by(
      a, [&](std::int64_t n) { return random.choices(n, a.numbers("weights"), a.shape()); });
}

Tensor python_sample(PythonRandom& random, Args a) {
  return picked_by(a, [&](std::int64_t n) { return random.sample(n, a.count("k")); });
}

Tensor python_shuffle(PythonRandom& random, Args a) {
  return picked_by(a, [&](std::int64_t n) { return random.shuffled(n); });
}

// The table.

template <class Source>
TensorMap drawn(Tensor (*draw)(Source&, Args), RandomStream& stream, Args a) {
  TensorMap map;
  map.set("", draw(std::get<Source>(stream.source), a));
  return map;
}

template <class Source>
TensorMap drawn(TensorMap (*draw)(Source&, Args), RandomStream& stream, Args a) {
  return draw(std::get<Source>(stream.source), a);
}

/// `draw` is a function of a source and the arguments.
template <class Draw>
RandomMethod method(std::string name, std::vector<std::string> arguments, Draw draw) {
  return {std::move(name), std::move(arguments),
          [pointer = +draw](RandomStream& stream, Args a) { return drawn(pointer, stream, a); }};
}

template <class Draw>
RandomMethod layer(std::string name, std::vector<std::string> arguments, Draw draw) {
  RandomMethod all = method(std::move(name), std::move(arguments), draw);
  all.is_layer = true;
  return all;
}

const std::vector<RandomMethod>& legacy_methods() {
  static const std::vector<RandomMethod> methods = {
      method("randint", {"low", "high", "shape", "dtype"},
             [](RandomState& state, Args a) {
               return state.randint(a.integer("low", 0), a.integer("high"), a.dtype(DType::i64),
                                    a.shape());
             }),
      method("rand", {"shape"}, draw_sample),
      method("random", {"shape"}, draw_sample),
      method("random_sample", {"shape"}, draw_sample),
      method("randn", {"shape"}, draw_standard),
      method("standard_normal", {"shape"}, draw_standard),
      method("uniform", {"low", "high", "shape"}, draw_uniform<RandomState>),
      method("normal", {"loc", "scale", "shape"}, draw_normal<RandomState>),
      method("permutation", {"n", "values"}, draw_permutation<RandomState>),
      method("shuffle", {"values"}, draw_shuffle<RandomState>),
      method("choice", {"n", "values", "shape", "replace", "p"}, draw_choice),
  };
  return methods;
}

const std::vector<RandomMethod>& rng_methods() {
  static const std::vector<RandomMethod> methods = {
      method("random", {"shape", "dtype"},
             [](Generator& generator, Args a) {
               return is_float32(a) ? generator.random_f32(a.shape()) : generator.random(a.shape());
             }),
      method("integers", {"low", "high", "shape", "dtype", "endpoint"}, draw_integers),
      method("uniform", {"low", "high", "shape"}, draw_uniform<Generator>),
      method("standard_normal", {"shape", "dtype"},
             [](Generator& generator, Args a) {
               return is_float32(a) ? generator.standard_normal_f32(a.shape())
                                    : generator.standard_normal(a.shape());
             }),
      method("normal", {"loc", "scale", "shape"}, draw_normal<Generator>),
      method("permutation", {"n", "values"}, draw_permutation<Generator>),
      method("shuffle", {"values"}, draw_shuffle<Generator>),
      method("choice", {"n", "values", "shape", "replace", "p", "shuffle"}, draw_rng_choice),
  };
  return methods;
}

const std::vector<RandomMethod>& torch_methods() {
  static const std::vector<RandomMethod> methods = {
      method("rand", {"shape", "dtype"},
             [](TorchGenerator& torch, Args a) {
               return torch.uniform(0, 1, a.dtype(DType::f32), a.shape());
             }),
      method("randn", {"shape", "dtype"},
             [](TorchGenerator& torch, Args a) {
               return torch.normal(0, 1, a.dtype(DType::f32), a.shape());
             }),
      method("randint", {"low", "high", "shape", "dtype"},
             [](TorchGenerator& torch, Args a) {
               return torch.randint(a.integer("low", 0), a.integer("high"), a.dtype(DType::i64),
                                    a.shape());
             }),
      method("randperm", {"n"},
             [](TorchGenerator& torch, Args a) { return torch.randperm(a.count("n")); }),
      method("normal", {"mean", "std", "shape", "dtype"},
             [](TorchGenerator& torch, Args a) {
               return torch.normal(a.number("mean", 0), a.number("std", 1), a.dtype(DType::f32),
                                   a.shape());
             }),
      method("uniform", {"low", "high", "shape", "dtype"},
             [](TorchGenerator& torch, Args a) {
               return torch.uniform(a.number("low", 0), a.number("high", 1), a.dtype(DType::f32),
                                    a.shape());
             }),
      method("bernoulli", {"p", "values", "shape", "dtype"}, torch_bernoulli),
      method("kaiming_uniform", {"shape", "a", "mode", "nonlinearity", "dtype"},
             [](TorchGenerator& torch, Args a) {
               return kaiming_uniform(torch, kaiming_options(a), a.dtype(DType::f32), a.shape());
             }),
      method("kaiming_normal", {"shape", "a", "mode", "nonlinearity", "dtype"},
             [](TorchGenerator& torch, Args a) {
               return kaiming_normal(torch, kaiming_options(a), a.dtype(DType::f32), a.shape());
             }),
      method("xavier_uniform", {"shape", "gain", "dtype"},
             [](TorchGenerator& torch, Args a) {
               return xavier_uniform(torch, a.number("gain", 1), a.dtype(DType::f32), a.shape());
             }),
      method("xavier_normal", {"shape", "gain", "dtype"},
             [](TorchGenerator& torch, Args a) {
               return xavier_normal(torch, a.number("gain", 1), a.dtype(DType::f32), a.shape());
             }),
      method("Embedding", {"num_embeddings", "embedding_dim", "indices", "dtype"}, torch_embedding),
      layer("Linear", {"in_features", "out_features", "bias", "dtype"},
            [](TorchGenerator& torch, Args a) {
              return linear_layer(torch, width(a, "in_features"), width(a, "out_features"),
                                  a.boolean("bias", true), a.dtype(DType::f32));
            }),
      layer("MultiheadAttention", {"embed_dim", "kdim", "vdim", "bias", "dtype"}, torch_attention),
  };
  return methods;
}

const std::vector<RandomMethod>& jax_methods() {
  static const std::vector<RandomMethod> methods = {
      method("uniform", {"key", "minval", "maxval", "shape", "dtype"},
             [](JaxRandom& jax, Args a) {
               return jax.uniform(jax_key(jax, a), a.number("minval", 0), a.number("maxval", 1),
                                  a.dtype(DType::f32), a.shape());
             }),
      method("normal", {"key", "shape"},
             [](JaxRandom& jax, Args a) { return jax.normal(jax_key(jax, a), a.shape()); }),
      method("randint", {"key", "minval", "maxval", "shape", "dtype"},
             [](JaxRandom& jax, Args a) {
               return jax.randint(jax_key(jax, a), a.integer("minval"), a.integer("maxval"),
                                  a.dtype(DType::i32), a.shape());
             }),
      method("bernoulli", {"key", "p", "shape"},
             [](JaxRandom& jax, Args a) {
               return jax.bernoulli(jax_key(jax, a), a.number("p", 0.5), a.shape());
             }),
  };
  return methods;
}

const std::vector<RandomMethod>& python_methods() {
  static const std::vector<RandomMethod> methods = {
      method("random", {"shape"},
             [](PythonRandom& random, Args a) { return random.random(a.shape()); }),
      method("uniform", {"a", "b", "shape"},
             [](PythonRandom& random, Args a) {
               return random.uniform(a.number("a"), a.number("b"), a.shape());
             }),
      method("gauss", {"mu", "sigma", "shape"},
             [](PythonRandom& random, Args a) {
               return random.gauss(a.number("mu", 0), a.number("sigma", 1), a.shape());
             }),
      method("normalvariate", {"mu", "sigma", "shape"},
             [](PythonRandom& random, Args a) {
               return random.normalvariate(a.number("mu", 0), a.number("sigma", 1), a.shape());
             }),
      method("randint", {"a", "b", "shape"},
             [](PythonRandom& random, Args a) {
               return random.randrange(a.integer("a"), a.integer("b") + 1, a.shape());
             }),
      method("randrange", {"start", "stop", "shape"},
             [](PythonRandom& random, Args a) {
               return random.randrange(a.integer("start", 0), a.integer("stop"), a.shape());
             }),
      method(
          "getrandbits", {"k", "shape"},
          [](PythonRandom& random, Args a) { return random.getrandbits(a.count("k"), a.shape()); }),
      method("choice", {"n", "values", "shape"}, python_choice),
      method("choices", {"n", "values", "weights", "shape"}, python_choices),
      method("sample", {"n", "values", "k"}, python_sample),
      method("shuffle", {"n", "values"}, python_shuffle),
  };
  return methods;
}

}  // namespace

const std::vector<RandomMethod>& methods_of(std::string_view generator) {
  if (generator == "RandomState") return legacy_methods();
  if (generator == "default_rng") return rng_methods();
  if (generator == "torch") return torch_methods();
  if (generator == "python") return python_methods();
  if (generator == "jax" || generator == "jax-original") return jax_methods();
  throw Error(ErrorKind::internal, "a generator without methods");
}

}  // namespace attn
