// Lays out a heat map as a figure: panels, token labels, axis titles, colour bar, legend.
#pragma once

#include "attn/draw/heat_map.h"
#include "attn/draw/picture.h"

namespace attn {

/// Panels are arranged in a grid. Small matrices show values in their cells. Where labels would
/// overlap, only every second, fifth, tenth, ... is shown. Matrices with more cells than pixels are
/// reduced. Each group of panels starts a new row, unless groups are small and many.
/// They have at most `most` rows and columns.
Picture heat_picture(const HeatMap& map, bool dark = false, std::size_t most = 1024);

/// Upper bounds on the size and contents of a picture.
struct PictureBounds {
  double width = 0, height = 0;
  double cells = 0;  ///< of all panels, as reduced
  double texts = 0;  ///< labels, and numbers in cells
};
/// `group`: panels of a group. `label`: width of the widest label at 12 pixels per em.
PictureBounds picture_bounds(std::size_t panels, std::size_t group, std::size_t rows,
                             std::size_t columns, double label);

}  // namespace attn
