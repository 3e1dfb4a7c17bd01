#include "attn/batch/item_output.h"

#include <algorithm>
#include <filesystem>

#include "attn/base/printable.h"
#include "attn/result/output_target.h"

namespace attn {
namespace {

bool is_there(const std::string& path) {
  std::error_code ignored;
  return std::filesystem::exists(path, ignored);
}

}  // namespace

std::string folder_of_output(const Naming& naming, const std::string& name) {
  const std::size_t slash = name.rfind('/', name.size() - 2);
  return slash == std::string::npos ? naming.folder : naming.folder + "/" + name.substr(0, slash);
}

void require_one_output(const Job& job, const Naming& naming) {
  if ((naming.suffix != ".npy" && naming.suffix != ".csv") || job.outputs.size() == 1) return;
  throw Error(ErrorKind::usage,
              "--format " + naming.suffix.substr(1) + ": holds one output, found " +
                  std::to_string(job.outputs.size()) + "; --outputs " + job.outputs.front() +
                  " chooses one, --format folder writes a file for each");
}

std::unique_ptr<ResultWriter> writer_of_item(const Item& item, const Common& common, const Job& job,
                                             const TensorFiles& files) {
  const Naming& naming = *common.naming;
  const std::string name = naming.name_of(item);
  const std::vector<OutputTarget> targets = {parse_target(naming.folder + "/" + name)};
  OutputPolicy policy = common.policy;
  policy.inputs.merge(files.paths());
  const std::vector<PlannedFile> plans = planned_files(targets, job.outputs);
  if (common.no_clobber) {
    const auto exists = [](const PlannedFile& plan) { return is_there(plan.path); };
    if (std::all_of(plans.begin(), plans.end(), exists)) throw NothingToAdd{};
    policy.same = true;
  } else if (common.earlier != nullptr) {
    for (const PlannedFile& plan : plans)
      if (common.earlier->wrote(plan.path.substr(naming.folder.size() + 1)))
        policy.ours.insert(plan.path);
    policy.same = true;
  }
  const auto writer = [&] { return std::make_unique<ResultWriter>(targets, job.outputs, policy); };
  if (!policy.durable) {
    try {
      return writer();
    } catch (const Error&) {  // the first in its folder; whatever else it is, comes again
    }
  }
  common.folders->make_with_parents(folder_of_output(naming, name), policy.durable);
  return writer();
}

Error not_ours(const ExistsAlready& error) {
  return Error(error.kind(), printable(error.path) +
                                 ": exists already, is not in the manifest, and is not what this "
                                 "job gives; move it away, or begin anew with --force");
}

}  // namespace attn
