#include "attn/batch/work.h"

#include <limits>
#include <new>

#include "attn/io/bytes.h"
#include "attn/io/digest.h"
#include "attn/io/json.h"
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

/// The item's own document, read by nobody else, and so kept out of the cache.
Document document_of(const Item& item, TensorFiles& files) {
  if (item.line) return document_of_line(item);
  files.add(read_file(item.name, files.limits().memory));
  return read_document(item.name, files);
}

Document merged(const Item& item, const Common& common, TensorFiles& files) {
  if (!common.base_file.empty()) files.file(common.base_file);  // it is an input of each item
  Document document = common.base;
  document.set_all(document_of(item, files));
  return document;
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

/// {"job": NAME, "item": N, "output": FILE, and what plan_json() gives}
std::string dry_run_json(const Item& item, const Common& common, const Plan& plan) {
  std::string text =
      "{\"job\":" + json_quoted(item.name) + ",\"item\":" + std::to_string(item.number);
  if (common.naming) text += ",\"output\":" + json_quoted(common.naming->path_of(item));
  return text + "," + plan_json(plan).substr(1) + "\n";
}

void compute(const Item& item, const Common& common, const Claim& claim, Outcome& outcome) {
  TensorFiles files(*common.files);
  const Document document = merged(item, common, files);
  const Job job = make_job(document, files);
  if (common.naming) require_one_output(job, *common.naming);
  PreparedJob prepared = prepare_job(job, document);
  Plan& plan = prepared.plan;
  if (!common.naming || common.naming->suffix == ".json" || common.naming->suffix == ".csv")
    add_text(plan);
  if (common.dry_run) {
    outcome.text = dry_run_json(item, common, plan);
    return;
  }
  require_memory(plan, item.name, common.memory->most());
  const Memory::Share share(*common.memory, plan.bytes);
  outcome.inputs = stamps_of(item, files);
  std::optional<ResultWriter> writer;
  if (common.naming) {
    const std::string name = common.naming->name_of(item);
    common.folders->make_with_parents(folder_of(*common.naming, name), common.policy.durable);
    OutputPolicy policy = common.policy;
    for (const auto& [path, file] : files.files()) policy.inputs.insert(path);
    writer.emplace(std::vector{parse_target(common.naming->folder + "/" + name)}, job.outputs,
                   policy);
  }
  const Result result = run_job(job, prepared, document, files);
  outcome.warning = nan_warning(job, result, common.nan);
  if (!writer) {
    outcome.text = result_json(result, -1) + "\n";
    return;
  }
  writer->write(result);
  if (!claim()) return;
  writer->commit();
  common.folders->keep(folder_of(*common.naming, common.naming->name_of(item)));
  for (const auto& [path, digest] : writer->digests())
    outcome.outputs.emplace_back(path.substr(common.naming->folder.size() + 1), digest);
}

void fail(Outcome& outcome, const Error& error) {
  outcome.status = Status::failed;
  outcome.code = static_cast<int>(error.kind());
  outcome.error = error.lines();
}

void work(const Item& item, const Common& common, const Claim& claim, Outcome& outcome) {
  try {
    if (common.earlier != nullptr) {
      outcome.outputs = finished_earlier(item, common);
      if (!outcome.outputs.empty()) {
        outcome.status = Status::skipped;
        return;
      }
    }
    compute(item, common, claim, outcome);
  } catch (const ExistsAlready& error) {
    if (!common.no_clobber) return fail(outcome, error);
    outcome.status = Status::skipped;
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
