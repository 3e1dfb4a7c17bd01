#include "attn/draw/page_steps.h"

#include <algorithm>
#include <cmath>

#include "attn/base/dtype.h"
#include "attn/base/number_text.h"
#include "attn/base/text.h"
#include "attn/draw/binary_text.h"
#include "attn/draw/markup.h"
#include "attn/draw/page_elements.h"
#include "attn/draw/page_values.h"
#include "attn/problem/score_scale.h"

namespace attn {
namespace {

constexpr double kMostCompressed = 0.3;  // a guess, as of matrices; vectors compress less

std::vector<double> doubles_at(const Tensor& tensor, std::size_t begin, std::size_t count) {
  return visit(tensor.dtype(), [&]<class T>(Type<T>) {
    const auto data = tensor.data<T>().subspan(begin, count);
    std::vector<double> numbers;
    numbers.reserve(count);
    for (const T number : data) numbers.push_back(static_cast<double>(number));
    return numbers;
  });
}

void append_floats(std::vector<std::byte>& bytes, const std::vector<double>& numbers, int bits) {
  for (const double number : numbers) append_float(bytes, number, bits);
}

/// 64 if 32 do not hold all values exactly.
int bits_of(const WeightSteps& steps) {
  const auto is_wide = [](const Tensor& tensor) { return tensor.dtype() == DType::f64; };
  return is_wide(steps.queries.tensor) || is_wide(steps.keys.tensor) ||
                 (steps.values && is_wide(steps.values->tensor)) ||
                 (steps.masked && is_wide(*steps.masked))
             ? 64
             : 32;
}

/// The largest relative error of a number that is rounded to the dtype.
double rounding_of(DType dtype) {
  return dtype == DType::f64   ? 0x1p-53
         : dtype == DType::f32 ? 0x1p-24
         : dtype == DType::f16 ? 0x1p-11
                               : 0x1p-8;
}

/// The matrices of keys, or of `hiding`, of the drawn heads, each once, in ascending order.
std::vector<std::size_t> drawn(const WeightSteps& steps, const HeatMap& map,
                               std::size_t (WeightSteps::*matrix_of)(std::size_t) const) {
  std::vector<std::size_t> drawn;
  for (const HeatPanel& panel : map.panels) drawn.push_back((steps.*matrix_of)(panel.matrix));
  std::sort(drawn.begin(), drawn.end());
  drawn.erase(std::unique(drawn.begin(), drawn.end()), drawn.end());
  return drawn;
}

std::vector<std::byte> bytes_of_queries(const WeightSteps& steps, const HeatMap& map,
                                        std::size_t matrix, int bits) {
  std::vector<std::byte> bytes;
  for (const std::size_t i : map.cells.rows)
    append_floats(bytes, steps.queries.row(matrix, i), bits);
  const auto row_of = [&](const Tensor& tensor, std::size_t i) {
    const Shape& shape = tensor.shape();
    const std::size_t columns = shape.back(), rows = shape[shape.size() - 2];
    return doubles_at(tensor, (matrix * rows + i) * columns, columns);
  };
  if (steps.masked)
    for (const std::size_t i : map.cells.rows) append_floats(bytes, row_of(*steps.masked, i), bits);
  if (steps.dropped)
    for (const std::size_t i : map.cells.rows)
      for (const double weight : row_of(*steps.dropped, i))
        bytes.push_back(static_cast<std::byte>(weight != 0));
  return bytes;
}

std::vector<std::byte> bytes_of_keys(const WeightSteps& steps, std::size_t matrix, int bits) {
  std::vector<std::byte> bytes;
  for (std::size_t j = 0; j < steps.keys.count(); ++j)
    append_floats(bytes, steps.keys.row(matrix, j), bits);
  if (steps.values)
    for (std::size_t j = 0; j < steps.values->count(); ++j)
      append_floats(bytes, steps.values->row(matrix, j), bits);
  return bytes;
}

std::vector<std::byte> bytes_of_hiding(const HidingOptions& hiding, const HeatMap& map,
                                       std::size_t matrix) {
  const std::size_t S = hiding.row_size,
                    rows = hiding.of.size() / (hiding.items * hiding.heads * S);
  std::vector<std::byte> bytes;
  for (const std::size_t i : map.cells.rows)
    for (std::size_t j = 0; j < S; ++j)
      bytes.push_back(static_cast<std::byte>(hiding.of[(matrix * rows + i) * S + j]));
  return bytes;
}

/// The number of each drawn matrix's head, as JSON, with null for -inf; "null" without numbers.
std::string of_panels(const std::vector<double>& of_heads, const HeatMap& map) {
  if (of_heads.empty()) return "null";
  return "[" +
         join(map.panels, ",",
              [&](const HeatPanel& panel) {
                const double number = of_heads[panel.matrix % of_heads.size()];
                return std::isfinite(number) ? python_repr(number) : std::string("null");
              }) +
         "]";
}

}  // namespace

std::size_t HeadVectors::count() const {
  const Shape& shape = tensor.shape();
  return shape[shape.size() - (heads_inside ? 3 : 2)];
}

std::size_t HeadVectors::matrices() const { return tensor.size() / (count() * width()); }

std::vector<double> HeadVectors::row(std::size_t matrix, std::size_t i) const {
  const std::size_t at =
      heads_inside ? (matrix / heads * count() + i) * heads + matrix % heads : matrix * count() + i;
  return doubles_at(tensor, at * width(), width());
}

std::size_t WeightSteps::keys_of(std::size_t matrix) const {
  const std::size_t head = matrix % queries.heads, item = matrix / queries.heads;
  return item * keys.heads + head * keys.heads / queries.heads;
}

std::size_t WeightSteps::hiding_of(std::size_t matrix) const {
  const std::size_t head = hiding->heads == 1 ? 0 : matrix % queries.heads;
  return (hiding->items == 1 ? 0 : matrix / queries.heads * hiding->heads) + head;
}

std::string steps_json(const WeightSteps& steps, const HeatMap& map) {
  const Options& options = steps.options;
  const ScoreScale scale = score_scale(options, steps.queries.width());
  const std::vector<std::size_t> keyed = drawn(steps, map, &WeightSteps::keys_of);
  const auto number_of_keys = [&](const HeatPanel& panel) {
    const auto found = std::lower_bound(keyed.begin(), keyed.end(), steps.keys_of(panel.matrix));
    return std::to_string(found - keyed.begin());
  };
  std::string text;
  const auto member = [&](const char* name, const std::string& value) {
    text += (text.empty() ? "{\"" : ",\"") + std::string(name) + "\":" + value;
  };
  const auto truth = [](bool value) { return std::string(value ? "true" : "false"); };
  member("cosine", truth(options.score == Score::cosine));
  member("factor", python_repr(scale.multiplier));
  member("root", std::to_string(scale.root_of));
  member("headScales", of_panels(steps.head_scales, map));
  member("softcap", python_repr(options.softcap));
  member("capsMasked", truth(options.softcap_order == SoftcapOrder::after_mask));
  member("masked", truth(steps.masked.has_value()));
  const auto list = [](const std::vector<std::string>& names) {
    return "[" + join(names, ",", script_string) + "]";
  };
  member("added", list(steps.added));
  member("hides", list(steps.hides));
  const auto hiding_of = [&](const HeatPanel& panel) {
    return std::to_string(steps.hiding_of(panel.matrix));
  };
  if (steps.hiding)
    member("hiding", "{\"sets\":[" + join(steps.hiding->sets, ",", list) + "],\"of\":[" +
                         join(map.panels, ",", hiding_of) + "]}");
  member("temperature", python_repr(options.temperature));
  member("dropout", steps.dropped ? python_repr(*options.dropout_p) : "null");
  member("sinks", of_panels(steps.sinks, map));
  member("width", std::to_string(steps.queries.width()));
  member("valueWidth", std::to_string(steps.values ? steps.values->width() : 0));
  member("note", script_string(steps.note));
  member("keyed", "[" + join(map.panels, ",", number_of_keys) + "]");
  member("bits", std::to_string(bits_of(steps)));
  member("rounding", python_repr(rounding_of(map.cells.values.dtype())));
  return text + "}";
}

std::size_t raw_bytes_of_steps(const WeightSteps& steps, const HeatMap& map) {
  const std::size_t keyed = drawn(steps, map, &WeightSteps::keys_of).size(),
                    rows = map.cells.rows.size();
  const std::size_t numbers =
      map.panels.size() * rows * (steps.queries.width() + (steps.masked ? steps.keys.count() : 0)) +
      keyed * steps.keys.count() *
          (steps.keys.width() + (steps.values ? steps.values->width() : 0));
  return numbers * static_cast<std::size_t>(bits_of(steps)) / 8 +
         (steps.dropped ? map.panels.size() * rows * steps.keys.count() : 0) +
         (steps.hiding ? steps.hiding->of.size() : 0);
}

std::optional<std::string> steps_elements(const WeightSteps& steps, const HeatMap& map,
                                          std::size_t max_bytes, kernel::ThreadPool& pool) {
  const auto most = static_cast<double>(max_bytes);
  if (static_cast<double>(raw_bytes_of_steps(steps, map)) * kMostCompressed * kBase85Characters >
      most)
    return std::nullopt;
  const int bits = bits_of(steps);
  const std::vector<std::size_t> keyed = drawn(steps, map, &WeightSteps::keys_of);
  const std::size_t panels = map.panels.size(), count = panels + keyed.size();
  const std::size_t workers =
      page_workers(map.rows(), std::max(map.columns(), steps.queries.width()), pool.threads());
  std::vector<std::string> parts(count);
  pool.run(count, workers, [&](std::size_t k, std::size_t) {
    if (k < panels)
      append_data(parts[k], "steps", 0, k,
                  bytes_of_queries(steps, map, map.panels[k].matrix, bits));
    else
      append_data(parts[k], "keyed", 0, k - panels, bytes_of_keys(steps, keyed[k - panels], bits));
  });
  std::string all;
  for (const std::string& part : parts) all += part;
  if (steps.hiding)
    for (const std::size_t matrix : drawn(steps, map, &WeightSteps::hiding_of))
      append_data(all, "hiding", 0, matrix, bytes_of_hiding(*steps.hiding, map, matrix));
  if (all.size() > max_bytes) return std::nullopt;
  return all;
}

}  // namespace attn
