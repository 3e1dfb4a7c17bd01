// A heat map laid out as a figure: panels, token labels, axis titles, colour bar, legend.
#pragma once

#include "attn/report/heat_map.h"
#include "attn/report/picture.h"

namespace attn {

/// Panels of many heads stand in a grid. Small matrices show their values in the cells; where
/// labels would overlap only every second, fifth, tenth ... is shown; matrices with more cells than
/// the figure has pixels are reduced.
Picture heat_picture(const HeatMap& map);

/// What there is in the picture of so many matrices, at most.
struct PictureRoom {
  double width = 0, height = 0;
  double cells = 0;  ///< of all panels, as reduced
  double texts = 0;  ///< labels, and numbers in cells
};
/// `label`: the widest that there is, at 12 pixels to the em.
PictureRoom room_of_picture(std::size_t panels, std::size_t rows, std::size_t columns,
                            double label);

}  // namespace attn
