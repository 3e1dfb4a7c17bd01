#include "attn/batch/item_output.h"

#include <algorithm>
#include <filesystem>

#include "attn/base/error.h"
#include "attn/base/text.h"
#include "attn/io/json_write.h"
#include "attn/job/job.h"
#include "attn/run/output_target.h"
#include "attn/tensor/shape.h"

namespace attn {
namespace {

/// A string or a number as JSON; "" for null. Errors: data.
std::string id_json(const Json& id, const std::string& item) {
  double ignored = 0;
  if (id.get<std::nullptr_t>()) return "";
  if (id.get<std::string>() != nullptr || id.as_number(ignored)) return to_json(id);
  fail_data(
      {.where = {item}, .subject = "id", .expected = "a string or a number", .found = id.kind()});
}

/// Errors name the line of standard input, not the line within its text, which is always 1.
Document document_of_line(const Item& item, const KeySelection& only, std::string& id,
                          ReadBudget& budget) {
  Json id_value;
  try {
    Document document = parse_document(*item.line, item.name, "", &budget, &id_value, only);
    id = id_json(id_value, item.name);
    return document;
  } catch (const Error& error) {
    if (id_value.get<std::string>() != nullptr || id_value.get<std::int64_t>() != nullptr)
      id = to_json(id_value);
    std::vector<Problem> problems = error.problems();
    for (Problem& problem : problems) problem.line = 0;
    throw Error(error.kind(), std::move(problems), error.omitted());
  }
}

Document document_of_inputs(const Item& item) {
  Document document;
  document.name = item.name;
  for (const auto& [key, file] : item.inputs) document.set({key, Json{file}, item.name, ""});
  return document;
}

/// In bytes; 0 if it is not a regular file.
std::size_t size_of_file(const std::string& path) {
  std::error_code error;
  const std::uintmax_t size = std::filesystem::file_size(path, error);
  return error ? 0 : static_cast<std::size_t>(size);
}

/// Memory for the text and its numbers. A number in binary takes up to four times the space of its
/// shortest text ("1,").
std::size_t memory_for(const Item& item) {
  if (item.line) return item.line->size() * 4;
  if (!item.inputs.empty()) return 0;
  return saturating_product({size_of_file(item.name), is_job_document(item.name) ? 5U : 1U});
}

}  // namespace

ItemDocument::ItemDocument(const Item& item) : item_(item), memory_(memory_for(item)) {}

Document ItemDocument::read(const BatchContext& context, TensorFiles& files, std::string& id) {
  if (!context.base_file.empty()) files.file(context.base_file);
  Document document = context.base;
  document.set_all(read_own(context.only, files, id));
  return document;
}

/// The file is not added to the shared cache, since no other job reads it.
Document ItemDocument::read_own(const KeySelection& only, TensorFiles& files, std::string& id) {
  if (item_.line) return document_of_line(item_, only, id, files.budget());
  if (!item_.inputs.empty()) return document_of_inputs(item_);
  FileBytes file = pipe_contents_ ? *pipe_contents_ : read_file(item_.name, files.limits().memory);
  if (memory_ == 0) pipe_contents_ = file;
  files.add(std::move(file));
  return read_document(item_.name, files, only);
}

namespace {

bool exists(const std::string& path) {
  std::error_code ignored;
  return std::filesystem::exists(path, ignored);
}

bool holds_one_output(const Naming& naming) {
  return naming.format() != nullptr && naming.format()->holds_one();
}

}  // namespace

std::string folder_of_output(const Naming& naming, const std::string& name) {
  const std::size_t slash = name.rfind('/', name.size() - 2);
  return slash == std::string::npos ? naming.folder : naming.folder + "/" + name.substr(0, slash);
}

void require_one_output(const Job& job, const Naming& naming) {
  if (!holds_one_output(naming) || job.outputs.size() == 1) return;
  fail_usage("--format " + naming.suffix.substr(1) + ": a file holds one output, found " +
             std::to_string(job.outputs.size()) + "; use --outputs " +
             std::string(name_of(job.outputs.front())) +
             ", or --format folder for one file per output");
}

void require_one_output(const BatchContext& context, const JobFile& first) {
  const std::string& suffix = context.naming->suffix;
  std::error_code ignored;
  // A pipe is not opened here, since it can be read only once.
  if (!holds_one_output(*context.naming)) return;
  if (first.inputs.empty() && !std::filesystem::is_regular_file(first.path, ignored)) return;
  std::size_t count = 0;
  try {
    const Item item{
        .number = 1, .name = first.path, .relative = first.relative, .inputs = first.inputs};
    std::string id;
    TensorFiles files(*context.files);
    const Document document = ItemDocument(item).read(context, files, id);
    const Entry* const outputs = document.find("outputs");
    const auto names = outputs ? outputs->value.get<JsonArray>() : nullptr;
    if (outputs != nullptr && names == nullptr) return;
    if (names != nullptr) count = names->size();
  } catch (const Error&) {
    return;
  }
  if (count == 1) return;
  const std::string found = count == 0 ? "several" : std::to_string(count);
  fail_usage("--format " + suffix.substr(1) + ": a file holds one output, " +
             printable(first.path) + " has " + found +
             "; use --outputs weights (for example), or --format "
             "folder for one file per output");
}

std::unique_ptr<ResultWriter> writer_of_item(const Item& item, const BatchContext& context,
                                             const Job& job) {
  const Naming& naming = *context.naming;
  const std::string name = naming.name_of(item);
  const std::vector<OutputTarget> targets = {parse_target(naming.folder + "/" + name)};
  OutputPolicy policy = context.policy;
  const std::vector<std::string> outputs = names_of(job.outputs);
  const std::vector<PlannedFile> plans = planned_files(targets, outputs);
  if (context.no_clobber) {
    const auto is_complete = [](const PlannedFile& plan) { return exists(plan.path); };
    if (std::all_of(plans.begin(), plans.end(), is_complete)) throw ResultExists{};
    policy.same = true;
  } else if (context.earlier != nullptr) {
    for (const PlannedFile& plan : plans)
      if (context.earlier->has_output(plan.path.substr(naming.folder.size() + 1)))
        policy.ours.insert(plan.path);
    policy.same = true;
  }
  const auto writer = [&] { return std::make_unique<ResultWriter>(targets, outputs, policy); };
  if (!policy.durable) {
    try {
      return writer();
    } catch (const Error&) {  // the folder may be missing; another error will occur again below
    }
  }
  context.folders->make_with_parents(folder_of_output(naming, name), policy.durable);
  return writer();
}

Error foreign_file_error(const ExistsAlready& error) {
  return Error(error.kind(),
               Problem{.where = {error.path},
                       .message = "already exists, is not in the manifest and differs from this "
                                  "job's result",
                       .hint = "move it away, or replace it with --force"});
}

}  // namespace attn
