#include "attn/batch/item_output.h"

#include <algorithm>
#include <filesystem>

#include "attn/base/printable.h"
#include "attn/batch/item_document.h"
#include "attn/result/output_target.h"

namespace attn {
namespace {

bool exists(const std::string& path) {
  std::error_code ignored;
  return std::filesystem::exists(path, ignored);
}

bool holds_one_output(const std::string& suffix) { return suffix == ".npy" || suffix == ".csv"; }

}  // namespace

std::string folder_of_output(const Naming& naming, const std::string& name) {
  const std::size_t slash = name.rfind('/', name.size() - 2);
  return slash == std::string::npos ? naming.folder : naming.folder + "/" + name.substr(0, slash);
}

void require_one_output(const Job& job, const Naming& naming) {
  if (!holds_one_output(naming.suffix) || job.outputs.size() == 1) return;
  throw Error(ErrorKind::usage,
              "--format " + naming.suffix.substr(1) + ": a file holds one output, found " +
                  std::to_string(job.outputs.size()) + "; use --outputs " + job.outputs.front() +
                  ", or --format folder for one file per output");
}

void require_one_output(const BatchContext& context, const JobFile& first) {
  const std::string& suffix = context.naming->suffix;
  std::error_code ignored;
  // A pipe is not opened here, since it can be read only once.
  if (!holds_one_output(suffix) || !std::filesystem::is_regular_file(first.path, ignored)) return;
  std::size_t count = 0;
  try {
    const Item item{1, first.path, first.relative};
    std::string id;
    TensorFiles files(*context.files);
    const Document document = ItemDocument(item).read(context, files, id);
    const Entry* const outputs = document.find("outputs");
    const JsonArray* const names = outputs ? outputs->value.get<JsonArray>() : nullptr;
    if (outputs != nullptr && names == nullptr) return;
    if (names != nullptr) count = names->size();
  } catch (const Error&) {
    return;
  }
  if (count == 1) return;
  const std::string found = count == 0 ? "several" : std::to_string(count);
  throw Error(ErrorKind::usage, "--format " + suffix.substr(1) + ": a file holds one output, " +
                                    printable(first.path) + " has " + found +
                                    "; use --outputs weights (for example), or --format "
                                    "folder for one file per output");
}

std::unique_ptr<ResultWriter> writer_of_item(const Item& item, const BatchContext& context,
                                             const Job& job, const TensorFiles& files) {
  const Naming& naming = *context.naming;
  const std::string name = naming.name_of(item);
  const std::vector<OutputTarget> targets = {parse_target(naming.folder + "/" + name)};
  OutputPolicy policy = context.policy;
  policy.inputs.merge(files.paths());
  const std::vector<PlannedFile> plans = planned_files(targets, job.outputs);
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
  const auto writer = [&] { return std::make_unique<ResultWriter>(targets, job.outputs, policy); };
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
                       .message = "exists already, is not in the manifest, and differs from this "
                                  "job's result",
                       .hint = "move it away, or replace it with --force"});
}

}  // namespace attn
