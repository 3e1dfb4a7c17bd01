// A team whose members are the ranks of an MPI program.
#pragma once

#include <mpi.h>

#include <list>
#include <mutex>
#include <string>
#include <vector>

#include "attn-mpi/team.h"

namespace attn {

/// The ranks of MPI_COMM_WORLD. While a function waits, the processor is free for other programs:
/// MPI libraries poll.
class MpiTeam : public Team {
 public:
  MpiTeam();
  std::size_t rank() const override { return rank_; }
  std::size_t size() const override { return size_; }
  void send(std::size_t to, std::span<const std::byte> bytes) override;
  void receive(std::size_t from, std::span<std::byte> bytes) override;
  void broadcast(std::span<std::byte> bytes) override;
  void exchange(std::span<std::byte> bytes, const std::vector<std::size_t>& ends) override;
  void post(std::size_t to, Mailbox mailbox, std::string bytes) override;
  bool is_sending() override;
  std::optional<Parcel> take(Mailbox mailbox) override;

  void barrier();  ///< waits for all ranks
  std::size_t ranks_of_host() const { return ranks_of_host_; }
  /// The number of threads for this rank: one for each of its processors, if it is bound to some,
  /// otherwise its share of those of the host.
  std::size_t threads() const;

 private:
  void broadcast_from(std::size_t rank, std::span<std::byte> bytes);

  struct Sending {
    std::string bytes;
    std::vector<MPI_Request> requests;
  };

  std::size_t rank_ = 0, size_ = 1, ranks_of_host_ = 1;
  std::mutex mutex_;  ///< guards sending_
  std::list<Sending> sending_;
};

/// How a rank ended that failed: its exit code, and the messages that explain it.
struct Failure {
  int code = 0;
  std::string messages;  ///< lines
};

/// Sends a failure to rank 0 and waits for the end.
[[noreturn]] void report_failure(const Failure& failure);

/// The failure that another rank has reported, if any. Only on rank 0.
bool take_failure(Failure& failure);

}  // namespace attn
