// Random choices for the oracle's cases.
#pragma once

#include <initializer_list>
#include <random>

#include "attn/problem/options.h"

struct Dice {
  std::mt19937_64 random;
  bool chance(double p) { return std::uniform_real_distribution<>(0, 1)(random) < p; }
  std::size_t one_of(std::initializer_list<std::size_t> choices) {
    return *(choices.begin() + static_cast<std::ptrdiff_t>(random() % choices.size()));
  }
};

/// All options that do not depend on shapes; the cosine score only if `cosine` is set.
attn::Options random_options(Dice& dice, bool cosine);

/// Sinusoidal positions with random parameters.
attn::Position random_position(Dice& dice);
