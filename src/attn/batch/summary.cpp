#include "attn/batch/summary.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <optional>
#include <set>
#include <utility>

#include "attn/attention/row_statistics.h"
#include "attn/base/error.h"
#include "attn/base/number_text.h"
#include "attn/base/text.h"
#include "attn/io/csv.h"
#include "attn/io/elements.h"
#include "attn/io/file.h"
#include "attn/io/json_parse.h"
#include "attn/io/open_file.h"
#include "attn/io/output_path.h"
#include "attn/metrics/statistics.h"

namespace attn {
namespace {

constexpr std::string_view kCsvStart = "job,id,item,status,code,seconds", kRowStart = "{\"job\":";

/// Whether rows of the output are weights.
bool is_weights(const std::string& name) {
  const std::optional<Output> output = output_named(name);
  return output && row_of(*output).is_weights;
}

/// The statistic of rows with this name; nullptr if the summary has none.
const RowStatistic* row_statistic_named(const std::string& name) {
  for (const RowStatistic& statistic : kRowStatistics)
    if (statistic.in_batch_summary && name_of(statistic.output) == name) return &statistic;
  return nullptr;
}

/// Whether the summary has a statistic of an output.
bool applies(const std::string& statistic, const std::string& output) {
  return row_statistic_named(statistic) == nullptr || is_weights(output);
}

/// The mean over the rows without NaN and negative numbers. Empty if there are none.
std::optional<double> mean_over_rows(const RowStatistic& statistic, const Tensor& weights) {
  if (weights.rank() == 0 || weights.size() == 0) return std::nullopt;
  const std::size_t columns = weights.shape().back();
  return visit(weights.dtype(), [&]<class T>(Type<T>) -> std::optional<double> {
    if constexpr (std::is_same_v<T, float> || std::is_same_v<T, double>) {
      double sum = 0;
      std::size_t rows = 0;
      const auto elements = weights.data<T>();
      for (std::size_t start = 0; start < elements.size(); start += columns) {
        const double number = statistic.formula(elements.subspan(start, columns), {});
        if (std::isnan(number)) continue;
        sum += number;
        ++rows;
      }
      return rows == 0 ? std::nullopt : std::optional(sum / static_cast<double>(rows));
    }
    return mean_over_rows(statistic, cast(weights, DType::f64));
  });
}

std::string json_of(double number) { return to_json(Json{number}); }

/// Empty: not defined.
std::string statistic(const std::string& name, const std::string& output, const Tensor& tensor,
                      const Statistics& statistics) {
  if (!applies(name, output)) return "";
  if (const RowStatistic* const of_rows = row_statistic_named(name)) {
    const auto mean = mean_over_rows(*of_rows, tensor);
    return mean ? json_of(*mean) : "";
  }
  if (!statistics.range) return "";
  const auto& [minimum, maximum, mean] = *statistics.range;
  std::string text;
  if (name == "mean")
    text = json_of(mean);
  else
    append_json(text, name == "min" ? minimum : maximum, -1);
  return text;
}

}  // namespace

const std::vector<std::string>& statistic_names() {
  static const std::vector<std::string> names = [] {
    std::vector<std::string> list = {"min", "max", "mean"};
    for (const RowStatistic& statistic : kRowStatistics)
      if (statistic.in_batch_summary) list.emplace_back(name_of(statistic.output));
    return list;
  }();
  return names;
}

std::string statistics_json(const TensorMap& outputs, const std::vector<std::string>& chosen) {
  std::string text = "{";
  for (const auto& [output, tensor] : outputs) {
    text += (text.size() > 1 ? "," : "") + json_quoted(output) + ":{\"shape\":[" +
            join(tensor.shape(), ",", [](std::size_t size) { return std::to_string(size); }) + "]";
    const Statistics statistics = statistics_of(tensor);
    for (const std::string& name : chosen)
      if (const std::string value = statistic(name, output, tensor, statistics); !value.empty())
        text += ",\"" + name + "\":" + value;
    text += "}";
  }
  return text + "}";
}

namespace {

bool is_csv_name(const std::string& path) {
  if (path.ends_with(".csv")) return true;
  if (path.ends_with(".ndjson")) return false;
  fail_usage("--summary " + printable(path) + ": expected a name that ends in .csv or .ndjson");
}

/// Whether the file exists and begins like a summary.
bool is_summary(const std::string& path, bool is_csv) {
  try {
    const std::string_view start = is_csv ? kCsvStart : kRowStart;
    return start_of_file(open_result(path), start.size()) == start;
  } catch (const Error&) {
    return false;
  }
}

OutputPolicy replacing(OutputPolicy policy, const std::string& path, bool is_allowed) {
  if (is_allowed) policy.ours.insert(path);
  return policy;
}

std::string folder_of(const std::string& path) {
  const std::size_t slash = path.rfind('/');
  return slash == std::string::npos ? "." : path.substr(0, slash + 1);
}

}  // namespace

SummaryFile::SummaryFile(const std::string& path, OutputPolicy policy, bool replaces_summary,
                         std::vector<std::string> chosen)
    : is_csv_(is_csv_name(path)),
      chosen_(std::move(chosen)),
      file_(path,
            replacing(std::move(policy), path, replaces_summary && is_summary(path, is_csv_))),
      rows_(folder_of(path)) {}

void SummaryFile::add(const Outcome& outcome) {
  std::string row = "{" + identity_members(outcome) +
                    ",\"item\":" + std::to_string(outcome.number) + ",\"status\":\"" +
                    name_of(outcome.status) + "\",\"seconds\":";
  append_number(row, std::round(outcome.seconds * 1e6) / 1e6);
  if (outcome.status == Status::failed) row += ",\"code\":" + std::to_string(outcome.code);
  if (!outcome.statistics.empty())
    row += ",\"outputs\":" + outcome.statistics;
  else if (outcome.status == Status::skipped)
    ++skipped_without_statistics_;
  rows_.append(row + "}\n");
}

/// Calls act(text) for each row, without its newline.
template <class Act>
void SummaryFile::for_each_row(Act act) {
  std::array<std::byte, 65536> bytes;
  std::string rest;
  for (std::uint64_t offset = 0; offset < rows_.size();) {
    const auto part =
        std::span(bytes).first(std::min<std::uint64_t>(bytes.size(), rows_.size() - offset));
    rows_.read(offset, part);
    offset += part.size();
    rest += text_of(part);
    std::size_t start = 0;
    for (std::size_t end; (end = rest.find('\n', start)) != std::string::npos; start = end + 1)
      act(std::string_view(rest).substr(start, end - start));
    rest.erase(0, start);
  }
}

namespace {

Json parsed_row(std::string_view text) {
  MemoryCharge charge(nullptr, "summary");
  return parse_json(text, "summary", charge);
}

/// A member of an object as a field; "" if it is absent.
std::string field_of(const Json* object, const std::string& key) {
  const Json* const member = object ? object->find(key) : nullptr;
  if (member == nullptr) return "";
  const auto text = member->get<std::string>();
  return csv_field(text ? *text : to_json(*member));
}

/// A statistic, of which those that are not finite are strings in JSON.
std::string statistic_field(const Json* output, const std::string& name) {
  const std::string field = field_of(output, name);
  if (field == "NaN") return "nan";
  if (field == "Infinity") return "inf";
  return field == "-Infinity" ? "-inf" : field;
}

/// [4, 4] as "4x4"
std::string shape_field(const Json* output) {
  const Json* const shape = output ? output->find("shape") : nullptr;
  const auto sizes = shape ? shape->get<JsonIntegers>() : nullptr;
  if (sizes == nullptr) return "";
  return join(*sizes, "x", [](std::int64_t size) { return std::to_string(size); });
}

}  // namespace

std::string SummaryFile::csv_header(const std::vector<std::string>& outputs) const {
  std::string line(kCsvStart);
  for (const std::string& output : outputs) {
    line += "," + output + ".shape";
    for (const std::string& name : chosen_)
      if (applies(name, output)) line += "," + output + "." + name;
  }
  return line + "\n";
}

std::string SummaryFile::csv_row(const Json& row, const std::vector<std::string>& outputs) const {
  std::string line;
  for (const char* const key : {"job", "id", "item", "status", "code", "seconds"})
    line += (line.empty() ? "" : ",") + field_of(&row, key);
  const Json* const statistics = row.find("outputs");
  for (const std::string& output : outputs) {
    const Json* const of_output = statistics ? statistics->find(output) : nullptr;
    line += "," + shape_field(of_output);
    for (const std::string& name : chosen_)
      if (applies(name, output)) line += "," + statistic_field(of_output, name);
  }
  return line + "\n";
}

/// The columns of a CSV file are those of all outputs of any job, sorted by name.
void SummaryFile::commit() {
  if (!is_csv_) {
    for_each_row([&](std::string_view row) { file_.write(std::string(row) + "\n"); });
    return file_.commit();
  }
  std::set<std::string> names;
  for_each_row([&](std::string_view text) {
    const Json row = parsed_row(text);
    const Json* const outputs = row.find("outputs");
    const auto object = outputs ? outputs->get<JsonObject>() : nullptr;
    if (object == nullptr) return;
    for (const auto& [name, ignored] : *object) names.insert(name);
  });
  const std::vector<std::string> outputs(names.begin(), names.end());
  file_.write(csv_header(outputs));
  for_each_row([&](std::string_view text) { file_.write(csv_row(parsed_row(text), outputs)); });
  file_.commit();
}

}  // namespace attn
