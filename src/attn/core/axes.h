// Agreement between tensors, axis by axis: every tensor declares its axes by letter, and the first
// that has a letter settles its length for all that follow.
#pragma once

#include <array>
#include <cstddef>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "attn/base/error.h"
#include "attn/tensor/tensor.h"

namespace attn {

/// What the letters stand for: core/shapes.h (DDk is D + Dk).
enum class Letter {
  B,
  H,
  G,
  L,
  N,
  P,
  S,
  D,
  Dk,
  Dv,
  HD,
  GD,
  GDv,
  HDv,
  M,
  Mk,
  Mv,
  Mo,
  A,
  DDk,
  buckets
};
inline constexpr std::size_t kLetters = static_cast<std::size_t>(Letter::buckets) + 1;
using Letters = std::vector<Letter>;

/// Names are literals, or live as long. Texts are made only where something is wrong.
class Axes {
 public:
  /// A length, and what settled it.
  struct Axis {
    std::size_t length;
    std::string_view name;    ///< of the tensor or the option: "W_Q", "heads"
    Shape shape = {};         ///< the tensor's; none for an option
    std::string remark = {};  ///< the option's value, "= 8"; or what stands behind the shape

    /// What was found there: "(4, 8)", "= 8", "(4, 8) with kv_heads = 2".
    std::string found() const { return (shape.empty() ? "" : to_string(shape)) + remark; }
  };

  /// Settles a letter that is not settled yet.
  void settle(Letter letter, Axis axis);

  /// Settles `letter` as what `other` is, if that is settled.
  void equate(Letter letter, Letter other);

  /// Holds `tensor` to `letters`, one for each of its axes. When all agree, it settles those not
  /// met before; otherwise it is a problem and settles nothing:
  ///   "W_Q: expected (3, *) to match embeddings (4, 3), found (2, 3)".
  /// `advice` goes behind it where the number of axes is right.
  void take(std::string_view name, const Tensor& tensor, const Letters& letters,
            std::string_view advice = "");

  bool knows(Letter letter) const { return find(letter) != nullptr; }
  const Axis& operator[](Letter letter) const;

  void problem(Problem problem) { problems_.add(std::move(problem)); }
  const ProblemList& problems() const { return problems_; }

 private:
  const Axis* find(Letter letter) const;
  void mismatch(std::string_view name, const Tensor& tensor, const Letters& letters,
                std::string_view advice);

  std::array<std::optional<Axis>, kLetters> axes_;
  ProblemList problems_;
};

}  // namespace attn
