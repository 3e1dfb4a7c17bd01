#include "attn/cli/run_progress.h"

#include <algorithm>
#include <ctime>
#include <numeric>
#include <optional>
#include <system_error>
#include <utility>

#include "attn/base/packing.h"
#include "attn/batch/signal_blocker.h"
#include "attn/cli/terminal.h"
#include "attn/core/fused.h"

namespace attn {
namespace {

constexpr timespec kProgressPause{0, 50000000};
constexpr auto kFirstBar = std::chrono::seconds(2);
constexpr auto kReportInterval = std::chrono::seconds(1);  // also of the bar
constexpr auto kProgressInterval = std::chrono::seconds(5);

}  // namespace

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

RunProgress::RunProgress(PostingTeam* team, bool as_bar, std::size_t rows)
    : team_(team), as_bar_(as_bar), rows_(rows), done_(team == nullptr ? 1 : team->size()) {
  count_rows(&own_);
  const SignalBlocker blocker;
  try {
    thread_ = std::thread([this] { watch(); });
  } catch (const std::system_error&) {  // without it, nothing is shown
  }
}

RunProgress::~RunProgress() {
  stop();
  clear_bar();
}

void RunProgress::stop() {
  {
    const std::lock_guard lock(mutex_);
    stop_ = true;
  }
  changed_.notify_all();
  if (thread_.joinable()) thread_.join();
  count_rows(nullptr);
}

void RunProgress::clear_bar() {
  if (is_shown_) clear_status();
  is_shown_ = false;
}

void RunProgress::finish() {
  stop();
  if (!is_first()) {
    post_report(true);
    while (team_->is_sending()) nanosleep(&kProgressPause, nullptr);
    return;
  }
  while (ended_ < done_.size()) {
    take_reports();
    if (ended_ < done_.size()) nanosleep(&kProgressPause, nullptr);
  }
  if (as_bar_)
    clear_bar();
  else
    print();
}

void RunProgress::watch() {
  const bool is_bar = is_first() && as_bar_;
  const auto interval = is_first() && !as_bar_ ? kProgressInterval : kReportInterval;
  std::unique_lock lock(mutex_);
  for (auto next = start_ + (is_bar ? kFirstBar : interval);
       !changed_.wait_until(lock, next, [&] { return stop_; });
       next = std::chrono::steady_clock::now() + interval) {
    if (is_first()) {
      take_reports();
      print();
    } else {
      post_report(false);
    }
  }
}

void RunProgress::post_report(bool is_last) {
  std::string bytes;
  pack(bytes, own_.load());
  pack(bytes, is_last);
  team_->is_sending();  // forgets those that have been sent
  team_->post(0, Mailbox::progress, std::move(bytes));
}

void RunProgress::take_reports() {
  while (team_ != nullptr) {
    const std::optional<Parcel> parcel = team_->take(Mailbox::progress);
    if (!parcel) return;
    Unpacker in(parcel->bytes);
    done_.at(parcel->from) = in.number<std::size_t>();
    ended_ += in.number<bool>() ? 1 : 0;
  }
}

void RunProgress::print() {
  const std::size_t done = std::accumulate(done_.begin(), done_.end(), own_.load());
  const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - start_;
  const std::string text = "attn: " + progress_text(done, rows_, seconds.count());
  as_bar_ ? draw_status(text) : write_error_lines(text + "\n");
  is_shown_ = as_bar_;
}

}  // namespace attn
