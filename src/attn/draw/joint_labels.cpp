#include "attn/draw/joint_labels.h"

#include <algorithm>

namespace attn {
namespace {

JointLabels joined(const std::vector<PageSet>& sets, std::vector<std::string> HeatMap::*labels,
                   std::vector<std::size_t> HeatCells::*indices) {
  JointLabels joint{sets[0].map.*labels, {}};
  for (std::size_t set = 1; set < sets.size(); ++set)
    for (std::size_t i = 0; i < std::min(joint.labels.size(), (sets[set].map.*labels).size());
         ++i) {
      std::string& label = joint.labels[i];
      const HeatMap& map = sets[set].map;
      const std::string& other = (map.*labels)[i];
      if (label == other || other == std::to_string((map.cells.*indices)[i])) continue;
      if (label == std::to_string((sets[0].map.cells.*indices)[i])) {
        label = other;
        continue;
      }
      label += " / " + other;
      if (!joint.different) joint.different = i;
    }
  return joint;
}

}  // namespace

JointLabels joint_row_labels(const std::vector<PageSet>& sets) {
  return joined(sets, &HeatMap::row_labels, &HeatCells::rows);
}

JointLabels joint_column_labels(const std::vector<PageSet>& sets) {
  return joined(sets, &HeatMap::column_labels, &HeatCells::columns);
}

}  // namespace attn
