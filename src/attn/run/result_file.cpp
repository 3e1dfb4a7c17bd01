#include "attn/run/result_file.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <utility>

#include "attn/base/error.h"
#include "attn/base/text.h"
#include "attn/io/json_parse.h"
#include "attn/io/tensor_part.h"
#include "attn/job/recorded_positions.h"
#include "attn/job/recorded_visibility.h"

namespace attn {
namespace {

std::vector<std::string> strings(const Json& json) {
  std::vector<std::string> list;
  const auto items = json.get<JsonArray>();
  if (items == nullptr) return list;
  for (const Json& item : *items) {
    const auto text = item.get<std::string>();
    if (text == nullptr) return {};
    list.push_back(*text);
  }
  return list;
}

/// Null if the text is not JSON: comments and metadata of other programs are free text. Errors:
/// data, if it takes more memory than `budget` has left.
Json parsed(const std::string& text, const std::string& name, ReadBudget& budget) {
  MemoryCharge charge(&budget, name);
  try {
    return text.empty() ? Json{} : parse_json(text, name, charge);
  } catch (const Error&) {
    if (budget.has_refused()) throw;
    return {};
  }
}

/// The text of made_by; empty if there is none.
std::string made_by_in(const FileMetadata& metadata) {
  for (const auto& [key, text] : metadata)
    if (key.empty() || key == "made_by") return text;
  return "";
}

}  // namespace

Json read_made_by(const std::string& path, TensorFiles& files) {
  const FileBytes& file = files.file(path);
  if (format_of(file).metadata == FormatRow::Metadata::members) {
    const bool has_made_by = file.text().find("\"made_by\"") != std::string::npos;
    const Json* made_by = has_made_by ? files.document(path).find("made_by") : nullptr;
    return made_by == nullptr ? Json{} : *made_by;
  }
  return parsed(made_by_in(files.metadata(path)), printable(path), files.budget());
}

const Json& made_by_of(const Json& made_by, const std::string& tensor) {
  static const Json none;
  const Json* jobs = made_by.find("jobs");
  if (jobs == nullptr) return made_by;
  const Json* job = jobs->find(text_of_name(tensor.substr(0, tensor.rfind('/'))));
  return job == nullptr ? none : *job;
}

const Json* ResultFile::job(const std::string& key) const {
  const Json* job = made_by.find("job");
  return job == nullptr ? nullptr : job->find(key);
}

Labels ResultFile::labels(const std::string& name) const {
  if (const auto part = parts.find(name); part != parts.end()) return part->second;
  return labels_in(made_by_of(made_by, name), name.substr(name.rfind('/') + 1),
                   tensors.at(name).shape());
}

ResultFile read_result(const std::string& path, TensorFiles& files) {
  ResultFile result;
  const FileBytes& file = files.file(path);
  const FormatRow& format = format_of(file);
  ReadBudget& budget = files.budget();
  if (format.index != FormatRow::Index::none) {
    FileMetadata metadata;
    result.tensors = format.read(file, &metadata, files.limits(), &budget);
    result.made_by = parsed(made_by_in(metadata), printable(path), budget);
    if (const Json* tokens = result.made_by.find("tokens")) result.tokens = strings(*tokens);
    for (const auto& [key, value] : metadata)
      if (key == "tokens" || key == "key_tokens")
        (key == "tokens" ? result.tokens : result.key_tokens) =
            strings(parsed(value, printable(path), budget));
    return result;
  }
  result.tensors = files.all(path);
  if (format.names_rows) {
    CsvNames names = files.csv_names(path);
    result.tokens = std::move(names.rows);
    result.column_names = std::move(names.columns);
  }
  if (format.metadata != FormatRow::Metadata::members) return result;
  MemoryCharge charge(&budget, path);
  const Json document = parse_json(file.text(), path, charge);
  if (const Json* tokens = document.find("tokens")) result.tokens = strings(*tokens);
  if (const Json* made_by = document.find("made_by")) result.made_by = *made_by;
  return result;
}

namespace {

/// The elements of an axis of a part.
std::vector<std::int64_t> selected(std::vector<std::int64_t> numbers, const AxisOfPart& axis) {
  for (const std::vector<ElementRange>& ranges : axis.selections) {
    std::vector<std::int64_t> kept;
    for (const auto& [first, last] : ranges)
      kept.insert(kept.end(), numbers.begin() + static_cast<std::ptrdiff_t>(first),
                  numbers.begin() + static_cast<std::ptrdiff_t>(last));
    numbers = std::move(kept);
  }
  return numbers;
}

Labels labels_of_part(const Labels& whole, const std::vector<AxisOfPart>& axes) {
  Labels labels;
  for (const AxisOfPart& axis : axes) {
    if (whole.axes.empty()) break;
    labels.axes.push_back(whole.axes[axis.axis]);
    if (labels.axes.back() == "layer" && !whole.layers.empty())
      labels.layers = selected(whole.layers, axis);
  }
  return labels;
}

/// Whether the matrices of a part are matrices of its tensor, which has `rank` axes.
bool has_whole_matrices(const std::vector<AxisOfPart>& axes, std::size_t rank) {
  const std::size_t count = axes.size();
  return count >= 2 && axes[count - 2].is_whole() && axes[count - 2].axis == rank - 2 &&
         axes[count - 1].is_whole() && axes[count - 1].axis == rank - 1;
}

}  // namespace

void add_tensor(const TensorRef& ref, const std::string& name, TensorFiles& files,
                ResultFile& result) {
  const NamedPart named = files.named_part(ref);
  Shape shape;
  result.tensors.set(name, files.read(ref, &shape));
  result.made_by = Json(made_by_of(result.made_by, named.name));
  if (named.part.empty()) return;
  const std::vector<AxisOfPart> axes = axes_of_part(shape, named.part);
  const std::string own_name = named.name.substr(named.name.rfind('/') + 1);
  result.parts[name] = labels_of_part(labels_in(result.made_by, own_name, shape), axes);
  const bool has_matrices = has_whole_matrices(axes, shape.size());
  if (!has_matrices) forget_positions(result.made_by);
  if (!has_matrices || !is_same_for_all(result.made_by)) forget_visibility(result.made_by);
}

}  // namespace attn
