// Folders made for outputs that may not come.
#pragma once

#include <map>
#include <mutex>
#include <string>

#include "attn/io/temporaries.h"

namespace attn {

/// Folders that are removed again, by a signal, too, where nothing came into them, unless keep() is
/// called. Threads may share one.
class NewFolders {
 public:
  NewFolders() = default;
  NewFolders(const NewFolders&) = delete;
  NewFolders& operator=(const NewFolders&) = delete;
  ~NewFolders();
  /// Does nothing where it exists. With `durable` its name is on disk. Errors: cannot_create,
  /// permission, io.
  void make(const std::string& path, bool durable);
  void make_with_parents(const std::string& path, bool durable);
  void keep();                         ///< all of them
  void keep(const std::string& path);  ///< one, and those above it

 private:
  void make_one(const std::string& path, bool durable);
  std::mutex mutex_;
  std::map<std::string, TemporaryName> made_;  ///< a signal removes them, too
};

}  // namespace attn
