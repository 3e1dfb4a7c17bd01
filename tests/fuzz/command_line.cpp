// Words of a command line, each terminated by a NUL, parsed as the command that the first one
// names. For `run`, stops before the computation. Nothing is opened, written or computed.
#include <algorithm>
#include <map>
#include <memory>

#include "attn/base/suggestion.h"
#include "attn/base/text.h"
#include "attn/cli/commands.h"
#include "attn/cli/job_flags.h"
#include "attn/cli/parser.h"
#include "attn/cli/run.h"
#include "attn/cli/shared_options.h"
#include "attn/cli/show.h"
#include "attn/run/memory_estimate.h"
#include "attn/run/plan_text.h"
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

/// Whether the words fit the command.
bool parses(const Command& command, const std::vector<std::string>& words) {
  return fuzz::accepted(
      [&] { check_requirements(command, parse(command, "attn " + command.name, words)); });
}

/// The options of `attn run` for the computation and its outputs.
struct RunCommand {
  Command command;
  std::string job;
  JobFlags flags;
  ShowArgs show;
  LimitArgs limits;
  NanPolicy nan = NanPolicy::warn;
  RunViewArgs views;

  RunCommand() {
    command.add(positional("JOB", job, ""));
    command.add(job_options(flags));
    add_show_options(command, show,
                     [this] { return destination_of(show, request_names(), views.empty()); });
    add_view_options(command, views);
    command.add(nan_option(nan));
    add_limit_options(command, limits);
  }

  void reset() {
    flags.texts.clear();
    show = {}, limits = {}, views = {};
    job.clear();
  }
};

void understand(const RunCommand& typed) {
  destination_of(typed.show, request_names(), typed.views.empty());
  ReadLimits limits = limits_of(typed.limits);
  limits.memory = std::min(limits.memory, kMost);
  TensorFiles files(limits);
  Document document;
  apply_job_flags(typed.flags, document, files.budget());
  if (document.entries.empty()) return;
  const Job job = make_job(std::move(document), files);
  const Plan plan = prepare_job(job).plan;
  plan_text(plan, MemoryEstimate(plan));
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
    run.reset();
    if (parses(run.command, words)) fuzz::accepted([&] { understand(run); });
  } else if (const CommandEntry* entry = find_command(first)) {
    static std::map<const CommandEntry*, Command> commands;
    if (!commands.contains(entry)) commands[entry] = make_command(*entry);
    parses(commands[entry], words);
  } else {
    did_you_mean(first, command_names(), NameKind::command);
  }
  return 0;
}
