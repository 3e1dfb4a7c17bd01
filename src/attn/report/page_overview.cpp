#include "attn/report/page_overview.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <span>
#include <utility>

#include "attn/base/text.h"
#include "attn/report/deflate.h"
#include "attn/report/head_summary.h"
#include "attn/report/markup.h"
#include "attn/report/numpy_text.h"
#include "attn/report/page_levels.h"

namespace attn {
namespace {

constexpr std::size_t kOverviewChunk = 32;  // matrices in an element

/// What is stored of the matrices besides their values.
class OverviewBuilder {
 public:
  OverviewBuilder(const std::vector<PageSet>& sets, double largest)
      : sets_(sets), first_(sets[0].map), unit_(code_unit(largest)) {
    matrices_ = first_.panels.size();
    overview_ = overview_blocks(matrices_, first_.rows(), first_.columns());
    pyramid_ = pyramid_blocks(matrices_, first_.rows(), first_.columns());
    summaries_.resize(sets.size());
    codes_.resize(sets.size() == 2 ? 3 : 1);
    for (std::size_t p = 0; p < matrices_; ++p) {
      add_matrix(p);
      if ((p + 1) % kOverviewChunk == 0 || p + 1 == matrices_) end_chunk(p / kOverviewChunk);
    }
  }

  PageOverview take() {
    return {facts(), std::move(overview_elements_), std::move(pyramid_elements_)};
  }

 private:
  std::string facts() const {
    const auto blocks = [](const BlockSize& size) {
      return "[" + std::to_string(size.tall) + "," + std::to_string(size.wide) + "]";
    };
    std::string pyramid;
    for (const BlockSize& size : pyramid_) pyramid += (pyramid.empty() ? "" : ",") + blocks(size);
    return ",\n\"unit\":" + python_repr(unit_) + ",\n\"overview\":" + blocks(overview_) +
           ",\n\"chunk\":" + std::to_string(kOverviewChunk) + ",\n\"pyramid\":[" + pyramid +
           "],\n\"statistics\":[" + statistics() + "]";
  }

  void add_matrix(std::size_t p) {
    const std::size_t rows = first_.rows(), columns = first_.columns();
    std::vector<std::vector<PageLevel>> levels(codes_.size());
    for (auto& of_set : levels) {
      of_set.push_back(page_level(rows, columns, overview_.tall, overview_.wide));
      for (const BlockSize& size : pyramid_)
        of_set.push_back(page_level(rows, columns, size.tall, size.wide));
    }
    std::vector<HeadSummarizer> summarizers;
    for (const PageSet& set : sets_) {
      const HeatCells& cells = set.map.cells;
      const Shape& shape = cells.values.shape();
      summarizers.emplace_back(cells.rows, cells.columns, shape[1], shape[2]);
    }
    double most_different = 0;
    std::vector<std::uint16_t> codes(columns);
    for (std::size_t i = 0; i < rows; ++i) {
      std::vector<HeatRow> of_sets;
      for (std::size_t s = 0; s < sets_.size(); ++s) {
        of_sets.push_back(sets_[s].map.row(sets_[s].map.panels[p], i));
        summarizers[s].add(of_sets[s], i);
      }
      if (sets_.size() == 2) {
        of_sets.push_back(difference(of_sets[0], of_sets[1]));
        for (const double value : of_sets[2].values)
          most_different = std::max(most_different, std::abs(value));
      }
      for (std::size_t s = 0; s < of_sets.size(); ++s) {
        for (std::size_t j = 0; j < columns; ++j)
          codes[j] = strength_code(of_sets[s].values[j], of_sets[s].kinds[j], unit_);
        for (PageLevel& level : levels[s]) add_row(level, i, codes);
      }
    }
    for (std::size_t s = 0; s < sets_.size(); ++s)
      summaries_[s].push_back(summarizers[s].summary());
    if (sets_.size() == 2) differences_.push_back(most_different);
    for (std::size_t s = 0; s < levels.size(); ++s) {
      codes_[s].insert(codes_[s].end(), levels[s][0].codes.begin(), levels[s][0].codes.end());
      std::vector<std::uint16_t> further;
      for (std::size_t k = 1; k < levels[s].size(); ++k)
        further.insert(further.end(), levels[s][k].codes.begin(), levels[s][k].codes.end());
      if (!further.empty())
        append_data(pyramid_elements_, data_id("pyramid", s, p), code_bytes(further));
    }
  }

  /// A cell is hidden if it is hidden in either.
  static HeatRow difference(const HeatRow& a, const HeatRow& b) {
    HeatRow row{std::vector<double>(a.values.size(), 0), a.kinds};
    for (std::size_t j = 0; j < a.values.size(); ++j) {
      const auto either = [&](CellKind kind) { return a.kinds[j] == kind || b.kinds[j] == kind; };
      row.values[j] = a.values[j] - b.values[j];
      row.kinds[j] = either(CellKind::hidden)                             ? CellKind::hidden
                     : either(CellKind::nan) || std::isnan(row.values[j]) ? CellKind::nan
                                                                          : CellKind::value;
      if (row.kinds[j] != CellKind::value) row.values[j] = 0;
    }
    return row;
  }

  void end_chunk(std::size_t chunk) {
    for (std::size_t s = 0; s < codes_.size(); ++s) {
      append_data(overview_elements_, data_id("overview", s, chunk), code_bytes(codes_[s]));
      codes_[s].clear();
    }
  }

  /// {"name":"entropy","of":[[...],[...]]}, for each statistic; null for NaN.
  std::string statistics() const {
    std::string text;
    const auto member = [&](const char* name, const std::string& of) {
      text += (text.empty() ? "{\"name\":\"" : ",{\"name\":\"") + std::string(name) +
              "\",\"of\":[" + of + "]}";
    };
    const auto numbers = [](const auto& items, auto number_of) {
      return "[" +
             join(items, ",",
                  [&](const auto& item) {
                    const double number = number_of(item);
                    return std::isfinite(number) ? short_decimal(number) : std::string("null");
                  }) +
             "]";
    };
    const auto of_sets = [&](double HeadSummary::*field) {
      return join(summaries_, ",", [&](const auto& heads) {
        return numbers(heads, [&](const HeadSummary& head) { return head.*field; });
      });
    };
    if (!differences_.empty())
      member("difference", numbers(differences_, [](double number) { return number; }));
    const auto defined = [](const auto& heads) {
      return std::any_of(heads.begin(), heads.end(),
                         [](const HeadSummary& head) { return !std::isnan(head.entropy); });
    };
    if (std::any_of(summaries_.begin(), summaries_.end(), defined)) {
      member("entropy", of_sets(&HeadSummary::entropy));
      member("first", of_sets(&HeadSummary::first));
      member("distance", of_sets(&HeadSummary::distance));
      member("previous", of_sets(&HeadSummary::previous));
    }
    member("largest", of_sets(&HeadSummary::largest));
    return text;
  }

  /// Six significant digits.
  static std::string short_decimal(double number) {
    char digits[32];
    const auto end =
        std::to_chars(digits, digits + sizeof digits, number, std::chars_format::general, 6);
    return {digits, end.ptr};
  }

  const std::vector<PageSet>& sets_;
  const HeatMap& first_;
  double unit_;
  std::size_t matrices_ = 0;
  BlockSize overview_;
  std::vector<BlockSize> pyramid_;
  std::vector<std::vector<std::uint16_t>> codes_;  // of the current chunk, for each set
  std::vector<std::vector<HeadSummary>> summaries_;
  std::vector<double> differences_;
  std::string overview_elements_, pyramid_elements_;
};

}  // namespace

PageOverview page_overview(const std::vector<PageSet>& sets, double largest) {
  return OverviewBuilder(sets, largest).take();
}

void append_data(std::string& page, const std::string& id, std::span<const std::byte> bytes) {
  std::vector<std::byte> packed = deflated(bytes);
  const std::size_t size = packed.size();
  std::vector<std::byte> start;
  for (const int shift : {0, 8, 16, 24})
    start.push_back(static_cast<std::byte>(size >> shift & 0xFFu));
  packed.insert(packed.begin(), start.begin(), start.end());
  page += "<script type=\"text/plain\" id=\"" + id + "\">";
  append_base85(page, packed);
  page += "</script>\n";
}

std::string data_id(const char* kind, std::size_t set, std::size_t number) {
  return std::string(kind) + "-" + std::to_string(set) + "-" + std::to_string(number);
}

}  // namespace attn
