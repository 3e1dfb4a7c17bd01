// A heat map laid out as a figure: panels, token labels, axis titles, colour bar, legend.
#pragma once

#include "attn/report/heat_map.h"
#include "attn/report/picture.h"

namespace attn {

/// Panels of many heads stand in a grid. Small matrices show their values in the cells; where
/// labels would overlap only every second, fifth, tenth ... is shown; matrices with more cells than
/// the figure has pixels are reduced.
Picture heat_picture(const HeatMap& map);

}  // namespace attn
