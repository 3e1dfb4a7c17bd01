// Lists and tuples as printed by IPython (IPython.lib.pretty, lines of at most 79 columns).
#pragma once

#include <string>
#include <vector>

namespace attn {

enum class Sequence { list, tuple };

/// "[a, b]", "(a, b)" or "(a,)" from the reprs of the items. On one line if it fits and no item has
/// several lines; otherwise one item per line, indented by one space:
///
///   [array([[1, 2],
///           [3, 4]]),
///    array([5])]
std::string ipython_sequence(Sequence sequence, const std::vector<std::string>& items);

}  // namespace attn
