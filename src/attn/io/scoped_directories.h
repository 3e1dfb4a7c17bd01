// Directories created for outputs.
#pragma once

#include <map>
#include <mutex>
#include <string>

#include "attn/io/temp_files.h"

namespace attn {

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
