// The operations of a computation in the order in which they were computed, for reverse-mode
// differentiation.
#pragma once

#include <cstddef>
#include <functional>
#include <optional>
#include <utility>
#include <vector>

namespace attn {

/// Derivative: a type with `Derivative sum_of(Derivative, const Derivative&)`.
template <class Derivative>
class Tape {
 public:
  /// Passes the derivative by the node's tensor on to the operands of its operation.
  using Backward = std::function<void(const Derivative& g)>;
  using Rounding = std::function<Derivative(const Derivative&)>;

  /// `rounding` is applied to each derivative that an operation passes on, and to sums of them;
  /// nullptr: none is rounded.
  explicit Tape(Rounding rounding = nullptr) : rounding_(std::move(rounding)) {}

  std::size_t add(Backward backward) {
    nodes_.push_back({std::move(backward), {}});
    return nodes_.size() - 1;
  }

  /// The node of an operation; nullopt if no derivative by its operands, optionals, is wanted.
  template <class Operands>
  std::optional<std::size_t> add_if_wanted(const Operands& operands, Backward backward) {
    for (const auto& operand : operands)
      if (operand && operand->node) return add(std::move(backward));
    return std::nullopt;
  }

  /// Adds derivative() to that by the operand, if it is wanted: if it has a `node`.
  template <class Operand, class Function>
  void pass(const Operand& operand, Function&& derivative) {
    if (!operand.node) return;
    std::optional<Derivative>& sum = nodes_[*operand.node].derivative;
    sum = sum ? rounded(sum_of(std::move(*sum), rounded(derivative()))) : rounded(derivative());
  }

  /// Computes the derivatives by all nodes, and keeps those by nodes without operation.
  void run() {
    for (std::size_t i = nodes_.size(); i-- > 0;) {
      Node& node = nodes_[i];
      if (!node.backward) continue;
      if (node.derivative) node.backward(*node.derivative);
      node = {};  // frees the tensors of the operation
    }
  }

  const std::optional<Derivative>& derivative(std::size_t node) const {
    return nodes_[node].derivative;
  }

 private:
  struct Node {
    Backward backward;
    std::optional<Derivative> derivative;
  };

  Derivative rounded(Derivative x) const { return rounding_ ? rounding_(x) : x; }

  const Rounding rounding_;
  std::vector<Node> nodes_;
};

}  // namespace attn
