// Tables whose rows are moved.
#pragma once

#include <cstddef>
#include <iterator>
#include <vector>

namespace attn {

/// A vector of these items. An initializer list would copy each of them: for the tables of options,
/// that took a tenth of the instructions of a small run.
template <class T, std::size_t N>
std::vector<T> moved(T (&&items)[N]) {
  return {std::make_move_iterator(std::begin(items)), std::make_move_iterator(std::end(items))};
}

}  // namespace attn
