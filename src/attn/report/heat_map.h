// A picture of matrices before it is drawn: numbers, labels, and what a colour means. The numbers
// stay where they are, in tensors that may be large, and are read row by row.
//
// Rows are queries and columns are keys. One panel is one head; all panels share labels and scale.
// Drawn by report/heat_text.h (terminals), report/heat_picture.h (SVG, PNG) and report/page.h
// (HTML).
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "attn/report/colour.h"
#include "attn/tensor/tensor.h"

namespace attn {

enum class CellKind : std::uint8_t {
  value,
  hidden,  ///< the query does not see this key: it has no value, and least of all 0
  nan,
};

/// From a value to a place on a colour map. Signed values lie symmetrically around 0, whatever the
/// limits, so that the middle of a diverging map is always 0.
struct HeatScale {
  double low = 0, high = 1;  ///< what the ends of the colour bar mean; values beyond are clipped
  bool logarithmic = false;  ///< 0 < low; smaller values are drawn as low
  bool is_signed = false;    ///< drawn with the diverging map

  double place(double value) const;  ///< 0 to 1 on the map
};

struct HeatPanel {
  std::string title;      ///< "head 3", or "" for the only one
  std::size_t place = 0;  ///< of the matrix among all matrices of its tensor
};

struct HeatRow {
  std::vector<double> values;  ///< 0 where the kind is not `value`
  std::vector<CellKind> kinds;
};

/// What is drawn of each of a tensor's matrices. Blocks of tall x wide cells are drawn as one.
struct HeatCells {
  Tensor values;                           ///< (matrices, rows, columns)
  std::optional<Tensor> masked;            ///< the same; hidden where -inf
  bool zero_is_hidden = false;             ///< as it was where there is no `masked` to tell
  std::vector<std::size_t> rows, columns;  ///< those that are drawn, by their places
  std::size_t tall = 1, wide = 1;

  HeatRow row(std::size_t matrix, std::size_t i) const;
};

struct HeatMap {
  std::string title;                  ///< "weights, head 3"
  std::vector<std::string> notes;     ///< what it shows; how it was reduced
  std::string row_axis, column_axis;  ///< "queries", "keys"
  std::string hidden_means;           ///< what a hatched cell is; "" when there is none
  std::vector<std::string> row_labels, column_labels;  ///< as many as rows and columns
  std::vector<HeatPanel> panels;                       ///< at least one
  HeatScale scale;
  HeatCells cells;

  std::size_t rows() const { return row_labels.size(); }
  std::size_t columns() const { return column_labels.size(); }
  HeatRow row(const HeatPanel& panel, std::size_t i) const { return cells.row(panel.place, i); }
};

/// What is drawn of a tensor, as typed. Indices may be negative, from the end.
struct HeatChoice {
  std::optional<std::int64_t> layer, batch, head;  ///< one, or all of them as panels
  std::string rows, columns;                       ///< "0:32,-1"; "" is all
  std::optional<double> low, high;
  bool logarithmic = false;
};

/// What goes with a tensor: what its cells are called and which of them are hidden.
struct HeatSource {
  Tensor tensor;                 ///< (S), (L, S) or with axes head, batch, layer in front
  std::optional<Tensor> masked;  ///< masked_scores, of the same shape: hidden where -inf
  std::string name, what;        ///< "weights", what that is in words; may be ""
  std::string key;               ///< what the tensor is called in its file; may be ""
  std::string row_axis = "queries", column_axis = "keys";
  bool is_signed = false;           ///< whatever the values are, as of scores: 0 in the middle
  std::string third_axis = "head";  ///< what the axis before the last two is called
  std::vector<std::string> row_tokens, column_tokens;  ///< used where their number fits
};

/// Errors: usage, for an index out of range and for limits that leave no scale (NaN, or low >=
/// high); data, for a tensor that is empty or has more than five axes.
HeatMap make_heat_map(const HeatSource& source, const HeatChoice& choice);

/// The map with at most so many rows and columns: blocks of cells are drawn as their strongest one,
/// so that a lone bright cell survives, and a note says so. A block is hidden where all of it is.
HeatMap reduced(const HeatMap& map, std::size_t most_rows, std::size_t most_columns);

/// A value in at most six characters, for a cell: "0.44", "-12", "5e-4".
std::string short_number(double value);

}  // namespace attn
