// Worked examples: what a notebook printed, and how attn computes it.
//
// An example is a folder with example.json (described in data/README.md), its job files, and
// expected.txt, the printed text. example.json contains no results.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "attn/examples/reference.h"
#include "attn/report/numpy_text.h"

namespace attn {

/// A result to compute. References use its name.
struct Recipe {
  enum class Kind {
    job,             ///< the outputs of `attn run FILE`
    svd,             ///< matrix, U, s and Vt of FILE#NAME, of the given rank
    sum_of_product,  ///< sum: sum(a * b, axis=0) of a vector a and a matrix b
  };
  std::string name;
  Kind kind = Kind::job;
  std::string file;  ///< job, svd: relative to the example's folder
  std::optional<std::size_t> rank;
  std::vector<Reference> operands;  ///< of sum_of_product: a, b
};

/// How Python prints a value.
enum class Form {
  print,       ///< print(a)
  repr,        ///< array([...])
  scalar,      ///< one number
  list,        ///< [...] of the values, or of the elements of one value
  tuple,       ///< (...) likewise
  dimensions,  ///< "(4x4)" from integers
  csv,         ///< a labelled table
  text,        ///< text that the notebook printed
};

/// One printed item.
struct Show {
  Form form = Form::text;
  std::vector<Reference> values;
  bool elements = false;  ///< list, tuple: of the elements of the one value
  std::string text;
  PrintOptions style;
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
  std::string title, source, note;
  std::vector<Recipe> recipes;
  std::vector<Cell> cells;
};

/// Reads FOLDER/example.json. The example has the name of the folder. Errors: no_input; data, for a
/// missing or unknown key or a wrong type, with its path: "example.json: cells[2].show[0]: …".
Example read_example(const std::string& folder);

}  // namespace attn
