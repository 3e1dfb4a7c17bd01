#include "attn/problem/named_masks.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <optional>

#include "attn/problem/input_table.h"

namespace attn {
namespace {

std::string found(const Tensor& tensor) {
  return std::string(name_of(tensor.dtype())) + " " + to_string(tensor.shape());
}

/// Whether the shape is `last`, or has the batch axis in front of it.
bool has_shape(const Shape& shape, const Shape& last, std::size_t B) {
  Shape with_items = last;
  with_items.insert(with_items.begin(), B);
  return shape == last || shape == with_items;
}

/// For each node of each tree, whether each node is the same or one of its ancestors. nullopt if a
/// problem was reported.
std::optional<Tensor> ancestors_of(const Tensor& parents, AxisLengths& axes) {
  const std::size_t N = parents.shape().back();
  Shape shape = parents.shape();
  shape.push_back(N);
  Tensor all(DType::boolean, shape);
  const auto parent = parents.data<std::int64_t>();
  const auto sees = all.mutable_data<bool>();
  for (std::size_t row = 0; row < parent.size(); ++row) {
    const std::size_t node = row % N;
    if (parent[row] < -1 || parent[row] >= static_cast<std::int64_t>(node)) {
      axes.problem(Input::tree_parents, {.expected = "a parent before node " +
                                                     std::to_string(node) + ", or -1 for a root",
                                         .found = std::to_string(parent[row])});
      return std::nullopt;
    }
    bool* const own = sees.data() + row * N;
    if (parent[row] >= 0)
      std::copy_n(sees.data() + (row - node + static_cast<std::size_t>(parent[row])) * N, N, own);
    own[node] = true;
  }
  return all;
}

/// Collects rules and tables.
class NamedRules {
 public:
  NamedRules(const TensorMap& numbers, const Inputs& in, std::vector<std::string>& rules,
             TensorMap& tables, AxisLengths& axes)
      : numbers_(numbers), in_(in), rules_(rules), tables_(tables), axes_(axes) {}

  void add_all() {
    const Options& options = in_.options;
    const std::string chunk = std::to_string(options.chunk);
    if (options.chunk > 0) rules_.push_back("q // " + chunk + " == k // " + chunk);
    if (options.sink_tokens > 0 && options.window.left >= 0)
      rules_.push_back("k < " + std::to_string(options.sink_tokens) +
                       " or q - k <= " + std::to_string(options.window.left));
    if (const Tensor* parents = find(numbers_, Input::tree_parents)) add_tree(*parents);
    if (const Tensor* blocks = find(numbers_, Input::blocks)) add_blocks(*blocks);
  }

 private:
  void add_table(Input of, const std::string& name, const Tensor& table) {
    const std::string key = std::string(kMaskTables) + name;
    if (tables_.contains(key))
      return axes_.problem(of, {.message = "mask_tables has a table with the name " + name});
    tables_.set(key, table);
  }

  /// The number of keys of each batch item, less `nodes`. nullopt if a problem was reported.
  std::optional<std::vector<std::int64_t>> keys_before(std::size_t nodes) {
    std::vector<std::int64_t> before;
    for (const TokenPositions& tokens : in_.token_positions) {
      const auto& [queries, keys] = tokens;
      const bool is_empty = keys.length == 0;  // no node is there to be seen
      if (!queries.documents.empty() || !keys.documents.empty())
        axes_.problem(Input::tree_parents, {.message = "cannot be combined with documents"});
      else if (keys.length < nodes && !is_empty)
        axes_.problem(Input::tree_parents, {.expected = "at most " + std::to_string(keys.length) +
                                                        " nodes, one for each key",
                                            .found = std::to_string(nodes)});
      else
        before.push_back(is_empty ? 0 : static_cast<std::int64_t>(keys.length - nodes));
      if (before.empty()) return std::nullopt;
    }
    return before;
  }

  void add_tree(const Tensor& parents) {
    const Shape& shape = parents.shape();
    const std::size_t N = shape.empty() ? 0 : shape.back();
    if (parents.dtype() != DType::i64 || N == 0 || N > in_.L || !has_shape(shape, {N}, in_.B))
      return axes_.problem(
          Input::tree_parents,
          {.expected = "whole numbers of shape (N) or (" + std::to_string(in_.B) +
                       ", N), 0 < N <= " + std::to_string(in_.L) + ", the number of queries",
           .found = found(parents)});
    const auto before = keys_before(N);
    const auto ancestors = before ? ancestors_of(parents, axes_) : std::nullopt;
    if (!ancestors) return;
    std::string start = "S - " + std::to_string(N), node = "j - S + " + std::to_string(N);
    if (static_cast<std::size_t>(before->front()) + N != in_.P + in_.N || before->size() > 1) {
      start = "tree_start[b]", node = "j - tree_start[b]";
      add_table(Input::tree_parents, "tree_start",
                Tensor::of<std::int64_t>({before->size()}, *before));
    }
    const std::size_t others = in_.L - N;
    const std::string query = others == 0 ? "i" : "i - " + std::to_string(others);
    rules_.push_back("j < " + start + " or " +
                     (others == 0 ? "" : "i >= " + std::to_string(others) + " and ") +
                     "ancestors[" + query + ", " + node + "]");
    add_table(Input::tree_parents, "ancestors", *ancestors);
  }

  void add_blocks(const Tensor& blocks) {
    const auto M = static_cast<std::size_t>(in_.options.block_size.at(0)),
               N = static_cast<std::size_t>(in_.options.block_size.at(1));
    const Shape expected = {(in_.L + M - 1) / M, (in_.P + in_.N + N - 1) / N};
    if (is_float(blocks.dtype()) || !has_shape(blocks.shape(), expected, in_.B))
      return axes_.problem(Input::blocks,
                           {.expected = "booleans of shape " + to_string(expected) +
                                        ", also for each batch item, for " + std::to_string(in_.L) +
                                        " queries and " + std::to_string(in_.P + in_.N) + " keys",
                            .found = found(blocks)});
    rules_.push_back("blocks[i // " + std::to_string(M) + ", j // " + std::to_string(N) + "]");
    add_table(Input::blocks, "blocks", blocks);
  }

  const TensorMap& numbers_;
  const Inputs& in_;
  std::vector<std::string>& rules_;
  TensorMap& tables_;
  AxisLengths& axes_;
};

}  // namespace

void add_named_rules(const TensorMap& numbers, const Inputs& in, std::vector<std::string>& rules,
                     TensorMap& tables, AxisLengths& axes) {
  NamedRules(numbers, in, rules, tables, axes).add_all();
}

std::string named_rule(const Inputs& in) {
  std::vector<std::string> rules = in.rules;
  const bool has_prefix = contains(in.tensors, Input::prefix_lengths) && in.options.causal;
  if (has_prefix) rules.emplace_back("k < prefix_lengths[b] or q >= k");
  const bool is_of_user = rules.size() == 1 && rules.front() == in.options.mask_rule;
  if (is_of_user) return "";
  std::string all;
  for (const std::string& rule : rules) {
    const bool needs_parentheses = rules.size() > 1 && rule.find(" or ") != std::string::npos;
    all += (all.empty() ? "" : " and ") + (needs_parentheses ? "(" + rule + ")" : rule);
  }
  return all;
}

}  // namespace attn
