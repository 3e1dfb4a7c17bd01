#include "attn/cli/text_options.h"

#include <limits>

namespace attn {

std::vector<Option> text_options(TextArgs& args) {
  PrintOptions& print = args.print;
  constexpr std::int64_t kMost = std::numeric_limits<int>::max();
  return in_group(
      "Text, as with numpy.set_printoptions",
      {flag("--repr", args.repr, "print as repr() does: array([...])"),
       integer("--precision", print.precision, {0, 1100},  // 1074 digits write any float64 in full
               "N", "digits after the decimal point; default: 8"),
       integer("--threshold", print.threshold, {0, kMost}, "N",
               "summarise arrays with more elements; default: 1000"),
       integer("--edgeitems", print.edgeitems, {0, kMost}, "N",
               "elements shown at each end of a summarised axis; default: 3"),
       integer("--linewidth", print.linewidth, {1, kMost}, "N", "characters per line; default: 75"),
       flag("--suppress", print.suppress, "do not use exponents for small numbers"),
       word("--floatmode", args.floatmode, {"fixed", "unique", "maxprec", "maxprec_equal"},
            "fixed, unique, maxprec (default) or maxprec_equal")});
}

std::vector<std::string> text_option_names() {
  TextArgs unused;
  std::vector<std::string> names;
  for (const Option& option : text_options(unused)) names.push_back(option.name());
  return names;
}

std::string format_tensor(const Tensor& tensor, const TextArgs& args) {
  using enum PrintOptions::FloatMode;
  PrintOptions options = args.print;
  options.floatmode = args.floatmode == "fixed"     ? fixed
                      : args.floatmode == "unique"  ? unique
                      : args.floatmode == "maxprec" ? maxprec
                                                    : maxprec_equal;
  return args.repr ? numpy_repr(tensor, options) : numpy_str(tensor, options);
}

}  // namespace attn
