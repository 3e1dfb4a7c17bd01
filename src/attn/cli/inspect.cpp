// attn inspect: lists the tensors in files.
#include <charconv>
#include <cmath>
#include <memory>
#include <optional>

#include "attn/base/error.h"
#include "attn/base/number_text.h"
#include "attn/base/text.h"
#include "attn/base/utf8.h"
#include "attn/cli/all_commands.h"
#include "attn/cli/rendering.h"
#include "attn/cli/shared_options.h"
#include "attn/cli/terminal.h"
#include "attn/io/json_write.h"
#include "attn/metrics/statistics.h"
#include "attn/print/numpy_text.h"
#include "attn/run/result_file.h"

namespace attn {
namespace {

using Row = std::vector<std::string>;

constexpr std::size_t kFirstNumber = 3;  // this column and the next are numbers, aligned right

/// Floats with six digits; --json prints them in full.
std::string cell(const Tensor& value) {
  return is_float(value.dtype()) ? six_digits(cast(value, DType::f64).data<double>()[0])
                                 : numpy_str(value);
}

Row row_of(const std::string& name, const Tensor& tensor) {
  const Statistics statistics = statistics_of(tensor);
  Row row = {name.empty() ? "-" : printable(name),
             std::string(name_of(tensor.dtype())),
             to_string(tensor.shape()),
             "-",
             "-",
             "-",
             std::to_string(statistics.nan),
             std::to_string(statistics.infinite)};
  if (const auto& range = statistics.range) {
    row[3] = cell(range->minimum);
    row[4] = cell(range->maximum);
    row[5] = six_digits(range->mean);
  }
  return row;
}

struct InspectArgs {
  std::vector<std::string> files;
  bool json = false, provenance = false;
  LimitArgs limits;
};

/// The `made_by` of a result, as JSON. Errors: data, if the file has none.
std::string provenance_of(const std::string& file, const InspectArgs& args) {
  TensorFiles files(reading_limits(args.limits, FileAccess::read));
  const std::string& path = parse_tensor_ref(file).path;
  const Json made_by = read_result(path, files).made_by;
  if (made_by.get<JsonObject>() == nullptr)
    fail_data({.where = {path}, .message = "does not record what produced it"});
  return to_json(made_by, args.json ? -1 : 0) + "\n";
}

std::string as_table(const TensorMap& tensors) {
  std::vector<Row> rows = {{"name", "dtype", "shape", "min", "max", "mean", "nan", "inf"}};
  for (const auto& [name, tensor] : tensors) rows.push_back(row_of(name, tensor));
  return aligned_rows(rows, kFirstNumber, rows[0].size());
}

/// One line. min, max and mean are null if all elements are NaN, or there are none.
std::string tensor_as_json(const std::string& path, const std::string& name, const Tensor& tensor) {
  const Statistics statistics = statistics_of(tensor);
  const auto& range = statistics.range;
  const JsonIntegers shape(tensor.shape().begin(), tensor.shape().end());
  std::string line = "{\"file\":" + json_quoted(path);
  line += ",\"name\":" + (name.empty() ? "null" : json_quoted(name));
  line += ",\"dtype\":" + json_quoted(name_of(tensor.dtype()));
  line += ",\"shape\":" + to_json(Json{shape});
  line += ",\"min\":" + (range ? to_json(range->minimum, -1) : "null");
  line += ",\"max\":" + (range ? to_json(range->maximum, -1) : "null");
  line += ",\"mean\":" + (range ? to_json(Json{range->mean}) : "null");
  line += ",\"nan\":" + std::to_string(statistics.nan);
  line += ",\"inf\":" + std::to_string(statistics.infinite);
  return line + "}\n";
}

std::string report_on(const std::string& file, const InspectArgs& args) {
  if (args.provenance) return provenance_of(file, args);
  TensorFiles files(reading_limits(args.limits, FileAccess::read));
  const TensorRef ref = parse_tensor_ref(file);
  const TensorMap tensors = tensors_of(ref, files);
  if (!args.json) return (args.files.size() > 1 ? printable(file) + ":\n" : "") + as_table(tensors);
  std::string lines;
  for (const auto& [name, tensor] : tensors) lines += tensor_as_json(ref.path, name, tensor);
  return lines;
}

/// Prints all readable files, then reports the others. The first error sets the exit code.
int inspect(const InspectArgs& args) {
  std::vector<Problem> faults;
  std::optional<ErrorKind> kind;
  bool first = true;
  for (const std::string& path : args.files) {
    std::string text;
    try {
      text = report_on(path, args);
    } catch (const Error& error) {
      faults.insert(faults.end(), error.problems().begin(), error.problems().end());
      if (!kind) kind = error.kind();
      continue;
    }
    print(first || args.json ? text : "\n" + text);
    first = false;
  }
  if (kind) throw Error(*kind, faults);
  return 0;
}

}  // namespace

Command inspect_command() {
  const auto args = std::make_shared<InspectArgs>();
  Command command;
  command.description =
      "Lists the tensors in files: name, dtype, shape, minimum, maximum, mean, and the numbers of "
      "NaN and infinite elements. Minimum, maximum and mean ignore NaN.";
  command.example = "  attn inspect weights.npz embeddings.npy";
  command.add(required(positional(
      "FILE", args->files, ".npz, .safetensors, .npy, .json or .csv files; - for standard input")));
  command.add(flag("--json", args->json, "print one JSON object per tensor, each on its own line"));
  command.add(
      flag("--provenance", args->provenance,
           "print what produced a result, as JSON: program, job and digests of its inputs"));
  add_limit_options(command, args->limits);
  command.action = [args] { return inspect(*args); };
  return command;
}

}  // namespace attn
