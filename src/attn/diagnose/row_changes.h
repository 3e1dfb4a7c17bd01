// The table of the changes of weights and logsumexp that no option expresses: how each is computed,
// and for which jobs its formula holds.
#pragma once

#include "attn/diagnose/variant.h"
#include "attn/problem/inputs.h"

namespace attn {

/// How evaluate() computes a change.
enum class RowChangeKind {
  none,           ///< not at all
  factor,         ///< weights times a factor for each row
  value_of_sink,  ///< a term of the context
  online,         ///< the weights of an online softmax
  hidden_keys,    ///< the weights of scores that hidden keys have, too
  logsumexp       ///< the logsumexp alone
};

RowChangeKind kind_of(RowChange change);

/// Whether the formula of the change holds for this variant: for its normaliser, temperature, keys,
/// sinks, dropout and gate. `in` are its checked inputs. For RowChange::none, whether its weights
/// are the softmax of its masked scores and sinks alone.
bool may_change_rows(RowChange change, const Variant& variant, const Inputs& in);

}  // namespace attn
