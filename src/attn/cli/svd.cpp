// attn svd: decomposes a matrix into U diag(s) Vt.
#include "attn/attention/svd.h"

#include <array>
#include <cmath>
#include <cstdio>
#include <memory>
#include <optional>

#include "attn/base/error.h"
#include "attn/base/number_text.h"
#include "attn/base/text.h"
#include "attn/base/version.h"
#include "attn/cli/all_commands.h"
#include "attn/cli/shared_options.h"
#include "attn/cli/show.h"
#include "attn/cli/terminal.h"
#include "attn/io/tensor_file.h"
#include "attn/run/result_writer.h"

namespace attn {
namespace {

struct SvdArgs {
  std::string file;
  std::optional<std::size_t> rank;
  ShowArgs show;
  LimitArgs limits;
};

constexpr auto kFactors = std::to_array<std::pair<std::string_view, std::string_view>>(
    {{"U", "left singular vectors, a column each"},
     {"s", "singular values"},
     {"Vt", "right singular vectors, a row each"}});

Svd decompose(const SvdArgs& args, const Tensor& matrix) {
  try {
    return svd(matrix, args.rank);
  } catch (const Error& error) {
    throw error.within(args.file);
  }
}

Json made_by(const SvdArgs& args, const TensorFiles& files) {
  JsonObject options = {{"matrix", Json{args.file}}}, inputs;
  if (args.rank) options.emplace_back("rank", Json{static_cast<std::int64_t>(*args.rank)});
  for (const auto& [path, file] : files.files()) inputs.emplace_back(path, Json{file.digest()});
  return Json{JsonObject{{"schema", Json{std::string("attn/1")}},
                         {"program", Json{std::string("attn ") + kVersion}},
                         {"svd", Json{std::move(options)}},
                         {"inputs", Json{std::move(inputs)}}}};
}

std::string factor_meaning(const std::string& factor) {
  for (const auto& [name, what] : kFactors)
    if (factor == name) return std::string(what);
  return "";
}

/// "2 of 5 singular values account for 99.2637% of the sum of squares"
std::string kept_text(const Tensor& matrix, const Svd& svd) {
  const double share = explained_share(matrix, svd);
  const std::size_t all = std::min(matrix.shape()[0], matrix.shape()[1]);
  const std::string count = std::to_string(svd.s.size()) + " of " + std::to_string(all);
  if (!std::isfinite(share))
    return count + " singular values; s has values that are too large for " +
           std::string(name_of(svd.s.dtype()));
  return count + " singular values account for " + six_digits(100 * share) +
         "% of the sum of squares";
}

std::vector<std::string> factor_names() {
  std::vector<std::string> names;
  for (const auto& [name, what] : kFactors) names.emplace_back(name);
  return names;
}

int run_svd(const SvdArgs& args) {
  const std::vector<std::string> names = factor_names();
  const Destination destination = destination_of(args.show, names);
  TensorFiles files(reading_limits(args.limits, FileAccess::read));
  const Tensor matrix = files.read(parse_tensor_ref(args.file));
  const std::vector<std::string> requested = names_in(destination.targets);
  const bool all = destination.on_stdout || requested.empty();
  ResultWriter writer(destination.targets, all ? names : requested,
                      OutputPolicy{.force = args.show.force});

  const Svd factors = decompose(args, matrix);
  Result result;
  result.outputs.set("U", factors.U);
  result.outputs.set("s", factors.s);
  result.outputs.set("Vt", factors.Vt);
  result.made_by = made_by(args, files);
  writer.write(result);
  writer.commit();
  if (destination.shown)
    show(result, args.show,
         [](const std::string& name, const Tensor&) { return factor_meaning(name); });
  if (args.rank) note(kept_text(matrix, factors));
  return 0;
}

}  // namespace

Command svd_command() {
  const auto args = std::make_shared<SvdArgs>();
  Command command;
  command.description =
      "Decomposes a matrix A into U diag(s) Vt, with the singular values in descending order.";
  command.example =
      "  attn svd ratings.csv --rank 2\n"
      "  attn svd model.npz#W_Q -o factors.npz";
  command.add(required(
      positional("MATRIX", args->file, "FILE, or FILE#NAME if it contains several tensors")));
  command.add(integer("--rank", args->rank, {.min = 1}, "K",
                      "keep the K largest singular values; default: all"));
  const auto destination = [args = args.get()] {
    return destination_of(args->show, factor_names());
  };
  add_show_options(command, args->show, destination);
  add_limit_options(command, args->limits);
  command.requirements.push_back(
      {{"--force"}, "-o FILE", [destination] { return destination().has_file(); }});
  command.action = [args] { return run_svd(*args); };
  return command;
}

}  // namespace attn
