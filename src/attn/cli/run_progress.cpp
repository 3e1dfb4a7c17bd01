#include "attn/cli/run_progress.h"

#include <algorithm>
#include <cstdio>
#include <system_error>
#include <utility>

#include "attn/attention/fused.h"
#include "attn/batch/signal_blocker.h"
#include "attn/cli/terminal.h"

namespace attn {

std::string progress_text(std::size_t done, std::size_t rows, double seconds) {
  char text[80];
  const double part = std::min(
      static_cast<double>(done) / static_cast<double>(std::max<std::size_t>(rows, 1)), 1.0);
  if (rows == 0)
    std::snprintf(text, sizeof text, "running for %.0f s", seconds);
  else if (done == 0 || done >= rows)
    std::snprintf(text, sizeof text, "%.0f %% done after %.0f s", 100 * part, seconds);
  else
    std::snprintf(text, sizeof text, "%.0f %% done, %.0f s left", 100 * part,
                  seconds * (1 - part) / part);
  return text;
}

RowCounter::RowCounter(Seconds first, Seconds interval, std::function<void(std::size_t)> show)
    : show_(std::move(show)) {
  count_rows(&rows_);
  const SignalBlocker blocker;
  try {
    thread_ = std::thread([this, first, interval] { watch(first, interval); });
  } catch (const std::system_error&) {  // without it, nothing is shown
  }
}

void RowCounter::stop() {
  {
    const std::lock_guard lock(mutex_);
    stop_ = true;
  }
  stopped_.notify_all();
  if (thread_.joinable()) thread_.join();
  count_rows(nullptr);
}

void RowCounter::watch(Seconds first, Seconds interval) {
  std::unique_lock lock(mutex_);
  for (auto next = start_ + first; !stopped_.wait_until(lock, next, [&] { return stop_; });
       next = std::chrono::steady_clock::now() + interval)
    show_(rows_);
}

namespace {

constexpr RowCounter::Seconds kFirstBar{2}, kBarStep{1}, kLineStep{5};

}  // namespace

RunProgress::RunProgress(bool as_bar, std::size_t rows, std::function<std::size_t()> others)
    : as_bar_(as_bar),
      rows_(rows),
      others_(std::move(others)),
      counter_(as_bar ? kFirstBar : kLineStep, as_bar ? kBarStep : kLineStep,
               [this](std::size_t done) { print(done); }) {}

RunProgress::~RunProgress() {
  counter_.stop();
  clear_bar();
}

void RunProgress::finish() {
  counter_.stop();
  if (as_bar_)
    clear_bar();
  else
    print(counter_.rows());
}

void RunProgress::print(std::size_t done) {
  if (others_) done += others_();
  const std::string text = "attn: " + progress_text(done, rows_, counter_.seconds());
  as_bar_ ? draw_status(text) : write_error_lines(text + "\n");
  is_shown_ = as_bar_;
}

void RunProgress::clear_bar() {
  if (is_shown_) clear_status();
  is_shown_ = false;
}

}  // namespace attn
