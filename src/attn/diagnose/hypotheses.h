// The table of mistakes that kernels make: what a kernel may have computed instead of the job.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "attn/diagnose/variant.h"
#include "attn/problem/inputs.h"

namespace attn {

/// What a hypothesis says about the kernel.
struct Claim {
  std::string kernel;      ///< "--window 127,0", "the key/value heads tiled"
  std::string job;         ///< what the job has instead: "128,0"; may be ""
  bool is_flag = false;    ///< `kernel` starts with a flag of attn run, or "without" and a flag
  bool too_large = false;  ///< the variant is too large for this hypothesis, and unchanged
};

/// nullopt if the hypothesis does not apply.
using Found = std::optional<Claim>;

/// Changes a variant, of which `in` are the checked inputs. Errors: data, if the changed variant is
/// not valid.
using VariantChange = std::function<Found(Variant& variant, const Inputs& in)>;

/// A claim with a flag, and one in words alone.
inline Claim flag(std::string kernel, std::string job = "") {
  return {std::move(kernel), std::move(job), true};
}
inline Claim words(std::string kernel, std::string job = "") {
  return {std::move(kernel), std::move(job), false};
}

struct Hypothesis {
  enum class Stage {
    projection,  ///< changes the variant as given; the others, attention_only()
    attention,
    all_heads,   ///< also reads or counts items and heads that it does not change
    all_scores,  ///< slow: computes the scores of all queries
  };

  std::string id;  ///< "window.left-1"; the part before the dot is its group
  Stage stage;
  VariantChange change;
  enum class Pass {
    both,
    both_chained,           ///< also with the factor of the sinks in their derivative
    backward,               ///< only the weights of the backward pass are changed
    backward_with_row_sums  ///< and the row sums that it computes from them
  } pass = Pass::both;

  /// Calls change() for this pass.
  Found apply(Variant& variant, const Inputs& in) const;
  /// "window.left-1", or "backward.window.left-1" if only the backward pass is changed;
  /// "sink.log2e_chained".
  std::string full_id() const;
  bool projects() const { return stage == Stage::projection; }
  bool reads_all_heads() const { return stage == Stage::all_heads; }
  bool is_slow() const { return stage == Stage::all_scores; }

  std::string_view group() const { return std::string_view(id).substr(0, id.find('.')); }
};

using Hypotheses = std::vector<Hypothesis>;

/// All hypotheses, by group, the most common mistakes of each first.
Hypotheses hypotheses();

/// The causal variant with a window that it lacks, for a hypothesis of the attention stage.
Found with_added_window(Variant& variant, const Inputs& in, std::int64_t left);

/// The variant whose window has another number of keys before the query, for the same stage.
Found with_other_window(Variant& variant, const Inputs& in, std::int64_t left);

/// The same for the keys after the query, of a job without --causal.
Found with_other_right(Variant& variant, const Inputs& in, std::int64_t right);

/// The causal variant with a window, in which the first `count` keys are visible to all later
/// queries.
Found with_first_keys(Variant& variant, const Inputs& in, std::int64_t count);

/// The causal variant without a window, in which the first `count` keys are visible to all queries.
Found with_prefix(Variant& variant, const Inputs& in, std::int64_t count);

/// The variant in which hidden keys have the score `number`, or a score with this term, as `change`
/// (hidden_set, hidden_set_biased or hidden_added) says, for one of the attention stage.
Found with_hidden_scores(Variant& variant, const Inputs& in, RowChange change, double number);

/// The variant with the scores of each head h times of_heads[h], for one of the attention stage.
Found with_factors(Variant& variant, const Inputs& in, const std::vector<double>& of_heads);

/// The variant whose softcap is this number, for the same stage.
Found with_other_softcap(Variant& variant, const Inputs& in, double softcap);

/// The tables, each in the file of its name, or in the one that is named here.
Hypotheses storage_hypotheses();     // how Q, K and V are stored (cache/stored_rows.h)
Hypotheses page_hypotheses();        // tables and lengths of a cache in pages (cache/pages.h)
Hypotheses projection_hypotheses();  // projections, norms, rotary positions
Hypotheses output_hypotheses();      // projection_hypotheses.cpp: gates, output projection
Hypotheses scale_hypotheses();       // score_hypotheses.cpp
Hypotheses softcap_hypotheses();     // score_hypotheses.cpp
Hypotheses bias_hypotheses();        // score_hypotheses.cpp
Hypotheses causal_hypotheses();      // mask_hypotheses.cpp: causality and windows
Hypotheses mask_hypotheses();
Hypotheses head_hypotheses();     // operand_hypotheses.cpp
Hypotheses operand_hypotheses();  // which queries, keys and values are read
Hypotheses cache_hypotheses();
Hypotheses sink_hypotheses();       // softmax_hypotheses.cpp
Hypotheses softmax_hypotheses();    // softmax, dropout
Hypotheses logsumexp_hypotheses();  // softmax_hypotheses.cpp

/// Which slots of pages that have keys hold NaN behind the last key of a sequence: a line of text,
/// or "" if none does, or the job has no pages, or packed sequences.
std::string nan_behind_keys(const Variant& given);

}  // namespace attn
