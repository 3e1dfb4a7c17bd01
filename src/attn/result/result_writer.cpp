#include "attn/result/result_writer.h"

#include <algorithm>

#include "attn/base/printable.h"
#include "attn/io/csv.h"
#include "attn/result/result_format.h"

namespace attn {
namespace {

std::string csv_of(const Result& result, const std::string& path) {
  const auto& [name, tensor] = *result.outputs.begin();
  return to_csv(tensor, printable(path) + ": " + printable(name));
}

}  // namespace

ResultWriter::ResultWriter(const std::vector<OutputTarget>& targets,
                           const std::vector<std::string>& outputs, const OutputPolicy& policy)
    : outputs_(outputs) {
  const std::vector<PlannedFile> plans = planned_files(targets, outputs);
  for (const OutputTarget& target : targets)
    if (!target.format) folders_.make(target.path, policy.durable);
  for (const PlannedFile& plan : plans)
    parts_.push_back({plan.name, plan.format, OutputFile(plan.path, policy), {}});
}

void ResultWriter::begin(const Plan& plan, const Result& described) {
  for (const PlannedOutput& output : plan.outputs)
    specs_[output.name] = {output.name, output.dtype, output.shape};
  for (Part& part : parts_) {
    std::set<std::string> streamed;
    for (const PlannedOutput& output : plan.outputs)
      if (output.streamed && part.holds(output.name)) streamed.insert(output.name);
    if (!streamed.empty()) reserve_rows(part, streamed, described);
  }
}

/// Reserves a region of the file for each of the `streamed` outputs.
void ResultWriter::reserve_rows(Part& part, const std::set<std::string>& streamed,
                                const Result& described) {
  std::vector<TensorSpec> specs;
  for (const std::string& name : names_in(part)) {
    specs.push_back(specs_.at(name));
    specs.back().dtype = stored_dtype(part.format, specs.back().dtype);
  }
  const std::vector<std::uint32_t> unknown(specs.size());
  const std::vector<std::uint64_t> offsets =
      offsets_of(layout_of(part.format, specs, unknown, described, part.file.path()), specs);
  std::uint64_t end = 0;
  for (std::size_t i = 0; i < specs.size(); ++i) {
    if (!streamed.contains(specs[i].name)) continue;
    const std::size_t row = specs[i].shape.back() * size_of(specs[i].dtype);
    part.rows.emplace(specs[i].name, std::make_unique<RowWriter>(part.file, offsets[i], row,
                                                                 part.format == Format::npz));
    end = std::max(end, offsets[i] + specs[i].bytes());
  }
  part.file.reserve(end);
}

void ResultWriter::write_rows(const std::string& name, const RowBlock& block) {
  for (const Part& part : parts_) {
    const auto writer = part.rows.find(name);
    if (writer == part.rows.end()) continue;
    Tensor kept;
    const RowBlock rows = converted(block, stored_dtype(part.format, block.dtype), kept);
    writer->second->write(rows.first, rows.count, rows.data, rows.stride);
  }
}

std::vector<std::string> ResultWriter::names_in(const Part& part) const {
  return part.name.empty() ? outputs_ : std::vector{part.name};
}

void ResultWriter::write(const Result& result) {
  for (Part& part : parts_) {
    if (is_binary(part.format)) {
      write_binary(part, result);
      continue;
    }
    Result chosen{{}, {}, result.tokens, result.made_by, {}};
    for (const std::string& name : names_in(part))
      chosen.outputs.set(name, result.outputs.at(name));
    part.file.write(part.format == Format::json ? result_json(chosen, 2) + "\n"
                                                : csv_of(chosen, part.file.path()));
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
    spec.dtype = stored_dtype(part.format, spec.dtype);
    elements.push_back(rows != part.rows.end() ? Elements{{}, rows->second.get()}
                                               : elements_of(*tensor, spec.dtype));
    specs.push_back(std::move(spec));
  }
  const std::vector<std::uint32_t> checksums = part.format == Format::npz
                                                   ? checksums_of(elements, specs)
                                                   : std::vector<std::uint32_t>(specs.size());
  write_layout(layout_of(part.format, specs, checksums, result, part.file.path()), specs, elements,
               part.file);
}

void ResultWriter::commit() {
  for (Part& part : parts_)
    part.file.finish();  // a full disk is noticed before any file is published
  for (Part& part : parts_) part.file.commit();
  folders_.keep();
}

std::vector<std::pair<std::string, std::string>> ResultWriter::digests() const {
  std::vector<std::pair<std::string, std::string>> digests;
  for (const Part& part : parts_) digests.emplace_back(part.file.path(), part.file.digest());
  return digests;
}

}  // namespace attn
