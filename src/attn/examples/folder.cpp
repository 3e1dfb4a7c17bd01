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

bool contains_examples(const fs::path& folder) {
  std::error_code ignored;
  for (const auto& entry : fs::directory_iterator(folder, ignored))
    if (fs::exists(entry.path() / "example.json", ignored)) return true;
  return false;
}

/// The examples installed with this program, or in its source tree; "" if there are none.
fs::path find_near_program() {
  std::error_code error;
  const fs::path program = fs::read_symlink("/proc/self/exe", error);
  if (error) return {};
  const fs::path installed = program.parent_path().parent_path() / "share/attn/examples";
  if (contains_examples(installed)) return installed;
  for (fs::path above = program.parent_path(); above != above.root_path();
       above = above.parent_path())
    if (contains_examples(above / "data/examples")) return above / "data/examples";
  return {};
}

}  // namespace

std::string examples_folder(const std::string& given) {
  const char* variable = std::getenv("ATTN_DATA");
  const std::string named = !given.empty() ? given : variable != nullptr ? variable : "";
  if (!named.empty()) {
    if (contains_examples(named)) return named;
    throw Error(ErrorKind::no_input,
                printable(named) + ": contains no example (a folder with an example.json)");
  }
  const fs::path found = find_near_program();
  if (!found.empty()) return found.string();
  throw Error(
      ErrorKind::no_input,
      "no worked examples in ../share/attn/examples or in data/examples of a parent folder of "
      "the program; set their folder with --data DIR or ATTN_DATA");
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
