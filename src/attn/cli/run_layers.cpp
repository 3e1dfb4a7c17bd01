#include "attn/cli/run_layers.h"

#include <algorithm>
#include <filesystem>
#include <list>
#include <map>
#include <memory>
#include <optional>
#include <utility>

#include "attn/base/error.h"
#include "attn/cli/rendering.h"
#include "attn/cli/terminal.h"
#include "attn/io/open_file.h"
#include "attn/job/field_value.h"
#include "attn/model/layer_series.h"
#include "attn/model/model_job.h"
#include "attn/run/execution.h"
#include "attn/run/joined_results.h"
#include "attn/run/layers.h"
#include "attn/run/memory_estimate.h"
#include "attn/run/output_target.h"
#include "attn/run/plan_text.h"
#include "attn/run/result_writer.h"

namespace attn {
namespace {

/// A layer whose tensors have been read. It stays in memory only while it is planned or computed.
struct ReadLayer {
  TensorFiles files;
  Job job;
  PreparedJob prepared;

  ReadLayer(TensorFiles& all, const ReadLimits& limits) : files(all, limits) {}
};

/// The run of several layers. Each layer is read twice: to plan it, so that errors of all layers
/// are found and the inputs are described before anything is computed, and to compute it. Large
/// weights (out, in) are read only for the second, and for digests.
class LayersRun {
 public:
  LayersRun(const RunArgs& args, Document document, TensorFiles& files)
      : args_(args),
        limits_(files.limits()),
        files_(files),
        destination_(destination_of(args)),
        name_(document.name),
        series_(std::move(document), files),
        layers_(series_, files, "write a file for each layer: -o 'out.{layer}.npz'"),
        numbers_(series_.layers()) {
    check_targets();
    check_names_of_outputs();
    shown_ = args.show;
    shown_.text.settings = print_settings_of(series_.whole());
    if (destination_.shown) print_options_of(shown_.text);  // refuses flags without effect
  }

  int run() {
    plan_layers();
    for (const std::string& line : lines_of_layers(skipped_, 0)) note(line);
    if (numbers_.empty()) return 0;
    refuse_duplicates(paths_);
    if (args_.dry_run) {
      print(text_ + end_of_plans());
      return 0;
    }
    set_threads_of(args_);
    const std::unique_ptr<RunProgress> progress = progress_of(args_, rows_, flops_);
    if (is_joined_)
      compute_joined(progress.get());
    else
      compute_each(progress.get());
    for (const std::string& line : layers_.warnings(numbers_.size())) note("warning: " + line);
    return 0;
  }

 private:
  /// Errors: usage, unless {layer} is in the names of all results or of none, and no other
  /// placeholder in any.
  void check_targets() {
    require_placeholders(destination_.targets);
    std::size_t named = 0;
    for (const OutputTarget& target : destination_.targets) named += names_layer(target.path);
    is_joined_ = named == 0;
    if (named > 0 && (destination_.shown || named < destination_.targets.size()))
      fail_usage("-o: expected {layer} in the names of all results or of none");
    if (!args_.views.empty())
      fail_usage("--view and --explain require one layer; 'attn view RESULT' draws all layers");
    args_.executor->require_layers();
  }

  /// Errors: usage or data, if the document has names of outputs that no layer has.
  void check_names_of_outputs() const {
    Job job;
    job.document = series_.whole();
    const Entry* const outputs = job.document.find("outputs");
    if (outputs == nullptr) return;
    const std::vector<std::string> known = request_names();
    std::vector<std::string> unknown;
    for (std::string& name : strings_of(outputs->value))
      if (std::find(known.begin(), known.end(), name) == known.end())
        unknown.push_back(std::move(name));
    outputs_named(unknown, job);
  }

  std::unique_ptr<ReadLayer> read(std::int64_t number) {
    std::unique_ptr<ReadLayer> layer;
    const auto inside = [&] {
      Document document = series_.document(number);
      ReadLimits rest = limits_;
      rest.memory -= std::min(layers_.bytes_kept(), rest.memory);
      layer = std::make_unique<ReadLayer>(files_, rest);
      layer->job = read_job(std::move(document), layer->files);
      if (is_joined_) add_batch_axis(layer->job);
      layer->job.outputs = outputs_of(layer->job, destination_, !args_.views.empty());
      if (!by_rows_)
        by_rows_ = destination_.shown ? OutputSet{}
                                      : outputs_for_rows(destination_.targets, layer->job.outputs);
      layer->prepared = prepare_job(layer->job, *by_rows_);
    };
    within(layer_label(number), inside);
    return layer;
  }

  std::vector<OutputTarget> targets_of(std::int64_t number) const {
    std::vector<OutputTarget> targets = destination_.targets;
    for (OutputTarget& target : targets) target.path = name_of_layer(target.path, number);
    return targets;
  }

  /// Whether an output file of the layer exists.
  bool has_file(std::int64_t number) const {
    const std::vector<OutputPath> paths = output_paths(targets_of(number), names_);
    return std::any_of(paths.begin(), paths.end(), [](const OutputPath& output) {
      std::error_code ignored;
      return !is_stream(output.path) && std::filesystem::exists(output.path, ignored);
    });
  }

  void plan_layers() {
    std::vector<std::int64_t> kept;
    for (const std::int64_t number : series_.layers()) {
      const std::unique_ptr<ReadLayer> layer = read(number);
      const Plan& plan = layer->prepared.plan;
      names_ = names_of(layer->job.outputs);
      if (args_.no_clobber && !is_joined_ && has_file(number)) {
        skipped_.push_back({number, "skipped, as an output file exists"});
        continue;
      }
      kept.push_back(number);
      rows_ += counted_rows(layer->prepared), flops_ += plan.flops;
      if (is_joined_) layers_.join(number, plan, *by_rows_);
      MemoryEstimate memory = layers_.memory(number, plan);
      const Plan& written = is_joined_ ? layers_.joined() : plan;
      if (has_text(destination_, args_.show.format)) memory.add_output_text(written);
      if (!args_.dry_run) memory.require(name_, limits_.memory);
      if (memory.bytes() > memory_.bytes()) memory_ = memory;
      if (is_joined_ && needs_description(destination_, args_) && !args_.dry_run)
        layers_.describe(layer->job, layer->prepared.inputs, layer->files);
      else if (!is_joined_)
        for (OutputPath& path : output_paths(targets_of(number), names_))
          paths_.push_back(std::move(path));
      if (args_.dry_run) add_plan(number, *layer, plan, memory);
    }
    numbers_ = std::move(kept);
    if (!is_joined_)
      for (const std::int64_t number : numbers_)
        require_writable(targets_of(number), names_, policy_of(args_));
    else if (args_.dry_run)
      require_writable(destination_.targets, names_, policy_of(args_));
  }

  /// Adds a layer to what --dry-run prints.
  void add_plan(std::int64_t number, const ReadLayer& layer, const Plan& plan,
                const MemoryEstimate& memory) {
    const bool is_json = prints_json(args_);
    const std::string job = job_json(layer.job.document, is_json ? -1 : 0);
    if (is_json) {
      text_ += (text_.empty() ? "{\"layers\":[" : ",") + std::string("{\"layer\":") +
               std::to_string(number) + "," + plan_json(plan, memory).substr(1);
      text_.replace(text_.size() - 1, 1, ",\"job\":" + job + "}");
    } else {
      text_ += layer_label(number) + ":\n" + plan_text(plan, memory) + "job:\n" + job + "\n";
    }
  }

  /// The end of what --dry-run prints: the plan of joined outputs.
  std::string end_of_plans() const {
    if (!prints_json(args_))
      return is_joined_ ? "all layers:\n" + plan_text(layers_.joined(), memory_) : "";
    return is_joined_ ? "]," + plan_json(layers_.joined(), memory_).substr(1) + "\n" : "]}\n";
  }

  Result compute(std::int64_t number, ReadLayer& layer, const TensorFiles* described_by,
                 RowReceiver* receiver) {
    return layers_.compute(
        number,
        {layer.job, layer.prepared, described_by, layer.job.outputs, args_.nan, shared_inputs_},
        receiver);
  }

  /// `progress` may be nullptr.
  void compute_joined(RunProgress* progress) {
    ResultWriter writer(destination_.targets, names_, policy_of(args_));
    Result result;
    if (needs_description(destination_, args_)) result = layers_.take_description();
    writer.begin(layers_.joined(), result);
    JoinedResults joined(layers_.joined(), &writer);
    for (const std::int64_t number : numbers_) {
      const std::unique_ptr<ReadLayer> layer = read(number);
      joined.add(compute(number, *layer, nullptr, &joined));
    }
    if (progress != nullptr) progress->finish();
    result.outputs = joined.outputs();
    writer.write(result);
    writer.commit();
    if (destination_.shown)
      show(result, shown_, [](const std::string& name, const Tensor& tensor) {
        return description_of(name, tensor.rank() == 5);  // with the axis of layers
      });
  }

  void compute_each(RunProgress* progress) {
    std::list<ResultWriter> writers;
    const bool is_described = needs_description(destination_, args_);
    if (is_described)
      for (auto& digest : files_.digests()) shared_inputs_.insert(std::move(digest));
    for (const std::int64_t number : numbers_) {
      const std::unique_ptr<ReadLayer> layer = read(number);
      const std::vector<OutputTarget> targets = targets_of(number);
      ResultWriter& writer = writers.emplace_back(targets, names_, policy_of(args_));
      writer.write(compute(number, *layer, is_described ? &layer->files : nullptr, &writer));
      writer.finish();
    }
    if (progress != nullptr) progress->finish();
    for (ResultWriter& writer : writers) writer.commit();
  }

  const RunArgs& args_;
  const ReadLimits limits_;
  TensorFiles& files_;
  const Destination destination_;
  const std::string name_;  ///< of the job file; may be ""
  const LayerSeries series_;
  Layers layers_;
  std::vector<std::int64_t> numbers_;  ///< of the layers, without those that are skipped
  std::vector<LayerWarning> skipped_;
  ShowArgs shown_;
  bool is_joined_ = true;
  std::optional<OutputSet> by_rows_;  ///< outputs that are written while they are computed
  std::vector<std::string> names_;    ///< of the outputs
  std::vector<OutputPath> paths_;     ///< of files for each layer
  /// Digests of what was read for all layers, recorded in the file of each layer.
  std::map<std::string, std::string> shared_inputs_;
  std::size_t rows_ = 0;   ///< of all layers, that the kernels count
  double flops_ = 0;       ///< of all layers
  MemoryEstimate memory_;  ///< of the layer that needs most
  std::string text_;       ///< of --dry-run
};

}  // namespace

int run_layers(const RunArgs& args, Document document, TensorFiles& files) {
  return LayersRun(args, std::move(document), files).run();
}

}  // namespace attn
