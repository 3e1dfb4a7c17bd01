// Jobs: reading options and tensors from a document, checking and planning them; sizes as text and
// the default memory limit.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "attn/attention/plan.h"
#include "attn/base/error.h"
#include "attn/io/file_cache.h"
#include "attn/io/tensor_file.h"
#include "attn/job/document.h"
#include "attn/problem/attention_arguments.h"
#include "attn/problem/output_table.h"
#include "attn/tensor/tensor.h"

namespace attn {

/// "2G", "512M", "1.5GiB", "1000000": K, M, G and T are powers of 1024. Errors: usage, naming
/// `flag`.
std::size_t parse_size(const std::string& text, const std::string& flag);

/// "64 bytes", "1.5 MiB"
std::string size_text(std::size_t bytes);

/// 90% of the memory that this process may use.
std::size_t default_memory();

/// A job with parsed options and all tensors in memory.
struct Job : AttentionArguments {
  Document document;   ///< as given: for messages, and for made_by
  TensorMap replaced;  ///< as given, if `tensors` has them in another form: pages, stored
  std::map<std::string, std::string> origins;  ///< where each tensor came from, for messages
  /// Square weights from arrays named *.weight, used as (in, out) by default.
  std::vector<std::string> ambiguous_weights;
  std::vector<std::string> unused_tables;  ///< TableUse::warning
  bool alignment_given = false;            ///< by an option or a convention
  bool layout_given = false;               ///< the same
  bool mask_polarity_given = false;        ///< by an option
  std::set<std::string> transposed;        ///< weights given as (out, in)
  bool values_given = false;               ///< V is given, or stated to be the keys
  std::vector<Request> outputs;
  std::vector<Request> unstored;  ///< outputs that pictures need, and results do not keep
  std::vector<std::string> tokens, key_tokens;  ///< key_tokens: {} if the keys have `tokens`
  std::string hidden_warning;  ///< about the hidden states of a model's layer; may be ""
};

/// The labels of the keys.
inline const std::vector<std::string>& labels_of_keys(const Job& job) {
  return job.key_tokens.empty() ? job.tokens : job.key_tokens;
}

/// Parses all options, reads all files and generates random tensors: those of "draws", then the
/// others in the order of kInputs.
/// Errors: data, usage (if only flags are at fault), no_input.
Job make_job(Document document, TensorFiles& files);

/// The outputs with these names, without repetitions. Errors: data, usage if only flags are at
/// fault, for an unknown name.
std::vector<Request> outputs_named(const std::vector<std::string>& names, const Job& job);

/// The outputs of a job that lists none.
std::vector<Request> default_outputs(bool has_output);

/// The files that the job's tensors are read from. Reads nothing but the indexes of sharded
/// checkpoints, of which the files with the job's tensors count. Errors: as
/// TensorFiles::paths_of().
std::set<std::string> files_to_read(const Document& document, TensorFiles& files);

/// The size in bytes of a job's files and random tensors, estimated from stat() and shapes. Reads
/// the same, with the same errors.
std::size_t bytes_to_read(const Document& document, TensorFiles& files);

/// Checks the type and range of all values. Errors: usage if only flags are at fault, otherwise
/// data.
void check_values(const Document& document);

/// A job whose shapes have been checked, and its plan.
struct PreparedJob {
  Inputs inputs;
  Plan plan;
};

/// Checks and plans a job without computing it; `offered` are outputs that the caller can receive
/// row by row. Errors: data, usage if only flags are at fault; they name the file of each tensor.
PreparedJob prepare_job(const Job& job, const OutputSet& offered = {});

/// Makes another job's result of prepare_job(), after release_numbers() of its inputs, that of this
/// job, if the two have the same outputs and differ only in numbers (replace_numbers()). Otherwise
/// returns false and changes nothing. Neither job has unstored or streamed outputs.
bool prepare_again(const Job& job, PreparedJob& prepared);

/// Whether the outputs of a result have elements of hidden keys, and none says which these are.
bool needs_visibility(const Job& job);

/// Whether an error is about tensors or options. Others already name the file that they are about.
inline bool is_of_job(const Error& error) {
  return error.kind() == ErrorKind::data || error.kind() == ErrorKind::usage;
}

/// Such an error of a computation with the files of its tensors, as those of prepare_job() name
/// them.
Error located_error(const Job& job, const Error& error);

/// Returns compute(), and applies located_error() to the errors about the job that it throws.
template <class Compute>
auto with_origins(const Job& job, Compute&& compute) {
  try {
    return compute();
  } catch (const Error& error) {
    if (!is_of_job(error)) throw;
    throw located_error(job, error);
  }
}

}  // namespace attn
