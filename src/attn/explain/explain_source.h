// The contents of an explanation: the selected query and head, their matrices, and short formulas
// for options.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "attn/draw/markup.h"
#include "attn/explain/explain.h"
#include "attn/explain/explain_matrix.h"
#include "attn/problem/output_table.h"

namespace attn {

class ExplainSource {
 public:
  /// `job` and `outputs` must outlive this object. Errors: as explain().
  ExplainSource(const Job& job, const Inputs& in, const TensorMap& outputs,
                const ExplainChoice& choice);

  bool has(Output output) const { return contains(outputs_, output); }
  bool given(Input input) const { return contains(job_.tensors, input); }
  const Tensor& input(Input input) const { return at(job_.tensors, input); }
  const Tensor& output(Output output) const { return at(outputs_, output); }
  const Options& options() const { return job_.options; }
  bool wants_gradients() const;
  const std::vector<std::string>& key_tokens() const { return labels_of_keys(job_); }
  std::vector<std::string> row_tokens() const;  ///< of the queries that are computed

  std::size_t heads() const { return heads_; }
  std::size_t head() const { return head_; }
  std::size_t query() const { return query_; }  ///< its row in matrices with one row per query
  std::string query_name() const;               ///< "query 2 (word_3)"

  /// This head's matrix of an output with heads. With grouped heads, several query heads share the
  /// matrices of keys and values.
  FormulaMatrix matrix(Output output) const;
  /// The first batch item of an output or input without a head axis.
  FormulaMatrix first(Output output) const;
  FormulaMatrix first(Input input) const;
  /// Matrices with a row for each query, with a row for each key, and with a row for each query and
  /// a column for each key. Of large ones, the rows and columns of the query and of `keys` are
  /// shown.
  Math of_queries(const FormulaMatrix& matrix) const;
  Math of_keys(const FormulaMatrix& matrix, const std::vector<std::size_t>& keys) const;
  Math of_queries_and_keys(const FormulaMatrix& matrix, const std::vector<std::size_t>& keys) const;
  /// The concatenated contexts of all heads, first batch.
  FormulaMatrix joined_context() const;
  /// The factor on the scores of this head, if the job has them.
  std::optional<double> head_scale() const;
  /// Whether biases or additive masks are added to the scores.
  bool adds_to_scores() const;
  /// Whether a mask hides this key from the query of this row. Scores do not say so: that of a
  /// visible key may be minus infinity, too.
  bool hides(std::size_t row, std::size_t key) const;
  /// One element for each query and key: minus infinity if it is hidden.
  Tensor marks_of_hidden() const;
  /// Whether all keys are hidden.
  bool sees_none(std::size_t row) const;
  /// This head's columns of W_Q, W_K or W_V, if the job has them.
  std::optional<FormulaMatrix> weights_of(Output weight_heads) const;
  /// This head's part of the bias, a row of `width` numbers.
  std::optional<FormulaMatrix> bias_of(Input bias, std::size_t width) const;

 private:
  std::size_t heads_of(Output output) const;
  FormulaMatrix first_item(const Tensor& tensor) const;
  void choose_query(const ExplainChoice& choice);
  std::size_t default_query() const;
  bool has_doubtful_scores() const;

  const Job& job_;
  const TensorMap& outputs_;
  std::size_t heads_ = 1, head_ = 0, query_ = 0;
  FormulaMatrix masked_scores_;
  /// Of this head; nullopt if the scores of hidden keys, and no others, are minus infinity.
  std::optional<FormulaMatrix> visible_;
  std::int64_t query_index_ = 0;  ///< from 0 to L - 1
};

/// Whether scores are computed from the printed queries and keys, without normalisation or rotary
/// positions.
bool plain_vectors(const ExplainSource& source);

/// Whether weights are exp(s - max s) / sum exp(s - max s), without temperature or sinks.
bool plain_softmax(const ExplainSource& source);

/// "Q K^T" or "cos(Q, K)"; empty for other score functions.
std::vector<Math> score_formula(const Options& options);

/// `value` divided by o_scale.
Math over_o_scale(const Math& value, const Options& options);

/// `value` with scale and softcap applied. `width` is D.
Math scaled(const Math& value, double width, const Options& options,
            std::optional<double> head_scale = {});

/// softcap · tanh(value / softcap)
Math capped(const Math& value, const Options& options);
inline bool caps_after_mask(const Options& options) {
  return options.softcap > 0 && options.softcap_order == SoftcapOrder::after_mask;
}

}  // namespace attn
