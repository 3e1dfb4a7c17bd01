#include "attn/cli/batch_report.h"

#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstdio>

#include "attn/batch/manifest.h"
#include "attn/io/json.h"
#include "attn/tensor/error.h"

namespace attn {
namespace {

constexpr std::size_t kMostErrors = 20;  // items whose errors are shown
constexpr auto kPatience = std::chrono::seconds(1);
constexpr auto kBarEvery = std::chrono::milliseconds(100);
constexpr auto kLineEvery = std::chrono::seconds(5);
constexpr std::size_t kBarWidth = 24;

std::atomic<bool> asked = false;

extern "C" void ask(int) { asked = true; }

std::string short_number(double value) {
  char text[32];
  std::snprintf(text, sizeof text, value < 10 ? "%.1f" : "%.0f", value);
  return text;
}

std::string counted_jobs(std::size_t count) {
  return std::to_string(count) + (count == 1 ? " job" : " jobs");
}

}  // namespace

BatchReport::BatchReport(ReportOptions options)
    : options_(std::move(options)),
      bar_(options_.style == ProgressStyle::automatic && !options_.json && !options_.quiet &&
           isatty(STDERR_FILENO) == 1) {
  struct sigaction action {};
  action.sa_handler = ask;
  action.sa_flags = SA_RESTART;
  sigaction(SIGUSR1, &action, nullptr);
  if (options_.json) event("start");
}

double BatchReport::seconds() const {
  return std::chrono::duration<double>(Clock::now() - start_).count();
}

void BatchReport::item(const Outcome& outcome) {
  ++(outcome.status == Status::done     ? done_
     : outcome.status == Status::failed ? failed_
                                        : skipped_);
  if (options_.json) {
    std::string line = outcome_json(outcome, "");
    std::fprintf(stderr, "{\"event\":\"item\",%s\n", line.c_str() + 1);
    return;
  }
  if (outcome.status == Status::failed) failure(outcome);
  if (!outcome.warning.empty() && !options_.quiet)
    say(printable(outcome.name) + ": warning: " + outcome.warning);
}

void BatchReport::failure(const Outcome& outcome) {
  if (failed_ <= kMostErrors)
    for (const std::string& line : outcome.error) say(line);
  if (failed_ == kMostErrors + 1) say("more jobs failed; their errors are in " + options_.where);
}

void BatchReport::tick() {
  const auto now = Clock::now();
  if (asked.exchange(false)) {
    if (options_.json)
      event("progress");
    else
      say(status());
  }
  if (bar_ && now - start_ >= kPatience && now - drawn_ >= kBarEvery) draw_bar();
  if (options_.style == ProgressStyle::plain && now - drawn_ >= kLineEvery) {
    drawn_ = now;
    if (options_.json)
      event("progress");
    else
      say(status());
  }
}

/// "412 of 1000 jobs, 3 failed, 823 a second, 1 s left"
std::string BatchReport::status() const {
  const std::size_t finished = done_ + failed_ + skipped_;
  const double rate = static_cast<double>(finished) / std::max(seconds(), 1e-9);
  std::string text = options_.total
                         ? std::to_string(finished) + " of " + counted_jobs(*options_.total)
                         : counted_jobs(finished);
  text += ", " + std::to_string(failed_) + " failed, " + short_number(rate) + " a second";
  if (options_.total && finished > 0)
    text += ", " + short_number(static_cast<double>(*options_.total - finished) / rate) + " s left";
  return text;
}

void BatchReport::draw_bar() {
  drawn_ = Clock::now();
  on_screen_ = true;
  std::string bar;
  if (options_.total) {
    const std::size_t finished = done_ + failed_ + skipped_;
    const std::size_t full = kBarWidth * finished / std::max<std::size_t>(*options_.total, 1);
    bar = "[" + std::string(full, '#') + std::string(kBarWidth - full, '.') + "] ";
  }
  std::fprintf(stderr, "\r%s%s\x1b[K", bar.c_str(), status().c_str());
}

void BatchReport::clear_bar() {
  if (on_screen_) std::fputs("\r\x1b[K", stderr);
  on_screen_ = false;
}

void BatchReport::say(const std::string& line) {
  clear_bar();
  std::fprintf(stderr, "attn: %s\n", line.c_str());
}

void BatchReport::event(const std::string& name) const {
  std::string text = "{\"event\":" + json_quoted(name);
  const auto count = [&](const char* key, std::size_t number) {
    text += std::string(",\"") + key + "\":" + std::to_string(number);
  };
  if (options_.total) count("total", *options_.total);
  count("done", done_);
  count("failed", failed_);
  count("skipped", skipped_);
  std::fprintf(stderr, "%s,\"seconds\":%.6f}\n", text.c_str(), seconds());
}

void BatchReport::abandon() { clear_bar(); }

void BatchReport::end() {
  clear_bar();
  if (options_.json) return event("end");
  const std::size_t finished = done_ + failed_ + skipped_;
  std::string text = counted_jobs(finished) + ": " + std::to_string(done_) + " done, " +
                     std::to_string(skipped_) + " skipped, " + std::to_string(failed_) + " failed";
  if (options_.total && finished < *options_.total)
    text += ", " + std::to_string(*options_.total - finished) + " not started";
  text += " in " + short_number(seconds()) + " s";
  if (failed_ > 0) text += "; failures are in " + options_.where;
  if (!options_.quiet || failed_ > 0) say(text);
}

}  // namespace attn
