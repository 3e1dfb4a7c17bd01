#include "attn/batch/item_document.h"

#include <filesystem>

#include "attn/base/error.h"
#include "attn/io/json_write.h"
#include "attn/job/limits.h"

namespace attn {
namespace {

/// A string or a number as JSON; "" for null. Errors: data.
std::string id_json(const Json& id, const std::string& item) {
  double ignored = 0;
  if (std::holds_alternative<std::nullptr_t>(id.value)) return "";
  if (id.get<std::string>() != nullptr || id.as_number(ignored)) return to_json(id);
  throw Error(ErrorKind::data, Problem{.where = {item},
                                       .subject = "id",
                                       .expected = "a string or a number",
                                       .found = id.kind()});
}

/// Errors name the line of standard input, not the line within its text, which is always 1.
Document document_of_line(const Item& item, std::string& id, ReadBudget& budget) {
  Json id_value;
  try {
    Document document = parse_document(*item.line, item.name, "", &budget, &id_value);
    id = id_json(id_value, item.name);
    return document;
  } catch (const Error& error) {
    if (id_value.get<std::string>() != nullptr || id_value.get<std::int64_t>() != nullptr)
      id = to_json(id_value);
    std::vector<Problem> problems = error.problems();
    for (Problem& problem : problems) problem.line = 0;
    throw Error(error.kind(), std::move(problems), error.omitted());
  }
}

/// In bytes; 0 if it is not a regular file.
std::size_t size_of_file(const std::string& path) {
  std::error_code error;
  const std::uintmax_t size = std::filesystem::file_size(path, error);
  return error ? 0 : static_cast<std::size_t>(size);
}

/// Memory for the text and its numbers. A number in binary takes up to four times the space of its
/// shortest text ("1,").
std::size_t memory_for(const Item& item) {
  if (item.line) return item.line->size() * 4;
  return product({size_of_file(item.name), item.name.ends_with(".json") ? 5U : 1U});
}

}  // namespace

ItemDocument::ItemDocument(const Item& item) : item_(item), memory_(memory_for(item)) {}

Document ItemDocument::read(const BatchContext& context, TensorFiles& files, std::string& id) {
  if (!context.base_file.empty()) files.file(context.base_file);
  Document document = context.base;
  document.set_all(read_own(files, id));
  return document;
}

/// The file is not added to the shared cache, since no other job reads it.
Document ItemDocument::read_own(TensorFiles& files, std::string& id) {
  if (item_.line) return document_of_line(item_, id, files.budget());
  FileBytes file = pipe_contents_ ? *pipe_contents_ : read_file(item_.name, files.limits().memory);
  if (memory_ == 0) pipe_contents_ = file;
  files.add(std::move(file));
  return read_document(item_.name, files);
}

}  // namespace attn
