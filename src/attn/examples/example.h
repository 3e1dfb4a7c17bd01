// Worked examples: what a notebook or article printed, and how attn computes it.
//
// An example is a folder with example.json (described in data/README.md), its job files, and
// expected.txt, the printed text. example.json contains no results. It is read strictly: a missing
// or unknown key or a wrong type is Error(data) with the path, "example.json: cells[2].show[0]:
// expected …".
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "attn/base/print_options.h"
#include "attn/examples/value.h"
#include "attn/io/json_write.h"

namespace attn {

/// The folder that contains a folder for each example: `given` (--data); else the environment
/// variable ATTN_DATA; else ../share/attn/examples relative to the program's folder, or
/// data/examples in a parent folder of the program (a source tree). Errors: no_input.
std::string examples_folder(const std::string& given);

/// The names of its examples (folders with an example.json), sorted.
std::vector<std::string> example_names(const std::string& folder);

class JsonNode {
 public:
  /// `json` must outlive the node; `path` is its path in the document, "" for the root.
  JsonNode(const Json& json, std::string document, std::string path = "")
      : json_(&json), document_(std::move(document)), path_(std::move(path)) {}

  std::string location() const { return path_.empty() ? document_ : document_ + ": " + path_; }

  /// Members of an object.
  JsonNode at(const std::string& key) const;
  std::optional<JsonNode> find(const std::string& key) const;
  std::vector<std::string> keys() const;
  void require_only(const std::vector<std::string>& known) const;

  bool is_array() const { return json_->is_array(); }
  std::vector<JsonNode> elements() const;
  std::vector<std::string> texts() const;

  const Json& json() const { return *json_; }
  const std::string& text() const;
  std::size_t count() const;  ///< an integer from 0 to 2^31 - 1

  [[noreturn]] void fail(const std::string& what) const;
  [[noreturn]] void fail_kind(const std::string& expected) const;

 private:
  const JsonObject& object() const;

  const Json* json_;
  std::string document_, path_;
};

/// A result to compute. References use its name.
struct Recipe {
  enum class Kind {
    job,     ///< the outputs of `attn run FILE`
    svd,     ///< matrix, U, s and Vt of FILE#NAME, of the given rank
    tensor,  ///< tensor: the array FILE#NAME
    shares,  ///< shares: a / a.sum(axis=-1, keepdims=True)
  };
  std::string name;
  Kind kind = Kind::job;
  std::string file;  ///< job, svd, tensor: relative to the example's folder
  std::optional<std::size_t> rank;
  std::optional<DType> dtype;  ///< job, tensor: that all values are converted to
  Reference operand;           ///< shares: a
};

/// How Python prints a value.
enum class Form {
  print,       ///< print(a)
  repr,        ///< array([...])
  scalar,      ///< one number
  list,        ///< [...] of the values, or of the elements of one value
  tuple,       ///< (...) likewise
  dimensions,  ///< "(4x4)" from integers
  size,        ///< torch.Size([4, 4]) from integers
  csv,         ///< a labelled table
  text,        ///< text that the notebook printed
};

/// One printed item.
struct Show {
  Form form = Form::text;
  std::vector<Reference> values;
  bool elements = false;  ///< list, tuple: of the elements of the one value
  std::string text;
  std::string label;  ///< print, scalar, size: of print(label, a); "": print(a)
  PrintOptions print_options;
  std::string corner;  ///< csv: the first cell of the header
  std::vector<std::string> rows, columns;
};

/// One cell of the notebook.
struct Cell {
  std::string label;  ///< "In [20]"
  std::vector<Show> shows;
};

struct Example {
  std::string name, folder;
  std::string title, source, section, url, licence, note;
  std::string view;  ///< the job that `attn examples run --view` draws; "": those of the recipes
  std::vector<Recipe> recipes;
  std::vector<Cell> cells;
};

/// Reads FOLDER/example.json. The example has the name of the folder. Errors: no_input; data, for a
/// missing or unknown key or a wrong type, with its path: "example.json: cells[2].show[0]: …".
Example read_example(const std::string& folder);

}  // namespace attn
