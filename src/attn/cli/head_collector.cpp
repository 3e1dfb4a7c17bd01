#include "attn/cli/head_collector.h"

#include "attn/base/error.h"
#include "attn/base/text.h"
#include "attn/cli/layer_tensors.h"
#include "attn/cli/rendering.h"
#include "attn/io/mapped_file.h"
#include "attn/job/recorded_positions.h"
#include "attn/tensor/shape.h"

namespace attn {
namespace {

Tensor checked_ids(const Tensor& ids, const std::string& where) {
  if (is_float(ids.dtype()) || ids.rank() == 0 || ids.rank() > 2)
    fail_data({.where = {where},
               .expected = "token ids: whole numbers of shape (S) or (B, S)",
               .found = std::string(name_of(ids.dtype())) + " " + to_string(ids.shape())});
  return cast(ids, DType::i64);
}

/// The results in a bundle of attn batch, by the names of their jobs: its tensors are called
/// JOB/OUTPUT. Empty if the file is no bundle with weights or weight_sum.
std::map<std::string, ResultFile> jobs_of_bundle(const ResultFile& bundle) {
  std::map<std::string, ResultFile> jobs;
  bool has_weights = false;
  for (const auto& [name, tensor] : bundle.tensors) {
    const std::size_t slash = name.rfind('/');
    if (slash == name.npos) return {};
    const std::string output = name.substr(slash + 1);
    has_weights =
        has_weights || output == name_of(Output::weights) || output == name_of(Output::weight_sum);
    jobs[name.substr(0, slash)].tensors.set(output, tensor);
  }
  const Json* recorded = bundle.made_by.find("jobs");
  const auto records = recorded == nullptr ? nullptr : recorded->get<JsonObject>();
  if (records == nullptr)
    for (auto& [name, job] : jobs) job.made_by = bundle.made_by;
  else
    for (const auto& [name, made_by] : *records)
      if (const auto job = jobs.find(name_of_text(name)); job != jobs.end())
        job->second.made_by = made_by;
  return has_weights ? jobs : std::map<std::string, ResultFile>{};
}

}  // namespace

HeadCollector::HeadCollector(Grouping by, bool similarity, const std::string& token_ids,
                             const ReadLimits& limits)
    : by_(by), similarity_(similarity), limits_(limits) {
  if (token_ids.empty()) return;
  TensorFiles files(limits_);
  token_ids_ = checked_ids(files.read(parse_tensor_ref(token_ids)), token_ids);
}

void HeadCollector::add(const std::string& file) {
  file_ = file;
  job_.clear();
  TensorFiles files(parsed_, limits_);
  const TensorRef ref = parse_tensor_ref(file);
  const ResultFile result = result_of(ref, files);
  within(printable(file), [&] {
    if (ref.member.empty())
      add_file(result);
    else
      add_tensors(result, true);
  });
  require_mapped_files_unchanged();
}

/// The result of one job, or those of a bundle.
void HeadCollector::add_file(const ResultFile& result) {
  std::map<std::string, ResultFile> jobs = jobs_of_bundle(result);
  if (jobs.empty()) return add_tensors(result, false);
  for (const auto& [job, part] : jobs) {
    job_ = job;
    within(printable(job), [&, &own = part] { add_tensors(own, false); });
  }
}

/// `is_named`: the user named the only tensor.
void HeadCollector::add_tensors(const ResultFile& result, bool is_named) {
  const TensorMap& tensors = result.tensors;
  std::optional<Tensor> ids = token_ids_;
  const std::string ids_name(name_of(Input::token_ids));
  if (const Tensor* own = tensors.find(ids_name); own != nullptr && !ids)
    ids = checked_ids(*own, ids_name);
  const std::string weights(name_of(Output::weights));
  if (tensors.contains(weights)) {
    if (!ids && !similarity_) warn_of_unused_statistics(tensors);
    within(weights, [&] { add_weights(result, weights, ids); });
  } else if (contains(tensors, Output::weight_sum)) {
    add_row_statistics(result);
  } else {
    add_all(result, is_named ? tensors.names() : weights_in(tensors), ids);
  }
}

/// Each of several tensors may be a layer.
void HeadCollector::add_all(const ResultFile& result, const std::vector<std::string>& names,
                            const std::optional<Tensor>& ids) {
  for (const std::string& name : names) {
    const std::optional<LayerName> found =
        names.size() > 1 ? layer_in_name(name) : std::optional<LayerName>();
    within(printable(name), [&] {
      add_weights(result, name, ids, found ? std::optional(found->layer) : std::nullopt);
    });
  }
}

/// With the job's name, if it is in a bundle and its lines are its own.
std::string HeadCollector::name_in_table(const std::string& name) const {
  if (job_.empty() || by_ == Grouping::all) return name;
  return name.empty() ? job_ : job_ + "/" + name;
}

HeadKey HeadCollector::key_of(const std::string& name, const HeadAxes& axes,
                              std::size_t index) const {
  HeadKey key{.name = name_in_table(name)};
  if (axes.has_heads) key.head = static_cast<std::int64_t>(index % axes.heads);
  if (axes.has_items && by_ == Grouping::item)
    key.item = static_cast<std::int64_t>(index / axes.heads % axes.items);
  if (axes.has_layers) key.layer = axes.number_of(index / axes.heads / axes.items);
  return key;
}

/// `layer`: of weights without an axis of layers.
void HeadCollector::add_weights(const ResultFile& result, const std::string& name,
                                const std::optional<Tensor>& ids,
                                std::optional<std::int64_t> layer) {
  const Tensor& weights = result.tensors.at(name);
  const Shape& shape = weights.shape();
  HeadAxes axes = head_axes(result, name, 2);
  if (layer && !axes.has_layers) axes.has_layers = true, axes.numbers = {*layer};
  const std::size_t L = *(shape.end() - 2), S = shape.back();
  if (job_.empty() && by_ != Grouping::item)
    warn_of_batch(result, label_of(file_, name), shape, axes);
  const std::optional<QueryPositions> positions = positions_in(result.made_by, axes.items, L, S);
  const std::size_t keys = positions ? positions->keys() : S;
  if (ids && (ids->shape().back() != keys || (ids->rank() == 2 && ids->shape()[0] != axes.items)))
    fail_data({.subject = std::string(name_of(Input::token_ids)),
               .expected = "a token id for each key of the weights " + to_string(shape),
               .found = to_string(ids->shape())});
  if (similarity_)
    return add_similarity(weights.reshaped({axes.layers, axes.items, axes.heads, L, S}), name,
                          axes);
  const Tensor matrices = weights.reshaped({axes.count(), L, S});
  if (!positions) warn_unknown_positions(label_of(file_, name));
  SequenceTokens tokens{.positions = positions ? &*positions : nullptr};
  for (std::size_t i = 0; i < axes.count(); ++i) {
    tokens.item = i / axes.heads % axes.items;
    if (ids)
      tokens.token_ids =
          ids->data<std::int64_t>().data() + (ids->rank() == 2 ? tokens.item * keys : 0);
    Group& group = groups[key_of(name, axes, i)];
    group.sums.add(sums_of_weights(matrices.at(i), tokens));
    group.restrict_to(statistics_with(positions.has_value(), ids.has_value()));
  }
}

/// `weights` is (layers, B, H, L, S).
void HeadCollector::add_similarity(const Tensor& weights, const std::string& name,
                                   const HeadAxes& axes) {
  for (std::size_t layer = 0; layer < axes.layers; ++layer) {
    HeadKey key{.name = name_in_table(name)};
    if (axes.has_layers) key.layer = axes.number_of(layer);
    HeadSimilarity& heads = similarities.try_emplace(key, axes.heads).first->second;
    if (heads.heads() != axes.heads)
      fail_data({.expected = counted(heads.heads(), "head") + " as in the files before",
                 .found = std::to_string(axes.heads)});
    for (std::size_t item = 0; item < axes.items; ++item) heads.add(weights.at(layer).at(item));
  }
}

/// From the outputs of a job that computed the statistics of each query.
void HeadCollector::add_row_statistics(const ResultFile& result) {
  if (similarity_) fail_data("--similarity requires weights");
  const std::string total(name_of(Output::weight_sum));
  const Tensor weight_sums = cast(result.tensors.at(total), DType::f64);
  const HeadAxes axes = head_axes(result, total, 1);
  const StatisticSet used = statistics_with(true, true);
  std::vector<std::optional<Tensor>> rows(kRowStatistics.size());
  for (std::size_t k = 0; k < rows.size(); ++k)
    if (const Tensor* given = find(result.tensors, kRowStatistics[k].output);
        given != nullptr && used.test(k)) {
      if (given->shape() != weight_sums.shape())
        fail_data({.subject = std::string(name_of(kRowStatistics[k].output)),
                   .expected = "the shape of weight_sum, " + to_string(weight_sums.shape()),
                   .found = to_string(given->shape())});
      rows[k] = cast(*given, DType::f64);
    }
  const std::size_t L = weight_sums.shape().back();
  StatisticSet known;
  for (std::size_t k = 0; k < rows.size(); ++k) known.set(k, rows[k].has_value());
  for (std::size_t i = 0; i < axes.count(); ++i) {
    Group& group = groups[key_of("", axes, i)];
    group.restrict_to(known);
    for (std::size_t query = 0; query < L; ++query) {
      HeadSums::Numbers numbers{};
      for (std::size_t k = 0; k < rows.size(); ++k)
        if (rows[k]) numbers[k] = rows[k]->data<double>()[i * L + query];
      group.sums.add(numbers);
    }
  }
}

/// Statistics of tokens cannot be computed from weights without token ids.
void HeadCollector::warn_of_unused_statistics(const TensorMap& tensors) {
  for (const RowStatistic& statistic : kRowStatistics)
    if (row_of(statistic.output).source == Input::token_ids && contains(tensors, statistic.output))
      note("warning: " + label_of(file_, std::string(name_of(statistic.output))) +
           ": left out, because the file has weights, but no token_ids (see --token-ids)");
}

}  // namespace attn
