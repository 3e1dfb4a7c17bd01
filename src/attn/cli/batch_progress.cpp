#include "attn/cli/batch_progress.h"

#include <poll.h>
#include <signal.h>
#include <unistd.h>

#include <array>
#include <charconv>
#include <string_view>

namespace attn {
namespace {

constexpr std::array kSignals = {SIGINT, SIGTERM, SIGHUP};
std::array<struct sigaction, kSignals.size()> previous_actions = {};
std::atomic<const BatchProgress*> current = nullptr;
std::atomic<bool> reported = false;

/// Builds a line without allocating or locking, for a signal handler.
class Line {
 public:
  Line& operator<<(std::string_view text) {
    for (const char c : text)
      if (size_ < text_.size()) text_[size_++] = c;
    return *this;
  }
  Line& operator<<(std::size_t number) {
    char digits[20];
    return *this << std::string_view(
               digits, std::to_chars(digits, digits + sizeof digits, number).ptr - digits);
  }
  /// Writes to standard error, unless that would block.
  void write() const {
    pollfd ready{STDERR_FILENO, POLLOUT, 0};
    if (poll(&ready, 1, 0) == 1 && ::write(STDERR_FILENO, text_.data(), size_) < 0) return;
  }

 private:
  std::array<char, 512> text_ = {};
  std::size_t size_ = 0;
};

void write_event(const BatchProgress& progress, int signal_number) {
  const auto microseconds = static_cast<std::size_t>(progress.elapsed().count());
  std::array<char, 6> fraction;
  for (std::size_t i = 0, rest = microseconds; i < 6; ++i, rest /= 10)
    fraction[5 - i] = static_cast<char>('0' + rest % 10);
  Line line;
  line << "{\"event\":\"end\"";
  if (progress.total) line << ",\"total\":" << *progress.total;
  line << ",\"done\":" << progress.done << ",\"failed\":" << progress.failed
       << ",\"skipped\":" << progress.skipped << ",\"seconds\":" << microseconds / 1000000 << "."
       << std::string_view(fraction.data(), fraction.size())
       << ",\"code\":" << static_cast<std::size_t>(128 + signal_number) << "}\n";
  line.write();
}

void write_line(const BatchProgress& progress) {
  const std::size_t finished = progress.finished(), all = progress.total.value_or(finished);
  Line line;
  if (progress.bar_on_screen) line << "\r\x1b[K";
  line << "attn: stopped after " << finished;
  if (progress.total) line << " of " << all;
  line << (all == 1 ? " job" : " jobs") << (progress.resumable ? "; --resume continues\n" : "\n");
  line.write();
}

extern "C" void report_and_raise(int signal_number) {
  const BatchProgress* const progress = current;
  if (progress != nullptr && !reported.exchange(true)) {
    if (progress->json)
      write_event(*progress, signal_number);
    else if (!progress->quiet)
      write_line(*progress);
  }
  for (std::size_t i = 0; i < kSignals.size(); ++i)
    if (kSignals[i] == signal_number) sigaction(signal_number, &previous_actions[i], nullptr);
  raise(signal_number);
}

}  // namespace

StopReporter::StopReporter(const BatchProgress& progress) {
  current = &progress;
  for (std::size_t i = 0; i < kSignals.size(); ++i) {
    if (sigaction(kSignals[i], nullptr, &previous_actions[i]) != 0 ||
        previous_actions[i].sa_handler == SIG_IGN)
      continue;
    struct sigaction action {};
    action.sa_handler = report_and_raise;
    action.sa_flags = static_cast<int>(SA_NODEFER);
    sigaction(kSignals[i], &action, nullptr);
  }
}

StopReporter::~StopReporter() {
  for (std::size_t i = 0; i < kSignals.size(); ++i)
    sigaction(kSignals[i], &previous_actions[i], nullptr);
  current = nullptr;
}

bool StopReporter::has_reported() { return reported; }

}  // namespace attn
