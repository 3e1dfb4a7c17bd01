#include "attn/report/page.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>
#include <vector>

#include "attn/base/error.h"
#include "attn/base/number_text.h"
#include "attn/base/text.h"
#include "attn/report/markup.h"
#include "attn/report/numpy_text.h"

extern "C" {
extern const char attn_font_begin[], attn_font_end[], attn_font_sha256[];
extern const char attn_page_begin[], attn_page_end[], attn_page_sha256[];
extern const char attn_style_begin[], attn_style_end[], attn_style_sha256[];
extern const char attn_steps_begin[], attn_steps_end[], attn_steps_sha256[];
extern const char attn_values_begin[], attn_values_end[], attn_values_sha256[];
extern const char attn_draw_begin[], attn_draw_end[], attn_draw_sha256[];
extern const char attn_source_begin[], attn_source_end[], attn_source_sha256[];
extern const char attn_hands_begin[], attn_hands_end[], attn_hands_sha256[];
}

namespace attn {

EmbeddedFile embedded_font() { return {{attn_font_begin, attn_font_end}, attn_font_sha256}; }
EmbeddedFile embedded_page() { return {{attn_page_begin, attn_page_end}, attn_page_sha256}; }
EmbeddedFile embedded_style() { return {{attn_style_begin, attn_style_end}, attn_style_sha256}; }

EmbeddedFile embedded_steps_style() {
  return {{attn_steps_begin, attn_steps_end}, attn_steps_sha256};
}

std::span<const EmbeddedFile> embedded_scripts() {
  static const EmbeddedFile scripts[] = {{{attn_values_begin, attn_values_end}, attn_values_sha256},
                                         {{attn_source_begin, attn_source_end}, attn_source_sha256},
                                         {{attn_draw_begin, attn_draw_end}, attn_draw_sha256},
                                         {{attn_hands_begin, attn_hands_end}, attn_hands_sha256}};
  return scripts;
}

std::string hash_source(const EmbeddedFile& file) {
  std::vector<std::byte> bytes;
  for (std::size_t i = 0; i < file.sha256.size(); i += 2)
    bytes.push_back(
        static_cast<std::byte>(std::stoi(std::string(file.sha256.substr(i, 2)), nullptr, 16)));
  std::string text = "'sha256-";
  append_base64(text, bytes);
  return text + "'";
}

namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();
constexpr double kNan = std::numeric_limits<double>::quiet_NaN();

/// Whether the page stores a value or NaN for the cell.
bool has_number(CellKind kind) { return kind == CellKind::value || kind == CellKind::nan; }

struct RowFacts {
  double sum = 0, entropy = 0;
  float min = std::numeric_limits<float>::infinity(), max = -min;
};

RowFacts facts_of(const HeatRow& row) {
  RowFacts facts;
  bool negative = false;
  for (std::size_t j = 0; j < row.values.size(); ++j) {
    const double value = row.values[j];
    if (!has_number(row.kinds[j])) continue;
    if (row.kinds[j] == CellKind::nan) {
      facts.sum = kNan;
      continue;
    }
    facts.sum += value;
    negative = negative || value < 0;
    facts.min = std::min(facts.min, static_cast<float>(value));
    facts.max = std::max(facts.max, static_cast<float>(value));
  }
  if (negative || !(facts.sum > 0)) {
    facts.entropy = kNan;
    return facts;
  }
  for (std::size_t j = 0; j < row.values.size(); ++j) {
    const double share = row.values[j] / facts.sum;
    if (row.kinds[j] == CellKind::value && share > 0) facts.entropy -= share * std::log(share);
  }
  return facts;
}

template <class Unsigned>
void append_bytes(std::vector<std::byte>& bytes, Unsigned bits) {
  for (std::size_t i = 0; i < sizeof(Unsigned); ++i)
    bytes.push_back(static_cast<std::byte>(bits >> (8 * i) & 0xFFu));
}

void append_float(std::vector<std::byte>& bytes, double value, int bits) {
  if (bits == 64)
    append_bytes(bytes, std::bit_cast<std::uint64_t>(value));
  else
    append_bytes(bytes, std::bit_cast<std::uint32_t>(static_cast<float>(value)));
}

/// The nearest step of the row's range.
std::uint32_t code_of(double value, CellKind kind, const RowFacts& facts, int bits) {
  const std::uint32_t top = (1u << bits) - 1;
  if (!has_number(kind)) return top;
  if (kind == CellKind::nan) return top - 1;
  const double low = facts.min, high = facts.max;
  if (!(low < high)) return 0;
  const double share = std::clamp((value - low) / (high - low), 0.0, 1.0);
  return static_cast<std::uint32_t>(std::lround(share * (top - 2)));
}

/// The columns [first, end) of a row.
void append_row(std::vector<std::byte>& bytes, const HeatRow& row, std::size_t first,
                std::size_t end, const RowFacts& facts, int bits) {
  for (std::size_t j = first; j < end; ++j) {
    const CellKind kind = row.kinds[j];
    const double value = !has_number(kind)       ? -kInfinity
                         : kind == CellKind::nan ? kNan
                                                 : row.values[j];
    if (bits >= 32)
      append_float(bytes, value, bits);
    else if (bits == 16)
      append_bytes(bytes, static_cast<std::uint16_t>(code_of(value, kind, facts, bits)));
    else
      append_bytes(bytes, static_cast<std::uint8_t>(code_of(value, kind, facts, bits)));
  }
}

}  // namespace

std::size_t PageSpans::cells() const {
  std::size_t count = 0;
  for (std::size_t i = 0; i < first.size(); ++i) count += end[i] - first[i];
  return count;
}

PageSpans spans_of(const HeatMap& map) {
  const std::size_t columns = map.columns();
  PageSpans spans{std::vector(map.rows(), columns), std::vector<std::size_t>(map.rows(), 0)};
  for (const HeatPanel& panel : map.panels)
    for (std::size_t i = 0; i < map.rows(); ++i) {
      const std::vector<CellKind> kinds = map.row(panel, i).kinds;
      std::size_t first = 0, end = columns;
      while (first < spans.first[i] && !has_number(kinds[first])) ++first;
      while (end > spans.end[i] && !has_number(kinds[end - 1])) --end;
      spans.first[i] = std::min(spans.first[i], first);
      spans.end[i] = std::max(spans.end[i], end);
    }
  for (std::size_t i = 0; i < map.rows(); ++i)
    spans.first[i] = std::min(spans.first[i], spans.end[i]);  // a row with only hidden cells
  return spans;
}

PageSpans united(const PageSpans& a, const PageSpans& b) {
  PageSpans both = a;
  for (std::size_t i = 0; i < a.first.size(); ++i) {
    both.first[i] = std::min(a.first[i], b.first[i]);
    both.end[i] = std::max(a.end[i], b.end[i]);
  }
  return both;
}

PageSpans reduced(const PageSpans& spans, std::size_t step) {
  PageSpans small;
  for (std::size_t i = 0; i < spans.first.size(); ++i) {
    const std::size_t first = spans.first[i] / step, end = (spans.end[i] + step - 1) / step;
    if (i % step == 0) {
      small.first.push_back(first);
      small.end.push_back(end);
    } else {
      small.first.back() = std::min(small.first.back(), first);
      small.end.back() = std::max(small.end.back(), end);
    }
  }
  return small;
}

PageValues page_values(const HeatMap& map, const HeatPanel& panel, const PageSpans& spans, int bits,
                       bool whole) {
  PageValues values;
  values.cells.reserve(spans.cells() * static_cast<std::size_t>(bits) / 8);
  for (std::size_t i = 0; i < map.rows(); ++i) {
    const HeatRow row = map.row(panel, i);
    const RowFacts facts = facts_of(row);
    append_row(values.cells, row, spans.first[i], spans.end[i], facts, bits);
    append_float(values.rows, whole ? facts.sum : kNan, 32);
    append_float(values.rows, whole ? facts.entropy : kNan, 32);
    append_float(values.rows, facts.min, 32);
    append_float(values.rows, facts.max, 32);
  }
  return values;
}

namespace {

constexpr std::size_t kTags = 120;    // of the script element of one matrix
constexpr std::size_t kFacts = 9792;  // colour maps, titles, notes and policy

std::size_t divided_up(std::size_t count, std::size_t step) { return (count + step - 1) / step; }

std::size_t base85_size(std::size_t bytes) { return divided_up(bytes, 4) * 5; }

std::size_t frame_size() {
  std::size_t size = embedded_page().bytes.size() + embedded_style().bytes.size() + kFacts;
  for (const EmbeddedFile& script : embedded_scripts()) size += script.bytes.size();
  return size;
}

/// An upper bound on the size of the page.
std::size_t size_of(const std::vector<PageSet>& sets, const PageSpans& spans, int bits,
                    std::size_t step) {
  const HeatMap& map = sets[0].map;
  const PageSpans stored = reduced(spans, step);
  const std::size_t rows = stored.first.size();
  const std::size_t matrix = base85_size(stored.cells() * static_cast<std::size_t>(bits) / 8) +
                             base85_size(rows * 16) + kTags;
  std::size_t size = frame_size() + sets.size() * map.panels.size() * matrix;
  size += rows * (std::to_string(map.columns()).size() + 1) * 2;
  for (const auto* labels : {&map.row_labels, &map.column_labels})
    for (std::size_t i = 0; i < labels->size(); i += step)
      size += script_string((*labels)[i]).size() + 1;
  for (const HeatPanel& panel : map.panels)
    size += panel.title().size() + 3 + sets.size() * (std::to_string(panel.matrix).size() + 1);
  return size;
}

std::string hex_table(ColourMap map) {
  std::string text;
  for (int i = 0; i < 256; ++i) {
    const Rgb colour = colour_at(map, i / 255.0);
    for (const std::uint8_t channel : {colour.red, colour.green, colour.blue})
      append_hex(text, channel);
  }
  return text;
}

std::string list(const std::vector<std::size_t>& numbers) {
  std::string out;
  for (const std::size_t number : numbers) out += (out.empty() ? "" : ",") + std::to_string(number);
  return "[" + out + "]";
}

std::string list(const std::vector<std::string>& texts) {
  std::string out;
  for (const std::string& text : texts) out += (out.empty() ? "" : ",") + script_string(text);
  return "[" + out + "]";
}

/// The scale that all sets share.
HeatScale shared_scale(const std::vector<PageSet>& sets) {
  HeatScale scale = sets[0].map.scale;
  for (const PageSet& set : sets) {
    scale.low = std::min(scale.low, set.map.scale.low);
    scale.high = std::max(scale.high, set.map.scale.high);
    scale.is_signed |= set.map.scale.is_signed;
  }
  return scale;
}

/// For each set the name for reading exact values; "null" if not possible or not needed.
std::string sources(const std::vector<PageSet>& sets, const PagePlan& plan) {
  const auto has_key = [](const PageSet& set) { return set.key.has_value(); };
  if (plan.exact || plan.step > 1 || !std::all_of(sets.begin(), sets.end(), has_key)) return "null";
  std::string text;
  for (const PageSet& set : sets) {
    std::vector<std::size_t> matrices;
    for (const HeatPanel& panel : set.map.panels) matrices.push_back(panel.matrix);
    text += (text.empty() ? "" : ",") + ("{\"file\":" + script_string(printable(set.name))) +
            ",\"tensor\":" + script_string(*set.key) + ",\"places\":" + list(matrices) + "}";
  }
  return "[" + text + "]";
}

/// #attn: everything but the values.
std::string facts(const std::vector<PageSet>& sets, const HeatMap& map, const PagePlan& plan) {
  std::vector<std::string> names, titles, notes = map.notes;
  for (const PageSet& set : sets) names.push_back(printable(set.name));
  for (const HeatPanel& panel : map.panels) titles.push_back(panel.title());
  if (!plan.exact) notes.push_back("values rounded to " + std::to_string(plan.bits) + " bits");
  const HeatScale scale = shared_scale(sets);
  const auto member = [](const std::string& key, const std::string& value) {
    return ",\n\"" + key + "\":" + value;
  };
  const auto truth = [](bool value) { return std::string(value ? "true" : "false"); };
  std::string text = "{\"title\":" + script_string(map.title);
  text += member("notes", list(notes)) + member("sets", list(names));
  text += member("rowAxis", script_string(map.row_axis));
  text += member("columnAxis", script_string(map.column_axis));
  text += member("rows", list(map.row_labels)) + member("columns", list(map.column_labels));
  text += member("panels", list(titles)) + member("bits", std::to_string(plan.bits));
  text += member("first", list(plan.spans.first)) + member("end", list(plan.spans.end));
  text += member("sources", sources(sets, plan));
  bool hidden = false, zeros = false, nans = false;
  for (const PageSet& set : sets) {
    hidden |= set.map.has_hidden;
    zeros |= set.map.has_zeros;
    nans |= set.map.has_nans;
  }
  text += member("hidden", hidden ? "\"hidden\"" : zeros ? "\"exactly 0\"" : "\"\"");
  text += member("nan", truth(nans));
  text += member("limits", "[" + python_repr(scale.low) + "," + python_repr(scale.high) + "]");
  text += member("signed", truth(scale.is_signed)) + member("log", truth(scale.logarithmic));
  text += member("maps", "{\"paper\":\"" + hex_table(ColourMap::paper) + "\",\"night\":\"" +
                             hex_table(ColourMap::night) + "\",\"diverging\":\"" +
                             hex_table(ColourMap::diverging) + "\",\"divergingNight\":\"" +
                             hex_table(ColourMap::diverging_night) + "\"}");
  return text + "}";
}

/// A script element whose data `append` writes.
template <class Append>
void append_data(std::string& page, const std::string& id, const std::string& type, Append append) {
  page += "<script type=\"" + type + "\" id=\"" + id + "\">";
  append();
  page += "</script>\n";
}

void append_all_data(std::string& page, const std::vector<PageSet>& sets, const PagePlan& plan) {
  for (std::size_t s = 0; s < sets.size(); ++s) {
    const HeatMap map = reduced(sets[s].map, plan.rows, plan.columns);
    if (s == 0)
      append_data(page, "attn", "application/json", [&] { page += facts(sets, map, plan); });
    for (std::size_t p = 0; p < map.panels.size(); ++p) {
      const PageValues values =
          page_values(map, map.panels[p], plan.spans, plan.bits, plan.step == 1);
      const std::string id = std::to_string(s) + "-" + std::to_string(p);
      append_data(page, "values-" + id, "text/plain", [&] { append_base85(page, values.cells); });
      append_data(page, "rows-" + id, "text/plain", [&] { append_base85(page, values.rows); });
    }
  }
}

std::string policy() {
  std::string scripts;
  for (const EmbeddedFile& script : embedded_scripts()) scripts += " " + hash_source(script);
  return "default-src 'none'; script-src" + scripts + "; style-src " +
         hash_source(embedded_style()) + "; base-uri 'none'; form-action 'none'";
}

std::string scripts() {
  std::string text;
  for (const EmbeddedFile& script : embedded_scripts())
    text.append("<script>").append(script.bytes).append("</script>\n");
  return text;
}

/// The replacement of @NAME@ in the frame.
void append_part(std::string& page, std::string_view name, const std::vector<PageSet>& sets,
                 const PagePlan& plan) {
  if (name == "DATA") return append_all_data(page, sets, plan);
  page += name == "POLICY"      ? policy()
          : name == "GENERATOR" ? "attn " ATTN_VERSION
          : name == "TITLE"     ? markup(sets[0].map.title)
          : name == "STYLE"     ? std::string(embedded_style().bytes)
                                : scripts();
}

std::string megabytes(std::size_t bytes) {
  return short_number(static_cast<double>(bytes) / 1e6) + " MB";
}

}  // namespace

std::string PagePlan::text() const {
  return std::to_string(matrices) + (matrices == 1 ? " matrix of " : " matrices of ") +
         std::to_string(rows) + " x " + std::to_string(columns) + ", " + std::to_string(bits) +
         " bits per value" + (exact ? "" : " (rounded)") +
         (step == 1 ? ""
                    : ", each cell the largest magnitude of " + std::to_string(step) + " x " +
                          std::to_string(step)) +
         ", " + megabytes(bytes);
}

PagePlan plan_page(const std::vector<PageSet>& sets, std::size_t max_bytes) {
  const HeatMap& map = sets[0].map;
  for (const PageSet& set : sets)
    if (set.map.rows() != map.rows() || set.map.columns() != map.columns() ||
        set.map.panels.size() != map.panels.size())
      throw Error(ErrorKind::usage, printable(sets[0].name) + ", " + printable(set.name) +
                                        ": the shapes must be equal to compare them");
  int bits = 32;
  for (const PageSet& set : sets) bits = std::max(bits, set.bits);
  PageSpans spans = spans_of(map);
  for (const PageSet& set : sets) spans = united(spans, spans_of(set.map));
  PagePlan plan{bits, 1, 0, true, sets.size() * map.panels.size(), 0, 0, {}};
  const auto size = [&] { return size_of(sets, spans, plan.bits, plan.step); };
  while (plan.bits > 8 && size() > max_bytes) plan.bits /= 2;
  while (size() > max_bytes && plan.step < std::max(map.rows(), map.columns())) ++plan.step;
  plan.exact = plan.bits == bits;
  plan.bytes = size();
  plan.spans = reduced(spans, plan.step);
  plan.rows = divided_up(map.rows(), plan.step);
  plan.columns = divided_up(map.columns(), plan.step);
  if (plan.bytes > max_bytes)
    throw Error(ErrorKind::usage, "--max-html-bytes: the smallest possible page has " +
                                      megabytes(plan.bytes) + "; choose fewer heads, rows or keys");
  return plan;
}

std::string page_html(const std::vector<PageSet>& sets, const PagePlan& plan) {
  const std::string_view frame = embedded_page().bytes;
  std::string page;
  page.reserve(plan.bytes);
  for (std::size_t at = 0; at < frame.size();) {
    const std::size_t start = std::min(frame.find('@', at), frame.size());
    page += frame.substr(at, start - at);
    if (start == frame.size()) break;
    const std::size_t end = frame.find('@', start + 1);
    append_part(page, frame.substr(start + 1, end - start - 1), sets, plan);
    at = end + 1;
  }
  return page;
}

}  // namespace attn
