#include "attn/print/torch_text.h"

#include <algorithm>
#include <cmath>
#include <type_traits>
#include <utility>

#include "attn/base/number_text.h"
#include "attn/base/text.h"
#include "attn/print/numpy_text.h"

namespace attn {
namespace {

bool is_scientific(double min, double max, const PrintOptions& options) {
  if (options.sci_mode != PrintOptions::SciMode::automatic)
    return options.sci_mode == PrintOptions::SciMode::always;
  return max / min > 1000 || max > 1e8 || min < 1e-4;
}

std::string left_padded(const std::string& text, std::size_t width) {
  return std::string(width - std::min(width, text.size()), ' ') + text;
}

}  // namespace

TorchFloatFormat::TorchFloatFormat(const std::vector<double>& values, const PrintOptions& options)
    : precision_(options.precision) {
  double min = HUGE_VAL, max = 0;
  std::vector<double> counted;
  for (const double value : values) {
    if (!std::isfinite(value) || value == 0) continue;
    counted.push_back(value);
    min = std::min(min, std::fabs(value));
    max = std::max(max, std::fabs(value));
    whole_ = whole_ && value == std::ceil(value);
  }
  if (counted.empty()) return;
  scientific_ = is_scientific(min, max, options);
  for (const double value : counted) width_ = std::max(width_, unaligned(value).size());
}

std::string TorchFloatFormat::unaligned(double value) const {
  if (!std::isfinite(value)) return std::isnan(value) ? "nan" : value < 0 ? "-inf" : "inf";
  const bool has_point = !scientific_ && whole_;
  const Notation notation = scientific_ ? Notation::scientific : Notation::positional;
  std::string text = rounded_text(value, has_point ? 0 : precision_, notation);
  // Like printf, PyTorch prints no point before no digits, but adds one to integers.
  if (precision_ == 0 && !has_point) text.erase(text.find('.'), 1);
  return text;
}

std::string TorchFloatFormat::operator()(double value) const {
  return left_padded(unaligned(value), width_);
}

namespace {

using Words = std::vector<std::string>;

struct AlignedWords {
  Words words;
  std::size_t width = 1;  ///< of a column
};

/// The texts of the elements at `indices`.
template <class T>
AlignedWords aligned_words(const Tensor& tensor, const std::vector<std::size_t>& indices,
                           const PrintOptions& options) {
  const auto data = tensor.data<T>();
  AlignedWords aligned;
  auto& [words, width] = aligned;
  if constexpr (std::is_integral_v<T>) {
    for (const std::size_t index : indices) {
      if constexpr (std::is_same_v<T, bool>)
        words.push_back(data[index] ? "True" : "False");
      else
        words.push_back(std::to_string(data[index]));
      width = std::max(width, words.back().size());
    }
    for (std::string& word : words) word = left_padded(word, width);
  } else {
    std::vector<double> values;
    for (const std::size_t index : indices) values.push_back(static_cast<double>(data[index]));
    const TorchFloatFormat format(values, options);
    for (const double value : values) words.push_back(format(value));
    width = format.width();
  }
  return aligned;
}

/// Arranges words in lines with brackets. Unlike in NumPy, each line of a vector has the same
/// number of words, and an ellipsis counts as one.
class TorchLines {
 public:
  TorchLines(const AlignedWords& aligned, const ArrayLayout& layout)
      : aligned_(aligned), layout_(layout) {}

  /// The block of `axis`, whose bracket is at column `indent`.
  std::string block(std::size_t axis, std::size_t indent) {
    const std::size_t axes_within = layout_.shape.size() - axis - 1;
    const std::size_t extent = layout_.shape[axis];
    const bool is_cut = layout_.summarised && extent > 2 * layout_.edgeitems;
    const std::size_t count = is_cut ? 2 * layout_.edgeitems : extent;
    Words items;
    for (std::size_t i = 0; i < count; ++i) {
      if (is_cut && i == layout_.edgeitems) items.push_back(axes_within == 0 ? " ..." : "...");
      items.push_back(axes_within == 0 ? aligned_.words[next_++] : block(axis + 1, indent + 1));
    }
    return "[" +
           (axes_within == 0 ? in_lines(items, indent) : stacked(items, indent, axes_within)) + "]";
  }

 private:
  std::string in_lines(const Words& items, std::size_t indent) const {
    const long columns = layout_.linewidth - static_cast<long>(indent);
    const auto per_line =
        static_cast<std::size_t>(std::max(1L, columns / static_cast<long>(aligned_.width + 2)));
    std::string text;
    for (std::size_t i = 0; i < items.size(); ++i) {
      if (i > 0) text += i % per_line == 0 ? ",\n" + std::string(indent + 1, ' ') : ", ";
      text += items[i];
    }
    return text;
  }

  static std::string stacked(const Words& items, std::size_t indent, std::size_t axes_within) {
    return join(items, "," + std::string(axes_within, '\n') + std::string(indent + 1, ' '));
  }

  const AlignedWords& aligned_;
  const ArrayLayout& layout_;
  std::size_t next_ = 0;
};

std::string contents(const Tensor& tensor, const PrintOptions& options, std::size_t indent) {
  if (tensor.size() == 0) return "[]";
  ArrayLayout layout;
  layout.shape = tensor.shape();
  layout.summarised = std::cmp_greater(tensor.size(), options.threshold);
  layout.edgeitems = static_cast<std::size_t>(options.edgeitems);
  layout.linewidth = options.linewidth;
  if (layout.summarised && layout.edgeitems == 0 && tensor.rank() > 0) return "[...]";
  const std::vector<std::size_t> shown = shown_elements(layout);
  const AlignedWords aligned = visit(
      tensor.dtype(), [&]<class T>(Type<T>) { return aligned_words<T>(tensor, shown, options); });
  return tensor.rank() == 0 ? aligned.words[0] : TorchLines(aligned, layout).block(0, indent);
}

/// What follows the elements: "dtype=torch.float64".
Words suffixes(const Tensor& tensor, const PrintOptions& options) {
  const DType dtype = tensor.dtype();
  const bool is_empty = tensor.size() == 0;
  Words texts;
  if (is_empty ? tensor.rank() != 1 : options.edgeitems == 0)
    texts.push_back("size=" + to_string(tensor.shape()));
  const bool is_implied =
      dtype == DType::f32 || (!is_empty && (dtype == DType::i64 || dtype == DType::boolean));
  if (!is_implied) texts.push_back("dtype=torch." + std::string(name_of(dtype)));
  if (!options.grad_fn.empty())
    texts.push_back("grad_fn=<" + printable(options.grad_fn) + ">");
  else if (options.requires_grad)
    texts.push_back("requires_grad=True");
  return texts;
}

}  // namespace

std::string torch_text(const Tensor& tensor, const PrintOptions& options) {
  std::string text = "tensor(";
  const std::size_t indent = text.size();
  text += contents(tensor, options, indent);
  // PyTorch counts two characters too many in the first line.
  std::size_t length = text.size() - text.rfind('\n') + 1;
  for (const std::string& suffix : suffixes(tensor, options)) {
    const bool is_full = std::cmp_greater(length + suffix.size() + 2, options.linewidth);
    text += is_full ? ",\n" + std::string(indent, ' ') : ", ";
    length = is_full ? indent + suffix.size() : length + suffix.size() + 2;
    text += suffix;
  }
  return text + ")";
}

}  // namespace attn
