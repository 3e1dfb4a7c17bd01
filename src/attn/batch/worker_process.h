// A worker process of a batch (--isolate), and its handle in the main process.
#pragma once

#include <sys/types.h>

#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "attn/batch/channel.h"
#include "attn/batch/memory_budget.h"
#include "attn/batch/message.h"
#include "attn/batch/pool.h"
#include "attn/batch/recent_mean.h"
#include "attn/io/open_file.h"

namespace attn {

/// What a worker process needs. All of it is copied by fork().
struct WorkerSetup {
  const PoolCalls* calls;
  double timeout;  ///< seconds per item; 0: no limit
  MemoryBudget* memory;
};

class WorkerProcess {
 public:
  /// Forks a process, which runs items until it is asked to end or this process ends. Must be
  /// called on the only thread. `others` are the existing workers, whose descriptors the process
  /// closes. Errors: busy, if there are no more processes or descriptors.
  WorkerProcess(const WorkerSetup& setup,
                const std::vector<std::unique_ptr<WorkerProcess>>& others);
  WorkerProcess(const WorkerProcess&) = delete;
  WorkerProcess& operator=(const WorkerProcess&) = delete;
  ~WorkerProcess();  ///< kills the process if it still runs

  /// Gives an item to the worker. Messages leave with send().
  void assign(Assignment assignment);
  void answer(bool is_granted) { append_memory_answer(to_send_, is_granted); }
  /// Writes messages, as far as that is possible without waiting.
  void send();
  std::size_t unsent() const { return to_send_.size(); }  ///< bytes

  /// Passes each reply that has arrived to `handle`. `spare_text` returns an empty text, whose
  /// buffer is used for the next outcome. Throws BadMessage.
  void receive(const std::function<std::string()>& spare_text,
               const std::function<void(WorkerReply)>& handle);
  bool has_replies() const { return !channel_->replies.is_empty(); }

  /// Takes back the items that the worker has not started, if it runs a job now.
  std::deque<Assignment> withdraw();
  /// Marks the running job as over its time limit; false if it has just been completed.
  bool expire();

  /// Seconds for which the worker has been running its first unfinished item.
  double busy_seconds() const;
  /// Whether the first unfinished item is being run.
  bool is_running() const;
  /// Whether the running job has been marked by expire().
  bool has_expired() const { return has_expired_; }

  /// Kills the process, which may have ended, and returns its status as waitpid() does.
  int kill();

  std::deque<Assignment> unfinished;  ///< items that it has, in order
  std::size_t finished = 0;           ///< number of items
  RecentMean mean;                    ///< of finished items
  std::size_t lent = 0;               ///< bytes of memory, above MemoryBudget::minimum()

  pid_t process() const { return process_; }
  int bell() const { return bell_.get(); }  ///< readable when the worker wants attention
  int requests() const { return requests_.get(); }
  void clear_bell();
  void set_awaited(bool is_awaited) { channel_->is_awaited = is_awaited; }

 private:
  int wait();

  Channel* channel_;
  Descriptor requests_, bell_;
  pid_t process_ = -1;
  bool has_expired_ = false;
  std::string to_send_, received_;
};

/// Kills all worker processes and waits for up to a second until they have ended. May be called in
/// a signal handler.
void kill_worker_processes();

}  // namespace attn
