#include "attn/io/temp_files.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <charconv>
#include <climits>
#include <cstring>
#include <ctime>
#include <filesystem>
#include <new>
#include <vector>

#include "attn/base/error.h"
#include "attn/io/open_file.h"
#include "attn/io/output_path.h"

namespace attn {
namespace {

enum class Use { free, being_written, taken };

// A fixed table, because a signal handler must not allocate or lock. Paths are apart, so that
// looking for a slot touches few pages.
struct Registry {
  static constexpr std::size_t kSlots = 1024;
  std::array<std::atomic<Use>, kSlots> use = {};
  std::array<std::atomic<pid_t>, kSlots> process = {};  ///< that created the path
  std::array<std::array<char, PATH_MAX>, kSlots> path = {};
};
static_assert(std::atomic<Use>::is_always_lock_free && std::atomic<pid_t>::is_always_lock_free);

// Constant-initialised to zeros, so that its pages are not touched before use.
constinit Registry private_registry = {};
constinit std::atomic<Registry*> registry = &private_registry;
constinit std::atomic<pid_t> sharing_process = 0;  // that called share_temp_files()
constinit std::atomic<void (*)()> end_hook = nullptr;
std::atomic<int> guarded = 0;
std::atomic<bool> is_exiting = false;

constexpr char kPrefix[] = ".attn-tmp-";

/// TOKEN of ".attn-tmp-PID-TOKEN-N" or ".attn-tmp-PID-TOKEN.MEMBER-N", or "".
std::string token_in(const std::string& name) {
  const std::size_t start = name.find('-', sizeof kPrefix - 1) + 1;
  const std::size_t end = std::min(name.rfind('-'), name.find('.', start));
  return start > 0 && start < end ? name.substr(start, end - start) : "";
}

int remember(const std::string& path) {
  Registry& slots = *registry;
  for (std::size_t i = 0; i < Registry::kSlots && path.size() < PATH_MAX; ++i) {
    Use expected = Use::free;
    if (!slots.use[i].compare_exchange_strong(expected, Use::being_written)) continue;
    slots.process[i] = getpid();
    std::memcpy(slots.path[i].data(), path.c_str(), path.size() + 1);
    slots.use[i] = Use::taken;
    return static_cast<int>(i);
  }
  return -1;
}

/// Removes the files, then the empty folders, of all processes that `is_included` accepts.
template <class Condition>
void remove_paths(Condition is_included) {
  const Registry& slots = *registry;
  const auto for_each = [&](PathKind kind) {
    bool removed = false;
    for (std::size_t i = 0; i < Registry::kSlots; ++i)
      if (slots.use[i] == Use::taken && is_included(slots.process[i]))
        removed |= remove_output(slots.path[i].data(), kind);
    return removed;
  };
  for_each(PathKind::file);
  while (for_each(PathKind::folder)) continue;  // a parent may be empty now
}

extern "C" void remove_and_die(int signal_number) {
  remove_temp_files();
  raise(signal_number);  // SA_RESETHAND has restored the default action
}

}  // namespace

mode_t mode_of_new(mode_t mode) {
  static const mode_t mask = [] {
    const mode_t old = umask(077);  // can only be read by setting it
    umask(old);
    return old;
  }();
  return mode & ~mask;
}

std::string new_temp_name() {
  static std::atomic<std::uint64_t> count = 0;
  return kPrefix + std::to_string(getpid()) + "-" + temp_token() + "-" + std::to_string(count++);
}

namespace {

std::string given_token;

std::string random_token() {
  // std::random_device would need glibc 2.36 (arc4random).
  std::uint64_t number = 0;
  if (getentropy(&number, sizeof number) != 0)
    throw system_error(ErrorKind::io, "random numbers", errno);
  char digits[16];
  return std::string(digits, std::to_chars(digits, digits + sizeof digits, number, 36).ptr);
}

}  // namespace

const std::string& temp_token() {
  static const std::string token = given_token.empty() ? random_token() : given_token;
  return token;
}

void set_temp_token(const std::string& token, std::size_t number) {
  given_token = token + "." + std::to_string(number);
}

void remove_leftovers(const std::string& folder, const std::set<std::string>& tokens) {
  namespace fs = std::filesystem;
  std::error_code error;
  fs::recursive_directory_iterator entry(folder, fs::directory_options::skip_permission_denied,
                                         error);
  for (; !error && entry != fs::recursive_directory_iterator(); entry.increment(error)) {
    const std::string name = entry->path().filename().string();
    if (!name.starts_with(kPrefix) || !tokens.contains(token_in(name))) continue;
    remove_output(entry->path().c_str(), PathKind::file);  // if it fails, it does no harm
  }
}

void remove_temp_files() {
  is_exiting = true;
  constexpr timespec kMillisecond{0, 1000000};
  if (void (*const hook)() = end_hook) hook();
  for (int waited = 0; guarded > 0 && waited < 200; ++waited) nanosleep(&kMillisecond, nullptr);
  const pid_t self = getpid();
  const bool removes_all = sharing_process == 0 || sharing_process == self;
  remove_paths([&](pid_t process) { return removes_all || process == self; });
}

void call_before_removal(void (*hook)()) { end_hook = hook; }

void share_temp_files() {
  void* const memory =
      mmap(nullptr, sizeof(Registry), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED) throw std::bad_alloc();
  auto* const shared = static_cast<Registry*>(memory);  // zeros: all slots are free
  const Registry& before = *registry;
  for (std::size_t i = 0; i < Registry::kSlots; ++i) {
    if (before.use[i] != Use::taken) continue;
    shared->path[i] = before.path[i];
    shared->process[i] = getpid();
    shared->use[i] = Use::taken;
  }
  sharing_process = getpid();
  registry = shared;
}

void remove_files_of_process(pid_t process) {
  Registry& slots = *registry;
  for (std::size_t i = 0; i < Registry::kSlots; ++i) {
    if (slots.use[i] == Use::free || slots.process[i] != process) continue;
    const bool is_folder = slots.use[i] == Use::taken &&
                           !remove_output(slots.path[i].data(), PathKind::file) &&
                           (errno == EISDIR || errno == EPERM);
    if (!is_folder) slots.use[i] = Use::free;
  }
}

void remove_folders_of_ended_processes() {
  const pid_t self = getpid();
  remove_paths([&](pid_t process) { return process != self; });
}

SignalGuard::SignalGuard() {
  ++guarded;
  if (!is_exiting) return;
  --guarded;
  for (;;) pause();
}

SignalGuard::~SignalGuard() { --guarded; }

void remove_temp_files_on_signals() {
  for (const int signal_number : {SIGHUP, SIGINT, SIGQUIT, SIGTERM, SIGXCPU}) {
    struct sigaction before {};
    if (sigaction(signal_number, nullptr, &before) != 0 || before.sa_handler == SIG_IGN) continue;
    struct sigaction action {};
    action.sa_handler = remove_and_die;
    action.sa_flags = static_cast<int>(SA_RESETHAND | SA_NODEFER);
    sigaction(signal_number, &action, nullptr);
  }
  signal(SIGXFSZ, SIG_IGN);
}

TempPath::TempPath(std::string path) : path_(std::move(path)), slot_(remember(path_)) {}

TempPath::~TempPath() {
  if (slot_ >= 0) registry.load()->use[static_cast<std::size_t>(slot_)] = Use::free;
}

namespace {

/// A confined path that leads through a link is missing here; make_one() reports it.
bool is_folder_there(const std::string& path) {
  struct stat status {};
  try {
    const OutputEntry entry = output_entry(path);
    const int flags = entry.is_confined() ? AT_SYMLINK_NOFOLLOW : 0;
    return fstatat(entry.at(), entry.name.c_str(), &status, flags) == 0 && S_ISDIR(status.st_mode);
  } catch (const Error&) {
    return false;
  }
}

std::string without_slashes(std::string path) {
  while (path.size() > 1 && path.ends_with('/')) path.pop_back();
  return path;
}

/// "a/b" for "a/b/c" and for "a/b/c/"; "" for a name in the working directory.
std::string parent_of(const std::string& path) {
  return std::filesystem::path(without_slashes(path)).parent_path().string();
}

/// Errors: cannot_create, if the entry is confined and a link.
void require_no_link(const OutputEntry& entry, const std::string& path) {
  struct stat status {};
  if (entry.is_confined() &&
      fstatat(entry.at(), entry.name.c_str(), &status, AT_SYMLINK_NOFOLLOW) == 0 &&
      S_ISLNK(status.st_mode))
    throw link_error(path);
}

}  // namespace

ScopedDirectories::~ScopedDirectories() {
  // A directory sorts before the ones in it.
  for (auto folder = made_.rbegin(); folder != made_.rend(); ++folder)
    remove_output(folder->first.c_str(), PathKind::folder);
}

void ScopedDirectories::make(const std::string& path, bool durable) {
  const std::lock_guard lock(mutex_);
  make_one(path, durable);
}

void ScopedDirectories::make_with_parents(const std::string& path, bool durable) {
  if (!durable && is_folder_there(path)) return;
  std::vector<std::string> missing;
  const std::lock_guard lock(mutex_);  // with `durable`, wait for other threads' fsync
  for (std::string at = path; !at.empty() && !is_folder_there(at); at = parent_of(at))
    missing.push_back(at);
  for (auto folder = missing.rbegin(); folder != missing.rend(); ++folder)
    make_one(*folder, durable);
}

void ScopedDirectories::make_one(const std::string& path, bool durable) {
  const OutputEntry entry = output_entry(without_slashes(path));
  {
    const SignalGuard guard;
    // Registered first, because a signal may interrupt this thread after mkdirat().
    const auto [made, first] = made_.try_emplace(path, path);
    if (mkdirat(entry.at(), entry.name.c_str(), mode_of_new(0777)) != 0) {
      const int code = errno;
      if (first) made_.erase(made);
      if (code == EEXIST) return require_no_link(entry, path);
      throw system_error(ErrorKind::cannot_create, path, code);
    }
  }
  if (durable) sync_folder_of(entry, path);
}

void ScopedDirectories::keep() {
  const std::lock_guard lock(mutex_);
  made_.clear();
}

void ScopedDirectories::keep(const std::string& path) {
  const std::lock_guard lock(mutex_);
  if (made_.empty()) return;
  for (std::string kept = path; !kept.empty() && kept != "/"; kept = parent_of(kept))
    made_.erase(kept);
}

}  // namespace attn
