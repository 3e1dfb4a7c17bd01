#include "attn-mpi/mpi_team.h"

#include <sched.h>
#include <unistd.h>

#include <algorithm>
#include <ctime>
#include <utility>

#include "attn/attention/machine.h"

namespace attn {
namespace {

constexpr int kData = 1, kFailure = 2, kMailboxes = 3;  // tags; kMailboxes: of the first mailbox

// MPI counts bytes with an int.
constexpr std::size_t kMaxMessage = std::size_t{1} << 30;

int tag_of(Mailbox mailbox) { return kMailboxes + static_cast<int>(mailbox); }

void pause(long nanoseconds) {
  const timespec time{0, nanoseconds};
  nanosleep(&time, nullptr);
}

/// Polls often at first, then sleeps for up to a millisecond at a time.
void wait(MPI_Request& request) {
  constexpr int kPolls = 2000;
  constexpr long kLongest = 1000000;
  long sleep = 1000;
  for (int polls = 0;; ++polls) {
    int done = 0;
    MPI_Test(&request, &done, MPI_STATUS_IGNORE);
    if (done != 0) return;
    if (polls < kPolls) continue;
    pause(sleep);
    sleep = std::min(2 * sleep, kLongest);
  }
}

/// Calls f with consecutive parts of the bytes and their numbers as MPI counts them.
template <class Byte, class F>
void for_each_message(std::span<Byte> bytes, F&& f) {
  for (std::size_t at = 0; at < bytes.size(); at += kMaxMessage) {
    const auto part = bytes.subspan(at, std::min(kMaxMessage, bytes.size() - at));
    f(part.data(), static_cast<int>(part.size()));
  }
}

}  // namespace

// Errors of MPI end the program (MPI_ERRORS_ARE_FATAL), so results are not checked.

MpiTeam::MpiTeam() {
  int number = 0;
  MPI_Comm_rank(MPI_COMM_WORLD, &number);
  rank_ = static_cast<std::size_t>(number);
  MPI_Comm_size(MPI_COMM_WORLD, &number);
  size_ = static_cast<std::size_t>(number);
  MPI_Comm host = MPI_COMM_NULL;
  MPI_Comm_split_type(MPI_COMM_WORLD, MPI_COMM_TYPE_SHARED, 0, MPI_INFO_NULL, &host);
  MPI_Comm_size(host, &number);
  ranks_of_host_ = static_cast<std::size_t>(number);
  MPI_Comm_free(&host);
}

std::size_t MpiTeam::threads() const {
  cpu_set_t bound;
  CPU_ZERO(&bound);
  const bool is_bound = sched_getaffinity(0, sizeof bound, &bound) == 0 &&
                        CPU_COUNT(&bound) < sysconf(_SC_NPROCESSORS_ONLN);
  const std::size_t processors = available_processors();
  return is_bound ? processors : std::max<std::size_t>(processors / ranks_of_host_, 1);
}

void MpiTeam::send(std::size_t to, std::span<const std::byte> bytes) {
  for_each_message(bytes, [&](const std::byte* data, int count) {
    MPI_Request request = MPI_REQUEST_NULL;
    MPI_Isend(data, count, MPI_BYTE, static_cast<int>(to), kData, MPI_COMM_WORLD, &request);
    wait(request);
  });
}

void MpiTeam::receive(std::size_t from, std::span<std::byte> bytes) {
  for_each_message(bytes, [&](std::byte* data, int count) {
    MPI_Request request = MPI_REQUEST_NULL;
    MPI_Irecv(data, count, MPI_BYTE, static_cast<int>(from), kData, MPI_COMM_WORLD, &request);
    wait(request);
  });
}

void MpiTeam::broadcast(std::span<std::byte> bytes) { broadcast_from(0, bytes); }

void MpiTeam::exchange(std::span<std::byte> bytes, const std::vector<std::size_t>& ends) {
  for (std::size_t rank = 0, first = 0; rank < size_; first = ends[rank++])
    broadcast_from(rank, bytes.subspan(first, ends[rank] - first));
}

void MpiTeam::broadcast_from(std::size_t rank, std::span<std::byte> bytes) {
  for_each_message(bytes, [&](std::byte* data, int count) {
    MPI_Request request = MPI_REQUEST_NULL;
    MPI_Ibcast(data, count, MPI_BYTE, static_cast<int>(rank), MPI_COMM_WORLD, &request);
    wait(request);
  });
}

void MpiTeam::post(std::size_t to, Mailbox mailbox, std::string bytes) {
  const std::lock_guard lock(mutex_);
  Sending& sending = sending_.emplace_back(Sending{std::move(bytes), {}});
  for_each_message(std::span(sending.bytes), [&](const char* data, int count) {
    MPI_Isend(data, count, MPI_BYTE, static_cast<int>(to), tag_of(mailbox), MPI_COMM_WORLD,
              &sending.requests.emplace_back(MPI_REQUEST_NULL));
  });
}

bool MpiTeam::is_sending() {
  const std::lock_guard lock(mutex_);
  std::erase_if(sending_, [](Sending& sending) {
    int done = 0;
    MPI_Testall(static_cast<int>(sending.requests.size()), sending.requests.data(), &done,
                MPI_STATUSES_IGNORE);
    return done != 0;
  });
  return !sending_.empty();
}

std::optional<Parcel> MpiTeam::take(Mailbox mailbox) {
  int found = 0, count = 0;
  MPI_Message message = MPI_MESSAGE_NULL;
  MPI_Status status;
  MPI_Improbe(MPI_ANY_SOURCE, tag_of(mailbox), MPI_COMM_WORLD, &found, &message, &status);
  if (found == 0) return std::nullopt;
  MPI_Get_count(&status, MPI_BYTE, &count);
  Parcel parcel{static_cast<std::size_t>(status.MPI_SOURCE),
                std::string(static_cast<std::size_t>(count), '\0')};
  MPI_Request request = MPI_REQUEST_NULL;
  MPI_Imrecv(parcel.bytes.data(), count, MPI_BYTE, &message, &request);
  wait(request);
  return parcel;
}

void MpiTeam::barrier() {
  MPI_Request request = MPI_REQUEST_NULL;
  MPI_Ibarrier(MPI_COMM_WORLD, &request);
  wait(request);
}

void report_failure(const Failure& failure) {
  constexpr int kSeconds = 30;
  const std::string message = std::to_string(failure.code) + "\n" + failure.messages;
  MPI_Request request = MPI_REQUEST_NULL;
  MPI_Isend(message.data(), static_cast<int>(message.size()), MPI_BYTE, 0, kFailure, MPI_COMM_WORLD,
            &request);
  int done = 0;
  for (int i = 0; i < kSeconds * 1000; ++i) {  // until rank 0 ends all
    if (done == 0) MPI_Test(&request, &done, MPI_STATUS_IGNORE);
    pause(1000000);
  }
  MPI_Abort(MPI_COMM_WORLD, failure.code);
  _exit(failure.code);
}

bool take_failure(Failure& failure) {
  int found = 0, count = 0;
  MPI_Status status;
  MPI_Iprobe(MPI_ANY_SOURCE, kFailure, MPI_COMM_WORLD, &found, &status);
  if (found == 0) return false;
  MPI_Get_count(&status, MPI_BYTE, &count);
  std::string message(static_cast<std::size_t>(count), '\0');
  MPI_Recv(message.data(), count, MPI_BYTE, status.MPI_SOURCE, kFailure, MPI_COMM_WORLD,
           MPI_STATUS_IGNORE);
  const std::size_t line = message.find('\n');
  failure = {std::stoi(message.substr(0, line)), message.substr(line + 1)};
  return true;
}

}  // namespace attn
