#include "attn/cli/stats.h"

#include <algorithm>
#include <array>
#include <filesystem>
#include <functional>
#include <iterator>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <tuple>

#include "attn/base/error.h"
#include "attn/base/number_text.h"
#include "attn/base/text.h"
#include "attn/base/utf8.h"
#include "attn/cli/emit.h"
#include "attn/cli/layer_tensors.h"
#include "attn/cli/rendering.h"
#include "attn/cli/shared_options.h"
#include "attn/cli/terminal.h"
#include "attn/io/csv.h"
#include "attn/io/json_write.h"
#include "attn/io/mapped_file.h"
#include "attn/io/staged_file.h"
#include "attn/io/used_files.h"
#include "attn/job/fields.h"
#include "attn/job/recorded_positions.h"
#include "attn/run/result_file.h"
#include "attn/stats/head_statistics.h"
#include "attn/stats/rollout.h"
#include "attn/tensor/shape.h"

namespace attn {
namespace {

namespace fs = std::filesystem;

enum class StatsFormat { text, csv, ndjson };
enum class Grouping { item, file, all };

struct StatsArgs {
  std::vector<std::string> inputs;
  std::string token_ids;
  Grouping by = Grouping::file;
  bool similarity = false;
  std::string output = "-";
  StatsFormat format = StatsFormat::text;
  bool force = false;
  LimitArgs limits;
};

/// The format of -o, or that of --format on standard output. Errors: usage, for other suffixes.
StatsFormat stats_format_of(const StatsArgs& args) {
  if (is_stream(args.output)) return args.format;
  if (args.output.ends_with(".csv")) return StatsFormat::csv;
  if (args.output.ends_with(".ndjson")) return StatsFormat::ndjson;
  if (args.output.ends_with(".txt")) return StatsFormat::text;
  throw Error(ErrorKind::usage, "-o " + printable(args.output) +
                                    ": expected a name that ends in .csv, .ndjson or .txt");
}

/// Whether, by its name, a file in a folder may have weights.
bool may_have_weights(const fs::path& path) {
  const FormatRow* format = format_of_suffix(path.native());
  if (format == nullptr || format->names_rows) return false;
  // `attn run -o FOLDER/` names files after outputs.
  return !format->holds_one() || may_be_weights(path.stem().string());
}

/// The .npz, .safetensors, .npy and .json files in a folder and its subfolders that may have
/// weights, in natural order.
std::vector<std::string> tensor_files_in(const std::string& folder) {
  std::vector<std::string> paths;
  std::error_code error;
  fs::recursive_directory_iterator entry(folder, error);
  for (; !error && entry != fs::recursive_directory_iterator(); entry.increment(error)) {
    std::error_code ignored;
    const bool is_hidden = entry->path().filename().native().starts_with('.');
    if (entry->is_directory(ignored)) {
      if (is_hidden) entry.disable_recursion_pending();
    } else if (!is_hidden && may_have_weights(entry->path())) {
      paths.push_back(entry->path().string());
    }
  }
  if (error)
    throw Error(ErrorKind::no_input, Problem{.where = {folder}, .message = error.message()});
  if (paths.empty())
    throw Error(
        ErrorKind::no_input,
        Problem{.where = {folder}, .message = "has no .npz, .safetensors, .npy or .json files"});
  std::sort(paths.begin(), paths.end(), precedes_naturally);
  return paths;
}

/// The inputs, with the files of each folder in its place.
std::vector<std::string> files_of(const std::vector<std::string>& inputs) {
  std::vector<std::string> files;
  for (const std::string& input : inputs) {
    std::error_code ignored;
    if (fs::is_directory(input, ignored)) {
      const std::vector<std::string> inside = tensor_files_in(input);
      files.insert(files.end(), inside.begin(), inside.end());
    } else {
      files.push_back(input);
    }
  }
  return files;
}

/// A line of the table: values in the order of its columns; nullptr: not known.
using Line = std::vector<Json>;

std::string csv_cell(const Json& value) {
  if (value.get<std::nullptr_t>() != nullptr) return "";
  if (const auto number = value.get<double>()) return python_repr(*number);
  const auto text = value.get<std::string>();
  return text == nullptr ? to_json(value) : csv_field(printable(*text));
}

std::string text_cell(const Json& value) {
  if (value.get<std::nullptr_t>() != nullptr) return "-";
  if (const auto number = value.get<double>()) return six_digits(*number);
  const auto text = value.get<std::string>();
  return text == nullptr ? to_json(value) : printable(*text);
}

/// Prints lines under the names of their columns.
class Table {
 public:
  Table(StatsFormat format, std::vector<std::string> columns)
      : format_(format), columns_(std::move(columns)) {}

  /// The lines as text. Those of an aligned table are kept until end().
  std::string text_of(const std::vector<Line>& lines) {
    std::string text;
    if (format_ == StatsFormat::text) {
      kept_.insert(kept_.end(), lines.begin(), lines.end());
      return text;
    }
    text += header();
    for (const Line& line : lines)
      text += format_ == StatsFormat::csv ? join(line, ",", csv_cell) + "\n" : object(line) + "\n";
    return text;
  }

  /// The aligned table, or the header of a CSV table without lines.
  std::string end() { return kept_.empty() ? header() : aligned(columns_, kept_); }

 private:
  /// Of a CSV table that has none yet; otherwise "".
  std::string header() {
    const bool is_first = !has_header_;
    has_header_ = true;
    return format_ == StatsFormat::csv && is_first ? join(columns_, ",") + "\n" : "";
  }

  std::string object(const Line& line) const {
    std::string text;
    for (std::size_t i = 0; i < line.size(); ++i)
      text += (i == 0 ? "{" : ",") + json_quoted(columns_[i]) + ":" + to_json(line[i]);
    return text + "}";
  }

  /// Columns without any value are left out.
  static std::string aligned(const std::vector<std::string>& columns,
                             const std::vector<Line>& lines) {
    std::vector<std::string> rows(lines.size() + 1);
    for (std::size_t i = 0; i < columns.size(); ++i) {
      const auto is_known = [i](const Line& line) {
        return line[i].get<std::nullptr_t>() == nullptr;
      };
      if (std::none_of(lines.begin(), lines.end(), is_known)) continue;
      std::vector<std::string> cells = {columns[i]};
      for (const Line& line : lines) cells.push_back(text_cell(line[i]));
      std::size_t width = 0;
      for (const std::string& cell : cells) width = std::max(width, columns_of(cell));
      for (std::size_t row = 0; row < rows.size(); ++row)
        rows[row] += (rows[row].empty() ? "" : "  ") +
                     std::string(width - columns_of(cells[row]), ' ') + cells[row];
    }
    return join(rows, "\n") + "\n";
  }

  StatsFormat format_;
  std::vector<std::string> columns_;
  bool has_header_ = false;
  std::vector<Line> kept_;
};

/// Weights or row statistics as (layers, B, H, ...), and which of the first three axes they have.
struct HeadAxes {
  std::size_t layers = 1, items = 1, heads = 1;
  bool has_layers = false, has_items = false, has_heads = false;
  std::vector<std::int64_t> numbers = {};  ///< of the layers in their model; empty: 0, 1, ...

  std::int64_t number_of(std::size_t layer) const {
    return numbers.empty() ? static_cast<std::int64_t>(layer) : numbers[layer];
  }
  std::size_t count() const { return layers * items * heads; }
};

/// Errors: data, if a tensor without elements has very long axes: a file of a few bytes can declare
/// any number of heads and queries.
void limit_empty_tensor(const Shape& shape) {
  constexpr std::size_t kMaxProduct = std::size_t{1} << 20;
  std::size_t product = 1;
  for (const std::size_t length : shape)
    product = saturating_product({product, std::max<std::size_t>(length, 1)});
  const bool is_empty = std::find(shape.begin(), shape.end(), 0u) != shape.end();
  if (is_empty && product > kMaxProduct)
    throw Error(ErrorKind::data,
                Problem{.expected = "axes other than 0 with a product of at most " +
                                    std::to_string(kMaxProduct) + " in a tensor without elements",
                        .found = to_string(shape)});
}

/// Errors: data, if the labels say that the last axes are not queries and keys or, if `inner` is 1,
/// queries.
void require_queries(const Labels& labels, std::size_t inner) {
  const std::vector<std::string>& axes = labels.axes;
  const std::vector<std::string> wanted = {"query", "key"};
  if (axes.size() < inner ||
      std::equal(axes.end() - static_cast<std::ptrdiff_t>(inner), axes.end(), wanted.begin()))
    return;
  throw Error(ErrorKind::data, Problem{.expected = inner == 2 ? "queries and keys as the last axes"
                                                              : "queries as the last axis",
                                       .found = "axes " + join(axes, ", ")});
}

/// The axes of a tensor of a result before the last `inner` ones: layers, batch, heads, of which
/// some may be missing. Errors: data, for too few or too many axes and as limit_empty_tensor().
HeadAxes head_axes(const ResultFile& result, const std::string& name, std::size_t inner) {
  const Shape& shape = result.tensors.at(name).shape();
  const auto refuse = [&] {
    throw Error(ErrorKind::data,
                Problem{.expected = std::to_string(inner) + " to " + std::to_string(inner + 3) +
                                    " axes: layer, batch, head, " + (inner == 2 ? "L, S" : "L"),
                        .found = to_string(shape)});
  };
  if (shape.size() < inner || shape.size() > inner + 3) refuse();
  limit_empty_tensor(shape);
  constexpr std::array<std::string_view, 3> kOutermost = {"layer", "batch", "head"};
  const Labels labels = result.labels(name);
  if (result.made_by.find("job") != nullptr) require_queries(labels, inner);
  const std::size_t outer = shape.size() - inner;
  HeadAxes axes{.numbers = labels.layers};
  std::size_t next = 0;  // in kOutermost; each axis precedes those that it contains
  for (std::size_t k = 0; k < outer; ++k, ++next) {
    const std::string_view word =
        labels.axes.empty() ? kOutermost[kOutermost.size() - outer + k] : labels.axes[k];
    while (next < kOutermost.size() && kOutermost[next] != word) ++next;
    if (next == kOutermost.size()) refuse();
    if (word == "head") axes.heads = shape[k], axes.has_heads = true;
    if (word == "batch") axes.items = shape[k], axes.has_items = true;
    if (word == "layer") axes.layers = shape[k], axes.has_layers = true;
  }
  return axes;
}

/// Warns if the first of four axes may be layers: it is taken as the batch, but only provenance
/// could say so.
void warn_of_batch(const ResultFile& result, const std::string& label, const Shape& shape,
                   const HeadAxes& axes) {
  if (shape.size() != 4 || axes.has_layers || axes.items < 2 || result.made_by.find("job")) return;
  note("warning: " + label + " " + to_string(shape) +
       ": the axes are taken as batch, head, L, S; if the first one is layers, save x[:, None], "
       "which is layer, batch, head, L, S");
}

/// All tensors of "FILE", or the one of "FILE#NAME", with what the file states about its job.
ResultFile result_of(const TensorRef& ref, TensorFiles& files) {
  if (ref.member.empty()) return read_result(ref.path, files);
  ResultFile result{{}, {}, read_made_by(ref.path, files)};
  add_tensor(ref, ref.member, files, result);
  return result;
}

/// Identifies a line of the table; -1 for an axis that the tensor lacks or that is pooled.
struct HeadKey {
  std::string name;
  std::int64_t layer = -1, item = -1, head = -1;
  bool operator<(const HeadKey& other) const {
    if (name != other.name) return precedes_naturally(name, other.name);
    return std::tie(layer, item, head) < std::tie(other.layer, other.item, other.head);
  }
};

Json number_or_null(std::int64_t number) { return number < 0 ? Json{} : Json{number}; }
Json text_or_null(const std::string& text) {
  return text.empty() ? Json{} : Json{text_of_name(text)};
}

struct Group {
  HeadSums sums;
  StatisticSet known = StatisticSet().set();
};
using Groups = std::map<HeadKey, Group>;
using Similarities = std::map<HeadKey, HeadSimilarity>;  ///< by name and layer

/// The names of `weights`, or of all tensors that may be weights, in natural order: floating-point
/// numbers, or the only tensor, under names that neither the keys nor the other outputs of a job
/// have. Errors: data, if there are none.
std::vector<std::string> weights_in(const TensorMap& tensors) {
  if (contains(tensors, Output::weights)) return {std::string(name_of(Output::weights))};
  std::vector<std::string> names, others;
  for (const auto& [name, tensor] : tensors) {
    const bool is_number = is_float(tensor.dtype()) || tensors.size() == 1;
    (is_number && may_be_weights(name) ? names : others).push_back(name);
  }
  std::sort(names.begin(), names.end(), precedes_naturally);
  if (!names.empty()) return names;
  constexpr std::size_t kNamed = 3;
  const std::span<const std::string> first(others.data(), std::min(others.size(), kNamed));
  throw Error(ErrorKind::data,
              Problem{.message = others.empty()
                                     ? "has no weights"
                                     : "has no weights, but found " + printable(join(first, ", ")) +
                                           (others.size() > kNamed ? ", ..." : ""),
                      .hint = others.empty() ? "" : "FILE#NAME uses a tensor of any name"});
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

/// Reads files and adds up the sums of their heads.
class Collector {
 public:
  explicit Collector(const StatsArgs& args) : args_(args), limits_(limits_of_reading(args)) {
    if (!args.token_ids.empty()) {
      TensorFiles files(limits_);
      token_ids_ = checked_ids(files.read(parse_tensor_ref(args.token_ids)), args.token_ids);
    }
  }

  Groups groups;
  Similarities similarities;

  /// Errors: as read_result(); data, naming the file.
  void add(const std::string& file) {
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

 private:
  static ReadLimits limits_of_reading(const StatsArgs& args) {
    return reading_limits(args.limits, FileAccess::map);
  }

  static Tensor checked_ids(const Tensor& ids, const std::string& where) {
    if (is_float(ids.dtype()) || ids.rank() == 0 || ids.rank() > 2)
      throw Error(
          ErrorKind::data,
          Problem{.where = {where},
                  .expected = "token ids: whole numbers of shape (S) or (B, S)",
                  .found = std::string(name_of(ids.dtype())) + " " + to_string(ids.shape())});
    return cast(ids, DType::i64);
  }

  /// The result of one job, or those of a bundle.
  void add_file(const ResultFile& result) {
    std::map<std::string, ResultFile> jobs = jobs_of_bundle(result);
    if (jobs.empty()) return add_tensors(result, false);
    for (const auto& [job, part] : jobs) {
      job_ = job;
      within(printable(job), [&, &own = part] { add_tensors(own, false); });
    }
  }

  /// `is_named`: the user named the only tensor.
  void add_tensors(const ResultFile& result, bool is_named) {
    const TensorMap& tensors = result.tensors;
    std::optional<Tensor> ids = token_ids_;
    const std::string ids_name(name_of(Input::token_ids));
    if (const Tensor* own = tensors.find(ids_name); own != nullptr && !ids)
      ids = checked_ids(*own, ids_name);
    const std::string weights(name_of(Output::weights));
    if (tensors.contains(weights))
      within(weights, [&] { add_weights(result, weights, ids); });
    else if (contains(tensors, Output::weight_sum))
      add_row_statistics(result);
    else
      add_all(result, is_named ? tensors.names() : weights_in(tensors), ids);
  }

  /// Each of several tensors may be a layer.
  void add_all(const ResultFile& result, const std::vector<std::string>& names,
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
  std::string name_in_table(const std::string& name) const {
    if (job_.empty() || args_.by == Grouping::all) return name;
    return name.empty() ? job_ : job_ + "/" + name;
  }

  HeadKey key_of(const std::string& name, const HeadAxes& axes, std::size_t index) const {
    HeadKey key{.name = name_in_table(name)};
    if (axes.has_heads) key.head = static_cast<std::int64_t>(index % axes.heads);
    if (axes.has_items && args_.by == Grouping::item)
      key.item = static_cast<std::int64_t>(index / axes.heads % axes.items);
    if (axes.has_layers) key.layer = axes.number_of(index / axes.heads / axes.items);
    return key;
  }

  /// `layer`: of weights without an axis of layers.
  void add_weights(const ResultFile& result, const std::string& name,
                   const std::optional<Tensor>& ids,
                   std::optional<std::int64_t> layer = std::nullopt) {
    const Tensor& weights = result.tensors.at(name);
    const Shape& shape = weights.shape();
    HeadAxes axes = head_axes(result, name, 2);
    if (layer && !axes.has_layers) axes.has_layers = true, axes.numbers = {*layer};
    const std::size_t L = *(shape.end() - 2), S = shape.back();
    if (job_.empty() && args_.by != Grouping::item)
      warn_of_batch(result, label_of(file_, name), shape, axes);
    const std::optional<QueryPositions> positions = positions_in(result.made_by, axes.items, L, S);
    const std::size_t keys = positions ? positions->keys() : S;
    if (ids && (ids->shape().back() != keys || (ids->rank() == 2 && ids->shape()[0] != axes.items)))
      throw Error(ErrorKind::data,
                  Problem{.subject = std::string(name_of(Input::token_ids)),
                          .expected = "a token id for each key of the weights " + to_string(shape),
                          .found = to_string(ids->shape())});
    if (args_.similarity)
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
      group.known &= statistics_with(positions.has_value(), ids.has_value());
    }
  }

  /// `weights` is (layers, B, H, L, S).
  void add_similarity(const Tensor& weights, const std::string& name, const HeadAxes& axes) {
    for (std::size_t layer = 0; layer < axes.layers; ++layer) {
      HeadKey key{.name = name_in_table(name)};
      if (axes.has_layers) key.layer = axes.number_of(layer);
      HeadSimilarity& heads = similarities.try_emplace(key, axes.heads).first->second;
      if (heads.heads() != axes.heads)
        throw Error(ErrorKind::data,
                    Problem{.expected = counted(heads.heads(), "head") + " as in the files before",
                            .found = std::to_string(axes.heads)});
      for (std::size_t item = 0; item < axes.items; ++item) heads.add(weights.at(layer).at(item));
    }
  }

  /// From the outputs of a job that computed the statistics of each query.
  void add_row_statistics(const ResultFile& result) {
    if (args_.similarity)
      throw Error(ErrorKind::data, Problem{.message = "--similarity requires weights"});
    const std::string total(name_of(Output::weight_sum));
    const Tensor weight_sums = cast(result.tensors.at(total), DType::f64);
    const HeadAxes axes = head_axes(result, total, 1);
    const StatisticSet used = statistics_with(true, true);
    std::vector<std::optional<Tensor>> rows(kRowStatistics.size());
    for (std::size_t k = 0; k < rows.size(); ++k)
      if (const Tensor* given = find(result.tensors, kRowStatistics[k].output);
          given != nullptr && used.test(k)) {
        if (given->shape() != weight_sums.shape())
          throw Error(
              ErrorKind::data,
              Problem{.subject = std::string(name_of(kRowStatistics[k].output)),
                      .expected = "the shape of weight_sum, " + to_string(weight_sums.shape()),
                      .found = to_string(given->shape())});
        rows[k] = cast(*given, DType::f64);
      }
    const std::size_t L = weight_sums.shape().back();
    for (std::size_t i = 0; i < axes.count(); ++i) {
      Group& group = groups[key_of("", axes, i)];
      for (std::size_t query = 0; query < L; ++query) {
        HeadSums::Numbers numbers{};
        for (std::size_t k = 0; k < rows.size(); ++k)
          if (rows[k]) numbers[k] = rows[k]->data<double>()[i * L + query];
        group.sums.add(numbers);
      }
      for (std::size_t k = 0; k < rows.size(); ++k)
        if (!rows[k]) group.known.reset(k);
    }
  }

  const StatsArgs& args_;
  ReadLimits limits_;
  TensorFiles parsed_{limits_};  ///< what one file has parsed, further tensors of it use, too
  std::optional<Tensor> token_ids_;
  std::string file_;
  std::string job_;  ///< of a bundle; "": the file has one job
};

std::vector<std::string> columns_of_table(const StatsArgs& args) {
  std::vector<std::string> columns = {"file", "name", "layer", "item", "head"};
  if (args.similarity) {
    columns[3] = "head", columns[4] = "other";
    columns.insert(columns.end(), {"cosine", "divergence"});
    return columns;
  }
  columns.emplace_back("queries");
  for (const RowStatistic& statistic : kRowStatistics)
    if (statistic.summary != Summary::none) columns.emplace_back(name_of(statistic.output));
  return columns;
}

std::vector<Line> lines_of(const Groups& groups, const std::string& file) {
  std::vector<Line> lines;
  for (const auto& [key, group] : groups) {
    Line line = {text_or_null(file),        text_or_null(key.name),
                 number_or_null(key.layer), number_or_null(key.item),
                 number_or_null(key.head),  Json{static_cast<std::int64_t>(group.sums.queries())}};
    for (std::size_t k = 0; k < kRowStatistics.size(); ++k)
      if (const RowStatistic& statistic = kRowStatistics[k]; statistic.summary != Summary::none)
        line.push_back(group.known.test(k) ? Json{group.sums.value(statistic)} : Json{});
    lines.push_back(std::move(line));
  }
  return lines;
}

std::vector<Line> lines_of(const Similarities& similarities, const std::string& file) {
  std::vector<Line> lines;
  for (const auto& [key, heads] : similarities)
    for (std::size_t a = 0; a < heads.heads(); ++a)
      for (std::size_t b = a + 1; b < heads.heads(); ++b)
        lines.push_back({text_or_null(file), text_or_null(key.name), number_or_null(key.layer),
                         Json{static_cast<std::int64_t>(a)}, Json{static_cast<std::int64_t>(b)},
                         Json{heads.cosine(a, b)}, Json{heads.divergence(a, b)}});
  return lines;
}

/// Prints the statistics of all files that can be read, then reports the others. The first error
/// sets the exit code.
int print_statistics(const StatsArgs& args) {
  const StatsFormat format = stats_format_of(args);
  const std::vector<std::string> files = files_of(args.inputs);
  for (const std::string& file : files) note_input(parse_tensor_ref(file).path);
  if (!args.token_ids.empty()) note_input(parse_tensor_ref(args.token_ids).path);
  OutputFile out(args.output, {.force = args.force});
  Table table(format, columns_of_table(args));
  Collector collected(args);
  ProblemList problems;
  std::optional<ErrorKind> kind;
  bool has_lines = false;
  const auto write = [&](const std::string& file) {
    const std::vector<Line> lines =
        args.similarity ? lines_of(collected.similarities, file) : lines_of(collected.groups, file);
    if (!lines.empty()) write_lines(out, table.text_of(lines)), has_lines = true;
    if (args.similarity && lines.empty())
      note("warning: " + (file.empty() ? "" : printable(file) + ": ") +
           "no layer has two heads to compare");
    out.flush();
    collected.groups.clear();
    collected.similarities.clear();
  };
  for (const std::string& file : files) {
    try {
      collected.add(file);
      if (args.by != Grouping::all)
        write(files.size() == 1 && format == StatsFormat::text ? "" : file);
    } catch (const Error& error) {
      if (!kind) kind = error.kind();
      for (const Problem& problem : error.problems()) problems.add(problem);
      if (args.by != Grouping::all) collected.groups.clear(), collected.similarities.clear();
    }
  }
  if (args.by == Grouping::all) write("");
  if (!kind || has_lines) write_lines(out, table.end());
  if (kind && !is_stream(args.output)) problems.raise(*kind);
  out.commit();
  if (kind) problems.raise(*kind);
  return 0;
}

/// The names of those that need token ids, or of the others.
std::vector<std::string> names_of_statistics(bool need_tokens) {
  std::vector<std::string> names;
  for (const RowStatistic& statistic : kRowStatistics)
    if (statistic.summary != Summary::none &&
        (row_of(statistic.output).source == Input::token_ids) == need_tokens)
      names.emplace_back(name_of(statistic.output));
  return names;
}

}  // namespace

Command stats_command() {
  const auto args = std::make_shared<StatsArgs>();
  Command command;
  command.description =
      "Prints statistics of each attention head, from stored weights or from the outputs of a job "
      "that computed them for each query: " +
      join(names_of_statistics(false), ", ") + " and, with token ids, " +
      join(names_of_statistics(true), " and ") +
      ". 'attn help outputs' describes them.\n\n"
      "If a file has weights, they are used; if not, the statistics; if neither, all tensors. "
      "Weights are (L, S), or have the axes head, batch and layer before L, in the order layer, "
      "batch, head, L, S.";
  command.example =
      "  attn stats result.npz\n"
      "  attn run job.json --outputs weight_sum,entropy,distance -o rows.npz\n"
      "  attn stats rows.npz --format csv";
  command.add(required(positional(
      "FILE", args->inputs,
      ".npz, .safetensors, .npy or .json files, or folders of them; FILE#NAME for one tensor")));
  command.add(text("--token-ids", args->token_ids, "FILE",
                   "token ids of the keys, (S) or (B, S); default: token_ids of each FILE"));
  command.add(word("--by", args->by,
                   {{"file", Grouping::file}, {"item", Grouping::item}, {"all", Grouping::all}},
                   "a line for each head of each file, of each batch item (item), or of all files "
                   "together (all); default: file"));
  command.add(flag("--similarity", args->similarity,
                   "compare the heads of each layer instead: cosine, and Jensen-Shannon divergence "
                   "in nats"));
  command.add(text("-o,--output", args->output, "FILE",
                   "output file ending in .csv, .ndjson or .txt; default: stdout"));
  command.add(flag("--force", args->force, "overwrite FILE if it exists"));
  command.add(word(
      "--format", args->format,
      {{"text", StatsFormat::text}, {"csv", StatsFormat::csv}, {"ndjson", StatsFormat::ndjson}},
      "format on stdout: text, csv or ndjson"));
  add_limit_options(command, args->limits);
  command.requirements.push_back(
      {{"--force"}, "-o FILE", [args = args.get()] { return args->output != "-"; }});
  command.requirements.push_back({{"--format"},
                                  "standard output; a file's suffix sets its format",
                                  [args = args.get()] { return is_stream(args->output); }});
  command.action = [args] { return print_statistics(*args); };
  return command;
}

namespace {

struct RolloutArgs {
  std::vector<std::string> layers;
  RolloutOptions options;
  EmitArgs emit;
  LimitArgs limits;
};

/// (layers, B, H, L, S) of weights (..., L, S) with these axes.
Tensor with_all_axes(const Tensor& weights, const HeadAxes& axes) {
  const Shape& shape = weights.shape();
  return weights.reshaped({axes.layers, axes.items, axes.heads, *(shape.end() - 2), shape.back()});
}

/// Errors: data, unless the weights are those of self-attention with the batch items and tokens of
/// the layers before, whose product is `result`.
void check_layer(const Tensor& given, const Shape& shape, const std::optional<Shape>& result) {
  if (shape[2] == 0 || shape[3] != shape[4])
    throw Error(ErrorKind::data, Problem{.expected = "weights of self-attention, (..., L, L)",
                                         .found = to_string(given.shape())});
  if (!result || *result == Shape{shape[1], shape[3], shape[4]}) return;
  throw Error(ErrorKind::data,
              Problem{.expected = "weights of " + counted((*result)[0], "batch item") + " and " +
                                  counted((*result)[1], "token") + ", as in the layers before",
                      .found = to_string(given.shape())});
}

/// Errors: data, unless each layer comes after all layers below it.
void require_ascending(const std::vector<std::int64_t>& numbers) {
  const auto wrong = std::adjacent_find(numbers.begin(), numbers.end(), std::greater_equal<>());
  if (wrong != numbers.end())
    throw Error(ErrorKind::data, Problem{.expected = "layers in ascending order",
                                         .found = std::to_string(*std::next(wrong)) + " after " +
                                                  std::to_string(*wrong)});
}

/// Rollout multiplies weights of self-attention. Errors: data, unless each query is at the key of
/// its index.
void require_own_keys(const ResultFile& result, const std::string& name, const HeadAxes& axes) {
  const Shape& shape = result.tensors.at(name).shape();
  const std::size_t L = *(shape.end() - 2), S = shape.back();
  const std::optional<QueryPositions> positions = positions_in(result.made_by, axes.items, L, S);
  const auto refuse = [](const std::string& found) {
    throw Error(ErrorKind::data,
                Problem{.expected = "all queries of self-attention in order", .found = found});
  };
  if (!positions) refuse("unknown positions");
  if (positions->keys() != S) refuse(counted(S - positions->keys(), "appended key"));
  for (std::size_t item = 0; item < positions->items().size(); ++item)
    for (const auto& [begin, position] : positions->items()[item])
      if (position.key != static_cast<std::int64_t>(begin))
        refuse("query " + std::to_string(begin) + " at key " + std::to_string(position.key));
}

/// Errors: data, if these are the weights of several jobs in a bundle, which are no layers.
void require_one_job(const std::vector<std::string>& names) {
  const auto jobs = std::count_if(names.begin(), names.end(), is_output_of_job);
  if (jobs > 1)
    throw Error(ErrorKind::data, Problem{.expected = "the weights of one job",
                                         .found = "those of " + std::to_string(jobs),
                                         .hint = "FILE#" + printable(names[0]) + " selects one"});
}

int print_rollout(const RolloutArgs& args) {
  TensorFiles files(reading_limits(args.limits, FileAccess::map));
  Rollout rollout(args.options);
  std::vector<std::int64_t> numbers;  // of the layers so far, as far as they are known
  bool is_batched = false;
  for (const std::string& file : files_of(args.layers)) {
    const TensorRef ref = parse_tensor_ref(file);
    const ResultFile layer_file = result_of(ref, files);
    const TensorMap& tensors = layer_file.tensors;
    const std::vector<std::string> names =
        ref.member.empty() ? within(printable(file), [&] { return weights_in(tensors); })
                           : tensors.names();
    within(printable(file), [&] { require_one_job(names); });
    for (const std::string& name : names)
      within(label_of(file, name), [&] {
        const HeadAxes axes = head_axes(layer_file, name, 2);
        const Tensor weights = with_all_axes(tensors.at(name), axes);
        check_layer(tensors.at(name), weights.shape(),
                    rollout.has_layers() ? std::optional(rollout.result().shape()) : std::nullopt);
        require_own_keys(layer_file, name, axes);
        warn_of_batch(layer_file, label_of(file, name), tensors.at(name).shape(), axes);
        is_batched |= axes.has_items;
        numbers.insert(numbers.end(), axes.numbers.begin(), axes.numbers.end());
        require_ascending(numbers);
        for (std::size_t layer = 0; layer < weights.shape()[0]; ++layer)
          rollout.add_layer(weights.at(layer));
      });
  }
  if (!rollout.has_layers())
    throw Error(ErrorKind::data, Problem{.where = {args.layers.front()},
                                         .expected = "the weights of a layer",
                                         .found = "none"});
  const Tensor& result = rollout.result();
  TensorMap results;
  results.set("", is_batched ? result : result.at(0));
  emit_tensors(results, args.emit);
  return 0;
}

}  // namespace

Command rollout_command() {
  const auto args = std::make_shared<RolloutArgs>();
  args->emit.alone = "rollout";
  args->emit.is_result = true;
  Command command;
  command.description =
      "Computes attention rollout (Abnar and Zuidema 2020): how much each token of the last layer "
      "attends to each token of the input. For each layer, the heads' weights W become A = "
      "(1 - residual) W + residual I with rows that sum to 1, and the result is the product of all "
      "A, the last layer first.";
  command.example =
      "  attn rollout layer0.npz layer1.npz -o rollout.npy\n"
      "  attn rollout weights.npy --heads max --discard 0.9";
  command.add(required(positional(
      "FILE", args->layers,
      "weights of the layers in order: (layer, batch, head, L, L), or a tensor for each layer")));
  command.add(word("--heads", args->options.heads,
                   {{"mean", HeadFusion::mean}, {"max", HeadFusion::max}, {"min", HeadFusion::min}},
                   "how the weights of heads become one matrix: mean, max or min; default: mean"));
  command.add(number("--residual", args->options.residual, NumberRange::non_negative, "X",
                     "share of the residual connection, from 0 to 1; default: 0.5"));
  command.add(
      number("--discard", args->options.discard, NumberRange::non_negative, "X",
             "share of each layer's smallest weights to set to 0, from 0 to 1; default: 0"));
  add_emit_options(command, args->emit);
  add_limit_options(command, args->limits);
  command.action = [args] {
    for (const auto& [flag, value] : {std::pair{"--residual", args->options.residual},
                                      std::pair{"--discard", args->options.discard}})
      if (value > 1)
        fail_usage(std::string(flag) + ": expected a number from 0 to 1, found " +
                   python_repr(value));
    return print_rollout(*args);
  };
  return command;
}

}  // namespace attn
