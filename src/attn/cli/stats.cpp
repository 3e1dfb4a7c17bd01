// attn stats: statistics of attention heads from stored weights.
#include <algorithm>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "attn/base/error.h"
#include "attn/base/number_text.h"
#include "attn/base/text.h"
#include "attn/base/utf8.h"
#include "attn/cli/all_commands.h"
#include "attn/cli/head_collector.h"
#include "attn/cli/shared_options.h"
#include "attn/cli/terminal.h"
#include "attn/io/csv.h"
#include "attn/io/json_write.h"
#include "attn/io/staged_file.h"
#include "attn/io/used_files.h"

namespace attn {
namespace {

enum class StatsFormat { text, csv, ndjson };

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
  fail_usage("-o " + printable(args.output) +
             ": expected a name that ends in .csv, .ndjson or .txt");
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
class StatsTable {
 public:
  StatsTable(StatsFormat format, std::vector<std::string> columns)
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

Json number_or_null(std::int64_t number) { return number < 0 ? Json{} : Json{number}; }
Json text_or_null(const std::string& text) {
  return text.empty() ? Json{} : Json{text_of_name(text)};
}

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

/// A line for the heads of several files has the statistics that all of them have.
void warn_of_partly_known(const Groups& groups) {
  StatisticSet left_out;
  for (const auto& [key, group] : groups) left_out |= group.known_of_some & ~group.known;
  std::vector<std::string_view> names;
  for (std::size_t k = 0; k < kRowStatistics.size(); ++k)
    if (left_out.test(k) && kRowStatistics[k].summary != Summary::none)
      names.push_back(name_of(kRowStatistics[k].output));
  if (!names.empty())
    note("warning: statistics that not all files have are left out: " + join(names, ", "));
}

/// Prints the statistics of all files that can be read, then reports the others. The first error
/// sets the exit code.
int print_statistics(const StatsArgs& args) {
  const StatsFormat format = stats_format_of(args);
  const std::vector<std::string> files = files_of(args.inputs);
  for (const std::string& file : files) note_input(parse_tensor_ref(file).path);
  if (!args.token_ids.empty()) note_input(parse_tensor_ref(args.token_ids).path);
  OutputFile out(args.output, {.force = args.force});
  StatsTable table(format, columns_of_table(args));
  HeadCollector collected(args.by, args.similarity, args.token_ids,
                          reading_limits(args.limits, FileAccess::map));
  ProblemList problems;
  std::optional<ErrorKind> kind;
  bool has_lines = false;
  const auto write = [&](const std::string& file) {
    const std::vector<Line> lines =
        args.similarity ? lines_of(collected.similarities, file) : lines_of(collected.groups, file);
    if (!lines.empty()) write_lines(out, table.text_of(lines)), has_lines = true;
    warn_of_partly_known(collected.groups);
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
                   "in nats; without --by item and --token-ids"));
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
  command.conflicts.push_back(
      {"--similarity", "--token-ids", "no statistic of similarity depends on them"});
  command.requirements.push_back({{"--similarity"},
                                  "--by file or --by all; heads are compared over all batch items",
                                  [args = args.get()] { return args->by != Grouping::item; }});
  command.action = [args] { return print_statistics(*args); };
  return command;
}

}  // namespace attn
