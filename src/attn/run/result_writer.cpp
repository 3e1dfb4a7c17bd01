#include "attn/run/result_writer.h"

#include <algorithm>

#include "attn/base/error.h"
#include "attn/base/text.h"
#include "attn/io/json_write.h"
#include "attn/job/labels.h"
#include "attn/job/recorded_positions.h"
#include "attn/job/recorded_visibility.h"

namespace attn {
namespace {

constexpr std::size_t kSmallResult = 1500;  // characters

std::string metadata_text(const Result& result, bool with_tokens) {
  if (!with_tokens || result.tokens.empty()) return to_json(result.made_by);
  Json made_by = result.made_by;
  made_by.get<JsonObject>()->emplace_back("tokens", json_strings(result.tokens));
  return to_json(made_by);
}

/// made_by without the job and its inputs, or with null for the positions.
std::string shortened(const Json& made_by, bool with_job, bool with_positions) {
  JsonObject members;
  for (const auto& [key, value] : *made_by.get<JsonObject>())
    if (with_job || (key != "job" && key != "inputs"))
      members.emplace_back(key, key == kPositionsMember && !with_positions ? Json{} : value);
  return to_json(Json{std::move(members)});
}

/// At most `most` bytes of JSON with visible keys and tokens if they fit, otherwise without the
/// former, or without both. If that is too long, too, it has only what readers need to know of
/// axes, layers and positions, if anything.
std::string short_metadata(const Result& result, std::size_t most) {
  const auto fits = [&](const std::string& text) { return text.size() <= most; };
  if (result.made_by.find(kVisibleMember) != nullptr) {
    std::string text = metadata_text(result, true);
    if (fits(text)) return text;
    Result shorter{{}, {}, result.tokens, result.made_by, {}};
    forget_visibility(shorter.made_by);
    return short_metadata(shorter, most);
  }
  for (const bool with_tokens : {true, false})
    if (std::string text = metadata_text(result, with_tokens); fits(text)) return text;
  if (std::none_of(kLabelMembers.begin(), kLabelMembers.end(), [&](std::string_view member) {
        return result.made_by.find(std::string(member)) != nullptr;
      }))
    return "";
  std::string text = shortened(result.made_by, true, false);
  if (!fits(text)) text = shortened(result.made_by, false, true);
  return fits(text) ? text : shortened(result.made_by, false, false);
}

FileMetadata metadata_in(const FormatRow& format, const Result& result) {
  if (format.metadata == FormatRow::Metadata::one_text)
    return metadata_of(format, short_metadata(result, format.most_metadata));
  return metadata_of(format, metadata_text(result, false),
                     result.tokens.empty() ? "" : to_json(json_strings(result.tokens)));
}

}  // namespace

void append_result_json(std::string& text, const Result& result, int indent,
                        const std::string& members) {
  const bool compact = indent < 0;
  text.reserve(text.size() + kSmallResult);
  text += compact ? "{\"schema\":\"attn/1\"" : "{\n  \"schema\": \"attn/1\"";
  if (!members.empty()) text.append(",").append(members);
  const std::string_view before = compact ? "," : ",\n  ", after = compact ? ":" : ": ";
  const auto member = [&](const std::string& name, const auto& value, int column) {
    text.append(before).append(json_quoted(name)).append(after);
    append_json(text, value, column);
  };
  member("made_by", result.made_by, indent);
  if (!result.tokens.empty()) member("tokens", json_strings(result.tokens), indent);
  for (const auto& [name, tensor] : result.outputs)
    member(name, tensor, compact ? indent : indent + 2);
  text += compact ? "}" : "\n}";
}

std::string result_json(const Result& result, int indent) {
  std::string text;
  append_result_json(text, result, indent);
  return text;
}

FileLayout layout_of(const FormatRow& format, const std::vector<TensorSpec>& specs,
                     const std::vector<std::uint32_t>& checksums, const Result& result,
                     const std::string& path) {
  return format.layout(specs, checksums, metadata_in(format, result), path);
}

ResultWriter::ResultWriter(const std::vector<OutputTarget>& targets,
                           const std::vector<std::string>& outputs, const OutputPolicy& policy)
    : outputs_(outputs) {
  const std::vector<PlannedFile> plans = planned_files(targets, outputs);
  for (const OutputTarget& target : targets)
    if (!target.format) folders_.make(target.path, policy.durable);
  for (const PlannedFile& plan : plans) parts_.push_back({plan, OutputFile(plan.path, policy), {}});
}

void ResultWriter::begin(const Plan& plan, const Result& described) {
  for (const PlannedOutput& output : plan.outputs) {
    const std::string name(name_of(output.request));
    specs_[name] = {name, output.dtype, output.shape};
    std::size_t elements = 1;
    for (std::size_t i = output.query_axis().value_or(0) + 1; i < output.shape.size(); ++i)
      elements *= output.shape[i];
    row_elements_[name] = elements;
  }
  for (Part& part : parts_) {
    std::set<std::string> streamed;
    for (const PlannedOutput& output : plan.outputs)
      if (output.streamed && part.plan.holds(name_of(output.request)))
        streamed.emplace(name_of(output.request));
    if (!streamed.empty()) reserve_rows(part, streamed, described);
  }
}

/// Reserves a region of the file for each of the `streamed` outputs.
void ResultWriter::reserve_rows(Part& part, const std::set<std::string>& streamed,
                                const Result& described) {
  std::vector<TensorSpec> specs;
  for (const std::string& name : names_in(part)) {
    specs.push_back(specs_.at(name));
    specs.back().dtype = part.plan.format->stored_dtype(specs.back().dtype);
  }
  const std::vector<std::uint32_t> unknown(specs.size());
  const std::vector<std::uint64_t> offsets =
      offsets_of(layout_of(*part.plan.format, specs, unknown, described, part.file.path()), specs);
  std::uint64_t end = 0;
  for (std::size_t i = 0; i < specs.size(); ++i) {
    if (!streamed.contains(specs[i].name)) continue;
    const std::size_t row = row_elements_.at(specs[i].name) * size_of(specs[i].dtype);
    part.rows.emplace(specs[i].name, std::make_unique<RowWriter>(part.file, offsets[i], row,
                                                                 part.plan.format->has_checksums));
    end = std::max(end, offsets[i] + specs[i].bytes());
  }
  part.file.reserve(end);
}

void ResultWriter::write_rows(Output output, const RowBlock& block) {
  for (const Part& part : parts_) {
    const auto writer = part.rows.find(name_of(output));
    if (writer == part.rows.end()) continue;
    Tensor kept;
    const RowBlock rows = converted(block, part.plan.format->stored_dtype(block.dtype), kept);
    writer->second->write(rows.first, rows.count, rows.data, rows.stride);
  }
}

std::vector<SharedRegion> ResultWriter::regions() const {
  std::vector<SharedRegion> regions;
  for (const Part& part : parts_)
    for (const auto& [name, rows] : part.rows)
      regions.push_back(rows->shared(name, part.plan.format->stored_dtype(specs_.at(name).dtype)));
  return regions;
}

void ResultWriter::add_written(std::size_t region, const std::string& parts) {
  for (const Part& part : parts_)
    for (const auto& [name, rows] : part.rows)
      if (region-- == 0) return rows->add_written(parts);
}

std::vector<std::string> ResultWriter::names_in(const Part& part) const {
  return part.plan.name.empty() ? outputs_ : std::vector{part.plan.name};
}

void ResultWriter::write(const Result& result) {
  for (Part& part : parts_) {
    if (part.plan.format->is_binary()) {
      write_binary(part, result);
      continue;
    }
    Result chosen{{}, {}, result.tokens, result.made_by, {}};
    for (const std::string& name : names_in(part))
      chosen.outputs.set(name, result.outputs.at(name));
    part.file.write(part.plan.format->is_document()
                        ? result_json(chosen, 2) + "\n"
                        : part.plan.format->text(chosen.outputs, part.file.path()));
  }
}

void ResultWriter::write_binary(Part& part, const Result& result) {
  std::vector<TensorSpec> specs;
  std::vector<Elements> elements;
  for (const std::string& name : names_in(part)) {
    const auto rows = part.rows.find(name);
    const Tensor* tensor = result.outputs.find(name);
    TensorSpec spec = rows != part.rows.end()
                          ? specs_.at(name)
                          : TensorSpec{name, result.outputs.at(name).dtype(), tensor->shape()};
    spec.dtype = part.plan.format->stored_dtype(spec.dtype);
    elements.push_back(rows != part.rows.end() ? Elements{{}, rows->second.get()}
                                               : elements_of(*tensor, spec.dtype));
    specs.push_back(std::move(spec));
  }
  write_elements(*part.plan.format, specs, elements, metadata_in(*part.plan.format, result),
                 part.file);
}

void ResultWriter::finish() {
  for (Part& part : parts_) part.file.finish();
}

void ResultWriter::commit() {
  finish();  // a full disk is noticed before any file is published
  for (Part& part : parts_) part.file.commit();
  folders_.keep();
}

std::vector<std::pair<std::string, std::string>> ResultWriter::digests() const {
  std::vector<std::pair<std::string, std::string>> digests;
  for (const Part& part : parts_) digests.emplace_back(part.file.path(), part.file.digest());
  return digests;
}

}  // namespace attn
