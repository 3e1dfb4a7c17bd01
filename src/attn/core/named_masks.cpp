#include "attn/core/named_masks.h"

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "attn/base/error.h"
#include "attn/core/input_table.h"
#include "attn/core/layout.h"
#include "attn/core/mask_rule.h"
#include "attn/core/stored_rows.h"

namespace attn {
namespace {

constexpr std::array kNamedMasks = {Input::prefix_lengths, Input::tree_parents, Input::blocks};

std::string integer_text(std::int64_t number) { return std::to_string(number); }

/// Collects the rules, which all have to be true, and their tables.
class NamedMasks {
 public:
  NamedMasks(TensorMap& tensors, Options& options) : tensors_(tensors), options_(options) {
    std::tie(B_, L_) = queries_of(tensors, options);
  }

  void replace() {
    if (!options_.mask_rule.empty()) {
      parse_given();
      rules_.push_back(options_.mask_rule);
    }
    if (options_.chunk > 0) add_chunk();
    if (options_.sink_tokens > 0) add_sink_tokens();
    if (contains(tensors_, Input::prefix_lengths)) add_prefix();
    if (contains(tensors_, Input::tree_parents)) add_tree();
    if (contains(tensors_, Input::blocks)) add_blocks();
    if (!problems_.empty()) problems_.raise(ErrorKind::data);
    options_.mask_rule = all_rules();
    TensorMap others;
    for (const auto& [name, tensor] : tensors_) {
      const std::optional<Input> input = input_named(name);
      if (!input || std::find(kNamedMasks.begin(), kNamedMasks.end(), *input) == kNamedMasks.end())
        others.set(name, tensor);
    }
    tensors_ = std::move(others);
  }

 private:
  std::string all_rules() const {
    std::string all;
    for (const std::string& rule : rules_) {
      const bool is_part = rules_.size() > 1 && rule.find("or") != std::string::npos;
      all += (all.empty() ? "" : " and ") + (is_part ? "(" + rule + ")" : rule);
    }
    return all;
  }

  /// Reports an error in the job's own rule with its position there, not in the combined one.
  void parse_given() {
    try {
      parse_mask_rule(options_.mask_rule, tensors_);
    } catch (const Error& error) {
      Problem problem = error.problems().front();
      problem.subject = "mask_rule";
      problems_.add(std::move(problem));
    }
  }

  void add_table(Input subject, const std::string& name, Tensor table) {
    const std::string key = std::string(kMaskTables) + name;
    if (tensors_.contains(key))
      problems_.add({.subject = std::string(name_of(subject)),
                     .message = "mask_tables has a table with the name " + name + ", too"});
    tensors_.set(key, std::move(table));
  }

  void add_chunk() {
    const std::string length = integer_text(options_.chunk);
    rules_.push_back("q // " + length + " == k // " + length);
    options_.chunk = 0;
  }

  void add_sink_tokens() {
    const auto [left, right] = options_.window;
    std::string window;
    if (left >= 0) window = "q - k <= " + integer_text(left);
    if (right >= 0) window += (window.empty() ? "" : " and ") + ("k - q <= " + integer_text(right));
    if (!window.empty())
      rules_.push_back("k < " + integer_text(options_.sink_tokens) + " or " + window);
    options_.sink_tokens = 0;
    options_.window = {};
  }

  /// One whole number >= 0 for each batch item; nullopt if a problem was reported. `tensor` may
  /// also be one number for all.
  std::optional<Tensor> lengths(Input input) {
    std::optional<Tensor> numbers = whole_numbers(input, tensors_, problems_);
    if (!numbers) return std::nullopt;
    if (numbers->rank() > 1 || (numbers->rank() == 1 && numbers->size() != B_)) {
      report(problems_, input, "one number, or shape " + to_string({B_}),
             to_string(numbers->shape()));
      return std::nullopt;
    }
    for (const std::int64_t number : numbers->data<std::int64_t>())
      if (number < 0) {
        report(problems_, input, "whole numbers >= 0", integer_text(number));
        return std::nullopt;
      }
    return numbers;
  }

  void add_prefix() {
    const std::optional<Tensor> numbers = lengths(Input::prefix_lengths);
    if (!numbers) return;
    const bool is_one = numbers->rank() == 0;
    rules_.push_back(
        "k < " + (is_one ? integer_text(numbers->data<std::int64_t>()[0]) : "prefix_lengths[b]") +
        " or q >= k");
    if (!is_one) add_table(Input::prefix_lengths, "prefix_lengths", *numbers);
    options_.causal = false;
  }

  /// For each node whether each other one is on its way to the root, or is the node itself.
  std::optional<Tensor> ancestors(const Tensor& parents) {
    const auto count = static_cast<std::int64_t>(parents.shape().back());
    const auto parent = parents.data<std::int64_t>();
    Shape shape = parents.shape();
    shape.push_back(parents.shape().back());
    Tensor all(DType::boolean, shape);
    const auto sees = all.mutable_data<bool>();
    for (std::size_t row = 0; row < parent.size(); ++row) {
      const auto node = static_cast<std::int64_t>(row % parents.shape().back());
      const std::size_t first = row - static_cast<std::size_t>(node);
      if (parent[row] < -1 || parent[row] >= node) {
        report(problems_, Input::tree_parents,
               "a parent before node " + integer_text(node) + ", or -1 for a root",
               integer_text(parent[row]));
        return std::nullopt;
      }
      const auto width = static_cast<std::size_t>(count);
      if (parent[row] >= 0) {
        const std::size_t above = first + static_cast<std::size_t>(parent[row]);
        std::copy_n(sees.begin() + static_cast<std::ptrdiff_t>(above * width), width,
                    sees.begin() + static_cast<std::ptrdiff_t>(row * width));
      }
      sees[row * width + static_cast<std::size_t>(node)] = true;
    }
    return all;
  }

  void add_tree() {
    const std::optional<Tensor> parents = whole_numbers(Input::tree_parents, tensors_, problems_);
    if (!parents) return;
    const Shape& shape = parents->shape();
    const std::size_t nodes = shape.empty() ? 0 : shape.back();
    if (shape.empty() || shape.size() > 2 || (shape.size() == 2 && shape[0] != B_) || nodes > L_)
      return report(problems_, Input::tree_parents,
                    "shape (N) or (" + std::to_string(B_) + ", N) with N <= " + std::to_string(L_) +
                        ", the number of queries",
                    to_string(shape));
    std::optional<Tensor> table = ancestors(*parents);
    if (!table) return;
    const auto count = static_cast<std::int64_t>(nodes);
    const std::int64_t before = static_cast<std::int64_t>(L_) - count;
    std::string start = "S - " + integer_text(count);
    std::string node = "j - S + " + integer_text(count);
    if (contains(tensors_, Input::key_lengths)) {
      const std::optional<Tensor> given = lengths(Input::key_lengths);
      if (!given) return;
      Tensor starts = *given;
      for (std::int64_t& length : starts.mutable_data<std::int64_t>()) {
        if (length < count)
          return report(problems_, Input::key_lengths,
                        "at least " + integer_text(count) + ", the nodes of tree_parents",
                        integer_text(length));
        length -= count;
      }
      start = starts.rank() == 0 ? integer_text(starts.data<std::int64_t>()[0]) : "tree_start[b]";
      node = "j - " + start;
      if (starts.rank() == 1) add_table(Input::tree_parents, "tree_start", starts);
    }
    rules_.push_back("j < " + start + " or " +
                     (before > 0 ? "i >= " + integer_text(before) + " and " : "") + "ancestors[" +
                     (before > 0 ? "i - " + integer_text(before) : "i") + ", " + node + "]");
    add_table(Input::tree_parents, "ancestors", *table);
  }

  void add_blocks() {
    const Tensor& given = at(tensors_, Input::blocks);
    const Shape& shape = given.shape();
    if (is_float(given.dtype()) || shape.size() < 2 || shape.size() > 3 ||
        (shape.size() == 3 && shape[0] != B_))
      return report(problems_, Input::blocks,
                    "booleans of shape (m, n) or (" + std::to_string(B_) + ", m, n)",
                    std::string(name_of(given.dtype())) + " " + to_string(shape));
    const auto [rows, columns] = std::pair(options_.block_size[0], options_.block_size[1]);
    rules_.push_back("blocks[i // " + integer_text(rows) + ", j // " + integer_text(columns) + "]");
    add_table(Input::blocks, "blocks", given);
    options_.block_size.clear();
  }

  TensorMap& tensors_;
  Options& options_;
  std::size_t B_ = 0, L_ = 0;
  std::vector<std::string> rules_;
  ProblemList problems_;
};

}  // namespace

bool has_named_masks(const TensorMap& tensors, const Options& options) {
  return options.chunk > 0 || options.sink_tokens > 0 ||
         std::any_of(kNamedMasks.begin(), kNamedMasks.end(),
                     [&](Input input) { return contains(tensors, input); });
}

void replace_named_masks(TensorMap& tensors, Options& options) {
  NamedMasks(tensors, options).replace();
}

}  // namespace attn
