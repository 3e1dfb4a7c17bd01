#include "attn/job/document.h"

#include "attn/base/error.h"
#include "attn/base/printable.h"
#include "attn/base/same_name.h"
#include "attn/base/suggestion.h"
#include "attn/io/descriptor.h"
#include "attn/job/fields.h"
#include "attn/job/saved_layer.h"

namespace attn {
namespace {

std::vector<std::string> known_keys() {
  std::vector<std::string> keys;
  for (const Field& field : job_fields()) keys.push_back(field.key);
  return keys;
}

/// The known keys below an object's name: "position." gives kind, base, ...
std::vector<std::string> known_members(const std::string& group) {
  std::vector<std::string> members;
  for (const std::string& key : known_keys())
    if (key.rfind(group + ".", 0) == 0) members.push_back(key.substr(group.size() + 1));
  return members;
}

/// "a.npz: unknown key 'q' (did you mean 'Q'?)", or with a hint where no known key is near.
Problem unknown_key(const std::string& name, const std::string& key, const std::string& hint) {
  const std::string near = did_you_mean(key, known_keys());
  return {.where = {name},
          .message = "unknown key '" + printable(key) + "'" + near,
          .hint = near.empty() ? hint : ""};
}

/// A document that came through a descriptor (/dev/stdin, <(...)) stands nowhere: its paths start
/// where those that are typed start.
std::string folder_of(const std::string& path) {
  if (descriptor_named(path)) return "";
  const std::size_t slash = path.rfind('/');
  return slash == std::string::npos ? "" : path.substr(0, slash);
}

/// Puts one member of a document in its place; a line in `problems` for a key that is not known.
void add_member(Document& document, const std::string& folder, const std::string& key, Json value,
                ProblemList& problems) {
  const std::string& name = document.name;
  if (find_field(key) != nullptr && key.find('.') == std::string::npos)
    return document.set({key, std::move(value), name, folder});
  auto* members = std::get_if<JsonObject>(&value.value);
  const std::vector<std::string> known = known_members(key);
  const std::size_t dot = key.find('.');
  if (find_field(key) != nullptr) {
    problems.add({.where = {name},
                  .message = "unknown key '" + key + "': expected the key '" + key.substr(dot + 1) +
                             "' in an object '" + key.substr(0, dot) + "'"});
  } else if (known.empty()) {
    if (problems.keeps_next())
      problems.add(unknown_key(name, key, "attn schema tells what a job may hold"));
    else
      problems.add({});
  } else if (members == nullptr) {
    problems.add({.where = {name}, .subject = key, .expected = "an object", .found = value.kind()});
  } else {
    for (auto& [member, inner] : *members) {
      if (find_field(key + "." + member) == nullptr)
        problems.add({.where = {name},
                      .subject = key,
                      .message = "unknown key '" + printable(member) + "'" +
                                 (problems.keeps_next() ? did_you_mean(member, known) : "")});
      else
        document.set({key + "." + member, std::move(inner), name, folder});
    }
  }
}

/// An array of such a file that is not a tensor of the job but an option: heads, scale, window, ...
Json option_from(const Tensor& tensor, const std::string& name) {
  if (tensor.rank() == 0 || tensor.rank() == 1) return parse_json(to_json(tensor, -1), name);
  throw Error(ErrorKind::data, Problem{.where = {name},
                                       .expected = "one number or a list",
                                       .found = "shape " + to_string(tensor.shape())});
}

void add_arrays(Document& document, const TensorMap& arrays, ProblemList& problems) {
  const SavedLayer layer = saved_layer(arrays, document.name);
  for (const auto& [key, tensor] : layer.tensors)
    document.set({key, Json{}, document.name, "", false, std::make_shared<const Tensor>(tensor)});
  const auto set_count = [&](const char* key, std::int64_t count) {
    if (count > 0) document.set({key, Json{count}, document.name, ""});
  };
  set_count("heads", layer.heads), set_count("kv_heads", layer.kv_heads);
  for (const auto& [key, tensor] : arrays) {
    if (layer.names.count(key) != 0) continue;
    const Field* field = find_field(key);
    if (field != nullptr && field->form == FieldForm::tensor)
      document.set({key, Json{document.name + "#" + key}, document.name, ""});
    else if (field != nullptr)  // "position.base", too: an archive holds no objects
      document.set({key, option_from(tensor, document.name + "#" + key), document.name, ""});
    else
      problems.add(unknown_key(document.name, key,
                               "a job's arrays have the names of inputs, such as Q, K, V, "
                               "embeddings, W_Q; a flag takes any other, such as --q " +
                                   printable(document.name + "#" + key)));
  }
}

}  // namespace

const Entry* Document::find(std::string_view key) const {
  for (const Entry& entry : entries)
    if (same_name(entry.key, key)) return &entry;
  return nullptr;
}

void Document::set(Entry entry) {
  for (Entry& old : entries) {
    if (same_name(old.key, entry.key)) {
      old = std::move(entry);
      return;
    }
  }
  entries.push_back(std::move(entry));
}

void Document::set_all(Document other) {
  name = std::move(other.name);
  if (entries.empty()) return entries.swap(other.entries);
  for (Entry& entry : other.entries) set(std::move(entry));
}

Document parse_document(std::string_view json, const std::string& name, const std::string& folder,
                        Json* id) {
  Document document;
  document.name = name;
  Json parsed = parse_json(json, name);
  auto* members = std::get_if<JsonObject>(&parsed.value);
  if (members == nullptr)
    throw Error(ErrorKind::data,
                Problem{.where = {name}, .expected = "a job (an object)", .found = parsed.kind()});
  ProblemList problems;
  document.entries.reserve(members->size());
  for (auto& [key, value] : *members) {
    if (id != nullptr && key == "id")
      *id = std::move(value);
    else
      add_member(document, folder, key, std::move(value), problems);
  }
  if (!problems.empty()) problems.raise(ErrorKind::data);
  return document;
}

void read_numbers(Document& document) {
  for (Entry& entry : document.entries) {
    if (find_field(entry.key)->form != FieldForm::tensor || !entry.value.is_array()) continue;
    entry.numbers = std::make_shared<const Tensor>(within(entry.origin, [&] {
      return tensor_from_json(entry.value, entry.from_flag ? "" : entry.key);
    }));
    entry.value = Json{};
  }
}

Document read_document(const std::string& path, TensorFiles& files) {
  Document document;
  document.name = path;
  const FileBytes& file = files.file(path);
  ProblemList problems;
  const Format format = format_of(file);
  if (format == Format::npz || format == Format::safetensors) {
    add_arrays(document, files.all(path), problems);
  } else if (format == Format::json) {
    return parse_document(file.text(), file.name(), folder_of(path));
  } else {
    throw Error(
        ErrorKind::data,
        Problem{.where = {file.name()},
                .expected = "a job (.json, .npz or .safetensors)",
                .found = format == Format::csv ? "CSV" : "one array",
                .hint = "name its role with a flag, such as --embeddings " + printable(path)});
  }
  if (!problems.empty()) problems.raise(ErrorKind::data);
  return document;
}

}  // namespace attn
