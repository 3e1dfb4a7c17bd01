// Words of a command line, each terminated by a NUL, parsed as the command that the first one
// names. For `run`, stops before the computation. Nothing is opened, written or computed.
#include <CLI/CLI.hpp>
#include <algorithm>
#include <map>
#include <memory>

#include "attn/base/printable.h"
#include "attn/base/suggestion.h"
#include "attn/cli/job_flags.h"
#include "attn/cli/limit_options.h"
#include "attn/cli/run_views.h"
#include "attn/cli/show.h"
#include "attn/cli/subcommand.h"
#include "attn/job/limits.h"
#include "support/confined.h"
#include "support/fuzz.h"

using namespace attn;

namespace {

constexpr std::size_t kMost = std::size_t{1} << 17;

std::vector<std::string> words_of(std::string_view text) {
  std::vector<std::string> words;
  while (!text.empty()) {
    const std::size_t end = std::min(text.find('\0'), text.size());
    words.emplace_back(text.substr(0, end));
    text.remove_prefix(std::min(end + 1, text.size()));
  }
  return words;
}

/// False if the words are not valid; as in cli.cpp, messages of CLI11 are escaped.
bool parsed(CLI::App& app, std::vector<std::string> words) {
  std::reverse(words.begin(), words.end());
  return fuzz::accepted([&] {
    try {
      app.parse(words);
    } catch (const CLI::ParseError& error) {
      throw Error(ErrorKind::usage, printable(error.what()) + "; see --help");
    }
  });
}

/// The options of `attn run` for the computation and its outputs.
struct RunCommand {
  CLI::App app;
  std::string job;
  JobFlags flags;
  ShowArgs show;
  LimitArgs limits;
  NanPolicy nan = NanPolicy::warn;
  RunViewArgs views;

  RunCommand() {
    app.allow_extras();
    app.add_option("JOB", job);
    add_job_flags(app, flags);
    add_show_options(app, show);
    add_view_options(app, views);
    add_nan_option(app, nan);
    add_limit_options(app, limits);
  }

  void forget() {
    flags.texts.clear();
    for (auto& [key, text] : flags.switches) text.clear();  // CLI11 keeps references to these
    show = {}, limits = {}, views = {};
    job.clear();
  }
};

void understand(const RunCommand& typed) {
  destination_of(typed.show, job_output_names(), typed.views.empty());
  ReadLimits limits = limits_of(typed.limits);
  limits.memory = std::min(limits.memory, kMost);
  TensorFiles files(limits);
  Document document;
  apply_job_flags(typed.flags, document);
  if (document.entries.empty()) return;
  const Job job = make_job(document, files);
  plan_text(prepare_job(job, document).plan);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  std::vector<std::string> words = words_of(fuzz::text_of(data, size));
  if (words.empty()) return 0;
  const std::string first = words[0];
  words.erase(words.begin());
  const fuzz::Confined confined;
  if (first == "run") {
    static RunCommand run;
    run.forget();
    if (parsed(run.app, words)) fuzz::accepted([&] { understand(run); });
  } else if (const Subcommand* subcommand = find_subcommand(first)) {
    static std::map<const Subcommand*, std::unique_ptr<DeclaredCommand>> commands;
    auto& command = commands[subcommand];
    if (command == nullptr) command = declare(*subcommand);
    parsed(*command->app, words);
  } else {
    did_you_mean(first, subcommand_names());
  }
  return 0;
}
