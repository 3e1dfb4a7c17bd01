#include "support/run_attn.h"

#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <fstream>
#include <iterator>
#include <stdexcept>

namespace fs = std::filesystem;

namespace {

std::string contents(const fs::path& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

}  // namespace

Run run_attn(const std::vector<std::string>& args, const std::string& input,
             const fs::path& folder) {
  const ScratchFolder scratch;
  const fs::path in = scratch.write("in", input);
  const fs::path out = scratch.path() / "out", err = scratch.path() / "err";
  const pid_t child = fork();
  if (child < 0) throw std::runtime_error("fork failed");
  if (child == 0) {
    if (!folder.empty() && chdir(folder.c_str()) != 0) _exit(126);
    if (!freopen(in.c_str(), "rb", stdin) || !freopen(out.c_str(), "wb", stdout) ||
        !freopen(err.c_str(), "wb", stderr))
      _exit(126);
    std::vector<char*> argv = {const_cast<char*>(ATTN_BINARY)};
    for (const std::string& arg : args) argv.push_back(const_cast<char*>(arg.c_str()));
    argv.push_back(nullptr);
    execv(ATTN_BINARY, argv.data());
    _exit(127);
  }
  int status = 0;
  waitpid(child, &status, 0);
  Run run;
  run.code = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
  run.out = contents(out);
  run.err = contents(err);
  return run;
}

ScratchFolder::ScratchFolder() {
  std::string name = (fs::temp_directory_path() / "attn-test-XXXXXX").string();
  if (mkdtemp(name.data()) == nullptr) throw std::runtime_error("mkdtemp failed");
  path_ = name;
}

ScratchFolder::~ScratchFolder() {
  std::error_code ignored;
  fs::remove_all(path_, ignored);
}

fs::path ScratchFolder::write(const std::string& name, const std::string& bytes) const {
  const fs::path path = path_ / name;
  std::ofstream(path, std::ios::binary) << bytes;
  return path;
}

std::string ScratchFolder::read(const std::string& name) const { return contents(path_ / name); }

std::vector<std::string> ScratchFolder::names() const {
  std::vector<std::string> names;
  for (const auto& entry : fs::directory_iterator(path_)) names.push_back(entry.path().filename());
  std::sort(names.begin(), names.end());
  return names;
}
