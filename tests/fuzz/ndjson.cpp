// Lines of jobs on standard input, as for `attn batch -`: each non-blank line gives one line of
// JSON, a result or an error.
#include <unistd.h>

#include <atomic>
#include <vector>

#include "attn/batch/jobs.h"
#include "attn/batch/work.h"
#include "attn/io/json_parse.h"
#include "attn/problem/threads.h"
#include "support/confined.h"
#include "support/fuzz.h"
#include "support/memory_file.h"

using namespace attn;

namespace {

constexpr std::size_t kMost = std::size_t{1} << 17, kLongest = 4096;
constexpr std::size_t kProcessed = 2;  // lines; the others are only separated

void put_on_standard_input(std::string_view text) {
  static fuzz::MemoryFile memory;
  memory.set(text);
  fuzz::require(dup2(memory.descriptor(), STDIN_FILENO) == STDIN_FILENO, "standard input");
}

/// The lines that are items, found by simple code.
std::vector<std::string> lines_of(std::string_view text) {
  std::vector<std::string> lines;
  for (std::size_t start = 0; start < text.size();) {
    const std::size_t end = std::min(text.find('\n', start), text.size());
    const std::string line(text.substr(start, end - start));
    const bool blank = line.find_first_not_of(" \t\r") == std::string::npos;
    if (line.size() > kLongest || !blank) lines.push_back(line);
    start = end + 1;
  }
  return lines;
}

void work(const Item& item, const BatchContext& context) {
  const Outcome outcome = work_on(item, context, {[] { return true; }, [] { return false; }});
  const bool failed = outcome.status == Status::failed;
  fuzz::require(failed == !outcome.error.empty(), "an error exactly if the job failed");
  for (const std::string& line : outcome.error)
    fuzz::require_well_formed(Error(static_cast<ErrorKind>(outcome.code), line));
  const std::string line = failed ? failure_json(outcome) + "\n" : outcome.text;
  fuzz::require(line.find('\n') + 1 == line.size(), "one line");
  parse_json(line, "the line");
}

}  // namespace

extern "C" int LLVMFuzzerInitialize(int*, char***) {
  set_threads(1);
  return 0;
}

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string_view text = fuzz::text_of(data, size);
  put_on_standard_input(text);
  const std::vector<std::string> lines = lines_of(text);

  const fuzz::Confined confined;
  FileCache files(kMost, {.memory = kMost}, true);
  MemoryBudget memory(kMost);
  static KeptJobs kept_jobs;  // also of other inputs, which may have the same form
  const BatchContext context{.files = &files, .memory = &memory, .kept_jobs = &kept_jobs};
  const std::atomic<bool> stop = false;
  const auto items = items_of_standard_input(kLongest, stop);
  std::size_t count = 0;
  const bool ended = fuzz::accepted([&] {
    while (const std::optional<Item> item = items->next()) {
      fuzz::require(count < lines.size(), "no more items than lines");
      const bool fits = lines[count].size() <= kLongest;
      fuzz::require(fits == item->invalid.empty(), "a line is invalid exactly if it is too long");
      fuzz::require(item->line == (fits ? lines[count] : ""), "the line itself");
      fuzz::require(item->number == ++count, "items count from 1");
      if (count <= kProcessed) work(*item, context);
    }
  });
  fuzz::require(ended && count == lines.size(), "every line");
  return 0;
}
