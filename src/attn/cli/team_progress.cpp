#include "attn/cli/team_progress.h"

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
constexpr auto kReportInterval = std::chrono::seconds(1);  // also of the bar
constexpr auto kProgressInterval = std::chrono::seconds(5);

}  // namespace

std::string progress_text(std::size_t done, std::size_t rows, double seconds) {
  const double all = static_cast<double>(std::max<std::size_t>(rows, 1));
  const double part = std::min(static_cast<double>(done) / all, 1.0);
  char text[80];
  if (done == 0 || done >= rows)
    std::snprintf(text, sizeof text, "%.0f %% done after %.0f s", 100 * part, seconds);
  else
    std::snprintf(text, sizeof text, "%.0f %% done, %.0f s left", 100 * part,
                  seconds * (1 - part) / part);
  return text;
}

TeamProgress::TeamProgress(PostingTeam& team, bool as_bar, std::size_t rows)
    : team_(team), as_bar_(as_bar), rows_(rows), done_(team.size()) {
  count_rows(&own_);
  const SignalBlocker blocker;
  try {
    thread_ = std::thread([this] { watch(); });
  } catch (const std::system_error&) {  // without it, nothing is shown
  }
}

TeamProgress::~TeamProgress() { stop(); }

void TeamProgress::stop() {
  stop_ = true;
  if (thread_.joinable()) thread_.join();
  count_rows(nullptr);
}

void TeamProgress::finish() {
  stop();
  if (team_.rank() > 0) {
    post_report(true);
    while (team_.is_sending()) nanosleep(&kProgressPause, nullptr);
    return;
  }
  while (ended_ < team_.size()) {
    take_reports();
    if (ended_ < team_.size()) nanosleep(&kProgressPause, nullptr);
  }
  if (as_bar_)
    clear_status();
  else
    print();
}

void TeamProgress::watch() {
  const auto interval = team_.rank() > 0 || as_bar_ ? kReportInterval : kProgressInterval;
  for (auto next = start_ + interval; !stop_; nanosleep(&kProgressPause, nullptr)) {
    if (std::chrono::steady_clock::now() < next) continue;
    next += interval;
    if (team_.rank() > 0) {
      post_report(false);
    } else {
      take_reports();
      print();
    }
  }
}

void TeamProgress::post_report(bool is_last) {
  std::string bytes;
  pack(bytes, own_.load());
  pack(bytes, is_last);
  team_.is_sending();  // forgets those that have been sent
  team_.post(0, Mailbox::progress, std::move(bytes));
}

void TeamProgress::take_reports() {
  while (const std::optional<Parcel> parcel = team_.take(Mailbox::progress)) {
    Unpacker in(parcel->bytes);
    done_.at(parcel->from) = in.number<std::size_t>();
    ended_ += in.number<bool>() ? 1 : 0;
  }
}

void TeamProgress::print() const {
  const std::size_t done = std::accumulate(done_.begin(), done_.end(), own_.load());
  const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - start_;
  const std::string text = "attn: " + progress_text(done, rows_, seconds.count());
  as_bar_ ? draw_status(text) : write_error_lines(text + "\n");
}

}  // namespace attn
