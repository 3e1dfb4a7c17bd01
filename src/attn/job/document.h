// What was typed: a job document on disk, flags on the command line, or both (a flag wins).
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "attn/io/json.h"
#include "attn/io/tensor_file.h"

namespace attn {

/// One key as typed, and where. Members of the objects "position" and "softmax" have dotted keys.
struct Entry {
  std::string key;
  Json value;
  std::string origin;  ///< for messages: "job.json", "--wq"
  std::string folder;  ///< relative paths in the value start here
  bool from_flag = false;
  /// Of a tensor written out, once read; `value` is then null.
  std::shared_ptr<const Tensor> numbers = {};
  bool shared = false;  ///< with the other jobs of a batch: it need not mean something to each
};

struct Document {
  std::string name;  ///< the job file, or "" when there are flags only
  std::vector<Entry> entries;

  const Entry* find(std::string_view key) const;
  void set(Entry entry);         ///< replaces one of the same key
  void set_all(Document other);  ///< as set(), for each entry; takes the name over
};

/// Reads a job file: a JSON document, or an .npz or .safetensors whose arrays carry the keys' names
/// ("-" is standard input), or a library's (job/saved_layer.h). Keys are looked up, values are not
/// looked at yet. Errors: no_input; data, with a line for each unknown key, naming the nearest
/// known one.
Document read_document(const std::string& path, TensorFiles& files);

/// The same from JSON text; relative paths in it start in `folder`. If
/// `id` is given, the key "id" is allowed and is moved there instead. Errors: data.
Document parse_document(std::string_view json, const std::string& name, const std::string& folder,
                        Json* id = nullptr);

/// Reads tensors that are written out, so that documents which share the entries need not do it
/// again and again. Errors: data.
void read_numbers(Document& document);

}  // namespace attn
