// From what was typed to what is meant, and from that to the result.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "attn/core/options.h"
#include "attn/io/tensor_file.h"
#include "attn/job/document.h"
#include "attn/tensor/tensor.h"

namespace attn {

/// A job as it is meant: every key understood, every tensor in memory.
struct Job {
  TensorMap tensors;  ///< by the names of core/inputs.h
  Options options;
  std::vector<std::string> outputs;
  std::vector<std::string> tokens;
};

/// Reads a job file: a JSON document, or an .npz whose arrays carry the keys' names. "-" is
/// standard input. Errors: no_input; data, naming each unknown key and the nearest known one.
Document read_document(const std::string& path, TensorFiles& files);

/// Understands every key, reads every file named, draws every random tensor. All that is wrong
/// with the document is told at once. Errors: data (usage where only flags are at fault), no_input.
Job make_job(const Document& document, TensorFiles& files);

struct Result {
  TensorMap outputs;
  std::vector<std::string> tokens;
  std::string provenance;  ///< a JSON object: schema, program version, options, input digests
};

Result run(const Job& job, const Document& document, const TensorFiles& files);

}  // namespace attn
