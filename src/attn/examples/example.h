// A worked example: what a notebook printed, and how attn computes each thing that it printed.
//
// A folder with example.json (this document; the vocabulary is told in data/README.md), the jobs
// that it names, and expected.txt, the printed text. Nothing that example.json holds is a result.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "attn/examples/reference.h"
#include "attn/report/numpy_text.h"

namespace attn {

/// Something to compute, and the name under which its values are referred to.
struct Recipe {
  enum class Kind {
    job,             ///< the outputs of `attn run FILE`
    svd,             ///< matrix, U, s and Vt of FILE#NAME, of the given rank
    sum_of_product,  ///< sum: sum(a * b) over the first axis of a matrix b, a vector a beside each
                     ///< row
  };
  std::string name;
  Kind kind = Kind::job;
  std::string file;  ///< job, svd: relative to the example's folder
  std::optional<std::size_t> rank;
  std::vector<Reference> operands;  ///< of sum_of_product: a, b
};

/// The form in which Python shows a value.
enum class Form {
  print,       ///< print(a)
  repr,        ///< array([...])
  scalar,      ///< one number
  list,        ///< [...] of the values, or of the elements of one value
  tuple,       ///< (...) likewise
  dimensions,  ///< "(4x4)" from integers
  csv,         ///< a labelled table
  text,        ///< words that the notebook printed between its numbers
};

/// One thing shown.
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

/// Reads FOLDER/example.json; the name is the folder's. Errors: no_input; data, for whatever is
/// missing, unknown or of another kind, with its place: "example.json: cells[2].show[0]: …".
Example read_example(const std::string& folder);

}  // namespace attn
