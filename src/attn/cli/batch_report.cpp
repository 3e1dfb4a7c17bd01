#include "attn/cli/batch_report.h"

#include <poll.h>
#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <charconv>
#include <cstdio>
#include <cstdlib>
#include <new>
#include <string_view>

#include "attn/base/error.h"
#include "attn/base/text.h"
#include "attn/cli/terminal.h"
#include "attn/io/json_write.h"
#include "attn/io/staged_file.h"

namespace attn {
namespace {

constexpr std::array kSignals = {SIGINT, SIGTERM, SIGHUP};
std::array<struct sigaction, kSignals.size()> previous_actions = {};
std::atomic<const BatchProgress*> current = nullptr;
std::atomic<bool> reported = false;

/// Builds a line without allocating or locking, for a signal handler.
class SignalSafeLine {
 public:
  SignalSafeLine& operator<<(std::string_view text) {
    for (const char c : text)
      if (size_ < text_.size()) text_[size_++] = c;
    return *this;
  }
  SignalSafeLine& operator<<(std::size_t number) {
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
  SignalSafeLine line;
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
  SignalSafeLine line;
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

namespace {

constexpr std::size_t kMaxErrors = 20;  // jobs whose errors are shown
constexpr auto kBarDelay = std::chrono::seconds(1);
constexpr auto kBarInterval = std::chrono::milliseconds(100);
constexpr auto kLineInterval = std::chrono::seconds(5);
constexpr std::size_t kMaxBar = 24, kMinBar = 6;  // width between the brackets

std::atomic<bool> status_requested = false;

extern "C" void request_status(int) { status_requested = true; }

std::string rounded(double value) {
  char text[32];
  std::snprintf(text, sizeof text, value < 10 ? "%.1f" : "%.0f", value);
  return text;
}

/// Removes parts at the end ("1 s left", "823 per second") until the text fits.
std::string fitted(std::string text, std::size_t width) {
  while (text.size() > width) {
    const std::size_t comma = text.rfind(", ");
    text.resize(comma == std::string::npos ? width : comma);
  }
  return text;
}

}  // namespace

void install_status_signal() {
  struct sigaction action {};
  action.sa_handler = request_status;
  action.sa_flags = SA_RESTART;
  sigaction(SIGUSR1, &action, nullptr);
}

int report_exception_as_event(const std::exception_ptr& fault) {
  try {
    std::rethrow_exception(fault);
  } catch (const BrokenPipe&) {
    return report_exception(fault);
  } catch (const Error& error) {
    std::string lines;
    for (const std::string& line : error.lines())
      lines += (lines.empty() ? "" : ",") + json_quoted(line);
    const int code = static_cast<int>(error.kind());
    write_error_lines("{\"event\":\"error\",\"error\":[" + lines +
                      "],\"code\":" + std::to_string(code) + "}\n");
    return code;
  } catch (const MemoryLimitReached& error) {
    return report_exception_as_event(std::make_exception_ptr(Error(ErrorKind::data, error.what())));
  } catch (const std::bad_alloc& error) {
    write_error_lines(std::string("{\"event\":\"error\",\"error\":[\"") + message_of(error) +
                      "\"],\"code\":65}\n");
    return static_cast<int>(ErrorKind::data);
  } catch (const std::exception& error) {
    const Error internal(ErrorKind::internal, std::string("internal error: ") + error.what());
    return report_exception_as_event(std::make_exception_ptr(internal));
  }
}

BatchReport::BatchReport(ReportOptions options)
    : options_(std::move(options)),
      bar_(options_.style == ProgressStyle::automatic && !options_.json && !options_.quiet &&
           can_show_bar()) {
  progress_.total = options_.total;
  progress_.json = options_.json;
  progress_.quiet = options_.quiet;
  progress_.resumable = options_.resumable;
  if (options_.json) event("start");
}

void BatchReport::item(const Outcome& outcome) {
  if (StopReporter::has_reported()) return;
  if (outcome.status == Status::removed)
    ++removed_;
  else
    ++count_of(outcome.status);
  if (options_.json) {
    return write_error_lines("{\"event\":\"item\"," + outcome_json(outcome, "").substr(1) + "\n");
  }
  if (outcome.change != Change::none && ++reruns_[outcome.change] == 1) rerun(outcome);
  if (outcome.status == Status::failed) failure(outcome);
  if (!outcome.warning.empty() && !options_.quiet) warning(outcome);
}

void BatchReport::take_back(const Outcome& outcome) { --count_of(outcome.status); }

std::atomic<std::size_t>& BatchReport::count_of(Status status) {
  return status == Status::done     ? progress_.done
         : status == Status::failed ? progress_.failed
                                    : progress_.skipped;
}

void BatchReport::failure(const Outcome& outcome) {
  if (progress_.failed <= kMaxErrors)
    for (const std::string& line : outcome.error) print_line(line);
  if (progress_.failed == kMaxErrors + 1)
    print_line("more jobs failed; their errors are in " + options_.where);
}

/// Shown for the first job of each reason; the summary has the number of jobs.
void BatchReport::rerun(const Outcome& outcome) {
  if (options_.quiet || options_.dry_run) return;
  print_line(printable(outcome.name) + ": run again because " +
             reason_of(outcome.change, outcome.changed_file));
}

/// "; run again: 3 (flags, base or version changed), 1 (input changed)"
std::string BatchReport::reruns() const {
  static const std::map<Change, const char*> kReasons = {
      {Change::error, "failed before"},
      {Change::options, "flags, base or version changed"},
      {Change::input, "input changed"},
      {Change::output, "result changed or missing"},
      {Change::manifest, "manifest line corrupt"},
  };
  std::string text;
  for (const auto& [change, count] : reruns_)
    text += (text.empty() ? "; run again: " : ", ") + std::to_string(count) + " (" +
            kReasons.at(change) + ")";
  return text;
}

void BatchReport::warning(const Outcome& outcome) {
  constexpr std::size_t kMaxKinds = 50;
  std::string kind;
  for (const char c : outcome.warning)
    if (c < '0' || c > '9') kind += c;
  if (warned_.size() == kMaxKinds && !warned_.contains(kind)) kind.clear();
  const std::size_t count = ++warned_[kind];
  if (count <= kMaxErrors) print_line(printable(outcome.name) + ": warning: " + outcome.warning);
  if (count == kMaxErrors + 1)
    print_line("more jobs have warnings like " + printable(outcome.name) + "; they are not shown");
}

void BatchReport::skipped_without_statistics(std::size_t count) {
  if (count == 0 || options_.json || options_.quiet) return;
  print_line("warning: the summary has no statistics of " + counted(count, "skipped job") +
             "; --force instead of --resume or --no-clobber runs all jobs again");
}

void BatchReport::tick() {
  const auto now = Clock::now();
  if (status_requested.exchange(false)) say_status();
  if (bar_ && now - progress_.start >= kBarDelay && now - drawn_ >= kBarInterval) draw_bar();
  if (options_.style == ProgressStyle::plain && now - drawn_ >= kLineInterval) {
    drawn_ = now;
    say_status();
  }
}

void BatchReport::say_status() {
  if (options_.json)
    event("progress");
  else
    print_line(status());
}

/// "412 of 1000 jobs, 3 failed, 823 per second, 1 s left"
std::string BatchReport::status() const {
  const std::size_t finished = progress_.finished();
  const double rate = static_cast<double>(finished) / std::max(seconds(), 1e-9);
  std::string text = options_.total
                         ? std::to_string(finished) + " of " + counted(*options_.total, "job")
                         : counted(finished, "job");
  text += ", " + std::to_string(progress_.failed) + " failed, " + rounded(rate) + " per second";
  if (options_.total && finished > 0)
    text += ", " + rounded(static_cast<double>(*options_.total - finished) / rate) + " s left";
  return text;
}

/// The last column stays empty, since some terminals start a new line after it.
void BatchReport::draw_bar() {
  drawn_ = Clock::now();
  progress_.bar_on_screen = true;
  const std::size_t columns = terminal_width(STDERR_FILENO) - 1;
  const std::string text = fitted(status(), columns);
  std::string bar;
  const std::size_t other_columns = text.size() + 3;
  if (options_.total && columns >= other_columns + kMinBar) {
    const std::size_t width = std::min(kMaxBar, columns - other_columns);
    const std::size_t full =
        width * progress_.finished() / std::max<std::size_t>(*options_.total, 1);
    bar = "[" + std::string(full, '#') + std::string(width - full, '.') + "] ";
  }
  draw_status(bar + text);
}

bool BatchReport::clear_bar() {
  if (!progress_.bar_on_screen) return false;
  clear_status();
  progress_.bar_on_screen = false;
  return true;
}

void BatchReport::print_line(const std::string& line) {
  clear_bar();
  write_message(line);
}

void BatchReport::event(const std::string& name, const std::string& more) const {
  std::string text = "{\"event\":" + json_quoted(name);
  const auto count = [&](const char* key, std::size_t number) {
    text += std::string(",\"") + key + "\":" + std::to_string(number);
  };
  if (options_.total) count("total", *options_.total);
  count("done", progress_.done);
  count("failed", progress_.failed);
  count("skipped", progress_.skipped);
  char digits[64];
  std::snprintf(digits, sizeof digits, ",\"seconds\":%.6f", seconds());
  write_error_lines(text + digits + more + "}\n");
}

int BatchReport::fault(const std::exception_ptr& fault) {
  clear_bar();
  return options_.json ? report_exception_as_event(fault) : report_exception(fault);
}

void BatchReport::end(int code) {
  clear_bar();
  if (options_.json) return event("end", ",\"code\":" + std::to_string(code));
  const std::size_t finished = progress_.finished();
  std::string text = counted(finished, "job") + ": " + std::to_string(progress_.done) +
                     (options_.dry_run ? " planned, " : " done, ") +
                     std::to_string(progress_.skipped) + " skipped, " +
                     std::to_string(progress_.failed) + " failed";
  if (options_.total && finished < *options_.total)
    text += ", " + std::to_string(*options_.total - finished) + " not done";
  text += " in " + rounded(seconds()) + " s";
  text += reruns();
  if (removed_ > 0)
    text +=
        "; results of " + counted(removed_, "job") + (options_.dry_run ? " to remove" : " removed");
  if (progress_.failed > 0) text += "; failures are in " + options_.where;
  if (!options_.quiet || progress_.failed > 0) print_line(text);
}

}  // namespace attn
