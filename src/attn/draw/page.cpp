#include "attn/draw/page.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstdint>
#include <optional>
#include <vector>

#include "attn/base/error.h"
#include "attn/base/number_text.h"
#include "attn/base/text.h"
#include "attn/draw/binary_text.h"
#include "attn/draw/joint_labels.h"
#include "attn/draw/markup.h"
#include "attn/draw/page_elements.h"

extern "C" {
extern const char attn_font_begin[], attn_font_end[], attn_font_sha256[];
extern const char attn_page_begin[], attn_page_end[], attn_page_sha256[];
extern const char attn_style_begin[], attn_style_end[], attn_style_sha256[];
extern const char attn_steps_begin[], attn_steps_end[], attn_steps_sha256[];
extern const char attn_module_begin[], attn_module_end[], attn_module_sha256[];
}

namespace attn {

EmbeddedFile embedded_font() { return {{attn_font_begin, attn_font_end}, attn_font_sha256}; }
EmbeddedFile embedded_page() { return {{attn_page_begin, attn_page_end}, attn_page_sha256}; }
EmbeddedFile embedded_style() { return {{attn_style_begin, attn_style_end}, attn_style_sha256}; }

EmbeddedFile embedded_module() {
  return {{attn_module_begin, attn_module_end}, attn_module_sha256};
}

EmbeddedFile embedded_steps_style() {
  return {{attn_steps_begin, attn_steps_end}, attn_steps_sha256};
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

/// For each set where the exact values are; "null" if not possible or not needed.
std::string sources(const std::vector<PageSet>& sets, const PagePrecision& precision) {
  const auto has_source = [](const PageSet& set) { return set.source.has_value(); };
  const bool all = precision.exact && precision.step == 1;
  if (all || !std::all_of(sets.begin(), sets.end(), has_source)) return "null";
  return "[" +
         join(sets, ",",
              [](const PageSet& set) {
                const auto& [dtype, offset, packed, file_size] = *set.source;
                std::vector<std::size_t> matrices;
                for (const HeatPanel& panel : set.map.panels) matrices.push_back(panel.matrix);
                return "{\"file\":" + script_string(printable(set.name)) +
                       ",\"size\":" + std::to_string(file_size) + ",\"dtype\":\"" +
                       std::string(name_of(dtype)) + "\",\"offset\":" + std::to_string(offset) +
                       ",\"packed\":" +
                       (packed ? list(std::vector<std::size_t>{packed->begin, packed->size})
                               : "null") +
                       ",\"places\":" + list(matrices) + "}";
              }) +
         "]";
}

/// Six significant digits.
std::string short_decimal(double number) {
  char digits[32];
  const auto end =
      std::to_chars(digits, digits + sizeof digits, number, std::chars_format::general, 6);
  return {digits, end.ptr};
}

/// [0.5,...]; null for numbers that are not finite.
template <class Items, class NumberOf>
std::string numbers(const Items& items, NumberOf number_of) {
  return "[" +
         join(items, ",",
              [&](const auto& item) {
                const double number = number_of(item);
                return std::isfinite(number) ? short_decimal(number) : std::string("null");
              }) +
         "]";
}

/// For each set those of its heads.
template <class NumberOf>
std::string of_sets(const PageSurvey& survey, NumberOf number_of) {
  return join(survey.summaries, ",", [&](const auto& heads) { return numbers(heads, number_of); });
}

double largest_of(const HeadSummary& head) { return head.largest; }

/// Beside the order of heads by this statistic.
std::string note_of(const RowStatistic& statistic, bool has_sinks) {
  std::string note(statistic.page_note);
  if (has_sinks && statistic.summary == Summary::share)
    note += (note.empty() ? "" : ", ") + std::string("divided by the sums of the weights");
  return note;
}

/// {"name":"entropy","title":"entropy","note":"","of":[[...],[...]]}, for each statistic; null for
/// NaN.
std::string statistics(const PageSurvey& survey, bool has_sinks) {
  std::string text;
  const auto member = [&](std::string_view name, std::string_view title, const std::string& of,
                          std::string_view note = "") {
    text += (text.empty() ? "{" : ",{") + ("\"name\":\"" + std::string(name)) + "\",\"title\":\"" +
            std::string(title) + "\",\"note\":\"" + std::string(note) + "\",\"of\":[" + of + "]}";
  };
  if (!survey.differences.empty())
    member("difference", "largest difference",
           numbers(survey.differences, [](double number) { return number; }));
  if (survey.has_statistics())
    for (std::size_t k = 0; k < kRowStatistics.size(); ++k)
      if (const RowStatistic& statistic = kRowStatistics[k]; statistic.is_on_page())
        member(statistic.page_name, statistic.page_title,
               of_sets(survey, [k](const HeadSummary& head) { return head.statistics[k]; }),
               note_of(statistic, has_sinks));
  if (survey.has_statistics())
    member("largest", "largest weight",
           of_sets(survey, [](const HeadSummary& head) { return head.largest_of_several; }),
           "without queries that read one key");
  else
    member("largest", "largest magnitude", of_sets(survey, largest_of));
  return text;
}

/// As the page calls it.
std::string curve_name(Curve curve) {
  return curve == Curve::linear ? "linear" : curve == Curve::root ? "root" : "log";
}

/// The matrix without its group: "head 3".
std::string name_in_group(const HeatPanel& panel) {
  return panel.name.empty() ? panel.group : panel.name;
}

/// "layer 2", also if it is the only one.
std::string group_of(const HeatPanel& panel) {
  return panel.group.empty() && panel.layer ? "layer " + std::to_string(*panel.layer) : panel.group;
}

/// #attn: everything but the values. `steps` is JSON: an object, why there is none, or null.
std::string facts(const std::vector<PageSet>& sets, const PagePrecision& precision,
                  const PageSurvey& survey, const PageLayout& layout, const std::string& steps) {
  const PageSpans spans = reduced(survey.spans, precision.step);
  const HeatMap& map = sets[0].map;
  std::vector<std::string> names, heads, groups, notes = map.notes;
  for (const PageSet& set : sets) names.push_back(printable(set.name));
  for (const HeatPanel& panel : map.panels) heads.push_back(name_in_group(panel));
  const std::vector<std::size_t> ends = group_ends(map);
  for (const std::size_t end : ends) groups.push_back(group_of(map.panels[end - 1]));
  const JointLabels rows = joint_row_labels(sets), columns = joint_column_labels(sets);
  if (rows.different || columns.different)
    notes.push_back("tokens of " + names[0] + " / " + names[1] + " where they differ");
  if (!precision.exact)
    notes.push_back("values rounded to " + std::to_string(precision.bits) + " bits");
  const std::string step = std::to_string(precision.step);
  if (precision.step > 1)
    notes.push_back("values are the largest magnitudes of blocks of " + step + " x " + step +
                    " cells");
  const HeatScale scale = shared_scale(sets);
  const auto member = [](const std::string& key, const std::string& value) {
    return ",\n\"" + key + "\":" + value;
  };
  const auto truth = [](bool value) { return std::string(value ? "true" : "false"); };
  std::string text = "{\"title\":" + script_string(map.title);
  text += member("notes", list(notes)) + member("sets", list(names));
  // Statistics are those of queries and keys, so arrays that have them have these axes.
  const bool unnamed = map.row_axis == "rows" && map.column_axis == "columns";
  const bool reads = unnamed && survey.has_statistics();
  text += member("rowAxis", script_string(reads ? "queries" : map.row_axis));
  text += member("columnAxis", script_string(reads ? "keys" : map.column_axis));
  text += member("rows", list(rows.labels)) + member("columns", list(columns.labels));
  text += member("heads", list(heads)) + member("groups", list(groups));
  text += member("groupEnds", list(ends));
  text += member("bits", std::to_string(precision.bits));
  text += member("step", std::to_string(precision.step));
  text += member("first", list(spans.first)) + member("end", list(spans.end));
  text += member("sources", sources(sets, precision));
  const auto each = [&](bool HeatMap::*has) {
    return "[" + join(sets, ",", [&](const PageSet& set) { return truth(set.map.*has); }) + "]";
  };
  text += member("hidden", each(&HeatMap::has_hidden)) + member("zeros", each(&HeatMap::has_zeros));
  text += member("nan", each(&HeatMap::has_nans)) + member("areWeights", truth(are_weights(sets)));
  text += member("limits", "[" + python_repr(scale.low) + "," + python_repr(scale.high) + "]");
  text += member("signed", truth(scale.is_signed)) +
          member("curve", "\"" + curve_name(scale.curve) + "\"");
  text += member("chosenLimits", truth(map.has_chosen_limits));
  text += member("maps", "{\"paper\":\"" + hex_table(ColourMap::paper) + "\",\"night\":\"" +
                             hex_table(ColourMap::night) + "\",\"diverging\":\"" +
                             hex_table(ColourMap::diverging) + "\",\"divergingNight\":\"" +
                             hex_table(ColourMap::diverging_night) + "\"}");
  const auto blocks = [](const BlockSize& size) {
    return "[" + std::to_string(size.tall) + "," + std::to_string(size.wide) + "]";
  };
  text += member("unit", python_repr(layout.unit)) + member("overview", blocks(layout.overview));
  text += member("opening", std::to_string(layout.opening));
  text += member("gradient", truth(sets[0].is_gradient));
  text += member("chunk", std::to_string(kPageChunk));
  text += member("pyramid", "[" + join(layout.pyramid, ",", blocks) + "]");
  text += member("largest", "[" + of_sets(survey, largest_of) + "]");
  const bool has_sinks = sets[0].steps && !sets[0].steps->sinks.empty();
  text += member("statistics", "[" + statistics(survey, has_sinks) + "]") + member("why", steps);
  return text + "}";
}

std::string policy() {
  return "default-src 'none'; script-src " + hash_source(embedded_module()) + "; style-src " +
         hash_source(embedded_style()) + "; base-uri 'none'; form-action 'none'";
}

/// The frame with its parts. `data` follow the module.
std::string framed(const std::string& title, const std::string& facts,
                   const std::vector<std::string_view>& data) {
  const std::string_view frame = embedded_page().bytes;
  std::size_t size = 0;
  for (const std::string_view part : data) size += part.size();
  std::string page;
  page.reserve(frame.size() + embedded_style().bytes.size() + embedded_module().bytes.size() +
               facts.size() + size + 1000);
  for (std::size_t at = 0; at < frame.size();) {
    const std::size_t start = std::min(frame.find('@', at), frame.size());
    page += frame.substr(at, start - at);
    if (start == frame.size()) break;
    const std::size_t end = frame.find('@', start + 1);
    const std::string_view name = frame.substr(start + 1, end - start - 1);
    if (name == "POLICY") page += policy();
    if (name == "GENERATOR") page += "attn " ATTN_VERSION;
    if (name == "TITLE") page += markup(title);
    if (name == "STYLE") page += embedded_style().bytes;
    if (name == "FACTS") page += facts;
    if (name == "MODULE") page += embedded_module().bytes;
    if (name == "DATA")
      for (const std::string_view part : data) page += part;
    at = end + 1;
  }
  return page;
}

std::string megabytes(std::size_t bytes) {
  return short_number(static_cast<double>(bytes) / 1e6) + " MB";
}

std::string description(const std::vector<PageSet>& sets, const PagePrecision& precision,
                        std::size_t bytes) {
  const HeatMap& map = sets[0].map;
  const std::size_t matrices = sets.size() * map.panels.size();
  const std::string step = std::to_string(precision.step);
  return std::to_string(matrices) + (matrices == 1 ? " matrix of " : " matrices of ") +
         std::to_string(map.rows()) + " x " + std::to_string(map.columns()) + ", " +
         std::to_string(precision.bits) + " bits per value" +
         (precision.exact ? "" : " (rounded)") +
         (precision.step == 1
              ? ""
              : ", each the largest magnitude of " + step + " x " + step + " cells") +
         ", " + megabytes(bytes);
}

}  // namespace

namespace {

/// That of its matrices, with their number if there are several.
std::string shape_of(const PageSet& set) {
  Shape shape = {set.map.rows(), set.map.columns()};
  if (set.map.panels.size() != 1) shape.insert(shape.begin(), set.map.panels.size());
  return to_string(shape);
}

}  // namespace

namespace {

/// The part of a page that says how weights came about.
struct StepsPart {
  std::string json = "null", elements;
};

/// Without the numbers, which do not fit or do not exist.
StepsPart without_steps(const std::vector<PageSet>& sets) {
  const PageSet& set = sets[0];
  if (sets.size() > 1 || (!set.steps && set.no_steps.empty())) return {};
  return {
      script_string(set.steps ? "Queries and keys did not fit into this page: draw fewer heads, "
                                "or raise --max-html-bytes."
                              : set.no_steps),
      ""};
}

}  // namespace

Page make_page(const std::vector<PageSet>& sets, std::size_t max_bytes, std::size_t threads) {
  const HeatMap& map = sets[0].map;
  for (const PageSet& set : sets)
    if (set.map.rows() != map.rows() || set.map.columns() != map.columns() ||
        set.map.panels.size() != map.panels.size())
      fail_usage(printable(sets[0].name) + ", " + printable(set.name) +
                 ": shapes differ: " + shape_of(sets[0]) + " and " + shape_of(set));
  kernel::ThreadPool pool(threads);
  const PageSurvey survey = survey_of(sets, pool);
  PagePrecision precision{32, 1, true};
  for (const PageSet& set : sets) precision.bits = std::max(precision.bits, set.bits);
  const int exact_bits = precision.bits;
  const StepsPart no_steps = without_steps(sets);
  std::optional<StepsPart> steps;
  if (sets.size() == 1 && sets[0].steps)
    if (auto all = steps_elements(*sets[0].steps, map, max_bytes, pool))
      steps = StepsPart{steps_json(*sets[0].steps, map), std::move(*all)};
  while (true) {
    const PageLayout layout = layout_of(sets, survey, precision);
    std::string json = facts(sets, precision, survey, layout, no_steps.json);
    const std::size_t fixed = framed(map.title, json, {}).size();
    const bool is_smallest =
        precision.bits <= 8 && precision.step >= std::max(map.rows(), map.columns());
    const std::size_t space = is_smallest ? SIZE_MAX : fixed < max_bytes ? max_bytes - fixed : 0;
    std::optional<PageElements> elements =
        page_elements(sets, survey, layout, precision, space, pool);
    if (elements && fixed + elements->size() > max_bytes)
      fail_usage("--max-html-bytes: the smallest page has " +
                 std::to_string(fixed + elements->size()) +
                 " bytes; choose fewer heads, rows or keys");
    if (elements) {
      std::vector<std::string_view> parts = {elements->overview, elements->opening,
                                             elements->pyramid};
      parts.insert(parts.end(), elements->values.begin(), elements->values.end());
      // Values of blocks do not say which keys are hidden.
      if (steps && precision.step == 1 &&
          fixed - no_steps.json.size() + steps->json.size() + elements->size() +
                  steps->elements.size() <=
              max_bytes) {
        json = facts(sets, precision, survey, layout, steps->json);
        parts.push_back(steps->elements);
      }
      Page page{framed(map.title, json, parts), ""};
      page.text = description(sets, precision, page.html.size());
      return page;
    }
    if (precision.bits > 8) {
      precision.bits /= 2;
    } else {  // the next step; its values have at least a ninth fewer bytes
      precision.step += precision.step / 16 + 1;
    }
    precision.exact = precision.bits == exact_bits;
  }
}

}  // namespace attn
