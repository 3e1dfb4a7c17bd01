// What an explanation is about: one query of one head of one batch, and the stages' matrices there.
#pragma once

#include <optional>
#include <string>

#include "attn/explain/explain.h"
#include "attn/explain/explain_matrix.h"

namespace attn {

class ExplainSource {
 public:
  /// Both outlive this. Errors: those of explain().
  ExplainSource(const Job& job, const TensorMap& outputs, const ExplainChoice& choice);

  bool has(const std::string& output) const { return outputs_.contains(output); }
  bool given(const std::string& input) const { return job_.tensors.contains(input); }
  const Tensor& input(const std::string& name) const { return job_.tensors.at(name); }
  const Tensor& output(const std::string& name) const { return outputs_.at(name); }
  const Options& options() const { return job_.options; }
  const std::vector<std::string>& tokens() const { return job_.tokens; }

  std::size_t heads() const { return heads_; }
  std::size_t head() const { return head_; }
  std::size_t query() const { return query_; }  ///< its row in all matrices of queries
  std::string query_name() const;               ///< "query 2 (word_3)", its place among all

  /// This head's matrix of an output that has heads; query heads share those of keys and values.
  Matrix matrix(const std::string& output) const;
  /// The first batch's of an output without a head axis.
  Matrix first(const std::string& output) const;
  /// The contexts of all heads of the first batch, beside each other.
  Matrix joined_context() const;
  /// This head's columns of W_Q, W_K or W_V, by letter, where the job has it.
  std::optional<Matrix> weights_of(const std::string& letter) const;
  /// This head's part of the bias, a row that is `width` wide.
  std::optional<Matrix> bias_of(const std::string& letter, std::size_t width) const;

 private:
  std::size_t heads_of(const std::string& output) const;
  void choose_query(const ExplainChoice& choice);

  const Job& job_;
  const TensorMap& outputs_;
  std::size_t heads_ = 1, head_ = 0, query_ = 0;
  std::int64_t place_ = 0;
};

}  // namespace attn
