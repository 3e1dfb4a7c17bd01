// What names of other libraries mean here.
#pragma once

#include <span>

namespace attn {

/// What a name names. The same word has different meanings as a flag and as an output.
enum class NameKind {
  other,       ///< file names, examples, settings: only their spelling matters
  input,       ///< flags, keys of jobs and their members, inputs
  output,      ///< outputs; inputs can be outputs, too
  tensor,      ///< names of tensors in files: inputs or outputs
  value,       ///< words that are values of flags and keys
  convention,  ///< values of --convention
  command,
};

/// `others`, separated by spaces, mean `ours`. Names that mean one of several have several rows.
struct OtherName {
  NameKind kind;
  const char* others;
  const char* ours;
  const char* value = "";  ///< that the flag or key `ours` must have
  const char* note = "";   ///< what to know: "for nn.MultiheadAttention"
};

std::span<const OtherName> other_names();

}  // namespace attn
