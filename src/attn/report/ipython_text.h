// Python's lists and tuples as IPython shows them (IPython.lib.pretty, lines of at most 79).
#pragma once

#include <string>
#include <vector>

namespace attn {

enum class Sequence { list, tuple };

/// "[a, b]" or "(a, b)" (and "(a,)"), each item being the text of its repr. On one line where that
/// fits and no item has several; otherwise an item a line, one space in, and so with the lines of
/// an item:
///
///   [array([[1, 2],
///           [3, 4]]),
///    array([5])]
std::string ipython_sequence(Sequence sequence, const std::vector<std::string>& items);

}  // namespace attn
