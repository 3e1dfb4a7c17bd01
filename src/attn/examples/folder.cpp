#include "attn/examples/folder.h"

#include <algorithm>
#include <cstdlib>
#include <filesystem>

#include "attn/base/error.h"
#include "attn/base/printable.h"
#include "attn/io/descriptor.h"

namespace attn {
namespace {

namespace fs = std::filesystem;

bool holds_examples(const fs::path& folder) {
  std::error_code ignored;
  for (const auto& entry : fs::directory_iterator(folder, ignored))
    if (fs::exists(entry.path() / "example.json", ignored)) return true;
  return false;
}

/// Next to the program that runs, or "".
fs::path beside_program() {
  std::error_code error;
  const fs::path program = fs::read_symlink("/proc/self/exe", error);
  if (error) return {};
  const fs::path installed = program.parent_path().parent_path() / "share/attn/examples";
  if (holds_examples(installed)) return installed;
  for (fs::path above = program.parent_path(); above != above.root_path();
       above = above.parent_path())
    if (holds_examples(above / "data/examples")) return above / "data/examples";
  return {};
}

}  // namespace

std::string examples_folder(const std::string& asked) {
  const char* variable = std::getenv("ATTN_DATA");
  const std::string named = !asked.empty() ? asked : variable != nullptr ? variable : "";
  if (!named.empty()) {
    if (holds_examples(named)) return named;
    throw Error(ErrorKind::no_input, printable(named) +
                                         ": expected a folder of examples (each a folder with an "
                                         "example.json), found none");
  }
  const fs::path found = beside_program();
  if (!found.empty()) return found.string();
  throw Error(ErrorKind::no_input,
              "the worked examples are neither in ../share/attn/examples beside the program nor in "
              "a data/examples above it; --data DIR or ATTN_DATA says where they are");
}

std::vector<std::string> example_names(const std::string& folder) {
  std::vector<std::string> names;
  std::error_code error, ignored;
  fs::directory_iterator entry(folder, error);
  for (; !error && entry != fs::directory_iterator(); entry.increment(error))
    if (fs::exists(entry->path() / "example.json", ignored))
      names.push_back(entry->path().filename().string());
  if (error) throw system_error(ErrorKind::no_input, folder, error.value());
  std::sort(names.begin(), names.end());
  return names;
}

}  // namespace attn
