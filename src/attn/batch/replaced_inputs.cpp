#include "attn/batch/replaced_inputs.h"

#include <filesystem>
#include <set>
#include <utility>

#include "attn/base/error.h"
#include "attn/base/text.h"
#include "attn/batch/item_output.h"
#include "attn/job/job.h"
#include "attn/model/layer_series.h"
#include "attn/model/model_job.h"
#include "attn/result/output_target.h"

namespace attn {
namespace fs = std::filesystem;
namespace {

/// The files of a model, and its hidden states.
std::set<std::string> files_of_model(const Document& document, TensorFiles& files) {
  const ModelReference reference = model_of(document);
  const ModelLayers model(reference.folder, files);
  std::set<std::string> paths = files.paths_of({model.facts().checkpoint, ""});
  const Entry* const hidden = document.find("hidden");
  const auto name = hidden ? hidden->value.get<std::string>() : nullptr;
  if (name == nullptr) return paths;
  const std::string path = parse_tensor_ref(path_in(hidden->folder, *name)).path;
  const std::int64_t layers = names_layer(path) ? model.count(reference.stack) : 1;
  for (std::int64_t layer = 0; layer < layers; ++layer) paths.insert(name_of_layer(path, layer));
  return paths;
}

/// The existing files of a result that is a folder.
void add_folder(const Item& item, const Document& document, const Naming& naming,
                ReplacedFiles& replaced) {
  const std::string folder = naming.path_of(item);
  std::error_code ignored;
  if (!fs::is_directory(folder, ignored)) return;
  std::vector<std::string> names = {"scores", "weights", "context", "output"};  // by default
  const Entry* const outputs = document.find("outputs");
  if (const auto given = outputs ? outputs->value.get<JsonArray>() : nullptr) {
    names.clear();
    for (const Json& name : *given)
      if (const auto text = name.get<std::string>()) names.push_back(*text);
  }
  for (const PlannedFile& plan : planned_files({parse_target(folder)}, names))
    if (const auto file = id_of_file(plan.path)) replaced.try_emplace(*file, plan.path);
}

/// Notes the job file and the files that it names. Adds the files that its result would replace to
/// `replaced` if the result is a folder.
void read_in_advance(const Item& item, const BatchContext& context, ReplacedFiles* replaced) {
  std::error_code ignored;
  if (item.inputs.empty() && !fs::is_regular_file(item.name, ignored)) return;  // a pipe
  TensorFiles files(*context.files);
  std::set<std::string> paths;
  try {
    std::string id;
    const Document document = ItemDocument(item).read(context, files, id);
    if (replaced != nullptr) add_folder(item, document, *context.naming, *replaced);
    paths = files_to_read(document, files);
    if (document.find("model") != nullptr) paths.merge(files_of_model(document, files));
  } catch (const Error&) {  // reported by the job
  }
  for (const std::string& path : paths) note_input(path);  // files that were read are noted
}

/// The same for all paths that lead to one file, also if it does not exist.
fs::path place_of(const std::string& path) {
  std::error_code error;
  const fs::path place = fs::weakly_canonical(fs::absolute(follow_links(path), error), error);
  return error ? fs::path(path) : place;
}

}  // namespace

void refuse_replaced_inputs(const std::vector<JobFile>& files, const BatchContext& context,
                            const Shard& shard, ReplacedFiles replaced) {
  const bool in_folders = context.naming->suffix == "/";
  if (replaced.empty() && !in_folders) return;
  for (std::size_t i = 0; i < files.size(); ++i)
    read_in_advance({.number = i + 1,
                     .name = files[i].path,
                     .relative = files[i].relative,
                     .inputs = files[i].inputs},
                    context, in_folders && shard.has(i + 1) ? &replaced : nullptr);
  for (const auto& [file, path] : replaced) require_unused(file, path);
}

void refuse_name_of_result(const std::vector<JobFile>& files, const Naming& naming,
                           const std::string& flag, const std::string& path) {
  const fs::path place = place_of(path);
  const std::string name = "/" + place.filename().string();
  if (path.empty() || naming.bundle > 0 || !name.ends_with(naming.suffix)) return;
  for (std::size_t i = 0; i < files.size(); ++i) {
    const std::string result = naming.path_of({i + 1, files[i].path, files[i].relative});
    if (result.ends_with(name) && place_of(result) == place)
      throw Error(ErrorKind::cannot_create,
                  Problem{.where = {flag + " " + printable(path)},
                          .message = "is the result of " + printable(files[i].path)});
  }
}

}  // namespace attn
