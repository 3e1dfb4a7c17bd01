#include "attn/draw/page_elements.h"

#include <algorithm>
#include <cmath>
#include <span>
#include <utility>

#include "attn/draw/binary_text.h"
#include "attn/draw/deflate.h"

namespace attn {
namespace {

constexpr std::size_t kSampledMatrices = 16;
constexpr std::size_t kTasksPerWorker = 2;  // matrices whose elements are joined at once

/// The k-th matrix of a sample. Multiples of the golden ratio spread over all layers and heads.
std::size_t sampled_matrix(std::size_t k, std::size_t matrices) {
  const double turns = static_cast<double>(k) * 0.6180339887498949;
  return static_cast<std::size_t>((turns - std::floor(turns)) * static_cast<double>(matrices));
}

/// What a page stores of one matrix.
struct MatrixElements {
  std::vector<std::vector<std::uint16_t>> overview;  ///< of each set and the difference
  std::string pyramid;
  std::vector<std::string> values;  ///< of each set
};

class ElementsWriter {
 public:
  ElementsWriter(const std::vector<PageSet>& sets, const PageSurvey& survey,
                 const PageLayout& layout, const PagePrecision& precision)
      : sets_(sets),
        layout_(layout),
        precision_(precision),
        spans_(reduced(survey.spans, precision.step)) {}

  std::size_t matrices() const { return sets_[0].map.panels.size(); }
  const PageSpans& spans() const { return spans_; }

  MatrixElements matrix(std::size_t p) const {
    const HeatMap& map = sets_[0].map;
    const std::size_t rows = map.rows(), columns = map.columns();
    std::vector<std::vector<PageLevel>> levels(sets_.size() == 2 ? 3 : 1);
    for (auto& of_set : levels) {
      of_set.push_back(page_level(rows, columns, layout_.overview.tall, layout_.overview.wide));
      for (const BlockSize& size : layout_.pyramid)
        of_set.push_back(page_level(rows, columns, size.tall, size.wide));
    }
    std::vector<PageValues> values;
    for (const PageSet& set : sets_) values.emplace_back(spans_, precision_, set.is_weights);
    std::vector<std::uint16_t> codes(columns);
    for (std::size_t i = 0; i < rows; ++i) {
      std::vector<HeatRow> of_sets;
      for (std::size_t s = 0; s < sets_.size(); ++s) {
        of_sets.push_back(sets_[s].map.row(sets_[s].map.panels[p], i));
        values[s].add(of_sets[s]);
      }
      if (sets_.size() == 2)
        of_sets.push_back(row_difference(of_sets[0], of_sets[1], are_weights(sets_)));
      for (std::size_t s = 0; s < of_sets.size(); ++s) {
        strength_codes(of_sets[s], layout_.unit, codes);
        for (PageLevel& level : levels[s]) add_row(level, i, codes);
      }
    }
    MatrixElements elements;
    for (std::size_t s = 0; s < levels.size(); ++s) {
      std::vector<std::uint16_t> further;
      for (std::size_t k = 1; k < levels[s].size(); ++k)
        further.insert(further.end(), levels[s][k].codes.begin(), levels[s][k].codes.end());
      if (!further.empty()) append_data(elements.pyramid, "pyramid", s, p, code_bytes(further));
      elements.overview.push_back(std::move(levels[s][0].codes));
    }
    for (std::size_t s = 0; s < sets_.size(); ++s)
      append_data(elements.values.emplace_back(), "values", s, p, values[s].take());
    return elements;
  }

 private:
  const std::vector<PageSet>& sets_;
  const PageLayout& layout_;
  PagePrecision precision_;
  PageSpans spans_;
};

/// Joins the elements of matrices in their order.
class ElementsJoiner {
 public:
  explicit ElementsJoiner(std::size_t sets) : codes_(sets == 2 ? 3 : 1) {
    joined_.values.resize(sets);
  }

  void add(const MatrixElements& elements, bool opens) {
    for (std::size_t s = 0; s < codes_.size(); ++s)
      codes_[s].insert(codes_[s].end(), elements.overview[s].begin(), elements.overview[s].end());
    (opens ? joined_.opening : joined_.pyramid) += elements.pyramid;
    for (std::size_t s = 0; s < joined_.values.size(); ++s)
      (opens ? joined_.opening : joined_.values[s]) += elements.values[s];
    if (++count_ % kPageChunk == 0) end_chunk();
  }

  std::size_t count() const { return count_; }

  std::size_t bytes() const { return joined_.size(); }  ///< without an incomplete chunk

  PageElements take() {
    if (!codes_[0].empty()) end_chunk();
    return std::move(joined_);
  }

 private:
  void end_chunk() {
    for (std::size_t s = 0; s < codes_.size(); ++s) {
      append_data(joined_.overview, "overview", s, chunk_, code_bytes(codes_[s]));
      codes_[s].clear();
    }
    ++chunk_;
  }

  std::vector<std::vector<std::uint16_t>> codes_;  ///< of the current chunk
  PageElements joined_;
  std::size_t count_ = 0, chunk_ = 0;
};

}  // namespace

void append_data(std::string& page, const char* kind, std::size_t set, std::size_t number,
                 std::span<const std::byte> bytes) {
  std::vector<std::byte> packed = deflated(bytes);
  const std::size_t size = packed.size();
  std::vector<std::byte> start;
  for (const int shift : {0, 8, 16, 24})
    start.push_back(static_cast<std::byte>(size >> shift & 0xFFu));
  packed.insert(packed.begin(), start.begin(), start.end());
  page += "<script type=\"text/plain\" id=\"" + std::string(kind) + "-" + std::to_string(set) +
          "-" + std::to_string(number) + "\">";
  append_base85(page, packed);
  page += "</script>\n";
}

PageLayout layout_of(const std::vector<PageSet>& sets, const PageSurvey& survey,
                     const PagePrecision& precision) {
  const HeatMap& map = sets[0].map;
  const std::size_t matrices = map.panels.size();
  PageLayout layout{code_unit(survey.largest),
                    overview_blocks(matrices, map.rows(), map.columns()),
                    {},
                    opening_matrix(survey)};
  for (const BlockSize& size : pyramid_blocks(matrices, map.rows(), map.columns()))
    if (size.tall > precision.step) layout.pyramid.push_back(size);
  return layout;
}

std::size_t PageElements::size() const {
  std::size_t size = overview.size() + opening.size() + pyramid.size();
  for (const std::string& of_set : values) size += of_set.size();
  return size;
}

std::optional<PageElements> page_elements(const std::vector<PageSet>& sets,
                                          const PageSurvey& survey, const PageLayout& layout,
                                          const PagePrecision& precision, std::size_t max_bytes,
                                          kernel::ThreadPool& pool) {
  constexpr double kMostCompressed = 0.3;  // a guess; of attention weights
  const ElementsWriter writer(sets, survey, layout, precision);
  const std::size_t matrices = writer.matrices();
  const double raw =
      static_cast<double>(writer.spans().cells()) * precision.bits / 8 * kBase85Characters;
  if (raw * kMostCompressed * static_cast<double>(sets.size() * matrices) >
      static_cast<double>(max_bytes))
    return {};
  const std::size_t workers =
      page_workers(sets[0].map.rows(), sets[0].map.columns(), pool.threads());
  /// Adds `count` matrices: the k-th is the one with the number number(k).
  const auto add = [&](ElementsJoiner& joiner, std::size_t count, const auto& number) {
    std::vector<MatrixElements> elements(count);
    pool.run(count, workers,
             [&](std::size_t k, std::size_t) { elements[k] = writer.matrix(number(k)); });
    for (std::size_t k = 0; k < count; ++k) joiner.add(elements[k], number(k) == layout.opening);
  };
  const auto expected = [&](std::size_t bytes, std::size_t count) {
    return static_cast<double>(bytes) / static_cast<double>(count) * static_cast<double>(matrices);
  };
  // A page that is expected to be too large is given up early, unless the estimate may be wrong.
  const auto limit = static_cast<double>(max_bytes);
  if (matrices > 2 * kSampledMatrices) {
    ElementsJoiner sample(sets.size());
    while (sample.count() < kSampledMatrices)
      add(sample, std::min(kTasksPerWorker * workers, kSampledMatrices - sample.count()),
          [&](std::size_t k) { return sampled_matrix(sample.count() + k, matrices); });
    if (expected(sample.take().size(), kSampledMatrices) > 1.1 * limit) return {};
  }
  ElementsJoiner joiner(sets.size());
  while (joiner.count() < matrices) {
    const std::size_t first = joiner.count();
    add(joiner, std::min(kTasksPerWorker * workers, matrices - first),
        [&](std::size_t k) { return first + k; });
    const std::size_t bytes = joiner.bytes();
    if (bytes > max_bytes) return {};
    if (joiner.count() >= 4 && expected(bytes, joiner.count()) > 1.25 * limit) return {};
  }
  PageElements elements = joiner.take();
  if (elements.size() > max_bytes) return {};
  return elements;
}

std::size_t page_workers(std::size_t rows, std::size_t columns, std::size_t threads) {
  constexpr std::size_t kMostCells = std::size_t{1} << 27;  // of the matrices of all threads
  return std::clamp<std::size_t>(kMostCells / (rows * columns), 1, threads);
}

}  // namespace attn
