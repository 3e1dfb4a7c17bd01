#include "attn/batch/work.h"

#include <algorithm>
#include <new>
#include <optional>
#include <set>
#include <utility>

#include "attn/base/error.h"
#include "attn/base/memory_limit.h"
#include "attn/base/text.h"
#include "attn/batch/bundle.h"
#include "attn/batch/item_output.h"
#include "attn/batch/summary.h"
#include "attn/io/digest.h"
#include "attn/io/elements.h"
#include "attn/io/json_write.h"
#include "attn/io/output_path.h"
#include "attn/job/job.h"
#include "attn/model/layer_series.h"
#include "attn/model/model_job.h"
#include "attn/run/execution.h"
#include "attn/run/joined_results.h"
#include "attn/run/layers.h"
#include "attn/run/memory_estimate.h"
#include "attn/run/plan_text.h"
#include "attn/run/result_writer.h"
#include "attn/tensor/shape.h"

namespace attn {
namespace {

std::vector<FileDigest> digest_of_line(const Item& item) {
  if (!item.line) return {};
  return {{item.name, digest_of(bytes_of(*item.line))}};
}

/// The digest of a result "bundle-3.npz#NAME"; "" if it does not exist.
std::string digest_in_bundle(const std::string& result, const BatchContext& context) {
  const std::string file = bundle_in(result);
  const auto bundle = context.bundles->find(context.naming->folder + "/" + file);
  if (bundle == nullptr) return "";
  const TensorMap outputs = bundle->result(result.substr(file.size() + 1));
  return digest_of(bytes_of(encoded_result(outputs, context.naming->suffix)));
}

Manifest::EarlierRun earlier_run(const Item& item, const BatchContext& context) {
  const std::string name = context.naming->name_of(item);
  const auto input = [&](const std::string& path) {
    if (item.line && path == item.name) return digest_of(bytes_of(*item.line));
    return path == item.name ? read_file(path, context.files->limits().memory).digest()
                             : context.files->file(path)->bytes().digest();
  };
  const auto output = [&](const std::string& path) {
    if (context.naming->bundle > 0) return path == name ? digest_in_bundle(name, context) : "";
    const bool is_result = path == name || (name.ends_with('/') && path.starts_with(name));
    if (!is_result) return std::string();
    const std::string file = context.naming->folder + "/" + path;
    return digest_of_file(open_result(file));
  };
  return context.earlier->earlier_run(item.name, input, output);
}

/// {"job": NAME, "item": N, "output": FILE, "resume": ACTION, "reason": TEXT, and the members of
/// plan_json()}. The ACTION of a resumed run is "skip" (then `plan` is nullptr), "again" or "new";
/// "again" has a reason.
std::string dry_run_json(const Item& item, const BatchContext& context, const Outcome& outcome,
                         const Plan* plan, const MemoryEstimate& memory) {
  std::string text = "{" + identity_members(outcome) + ",\"item\":" + std::to_string(item.number);
  if (context.naming)
    text += ",\"output\":" + json_quoted(text_of_name(context.naming->path_of(item)));
  if (context.earlier != nullptr) {
    const bool again = outcome.change != Change::none;
    text += std::string(",\"resume\":\"") +
            (plan == nullptr ? "skip"
             : again         ? "again"
                             : "new") +
            "\"";
    if (again)
      text += ",\"reason\":" + json_quoted(reason_of(outcome.change, outcome.changed_file));
  }
  return text + (plan == nullptr ? "}" : "," + plan_json(*plan, memory).substr(1)) + "\n";
}

/// Bytes of files that are in memory in addition to the tensors read from them. Arrays in .npy and
/// .safetensors files are used in place.
std::size_t size_of_texts(const TensorFiles& files) {
  std::size_t size = 0;
  for (const auto& [path, file] : files.files()) {
    if (!format_of(file).is_mapped) size = saturating_sum(size, file.size);
  }
  return size;
}

std::size_t bytes_of_outputs(const Plan& plan) {
  std::size_t bytes = 0;
  for (const PlannedOutput& output : plan.outputs) bytes = saturating_sum(bytes, output.bytes);
  return bytes;
}

/// One attempt to compute an item. If the item needs more memory than was reserved, it is started
/// again.
struct Attempt {
  const Item& item;
  const CompletionToken& token;
  ItemDocument document{item};
  std::size_t needed = document.memory();  ///< bytes, as far as is known
};

/// Publishes the files unless the item has been cancelled.
void write_files(ResultWriter& writer, const Result& result, const Attempt& attempt,
                 const BatchContext& context, Outcome& outcome) {
  writer.write(result);
  if (!attempt.token.acquire()) return;
  writer.commit();
  const Naming& naming = *context.naming;
  context.folders->keep(folder_of_output(naming, naming.name_of(attempt.item)));
  for (const auto& [path, digest] : writer.digests())
    outcome.outputs.emplace_back(path.substr(naming.folder.size() + 1), digest);
}

/// Passes on the result: to its files, into its bundle, as a line of JSON or as its shapes.
void deliver(const Result& result, ResultWriter* writer, const Attempt& attempt,
             const BatchContext& context, Outcome& outcome) {
  if (context.has_summary) outcome.statistics = statistics_json(result.outputs, context.statistics);
  if (writer != nullptr) {
    write_files(*writer, result, attempt, context, outcome);
  } else if (context.naming) {  // in a bundle
    outcome.text = encoded_record(result.made_by);
    const std::size_t outputs = outcome.text.size();
    outcome.text += encoded_result(result.outputs, context.naming->suffix);
    outcome.outputs = {{context.naming->name_of(attempt.item),
                        digest_of(bytes_of(outcome.text).subspan(outputs))}};
  } else if (context.shapes_only) {
    outcome.text = printable(outcome.name) + ": " +
                   join(result.outputs, ", ",
                        [](const auto& output) {
                          return output.first + " " + to_string(output.second.shape());
                        }) +
                   "\n";
  } else {
    append_result_json(outcome.text, result, -1, identity_members(outcome));
    outcome.text += '\n';
  }
}

/// The copies of the outputs that an item makes, by its format.
void add_copies(const Plan& plan, const BatchContext& context, MemoryEstimate& memory) {
  const bool is_text =
      context.naming ? context.naming->format() != nullptr && !context.naming->format()->is_binary()
                     : !context.shapes_only;
  if (is_text) memory.add_output_text(plan);
  if (context.naming && context.naming->bundle > 0 && !context.dry_run)
    memory.add("copies of the outputs", bytes_of_outputs(plan));
}

/// Several layers of a model, one after the other. The outputs of all are kept until the end.
class LayersOfItem {
 public:
  LayersOfItem(Attempt& attempt, const BatchContext& context, Document document, TensorFiles& files,
               MemoryBudget::Reservation& reservation, Outcome& outcome)
      : attempt_(attempt),
        context_(context),
        files_(files),
        reservation_(reservation),
        outcome_(outcome),
        series_(std::move(document), files),
        layers_(series_, files) {}

  /// Returns false if it needs more memory than is free now, and has to be started again.
  bool run() {
    if (context_.records_inputs && !context_.dry_run)
      outcome_.inputs = digest_of_line(attempt_.item);
    try {
      for (const std::int64_t number : series_.layers())
        if (!add_layer(number)) return false;
    } catch (const ReadBudget::Busy& busy) {
      throw ReadBudget::Busy{saturating_sum(layers_.bytes_kept(), busy.bytes)};
    }
    if (context_.dry_run) {
      outcome_.text = dry_run_json(attempt_.item, context_, outcome_, &layers_.joined(), memory_);
      return true;
    }
    Result result = layers_.take_description();
    result.outputs = results_->outputs();
    outcome_.warning = join(layers_.warnings(series_.layers().size()), "; ");
    deliver(result, writer_.get(), attempt_, context_, outcome_);
    return true;
  }

 private:
  bool add_layer(std::int64_t number) {
    const std::size_t limit = files_.limits().memory;
    TensorFiles own(files_, files_.limits());
    std::optional<PreparedJob> prepared;
    within(layer_label(number), [&] {
      Document document = series_.document(number);
      const std::size_t kept = layers_.bytes_kept();
      own.budget().share(reservation_.bytes() - std::min(kept, reservation_.bytes()),
                         [&, kept](std::size_t bytes) {
                           return reservation_.grow_to(saturating_sum(kept, bytes));
                         });
      job_ = read_job(std::move(document), own);
      add_batch_axis(job_);
      if (context_.naming) require_one_output(job_, *context_.naming);
      prepared = prepare_job(job_);
    });
    layers_.join(number, prepared->plan);
    MemoryEstimate memory = layers_.memory(number, prepared->plan);
    add_copies(layers_.joined(), context_, memory);
    if (memory.bytes() > memory_.bytes()) memory_ = memory;
    if (context_.dry_run) return true;
    memory.require("", limit);
    memory.add("input files", size_of_texts(own));
    attempt_.needed = std::max(attempt_.needed, memory.bytes());
    if (!reservation_.grow_to(attempt_.needed)) return false;
    if (!results_) {
      results_.emplace(layers_.joined(), nullptr);
      add_inputs_of(files_);
      if (context_.naming && context_.naming->bundle == 0)
        writer_ = writer_of_item(attempt_.item, context_, job_);
    }
    layers_.describe(job_, prepared->inputs, own);
    add_inputs_of(own);
    results_->add(
        layers_.compute(number, {job_, *prepared, nullptr, job_.outputs, context_.nan}, nullptr));
    return true;
  }

  void add_inputs_of(const TensorFiles& files) {
    for (auto& digest : files.digests())
      if (recorded_.insert(digest.first).second && context_.records_inputs)
        outcome_.inputs.push_back(std::move(digest));
  }

  Attempt& attempt_;
  const BatchContext& context_;
  TensorFiles& files_;  ///< of the document and the hidden states
  MemoryBudget::Reservation& reservation_;
  Outcome& outcome_;
  const LayerSeries series_;
  Layers layers_;
  Job job_;  ///< of the last layer
  std::optional<JoinedResults> results_;
  std::unique_ptr<ResultWriter> writer_;  ///< nullptr unless the results have files of their own
  MemoryEstimate memory_;                 ///< of the layer that needs most
  std::set<std::string> recorded_;        ///< names of the inputs
};

/// Returns false if it needs more memory than is free now, and has to be started again.
bool compute(Attempt& attempt, const BatchContext& context, Outcome& outcome) {
  const Item& item = attempt.item;
  MemoryBudget::Reservation reservation(*context.memory, attempt.needed, attempt.token.cancelled);
  const auto reserve = [&](std::size_t bytes) {
    attempt.needed = std::max(attempt.needed, bytes);
    return reservation.grow_to(attempt.needed);
  };
  if (attempt.needed > context.memory->limit()) {
    context.files->clear();
    context.kept_jobs->clear();
  }
  TensorFiles files(*context.files);
  files.budget().share(reservation.bytes(),
                       [&](std::size_t bytes) { return reservation.grow_to(bytes); });
  Document document = attempt.document.read(context, files, outcome.id);
  if (has_several_layers(document))
    return LayersOfItem(attempt, context, std::move(document), files, reservation, outcome).run();
  const std::optional<HiddenStates> hidden = expand_model(document, files);
  MemoryEstimate before_reading;
  before_reading.add("the job document", attempt.document.memory());
  before_reading.add("its inputs", bytes_to_read(document, files));
  if (!reserve(before_reading.bytes())) return false;
  Job job = make_job(std::move(document), files);
  check_hidden(hidden, job);
  if (context.naming) require_one_output(job, *context.naming);
  std::unique_ptr<PreparedJob> prepared = context.kept_jobs->prepare(job);
  MemoryEstimate memory(prepared->plan);
  add_copies(prepared->plan, context, memory);
  if (context.dry_run) {
    outcome.text = dry_run_json(item, context, outcome, &prepared->plan, memory);
    return true;
  }
  memory.require(item.name, files.limits().memory);
  memory.add("input files", size_of_texts(files));
  if (!reserve(memory.bytes())) return false;
  if (context.records_inputs) {
    outcome.inputs = digest_of_line(item);
    for (auto& digest : files.digests()) outcome.inputs.push_back(std::move(digest));
  }
  std::unique_ptr<ResultWriter> writer;
  if (context.naming && context.naming->bundle == 0) writer = writer_of_item(item, context, job);
  const auto [result, warnings] = execute({job, *prepared, &files, job.outputs, context.nan});
  outcome.warning = join(warnings, "; ");
  context.kept_jobs->keep(std::move(prepared));  // before it is delivered, because this may fail
  deliver(result, writer.get(), attempt, context, outcome);
  return true;
}

/// Each line of the error names the item first.
void fail(Outcome& outcome, const Error& error) {
  std::vector<Problem> problems = error.problems();
  for (Problem& problem : problems)
    if (problem.where.empty() || problem.where.front() != outcome.name)
      problem.where.insert(problem.where.begin(), outcome.name);
  outcome.status = Status::failed;
  outcome.code = static_cast<int>(error.kind());
  outcome.error = Error(error.kind(), std::move(problems), error.omitted()).lines();
}

void work(const Item& item, const BatchContext& context, const CompletionToken& token,
          Outcome& outcome) {
  try {
    if (!item.invalid.empty()) fail_data(item.invalid);
    if (context.earlier != nullptr) {
      Manifest::EarlierRun earlier = earlier_run(item, context);
      outcome.outputs = std::move(earlier.outputs);
      if (context.has_summary) outcome.statistics = std::move(earlier.statistics);
      outcome.change = earlier.change;
      outcome.changed_file = std::move(earlier.changed_file);
      if (!outcome.outputs.empty()) {
        outcome.status = Status::skipped;
        if (context.dry_run) outcome.text = dry_run_json(item, context, outcome, nullptr, {});
        return;
      }
    }
    Attempt attempt{item, token};
    for (bool is_done = false; !is_done;) {
      try {
        is_done = compute(attempt, context, outcome);
      } catch (const ReadBudget::Busy& busy) {
        attempt.needed =
            std::max(attempt.needed, std::min(2 * busy.bytes, context.memory->limit()));
      } catch (const MemoryLimitReached&) {  // of all jobs together: it is started again alone
        if (attempt.needed > context.memory->limit()) throw;
        attempt.needed = context.memory->limit() + 1;
      }
    }
  } catch (const MemoryBudget::Cancelled&) {  // has been reported as overdue
  } catch (const ResultExists&) {
    outcome.status = Status::skipped;
  } catch (const ExistsAlready& error) {
    if (context.earlier == nullptr || context.no_clobber) return fail(outcome, error);
    fail(outcome, foreign_file_error(error));
  } catch (const Error& error) {
    fail(outcome, error);
  } catch (const std::bad_alloc& fault) {
    fail(outcome, Error(ErrorKind::data, message_of(fault)));
    outcome.out_of_memory = true;
  } catch (const std::exception& error) {
    fail(outcome, Error(ErrorKind::internal, std::string("internal error: ") + error.what()));
  }
}

}  // namespace

Outcome work_on(const Item& item, const BatchContext& context, const CompletionToken& token,
                std::string text_buffer) {
  Outcome outcome{.number = item.number, .name = item.name, .text = std::move(text_buffer)};
  set_memory_checks(true);
  work(item, context, token, outcome);
  set_memory_checks(false);  // what is done with outcomes concerns all jobs
  return outcome;
}

}  // namespace attn
