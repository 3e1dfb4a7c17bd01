#include "attn/report/array_layout.h"

#include <algorithm>

namespace attn {
namespace {

/// Elements printed at the start and at the end of an axis, and whether some between are omitted.
struct Ends {
  std::size_t head = 0, tail = 0;
  bool gap = false;
};

Ends ends_of(std::size_t extent, const ArrayLayout& layout) {
  if (!layout.summarised || extent <= 2 * layout.edgeitems) return {0, extent, false};
  // NumPy prints the last element even if edgeitems is 0.
  return {layout.edgeitems, std::max<std::size_t>(layout.edgeitems, 1), true};
}

void collect(const ArrayLayout& layout, std::size_t axis, std::size_t start,
             std::vector<std::size_t>& indices) {
  if (axis == layout.shape.size()) {
    indices.push_back(start);
    return;
  }
  const std::size_t extent = layout.shape[axis];
  const Ends ends = ends_of(extent, layout);
  for (std::size_t i = 0; i < ends.head; ++i)
    collect(layout, axis + 1, start * extent + i, indices);
  for (std::size_t i = extent - ends.tail; i < extent; ++i)
    collect(layout, axis + 1, start * extent + i, indices);
}

std::string without_spaces_at_end(const std::string& text) {
  return text.substr(0, text.find_last_not_of(' ') + 1);
}

/// Prints the words of one array in row-major order.
class Typesetter {
 public:
  Typesetter(const std::vector<std::string>& words, const ArrayLayout& layout)
      : words_(words), layout_(layout) {}

  /// The block of `axis`. Its bracket is at column `indent` - 1 and its lines end before column
  /// `width`; the columns after that are for outer closing brackets.
  std::string block(std::size_t axis, std::size_t indent, long width) {
    if (axis == layout_.shape.size()) return words_[next_++];
    const Ends ends = ends_of(layout_.shape[axis], layout_);
    std::vector<std::string> items;
    for (std::size_t i = 0; i < ends.head; ++i)
      items.push_back(block(axis + 1, indent + 1, width - 1));
    if (ends.gap) items.push_back("...");
    for (std::size_t i = 0; i < ends.tail; ++i)
      items.push_back(block(axis + 1, indent + 1, width - 1));
    const std::size_t axes_within = layout_.shape.size() - axis - 1;
    std::string text = "[";
    text += axes_within == 0 ? wrapped(items, indent, width) : stacked(items, indent, axes_within);
    return text + "]";
  }

 private:
  std::string wrapped(const std::vector<std::string>& items, std::size_t indent, long width) const {
    std::string text, line(indent, ' ');
    for (std::size_t i = 0; i < items.size(); ++i) {
      // One column stays free for the separator's comma or the bracket. A word longer than any line
      // is not moved.
      const bool full = static_cast<long>(line.size() + items[i].size()) > width - 1;
      if (full && line.size() > indent) {
        text += without_spaces_at_end(line) + "\n";
        line.assign(indent, ' ');
      }
      line += items[i];
      if (i + 1 < items.size()) line += layout_.separator;
    }
    return (text + line).substr(indent);
  }

  std::string stacked(const std::vector<std::string>& items, std::size_t indent,
                      std::size_t axes_within) const {
    const std::string between = without_spaces_at_end(layout_.separator) +
                                std::string(axes_within, '\n') + std::string(indent, ' ');
    std::string text;
    for (const std::string& item : items) text += (text.empty() ? "" : between) + item;
    return text;
  }

  const std::vector<std::string>& words_;
  const ArrayLayout& layout_;
  std::size_t next_ = 0;
};

}  // namespace

std::vector<std::size_t> shown_elements(const ArrayLayout& layout) {
  std::vector<std::size_t> indices;
  collect(layout, 0, 0, indices);
  return indices;
}

std::string bracketed(const std::vector<std::string>& words, const ArrayLayout& layout) {
  return Typesetter(words, layout).block(0, layout.indent + 1, layout.linewidth);
}

}  // namespace attn
