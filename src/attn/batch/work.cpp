#include "attn/batch/work.h"

#include <algorithm>
#include <filesystem>
#include <limits>
#include <new>

#include "attn/io/bytes.h"
#include "attn/io/digest.h"
#include "attn/io/json.h"
#include "attn/io/name_text.h"
#include "attn/job/doubts.h"
#include "attn/job/job.h"
#include "attn/job/limits.h"
#include "attn/job/result_format.h"
#include "attn/job/result_writer.h"
#include "attn/tensor/error.h"

namespace attn {
namespace {

/// Of a line JSON need not say that it is the first: "line 3: column 5: expected ...".
Document document_of_line(const Item& item) {
  try {
    return parse_document(*item.line, item.name, "");
  } catch (const Error& error) {
    const std::string first = item.name + ": line 1, ";
    std::vector<std::string> lines = error.lines();
    for (std::string& line : lines)
      if (line.starts_with(first)) line.replace(0, first.size(), item.name + ": ");
    throw Error(error.kind(), std::move(lines));
  }
}

/// Bytes of a regular file; 0 for anything else.
std::size_t size_of_file(const std::string& path) {
  std::error_code error;
  const std::uintmax_t size = std::filesystem::file_size(path, error);
  return error ? 0 : static_cast<std::size_t>(size);
}

/// The item's own document takes its text, and numbers that are up to four times as large.
std::size_t size_of_document(const Item& item) {
  if (item.line) return item.line->size() * 4;
  return product({size_of_file(item.name), item.name.ends_with(".json") ? 5U : 1U});
}

/// An item as it is tried, perhaps more than once.
struct Attempt {
  const Item& item;
  const Claim& claim;
  const std::size_t document = size_of_document(item);
  std::size_t needed = document;               ///< bytes of memory, as far as is known
  std::optional<FileBytes> unrepeatable = {};  ///< its own file where that can be read once only
};

/// The item's own document, read by nobody else, and so kept out of the cache.
Document document_of(Attempt& attempt, TensorFiles& files) {
  const Item& item = attempt.item;
  if (item.line) return document_of_line(item);
  FileBytes file =
      attempt.unrepeatable ? *attempt.unrepeatable : read_file(item.name, files.limits().memory);
  if (attempt.document == 0) attempt.unrepeatable = file;
  files.add(std::move(file));
  return read_document(item.name, files);
}

Document merged(Attempt& attempt, const Common& common, TensorFiles& files) {
  if (!common.base_file.empty()) files.file(common.base_file);  // it is an input of each item
  Document document = common.base;
  document.set_all(document_of(attempt, files));
  return document;
}

/// Bytes of files that stand beside what was read from them. An array in an .npy or .safetensors
/// file is not copied.
std::size_t size_of_texts(const TensorFiles& files) {
  std::size_t size = 0;
  for (const auto& [path, file] : files.files()) {
    const Format format = format_of(file);
    if (format != Format::npy && format != Format::safetensors) size = sum(size, file.size);
  }
  return size;
}

std::vector<Stamp> stamps_of(const Item& item, const TensorFiles& files) {
  std::vector<Stamp> stamps;
  if (item.line) stamps.emplace_back(item.name, digest_of(bytes_of(*item.line)));
  for (const auto& [path, file] : files.files()) stamps.emplace_back(path, file.digest());
  return stamps;
}

/// What an earlier run made of this item, if nothing has changed since.
std::vector<Stamp> finished_earlier(const Item& item, const Common& common) {
  const std::string name = common.naming->name_of(item);
  const auto input = [&](const std::string& path) {
    if (item.line && path == item.name) return digest_of(bytes_of(*item.line));
    return path == item.name ? read_file(path, common.files->limits().memory).digest()
                             : common.files->file(path)->bytes().digest();
  };
  const auto output = [&](const std::string& path) {
    const bool ours = path == name || (name.ends_with('/') && path.starts_with(name));
    if (!ours) return std::string();
    const std::string file = common.naming->folder + "/" + path;
    return read_file(file, std::numeric_limits<std::size_t>::max(), FileAccess::map).digest();
  };
  return common.earlier->finished(item.name, input, output);
}

/// The folder that an item's file stands in, or its own folder.
std::string folder_of(const Naming& naming, const std::string& name) {
  const std::size_t slash = name.rfind('/', name.size() - 2);
  return slash == std::string::npos ? naming.folder : naming.folder + "/" + name.substr(0, slash);
}

/// Of one output there is to be one: which, only the job or a flag can say.
void require_one_output(const Job& job, const Naming& naming) {
  if ((naming.suffix != ".npy" && naming.suffix != ".csv") || job.outputs.size() == 1) return;
  throw Error(ErrorKind::usage,
              "--format " + naming.suffix.substr(1) + ": holds one output, found " +
                  std::to_string(job.outputs.size()) + "; --outputs " + job.outputs.front() +
                  " chooses one, --format folder writes a file for each");
}

/// {"job": NAME, "item": N, "output": FILE, "resume": WHAT, and what plan_json() gives}. WHAT a
/// resumed run would do: "skip" (then there is no plan), do "again", or do as "new".
std::string dry_run_json(const Item& item, const Common& common, const Plan* plan) {
  std::string text = "{\"job\":" + json_quoted(text_of_name(item.name)) +
                     ",\"item\":" + std::to_string(item.number);
  if (common.naming)
    text += ",\"output\":" + json_quoted(text_of_name(common.naming->path_of(item)));
  if (common.earlier != nullptr) {
    const char* const what = plan == nullptr                    ? "skip"
                             : common.earlier->knows(item.name) ? "again"
                                                                : "new";
    text += std::string(",\"resume\":\"") + what + "\"";
  }
  return text + (plan == nullptr ? "}" : "," + plan_json(*plan).substr(1)) + "\n";
}

/// All that is doubtful in one line.
std::string warnings(const Job& job, const Inputs& in, const std::string& nan) {
  std::string text;
  for (const std::string& doubt : {mask_doubt(job), token_doubt(job, in), nan})
    if (!doubt.empty()) text += (text.empty() ? "" : "; ") + doubt;
  return text;
}

/// All files of a result exist, and --no-clobber leaves them as they are.
struct NothingToAdd {};

/// What a resumed run says of an output that it does not replace.
Error not_ours(const ExistsAlready& error) {
  return Error(error.kind(), printable(error.path) +
                                 ": exists already, is not in the manifest, and is not what this "
                                 "job gives; move it away, or begin anew with --force");
}

bool is_there(const PlannedFile& file) {
  std::error_code ignored;
  return std::filesystem::exists(file.path, ignored);
}

/// Makes the folders that it needs and opens its files. Throws NothingToAdd.
std::unique_ptr<ResultWriter> writer_of(const Item& item, const Common& common, const Job& job,
                                        const TensorFiles& files) {
  const Naming& naming = *common.naming;
  const std::string name = naming.name_of(item);
  common.folders->make_with_parents(folder_of(naming, name), common.policy.durable);
  const std::vector<OutputTarget> targets = {parse_target(naming.folder + "/" + name)};
  OutputPolicy policy = common.policy;
  for (const auto& [path, file] : files.files()) policy.inputs.insert(path);
  const std::vector<PlannedFile> plans = planned_files(targets, job.outputs);
  if (common.no_clobber) {
    if (std::all_of(plans.begin(), plans.end(), is_there)) throw NothingToAdd{};
    policy.same = true;
  } else if (common.earlier != nullptr) {
    for (const PlannedFile& plan : plans)
      if (common.earlier->wrote(plan.path.substr(naming.folder.size() + 1)))
        policy.ours.insert(plan.path);
    policy.same = true;
  }
  return std::make_unique<ResultWriter>(targets, job.outputs, policy);
}

/// False when it needs more memory than is free now; it is then to be tried again.
bool compute(Attempt& attempt, const Common& common, Outcome& outcome) {
  const Item& item = attempt.item;
  Memory::Share share(*common.memory, attempt.needed, attempt.claim.lost);
  const auto can_have = [&](std::size_t bytes) {
    attempt.needed = std::max(attempt.needed, bytes);
    return share.grow_to(attempt.needed);
  };
  if (attempt.needed > common.memory->most()) common.files->clear();
  TensorFiles files(*common.files);
  Document document = merged(attempt, common, files);
  if (!can_have(sum(attempt.document, bytes_to_read(document)))) return false;
  const Job job = make_job(document, files);
  if (common.naming) require_one_output(job, *common.naming);
  PreparedJob prepared = prepare_job(job, document);
  Plan& plan = prepared.plan;
  if (!common.naming || common.naming->suffix == ".json" || common.naming->suffix == ".csv")
    add_text(plan);
  if (common.dry_run) {
    outcome.text = dry_run_json(item, common, &plan);
    return true;
  }
  require_memory(plan, item.name, files.limits().memory);
  if (!can_have(sum(plan.bytes, size_of_texts(files)))) return false;
  outcome.inputs = stamps_of(item, files);
  std::unique_ptr<ResultWriter> writer;
  if (common.naming) writer = writer_of(item, common, job, files);
  const Result result = run_job(job, prepared, std::move(document), files);
  outcome.warning = warnings(job, prepared.inputs, nan_warning(job, result, common.nan));
  if (!writer) {
    outcome.text = result_json(result, -1) + "\n";
    return true;
  }
  writer->write(result);
  if (!attempt.claim.take()) return true;
  writer->commit();
  common.folders->keep(folder_of(*common.naming, common.naming->name_of(item)));
  for (const auto& [path, digest] : writer->digests())
    outcome.outputs.emplace_back(path.substr(common.naming->folder.size() + 1), digest);
  return true;
}

void fail(Outcome& outcome, const Error& error) {
  outcome.status = Status::failed;
  outcome.code = static_cast<int>(error.kind());
  outcome.error = error.lines();
}

void work(const Item& item, const Common& common, const Claim& claim, Outcome& outcome) {
  try {
    if (common.earlier != nullptr && item.fault.empty()) {
      outcome.outputs = finished_earlier(item, common);
      if (!outcome.outputs.empty()) {
        outcome.status = Status::skipped;
        if (common.dry_run) outcome.text = dry_run_json(item, common, nullptr);
        return;
      }
    }
    if (!item.fault.empty()) throw Error(ErrorKind::data, item.fault);
    Attempt attempt{item, claim};
    while (!compute(attempt, common, outcome)) {
    }
  } catch (const Memory::GivenUp&) {  // reported as overdue
  } catch (const NothingToAdd&) {
    outcome.status = Status::skipped;
  } catch (const ExistsAlready& error) {
    if (common.earlier == nullptr || common.no_clobber) return fail(outcome, error);
    fail(outcome, not_ours(error));
  } catch (const Error& error) {
    fail(outcome, error);
  } catch (const std::bad_alloc&) {
    fail(outcome, Error(ErrorKind::data, "not enough memory for this job"));
  } catch (const std::exception& error) {
    fail(outcome, Error(ErrorKind::internal, std::string("internal error: ") + error.what()));
  }
}

/// Lines that do not say which item they are about say it.
void name_item(Outcome& outcome) {
  const std::string name = printable(outcome.name);
  for (std::string& line : outcome.error)
    if (!line.starts_with(name + ":")) line.insert(0, name + ": ");
}

}  // namespace

Outcome work_on(const Item& item, const Common& common, const Claim& claim) {
  Outcome outcome{.number = item.number, .name = item.name};
  work(item, common, claim, outcome);
  name_item(outcome);
  return outcome;
}

}  // namespace attn
