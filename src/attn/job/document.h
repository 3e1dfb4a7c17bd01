// A job document: the keys of a job file and of flags, which override it.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "attn/io/json_write.h"
#include "attn/io/tensor_file.h"

namespace attn {

struct Field;

/// A key, its value, and where it was given. A key within a group contains a dot: "softmax.axis".
struct Entry {
  std::string key;
  Json value;
  std::string origin;  ///< for messages: "job.json", "--wq"
  std::string folder;  ///< relative paths in the value are relative to it
  bool from_flag = false;
  /// The tensor, if it is already in memory; `value` is then null, or says where it came from.
  std::shared_ptr<const Tensor> numbers = {};
  bool in_out = false;           ///< weights of a layer, already (in, out)
  bool needs_heads = false;      ///< of a layer that does not state its number of heads
  bool shared = false;           ///< by all jobs of a batch, so having no effect is not an error
  const Field* field = nullptr;  ///< of the key; set by Document::set()
};

/// Where a key was given, for Problem::where: a flag, or a file and the key.
std::vector<std::string> where_of(const Entry& entry);

/// `path` as a job file in `folder` gives it: relative to the folder, unless it is complete or "-".
std::string path_in(const std::string& folder, const std::string& path);

struct Document {
  std::string name;  ///< the job file; "" if there is none
  std::vector<Entry> entries;

  const Entry* find(std::string_view key) const;
  const Entry& at(std::string_view key) const;  ///< a key that must be there; errors: internal
  void set(Entry entry);                        ///< replaces an entry with the same key
  void set_all(Document other);                 ///< as set(), for each entry; also takes the name
  void erase(std::string_view key);
};

/// The keys of a job file to use. Empty: all, and unknown ones are errors; otherwise others are
/// ignored.
struct KeySelection {
  std::vector<std::string> keys = {};  ///< or groups: "softmax" for "softmax.axis"

  bool has(std::string_view key) const;
};

/// The keys given with --only, in either spelling. Errors: usage, for a name that is no key.
KeySelection selected_keys(const std::vector<std::string>& names);

/// Whether, by its name, a file is a JSON document.
bool is_job_document(std::string_view path);

/// Reads a job file: a JSON document, or an .npz or .safetensors file whose arrays are named like
/// keys or are those of a saved layer (job/saved_layer.h). "FILE#PREFIX" is the job of the arrays
/// whose names start with PREFIX, without it. "-" is standard input. Values are not checked.
/// Errors: no_input; data, with a problem for each unknown key.
Document read_document(const std::string& path, TensorFiles& files, const KeySelection& only = {});

/// The same from JSON text; relative paths in it are relative to `folder`. The document is charged
/// to `budget`, if any. If `id` is given, the key "id" is allowed, and its value is moved there.
/// Errors: data.
Document parse_document(std::string_view json, const std::string& name, const std::string& folder,
                        ReadBudget* budget = nullptr, Json* id = nullptr,
                        const KeySelection& only = {});

/// Adds a value to the JSON object of a job. "rotary.base" becomes the member "base" of "rotary".
void add_member(JsonObject& job, const std::string& key, Json value);

/// The document as the JSON text of a job, with paths relative to the current folder. Tensors that
/// are in memory are represented by their shape. `indent` as in to_json().
std::string job_json(const Document& document, int indent);

/// Adds tensors that are in memory, each under the name of an input or, with at most one axis, of
/// an option. Errors: data, with a problem for each name that is no key or is given already.
void add_tensors(Document& document, const TensorMap& tensors, ReadBudget& budget);

/// Reads the inline numbers of a document, once for all documents that share its entries. Errors:
/// data.
void read_numbers(Document& document);

}  // namespace attn
