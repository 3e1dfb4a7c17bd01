#include "attn/batch/work.h"

#include <algorithm>
#include <limits>
#include <new>
#include <utility>

#include "attn/base/error.h"
#include "attn/base/name_text.h"
#include "attn/base/printable.h"
#include "attn/batch/item_document.h"
#include "attn/batch/item_output.h"
#include "attn/io/bytes.h"
#include "attn/io/digest.h"
#include "attn/io/json.h"
#include "attn/job/job.h"
#include "attn/job/limits.h"
#include "attn/result/execution.h"
#include "attn/result/result_format.h"

namespace attn {
namespace {

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

/// All warnings on one line.
std::string joined(const std::vector<std::string>& warnings) {
  std::string text;
  for (const std::string& warning : warnings) text += (text.empty() ? "" : "; ") + warning;
  return text;
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

/// An item as it is tried, perhaps more than once.
struct Attempt {
  const Item& item;
  const Claim& claim;
  ItemDocument document{item};
  std::size_t needed = document.size();  ///< bytes of memory, as far as is known
};

/// Its files get their names unless it has been given up.
void write_files(ResultWriter& writer, const Result& result, const Attempt& attempt,
                 const Common& common, Outcome& outcome) {
  writer.write(result);
  if (!attempt.claim.take()) return;
  writer.commit();
  const Naming& naming = *common.naming;
  common.folders->keep(folder_of_output(naming, naming.name_of(attempt.item)));
  for (const auto& [path, digest] : writer.digests())
    outcome.outputs.emplace_back(path.substr(naming.folder.size() + 1), digest);
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
  Document document = attempt.document.read(common, files);
  if (!can_have(sum(attempt.document.size(), bytes_to_read(document)))) return false;
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
  if (common.tells_inputs) outcome.inputs = stamps_of(item, files);
  std::unique_ptr<ResultWriter> writer;
  if (common.naming) writer = writer_of_item(item, common, job, files);
  const auto [result, warnings] =
      execute({job, prepared, std::move(document), &files, job.outputs, common.nan});
  outcome.warning = joined(warnings);
  if (writer) {
    write_files(*writer, result, attempt, common, outcome);
  } else {
    append_result_json(outcome.text, result, -1);
    outcome.text += '\n';
  }
  return true;
}

void fail(Outcome& outcome, const Error& error) {
  outcome.status = Status::failed;
  outcome.code = static_cast<int>(error.kind());
  outcome.error = error.lines();
}

void work(const Item& item, const Common& common, const Claim& claim, Outcome& outcome) {
  try {
    if (!item.fault.empty()) throw Error(ErrorKind::data, item.fault);
    if (common.earlier != nullptr) {
      outcome.outputs = finished_earlier(item, common);
      if (!outcome.outputs.empty()) {
        outcome.status = Status::skipped;
        if (common.dry_run) outcome.text = dry_run_json(item, common, nullptr);
        return;
      }
    }
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

Outcome work_on(const Item& item, const Common& common, const Claim& claim, std::string room) {
  Outcome outcome{.number = item.number, .name = item.name, .text = std::move(room)};
  work(item, common, claim, outcome);
  name_item(outcome);
  return outcome;
}

}  // namespace attn
