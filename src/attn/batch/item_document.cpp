#include "attn/batch/item_document.h"

#include <filesystem>

#include "attn/base/error.h"
#include "attn/job/limits.h"

namespace attn {
namespace {

/// Of a line JSON need not say that it is the first: "line 3: column 5: expected ...".
Document document_of_line(const Item& item) {
  try {
    return parse_document(*item.line, item.name, "");
  } catch (const Error& error) {
    const std::string first = item.name + ": line 1, ";
    std::vector<std::string> lines = error.lines();
    for (std::string& line : lines)
      if (line.starts_with(first)) line.replace(0, first.size(), item.name + ": ");
    throw Error(error.kind(), std::move(lines));
  }
}

/// Bytes of a regular file; 0 for anything else.
std::size_t size_of_file(const std::string& path) {
  std::error_code error;
  const std::uintmax_t size = std::filesystem::file_size(path, error);
  return error ? 0 : static_cast<std::size_t>(size);
}

/// Its text, and numbers that are up to four times as large.
std::size_t size_of_document(const Item& item) {
  if (item.line) return item.line->size() * 4;
  return product({size_of_file(item.name), item.name.ends_with(".json") ? 5U : 1U});
}

}  // namespace

ItemDocument::ItemDocument(const Item& item) : item_(item), size_(size_of_document(item)) {}

Document ItemDocument::read(const Common& common, TensorFiles& files) {
  if (!common.base_file.empty()) files.file(common.base_file);
  Document document = common.base;
  document.set_all(read_own(files));
  return document;
}

/// Nobody else reads it, and so it is kept out of the cache.
Document ItemDocument::read_own(TensorFiles& files) {
  if (item_.line) return document_of_line(item_);
  FileBytes file = unrepeatable_ ? *unrepeatable_ : read_file(item_.name, files.limits().memory);
  if (size_ == 0) unrepeatable_ = file;
  files.add(std::move(file));
  return read_document(item_.name, files);
}

}  // namespace attn
