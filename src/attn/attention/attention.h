// Attention and its intermediate results.
//
// The formula is in attention/formula.h. Vaswani et al. 2017, eq. 1 (arXiv:1706.03762). Grouped
// heads: Ainslie et al. 2023 (arXiv:2305.13245), query head h reads key/value head h / (H / G).
// Bahdanau et al. 2015 (arXiv:1409.0473) for encoder-decoder attention: Q from the decoder, K = V
// from the encoder.
//
// Integers are exact (int64; overflow is Error(data)) up to and including `scores`; the scale makes
// them floats. A hidden key contributes nothing, even where its value is NaN or infinite; a visible
// NaN reaches the result.
#pragma once

#include <vector>

#include "attn/attention/row_block.h"
#include "attn/problem/attention_arguments.h"
#include "attn/problem/inputs.h"
#include "attn/problem/output_table.h"
#include "attn/tensor/tensor.h"

namespace attn {

/// These outputs by name, in this order. Results have the ranks of the user's tensors: 2-D
/// for 2-D ones, with a head axis where heads were given. Axes L hold the selected `rows`. A
/// requested input is returned unchanged. Computes only the stages that the outputs depend on.
/// Errors: usage for an output that this problem does not have (`output` without W_O), data.
TensorMap attend(const AttentionArguments& given, const std::vector<Request>& outputs);

/// The same for a problem from make_inputs() and outputs that passed check_outputs(). An output
/// that has a consumer is passed to it and is not among the results: row by row if plan() calls it
/// streamed, whole otherwise. Stores in `overflows` the number of elements that became infinite
/// when they were rounded to the result's dtype.
TensorMap attend(const Inputs& in, const std::vector<Request>& outputs,
                 const RowConsumers& consumers = {}, Overflows* overflows = nullptr);

}  // namespace attn
