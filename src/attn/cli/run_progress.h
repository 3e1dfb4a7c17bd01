// The progress of attn run, on standard error.
#pragma once

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <functional>
#include <mutex>
#include <string>
#include <thread>

namespace attn {

/// While it exists, counts the rows that the kernels of this process compute, and calls `show` with
/// their number on a thread of its own: after `first`, and then again after each `interval`.
class RowCounter {
 public:
  using Seconds = std::chrono::seconds;
  RowCounter(Seconds first, Seconds interval, std::function<void(std::size_t rows)> show);
  RowCounter(const RowCounter&) = delete;
  RowCounter& operator=(const RowCounter&) = delete;
  ~RowCounter() { stop(); }

  void stop();  ///< ends the counting and the calls
  std::size_t rows() const { return rows_; }
  double seconds() const {
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - start_).count();
  }

 private:
  void watch(Seconds first, Seconds interval);

  const std::function<void(std::size_t)> show_;
  const std::chrono::steady_clock::time_point start_ = std::chrono::steady_clock::now();
  std::atomic<std::size_t> rows_ = 0;
  std::mutex mutex_;
  std::condition_variable stopped_;
  bool stop_ = false;
  std::thread thread_;
};

/// While it exists, prints the share of computed rows: a line every five seconds and at the end, or
/// as a bar, which appears after two seconds, is overwritten each second and removed at the end.
class RunProgress {
 public:
  /// `rows`: of all; 0 if they are not counted, because the reference path computes them. `others`
  /// returns the number of those that other processes have computed.
  RunProgress(bool as_bar, std::size_t rows, std::function<std::size_t()> others = {});
  RunProgress(const RunProgress&) = delete;
  RunProgress& operator=(const RunProgress&) = delete;
  ~RunProgress();

  void finish();  ///< prints the end

 private:
  void print(std::size_t done);
  void clear_bar();

  const bool as_bar_;
  const std::size_t rows_;
  const std::function<std::size_t()> others_;
  bool is_shown_ = false;  ///< the bar is on the screen
  RowCounter counter_;
};

/// "45 % done, 12 s left"; "100 % done after 26 s"; without rows "running for 26 s"
std::string progress_text(std::size_t done, std::size_t rows, double seconds);

}  // namespace attn
