#include "support/thread_team.h"

#include <barrier>
#include <condition_variable>
#include <cstring>
#include <deque>
#include <exception>
#include <map>
#include <mutex>
#include <optional>
#include <stdexcept>
#include <thread>
#include <utility>
#include <vector>

namespace {

using Bytes = std::vector<std::byte>;

/// Messages on their way, by sender and receiver.
class Post {
 public:
  explicit Post(std::size_t members) : members_(members), boxes_(members * members) {}

  void put(std::size_t from, std::size_t to, std::span<const std::byte> bytes) {
    const std::lock_guard lock(mutex_);
    boxes_[from * members_ + to].emplace_back(bytes.begin(), bytes.end());
    changed_.notify_all();
  }
  void take(std::size_t from, std::size_t to, std::span<std::byte> bytes) {
    std::unique_lock lock(mutex_);
    std::deque<Bytes>& box = boxes_[from * members_ + to];
    changed_.wait(lock, [&] { return !box.empty() || failed_; });
    if (box.empty() || box.front().size() != bytes.size())
      throw std::runtime_error("a member failed, or a message has another size");
    std::copy(box.front().begin(), box.front().end(), bytes.begin());
    box.pop_front();
  }
  void put_parcel(std::size_t to, attn::Mailbox mailbox, attn::Parcel parcel) {
    const std::lock_guard lock(mutex_);
    parcels_[{to, mailbox}].push_back(std::move(parcel));
  }
  std::optional<attn::Parcel> take_parcel(std::size_t to, attn::Mailbox mailbox) {
    const std::lock_guard lock(mutex_);
    std::deque<attn::Parcel>& waiting = parcels_[{to, mailbox}];
    if (waiting.empty() && failed_) throw std::runtime_error("a member failed");
    if (waiting.empty()) return std::nullopt;
    attn::Parcel first = std::move(waiting.front());
    waiting.pop_front();
    return first;
  }
  void fail() {
    const std::lock_guard lock(mutex_);
    failed_ = true;
    changed_.notify_all();
  }

 private:
  const std::size_t members_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<std::deque<Bytes>> boxes_;
  std::map<std::pair<std::size_t, attn::Mailbox>, std::deque<attn::Parcel>> parcels_;
  bool failed_ = false;
};

class Member : public attn::Team {
 public:
  Member(std::size_t rank, std::size_t size, Post& post) : rank_(rank), size_(size), post_(post) {}
  std::size_t rank() const override { return rank_; }
  std::size_t size() const override { return size_; }
  void send(std::size_t to, std::span<const std::byte> bytes) override {
    post_.put(rank_, to, bytes);
  }
  void receive(std::size_t from, std::span<std::byte> bytes) override {
    post_.take(from, rank_, bytes);
  }
  void broadcast(std::span<std::byte> bytes) override { from_member(0, bytes); }
  void exchange(std::span<std::byte> bytes, const std::vector<std::size_t>& ends) override {
    for (std::size_t i = 0; i < size_; ++i) {
      const std::size_t first = i == 0 ? 0 : ends[i - 1];
      from_member(i, bytes.subspan(first, ends[i] - first));
    }
  }
  /// In two parts.
  void post(std::size_t to, attn::Mailbox mailbox, std::string bytes) override {
    const std::size_t half = bytes.size() / 2;
    post_.put_parcel(to, mailbox, {rank_, bytes.substr(0, half)});
    post_.put_parcel(to, mailbox, {rank_, bytes.substr(half)});
  }
  bool is_sending() override { return false; }
  std::optional<attn::Parcel> take(attn::Mailbox mailbox) override {
    return post_.take_parcel(rank_, mailbox);
  }

 private:
  void from_member(std::size_t member, std::span<std::byte> bytes) {
    if (rank_ != member) return receive(member, bytes);
    for (std::size_t i = 0; i < size_; ++i)
      if (i != rank_) send(i, bytes);
  }

  const std::size_t rank_, size_;
  Post& post_;
};

}  // namespace

void run_team(std::size_t members, const std::function<void(attn::Team&)>& work) {
  Post post(members);
  std::vector<std::exception_ptr> failures(members);
  std::vector<std::thread> threads;
  for (std::size_t rank = 0; rank < members; ++rank)
    threads.emplace_back([&, rank] {
      Member member(rank, members, post);
      try {
        work(member);
      } catch (...) {
        failures[rank] = std::current_exception();
        post.fail();
      }
    });
  for (std::thread& thread : threads) thread.join();
  for (const std::exception_ptr& failure : failures)
    if (failure) std::rethrow_exception(failure);
}
