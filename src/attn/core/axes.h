// Agreement between tensors, axis by axis: every tensor declares its axes by letter, and the first
// that has a letter settles its length for all that follow.
#pragma once

#include <cstddef>
#include <map>
#include <string>
#include <vector>

#include "attn/tensor/tensor.h"

namespace attn {

class Axes {
 public:
  /// A length, and what settled it: the name "W_Q" and what was found there, "(4, 8)".
  struct Axis {
    std::size_t length;
    std::string name, found;
  };

  /// Settles a letter that is not settled yet.
  void settle(const std::string& letter, const Axis& axis) { axes_.try_emplace(letter, axis); }

  /// Settles `letter` as what `other` is, if that is settled.
  void equate(const std::string& letter, const std::string& other);

  /// Holds `tensor` to `letters`, one for each of its axes. When all agree, it settles those not
  /// met before; otherwise it is a problem and settles nothing:
  ///   "W_Q: expected (3, *) to match embeddings (4, 3), found (2, 3)".
  void take(const std::string& name, const Tensor& tensor, const std::vector<std::string>& letters);

  bool knows(const std::string& letter) const { return axes_.count(letter) != 0; }
  const Axis& operator[](const std::string& letter) const { return axes_.at(letter); }

  void problem(const std::string& line) { problems_.push_back(line); }
  const std::vector<std::string>& problems() const { return problems_; }

 private:
  std::map<std::string, Axis> axes_;
  std::vector<std::string> problems_;
};

}  // namespace attn
