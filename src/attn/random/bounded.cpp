#include "attn/random/bounded.h"

#include <limits>
#include <string>

#include "attn/base/error.h"
#include "attn/random/decimal.h"

namespace attn {

std::uint64_t checked_range(int128 low, int128 high, DType dtype) {
  const std::string name(name_of(dtype));
  if (is_float(dtype))
    throw Error(ErrorKind::data, "dtype: expected an integer type or bool, found " + name);
  int128 lowest = 0, highest = 0;
  visit(dtype, [&]<class T>(Type<T>) {
    if constexpr (std::is_integral_v<T>) {
      lowest = std::numeric_limits<T>::min();
      highest = std::numeric_limits<T>::max();
    }
  });
  const std::string found = "found [" + decimal(low) + ", " + decimal(high) + ")";
  if (low >= high) throw Error(ErrorKind::data, "bounds: expected low < high, " + found);
  if (low < lowest || high > highest + 1)
    throw Error(ErrorKind::data, "bounds: " + name + " holds [" + decimal(lowest) + ", " +
                                     decimal(highest + 1) + "), " + found);
  return static_cast<std::uint64_t>(high - 1 - low);
}

}  // namespace attn
