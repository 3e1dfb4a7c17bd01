#include "attn-mpi/rank_progress.h"

#include <ctime>
#include <numeric>
#include <optional>
#include <string>
#include <utility>

#include "attn/base/packing.h"

namespace attn {
namespace {

constexpr timespec kProgressPause{0, 50000000};
constexpr RowCounter::Seconds kReportInterval{1};

}  // namespace

std::size_t RowReports::rows() {
  const std::lock_guard lock(mutex_);
  while (const std::optional<Parcel> parcel = team_.take(Mailbox::progress)) {
    Unpacker in(parcel->bytes);
    done_.at(parcel->from) = in.number<std::size_t>();
    ended_ += in.number<bool>() ? 1 : 0;
  }
  return std::accumulate(done_.begin(), done_.end(), std::size_t{0});
}

void RowReports::finish() {
  const auto have_all_ended = [this] {
    rows();
    const std::lock_guard lock(mutex_);
    return ended_ == done_.size();
  };
  while (!have_all_ended()) nanosleep(&kProgressPause, nullptr);
}

RowReporter::RowReporter(Team& team)
    : team_(team),
      counter_(kReportInterval, kReportInterval, [this](std::size_t rows) { post(rows, false); }) {}

void RowReporter::finish() {
  counter_.stop();
  post(counter_.rows(), true);
  while (team_.is_sending()) nanosleep(&kProgressPause, nullptr);
}

void RowReporter::post(std::size_t rows, bool is_last) {
  std::string bytes;
  pack(bytes, rows);
  pack(bytes, is_last);
  team_.is_sending();  // forgets those that have been sent
  team_.post(0, Mailbox::progress, std::move(bytes));
}

}  // namespace attn
