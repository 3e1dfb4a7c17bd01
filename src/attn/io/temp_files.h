// Files and folders created for unfinished outputs, which a signal handler removes.
#pragma once

#include <sys/types.h>

#include <cstddef>
#include <map>
#include <mutex>
#include <set>
#include <string>

namespace attn {

/// `mode` without the bits of the umask that the process was started with.
mode_t mode_of_new(mode_t mode);

/// A new name ".attn-tmp-PID-TOKEN-N", or with the number of one of several
/// processes ".attn-tmp-PID-TOKEN.NUMBER-N". TOKEN is random, the same for the whole run.
std::string new_temp_name();
const std::string& temp_token();

/// Call it before new_temp_name() in process `number` of several: `token` is that of process 0.
void set_temp_token(const std::string& token, std::size_t number);

/// Removes files that earlier runs with these tokens left in `folder` and below, for example after
/// SIGKILL. Skips directories without permission.
void remove_leftovers(const std::string& folder, const std::set<std::string>& tokens);

/// Installs handlers: SIGHUP, SIGINT, SIGQUIT, SIGTERM and SIGXCPU remove all unfinished outputs,
/// then take their default action, so that the shell sees 130 or 143. Ignored signals stay ignored
/// (nohup). SIGXFSZ is ignored, so that a file-size limit is an ordinary write error. Call once, at
/// the start.
void remove_temp_files_on_signals();

/// Removes all unfinished outputs and the directories created for them. For exits that run no
/// destructors.
void remove_temp_files();

/// Makes remove_temp_files() call `hook` first, also in a signal handler. nullptr: no hook.
void call_before_removal(void (*hook)());

/// Moves the registry into memory that this process shares with those that it will fork. From then
/// on, remove_temp_files() removes the outputs of all these processes if this process calls it, and
/// only its own outputs if another one does. Throws std::bad_alloc.
void share_temp_files();

/// Removes the unfinished files, but not the directories, of a process that has ended: a directory
/// may be about to be used by another process.
void remove_files_of_process(pid_t process);

/// Removes the empty directories that other processes created and did not keep. All of them must
/// have ended.
void remove_folders_of_ended_processes();

/// Delays the end by a signal, for up to 0.2 s. Held while a file is created or renamed, so that
/// the registry is complete when the handler runs. If the program is already ending, the
/// constructor does not return.
class SignalGuard {
 public:
  SignalGuard();
  SignalGuard(const SignalGuard&) = delete;
  SignalGuard& operator=(const SignalGuard&) = delete;
  ~SignalGuard();
};

/// Registers a path, of a file or of a directory, for removal by a signal; the destructor
/// unregisters it. A directory is removed if it is empty. The registry has 1024 entries; further
/// paths are not removed.
class TempPath {
 public:
  explicit TempPath(std::string path);
  TempPath(const TempPath&) = delete;
  TempPath& operator=(const TempPath&) = delete;
  ~TempPath();
  const std::string& path() const { return path_; }

 private:
  std::string path_;
  int slot_;  ///< in the registry, or -1
};

/// Directories that the destructor, or a signal, removes if they are empty, unless keep() is
/// called. Thread-safe.
class ScopedDirectories {
 public:
  ScopedDirectories() = default;
  ScopedDirectories(const ScopedDirectories&) = delete;
  ScopedDirectories& operator=(const ScopedDirectories&) = delete;
  ~ScopedDirectories();
  /// Does nothing if the directory exists. `durable`: fsync its parent. Errors: cannot_create,
  /// permission, io.
  void make(const std::string& path, bool durable);
  void make_with_parents(const std::string& path, bool durable);
  void keep();                         ///< all
  void keep(const std::string& path);  ///< this one and its parents

 private:
  void make_one(const std::string& path, bool durable);
  std::mutex mutex_;
  std::map<std::string, TempPath> made_;  ///< registered for removal by a signal
};

}  // namespace attn
