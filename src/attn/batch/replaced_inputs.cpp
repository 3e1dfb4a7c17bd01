#include "attn/batch/replaced_inputs.h"

#include <algorithm>
#include <filesystem>
#include <iterator>
#include <new>
#include <set>
#include <utility>

#include "attn/base/error.h"
#include "attn/base/text.h"
#include "attn/batch/item_output.h"
#include "attn/job/field_value.h"
#include "attn/job/job.h"
#include "attn/model/layer_series.h"
#include "attn/model/model_job.h"
#include "attn/run/output_target.h"

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
  if (!names_layer(path)) {
    paths.insert(path);
    return paths;
  }
  for (const std::int64_t layer : listed_layers(document.at("layer"), model.count(reference.stack)))
    paths.insert(name_of_layer(path, layer));
  return paths;
}

/// The outputs that a valid document lists, or those that it has by default. Whether it has W_O is
/// not known if a model or random tensors may have it.
std::vector<std::string> output_names(const Document& document) {
  const Entry* const outputs = document.find("outputs");
  const std::vector<std::string> listed =
      outputs ? strings_of(outputs->value) : std::vector<std::string>();
  if (listed.empty()) {
    constexpr const char* kSources[] = {"W_O", "W_UV", "model", "draws"};
    return names_of(
        default_outputs(std::any_of(std::begin(kSources), std::end(kSources), [&](const char* key) {
          return document.find(key) != nullptr;
        })));
  }
  const std::set<std::string> names(listed.begin(), listed.end());  // each once
  return {names.begin(), names.end()};
}

/// The existing files of a result that is a folder.
void add_folder(const Item& item, const Document& document, const Naming& naming,
                ReplacedFiles& replaced) {
  const std::string folder = naming.path_of(item);
  std::error_code ignored;
  if (!fs::is_directory(folder, ignored)) return;
  for (const PlannedFile& plan : planned_files({parse_target(folder)}, output_names(document)))
    if (const auto file = id_of_file(plan.path)) replaced.try_emplace(*file, plan.path);
}

/// Notes the job file and the files that it names. Adds the files that its result would replace to
/// `replaced` if the result is a folder.
void read_in_advance(const Item& item, const BatchContext& context, ReplacedFiles* replaced) {
  std::error_code ignored;
  if (item.inputs.empty() && !fs::is_regular_file(item.name, ignored)) return;  // a pipe
  TensorFiles files(*context.files);
  try {
    std::string id;
    const Document document = ItemDocument(item).read(context, files, id);
    check_values(document);
    if (replaced != nullptr) add_folder(item, document, *context.naming, *replaced);
    std::set<std::string> paths = files_to_read(document, files);
    if (document.find("model") != nullptr) paths.merge(files_of_model(document, files));
    for (const std::string& path : paths) note_input(path);
  } catch (const Error&) {           // reported by the job
  } catch (const std::bad_alloc&) {  // the same, if it occurs again
  }
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
  if (path.empty()) return;
  const fs::path place = place_of(path);
  const std::string name = "/" + place.filename().string();
  if (!name.ends_with(naming.suffix)) return;
  const auto refuse_same = [&](const std::string& result, const std::string& owner) {
    if (result.ends_with(name) && place_of(result) == place)
      throw Error(ErrorKind::cannot_create, Problem{.where = {flag + " " + printable(path)},
                                                    .message = "is the result of " + owner});
  };
  for (std::size_t i = 0; i < files.size(); ++i) {
    const Item item{i + 1, files[i].path, files[i].relative};
    if (naming.bundle == 0) {
      refuse_same(naming.path_of(item), printable(item.name));
    } else if (i % naming.bundle == 0) {
      const std::size_t number = naming.bundle_of(item.number);
      refuse_same(naming.folder + "/" + naming.bundle_file(number),
                  "bundle " + std::to_string(number));
    }
  }
}

}  // namespace attn
