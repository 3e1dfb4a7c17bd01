// Runs the program.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

struct Run {
  int code = -1;  ///< exit code, or 128 + signal
  std::string out, err;
};

/// `attn ARGS...` in `folder` (the current one by default), with `input` on standard input.
Run run_attn(const std::vector<std::string>& args, const std::string& input = "",
             const std::filesystem::path& folder = {});

/// A new empty folder, removed with its content at the end of the scope.
class ScratchFolder {
 public:
  ScratchFolder();
  ScratchFolder(const ScratchFolder&) = delete;
  ScratchFolder& operator=(const ScratchFolder&) = delete;
  ~ScratchFolder();
  const std::filesystem::path& path() const { return path_; }
  std::filesystem::path write(const std::string& name, const std::string& bytes) const;
  std::string read(const std::string& name) const;
  std::vector<std::string> names() const;  ///< the names of its files, sorted

 private:
  std::filesystem::path path_;
};
