// Heat maps of matrices, independent of the format: values, labels and scale. The values stay in
// their tensors, which may be large, and are read row by row.
//
// Rows are queries and columns are keys. A panel is a head; all panels share labels and scale.
// Rendered by draw/heat_text.h (terminals), draw/heat_picture.h (SVG, PDF, PNG) and
// draw/page.h (HTML).
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "attn/draw/colour.h"
#include "attn/problem/query_positions.h"
#include "attn/problem/visible_ranges.h"
#include "attn/tensor/tensor.h"

namespace attn {

enum class CellKind : std::uint8_t {
  value,
  hidden,  ///< the query does not see this key; there is no value
  zero,    ///< a weight of exactly 0 in a file that does not say which keys are hidden
  nan,
};

enum class Curve : std::uint8_t { linear, root, logarithmic };

/// "square-root scale"; "" for a linear one.
std::string_view name_of(Curve curve);

/// Maps values to positions on a colour map. For signed values the limits are made symmetric, so
/// that the middle of a diverging map is 0.
struct HeatScale {
  double low = 0, high = 1;     ///< the ends of the colour bar; values beyond are clipped
  Curve curve = Curve::linear;  ///< logarithmic requires low > 0; smaller values are drawn as low
  bool is_signed = false;       ///< drawn with the diverging map

  double position(double value) const;  ///< on the colour map, 0 to 1
  double share(double value) const;     ///< of the colour bar below a value; 0 for low, 1 for high
  double value_at(double share) const;  ///< the inverse of share()
};

/// Panels of one group are in adjacent rows: the heads of a layer.
struct HeatPanel {
  std::string group;                       ///< "layer 2"; "" if there is one group
  std::string name;                        ///< "head 3"; "" for a single panel
  std::size_t matrix = 0;                  ///< index among all matrices of the tensor
  std::optional<std::int64_t> layer = {};  ///< its number in the model, if known

  std::string title() const { return group + (group.empty() || name.empty() ? "" : ", ") + name; }
};

struct HeatRow {
  std::vector<double> values;  ///< 0 where the kind is not `value`
  std::vector<CellKind> kinds;
};

/// The keys that the queries of a tensor's matrices see.
struct VisibleOfMatrices {
  VisibleRanges keys;
  std::size_t matrices_each = 1;  ///< adjacent matrices that have one of keys.matrices()

  std::vector<VisibleRanges::Range> of(std::size_t matrix, std::size_t query) const {
    return keys.keys_of(matrix / matrices_each % keys.matrices().size(), query);
  }
};

/// The part of each matrix of a tensor that is drawn. Blocks of tall x wide cells become one cell.
struct HeatCells {
  Tensor values;                                  ///< (matrices, rows, columns)
  std::optional<Tensor> masked;                   ///< same shape; cells are marked where it is -inf
  CellKind mark = CellKind::hidden;               ///< of these cells: hidden or zero
  std::optional<VisibleOfMatrices> visible = {};  ///< other cells are hidden
  bool marks_zeros = false;                       ///< cells that are exactly 0 get the kind `zero`
  std::vector<std::size_t> rows, columns;         ///< indices of those drawn
  std::size_t tall = 1, wide = 1;

  HeatRow row(std::size_t matrix, std::size_t i) const;

 private:
  HeatRow cells_of(std::size_t matrix, std::size_t row) const;  ///< before they are reduced
};

/// Reduces blocks of `wide` cells of `row` to one, and merges them into `blocks`: a block becomes
/// NaN if it has one, or its value of largest magnitude; without values zero, or hidden.
void merge_row(HeatRow& blocks, const HeatRow& row, std::size_t wide);

struct HeatMap {
  std::string title;                  ///< "weights, head 3"
  std::vector<std::string> notes;     ///< a description; how the map was reduced
  std::string row_axis, column_axis;  ///< "queries", "keys"
  bool has_hidden = false, has_zeros = false, has_nans = false;  ///< kinds of cells
  std::vector<std::string> row_labels, column_labels;            ///< one for each row and column
  std::vector<HeatPanel> panels;                                 ///< at least one
  HeatScale scale;
  bool has_chosen_limits = false;  ///< the user chose the ends of the scale
  HeatCells cells;

  std::size_t rows() const { return row_labels.size(); }
  std::size_t columns() const { return column_labels.size(); }
  HeatRow row(const HeatPanel& panel, std::size_t i) const { return cells.row(panel.matrix, i); }
};

/// The names of the axes before the last two, from the last to the first; each once. HeatChoice
/// selects from those with these names.
using LeadingAxes = std::array<std::string, 3>;
inline const LeadingAxes kLeadingAxes = {"head", "batch", "layer"};

/// The user's selection. Negative indices count from the end.
struct HeatChoice {
  std::string layer, batch, head;  ///< "0,3" or "0:4"; "": all, as panels
  std::string rows, columns;       ///< "0:32,-1"; "": all
  std::optional<double> low, high;
  bool logarithmic = false, linear = false;  ///< default: linear, or a root for wide maps
};

/// The positions of the queries of a tensor's matrices.
struct PositionsOfMatrices {
  std::optional<QueryPositions> queries = {};  ///< nullopt: unknown
  std::size_t items = 1;                       ///< of the batch
  std::size_t matrices_of_item = 1;            ///< adjacent ones: its heads

  std::size_t item_of(std::size_t matrix) const { return matrix / matrices_of_item % items; }
};

/// A tensor to draw, with its names and its hidden cells.
struct HeatSource {
  Tensor tensor;                 ///< (S), (L, S), or with leading axes head, batch, layer
  std::optional<Tensor> masked;  ///< masked_scores, same shape; cells are hidden where it is -inf
  std::optional<VisibleOfMatrices> visible = {};  ///< without `masked`: other cells are hidden
  bool zero_is_hidden = false;    ///< without either, cells are hidden where they are 0
  bool masks_zeros = false;       ///< -inf in `masked` means exactly 0, not hidden
  std::string name, description;  ///< "weights", and its description; may be ""
  std::string key;                ///< the tensor's name in its file; may be ""
  /// Of layers that are separate tensors: what their names have besides the layer; may be "". The
  /// title has it and the layers instead of `name`.
  std::optional<std::string> series = {};
  std::string row_axis = "queries", column_axis = "keys";
  bool is_signed = false;  ///< use the diverging map for any values, as for scores
  bool is_weights = true;  ///< pages show statistics of weights
  bool is_gradient = false;
  LeadingAxes leading_axes = kLeadingAxes;
  bool are_axes_certain = false;          ///< otherwise the user's choice may give them other names
  std::vector<std::int64_t> layers = {};  ///< their numbers in the model; empty: 0, 1, ...
  PositionsOfMatrices positions = {};
  std::vector<std::string> row_tokens, column_tokens;  ///< ignored if their number does not match
};

/// The label of a token, printable(): an empty one as "", each space at its ends as ␣.
std::string visible_label(const std::string& token);

/// Maps without negative values and with more than 64 columns have a square-root scale, because
/// most weights of many keys are small. Errors: usage, for an index out of range or invalid limits
/// (NaN, or low >= high); data, for a tensor that is empty or has more than five axes.
HeatMap make_heat_map(const HeatSource& source, const HeatChoice& choice, std::size_t threads = 1);

/// The map reduced to at most `max_rows` x `max_columns` cells, with a note that says
/// so. A block of cells becomes the cell with the largest magnitude, so that single strong cells
/// stay visible. A block is hidden if all its cells are, and zero if they are hidden or zero.
HeatMap reduced(const HeatMap& map, std::size_t max_rows, std::size_t max_columns);

/// For each group of panels, the index after its last one.
std::vector<std::size_t> group_ends(const HeatMap& map);

/// The smallest of 1, 2, 5, 10, 20, ... that is at least `least`.
std::size_t round_step(double least);

/// A value in at most six characters: "0.44", "-12", "5e-4", "-inf". draw/page/scale.mjs has
/// the same function.
std::string short_number(double value);

}  // namespace attn
