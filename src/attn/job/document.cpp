#include "attn/job/document.h"

#include <algorithm>
#include <cctype>
#include <filesystem>
#include <span>

#include "attn/base/error.h"
#include "attn/base/name.h"
#include "attn/base/suggestion.h"
#include "attn/base/text.h"
#include "attn/io/json_parse.h"
#include "attn/io/json_tensor.h"
#include "attn/io/json_write.h"
#include "attn/io/open_file.h"
#include "attn/job/fields.h"
#include "attn/job/saved_layer.h"

namespace attn {
namespace {

/// Keys of groups as they are accepted without the object around them: rotary_base.
std::vector<std::string> known_keys() {
  std::vector<std::string> keys;
  for (const Field& field : job_fields()) {
    const std::vector<std::string> others = field.other_keys();
    const bool is_in_group = field.key.find('.') != std::string::npos;
    keys.push_back(is_in_group && !others.empty() ? others.front() : field.key);
  }
  return keys;
}

/// The keys of a group: of "position", kind, base, ...
std::vector<std::string> known_members(const std::string& group) {
  std::vector<std::string> members;
  for (const Field& field : job_fields())
    if (field.key.starts_with(group + ".")) members.push_back(field.key.substr(group.size() + 1));
  return members;
}

/// "a.npz: unknown key 'q' (did you mean 'Q'?)", or with `hint` if no known key is similar.
Problem unknown_key(const std::string& name, const std::string& key, const std::string& hint) {
  const std::string near = did_you_mean(key, known_keys(), NameKind::input);
  return {.where = {name},
          .message = "unknown key '" + printable(key) + "'" + near,
          .hint = key == "id"    ? "only lines read by attn batch have an id"
                  : near.empty() ? hint
                                 : ""};
}

Problem given_twice(const Document& document, const std::string& spelling) {
  return {.where = {document.name},
          .subject = spelling,
          .message = "given twice: another spelling of this key is also present"};
}

/// The folder of a document. Paths in a document read from a descriptor (/dev/stdin, <(...)) are
/// relative to the current folder.
std::string folder_of(const std::string& path) {
  if (descriptor_named(path)) return "";
  const std::size_t slash = path.rfind('/');
  return slash == std::string::npos ? "" : path.substr(0, slash);
}

/// Adds the members of a JSON object to a document, and a problem for each that is not a key.
class MemberReader {
 public:
  MemberReader(Document& document, const std::string& folder, const KeySelection& only,
               ProblemList& problems)
      : document_(document), folder_(folder), only_(only), problems_(problems) {}

  void add(const std::string& key, Json&& value) {
    const std::size_t dot = key.find('.');
    const Field* const own = find_field(key);
    if (own != nullptr && own->names_tensors && dot == std::string::npos)
      return add_tensors(*own, std::move(value));
    if (own != nullptr && dot == std::string::npos) return set(*own, key, std::move(value));
    const std::vector<std::string> known = known_members(key);  // slow
    if (key == "$schema") {
      if (value.get<std::string>() == nullptr)
        problem({.subject = key, .expected = "a string", .found = value.kind()});
    } else if (own != nullptr) {
      problem({.message = "unknown key '" + key + "': expected the key '" + key.substr(dot + 1) +
                          "' in an object '" + key.substr(0, dot) + "'"});
    } else if (!known.empty() && value.get<JsonObject>() != nullptr) {
      add_group(key, *value.get<JsonObject>(), known);
    } else if (const Field* field = find_field_by_other_key(key)) {
      set(*field, key, std::move(value));
    } else if (!known.empty()) {
      problem({.subject = key, .expected = "an object", .found = value.kind()});
    } else if (only_.keys.empty()) {
      problems_.add(problems_.keeps_next()
                        ? unknown_key(document_.name, key, "attn schema lists the keys of a job")
                        : Problem{});
    }
  }

 private:
  void add_group(const std::string& group, JsonObject& members,
                 const std::vector<std::string>& known) {
    for (auto& [member, value] : members) {
      const std::string key = group + "." + member;
      if (const Field* field = find_field(key))
        set(*field, key, std::move(value));
      else
        problem({.subject = group,
                 .message =
                     "unknown key '" + printable(member) + "'" +
                     (problems_.keeps_next() ? did_you_mean(member, known, NameKind::input) : "")});
    }
  }

  void add_tensors(const Field& group, Json&& value) {
    const auto members = value.get<JsonObject>();
    if (members == nullptr)
      return problem({.subject = group.key, .expected = "an object", .found = value.kind()});
    for (auto& [name, numbers] : *members) set(group, group.key + "." + name, std::move(numbers));
  }

  /// `spelling` is the key as written.
  void set(const Field& field, const std::string& spelling, Json&& value) {
    const std::string& key = field.names_tensors ? spelling : field.key;
    if (!only_.has(key)) return;
    if (document_.find(key) != nullptr) return problems_.add(given_twice(document_, spelling));
    Entry& entry = document_.entries.emplace_back();
    entry.key = key;
    entry.value = std::move(value);
    entry.origin = document_.name;
    entry.folder = folder_;
    entry.field = &field;
  }

  void problem(Problem problem) {
    problem.where = {document_.name};
    problems_.add(std::move(problem));
  }

  Document& document_;
  const std::string& folder_;
  const KeySelection& only_;
  ProblemList& problems_;
};

/// The field of a key in either spelling; nullptr if there is none.
const Field* field_spelled(const std::string& key) {
  const Field* field = find_field(key);
  return field != nullptr ? field : find_field_by_other_key(key);
}

/// The value of an option (heads, scale, window, ...) from an array of an archive.
Json option_from(const Tensor& tensor, const std::string& name, ReadBudget& budget) {
  if (tensor.rank() == 0 || tensor.rank() == 1) {
    constexpr std::size_t kElementText = 26;  // -2.2250738585072014e-308, and a comma
    MemoryCharge text(&budget, name), parsed(&budget, name);
    text.add(2 * tensor.size(), kElementText);  // a growing string
    Json value = parse_json(to_json(tensor, -1), name, parsed);
    parsed.keep();
    return value;
  }
  fail_data({.where = {name},
             .expected = "one number or a list",
             .found = "shape " + to_string(tensor.shape())});
}

/// How to compute a layer of the model in a folder, or "" if the folder has none.
std::string hint_for_model(const std::string& folder) {
  std::error_code ignored;
  if (!std::filesystem::is_regular_file(path_in(folder, "config.json"), ignored)) return "";
  return "to compute a layer of the model, give --model " +
         printable(folder.empty() ? "." : folder) + " --layer N --hidden FILE";
}

/// "--wq" for a matrix that has the name of a query projection, such as "layer.0.query.weight"; ""
/// if it is no projection of queries, keys or values.
std::string flag_of_projection(const std::string& name, const Tensor& tensor) {
  if (tensor.rank() != 2 || !is_float(tensor.dtype())) return "";
  std::string words = ".";  // between dots
  for (const unsigned char c : name)
    words += std::isalnum(c) != 0 ? static_cast<char>(std::tolower(c)) : '.';
  words += '.';
  const auto has = [&](std::initializer_list<std::string_view> any) {
    return std::any_of(any.begin(), any.end(), [&](std::string_view word) {
      return words.find("." + std::string(word) + ".") != std::string::npos;
    });
  };
  const bool is_projection = has({"w", "weight", "kernel", "proj", "projection"});
  const bool is_q = has({"wq"}) || (is_projection && has({"q", "query"})),
             is_k = has({"wk"}) || (is_projection && has({"k", "key"})),
             is_v = has({"wv"}) || (is_projection && has({"v", "value"}));
  if (is_q + is_k + is_v != 1) return "";
  return is_q ? "--wq" : is_k ? "--wk" : "--wv";
}

/// " --wq FILE#NAME" for the first of these arrays that is a projection; "" if none is.
std::string example_of_projection(const std::vector<std::string>& names, const TensorMap& arrays,
                                  const std::string& source) {
  for (const std::string& name : names)
    if (const std::string flag = flag_of_projection(name, arrays.at(name)); !flag.empty())
      return flag + " " + printable(source + name);
  return "";
}

/// What to do with arrays that are not inputs of a job. `example` passes one of them; "" if none.
std::string hint_for_arrays(const std::string& file, const std::string& example) {
  const std::string model = file == "-" ? "" : hint_for_model(folder_of(file));
  if (!model.empty()) return "config.json is in the same folder: " + model;
  return "pass each with the flag of its input" + (example.empty() ? "" : ", such as " + example);
}

/// The field that an array is for: the one of its name, or Q, K or V for q, k or v.
const Field* field_of_array(const std::string& name, const TensorMap& arrays) {
  const Field* const field = field_spelled(name);
  if (field != nullptr || (name != "q" && name != "k" && name != "v")) return field;
  const std::string key(1, static_cast<char>(name[0] - 'a' + 'A'));
  return arrays.contains(key) ? nullptr : field_spelled(key);
}

/// `source` is in front of the arrays' names: "FILE#", or "FILE#PREFIX".
void add_arrays(Document& document, const TensorMap& arrays, const std::string& source,
                const KeySelection& only, ProblemList& problems, ReadBudget& budget) {
  const SavedLayer layer = saved_layer(arrays, document.name);
  for (const auto& [key, tensor] : layer.tensors)
    if (only.has(key))
      document.set({.key = key,
                    .value = Json{},
                    .origin = document.name,
                    .folder = "",
                    .numbers = std::make_shared<const Tensor>(tensor),
                    .in_out = true,
                    .needs_heads = layer.heads == 0});
  const auto set_count = [&](const char* key, std::int64_t count) {
    if (count > 0) document.set({key, Json{count}, document.name, ""});
  };
  set_count("heads", layer.heads), set_count("kv_heads", layer.kv_heads);
  std::vector<std::string> used, unknown;
  for (const auto& [key, tensor] : arrays) {
    if (layer.names.count(key) != 0) continue;
    const Field* field = field_of_array(key, arrays);
    if (!only.has(field == nullptr ? key : field->key)) continue;
    if (field != nullptr && field->type == FieldType::tensor)
      document.set(
          {field->names_tensors ? key : field->key, Json{source + key}, document.name, ""});
    else if (field != nullptr)  // dotted keys, too: archives have no objects
      document.set({field->key, option_from(tensor, source + key, budget), document.name, ""});
    else
      unknown.push_back(key);
    if (field != nullptr) used.push_back(key);
  }
  if (unknown.empty()) return;
  const auto named = [&](std::size_t most) {
    return printable(join(std::span(unknown).first(std::min(most, unknown.size())), ", ")) +
           (unknown.size() > most ? ", ..." : "");
  };
  constexpr std::size_t kNamed = 3;
  if (used.empty() && std::all_of(unknown.begin(), unknown.end(), output_named)) {
    problems.add({.where = {document.name},
                  .message = "is a result (" + named(kNamed) + "), not a job",
                  .hint = "'attn view' draws results, 'attn stats' and 'attn compare' read them"});
    return;
  }
  const std::string ignore =
      used.empty() ? "" : "--only " + join(used, ",") + " ignores all other arrays";
  std::string example = example_of_projection(unknown, arrays, source);
  if (unknown.size() == 1) {
    const Tensor& only_one = arrays.at(unknown.front());
    if (example.empty() && only_one.rank() >= 2 && is_float(only_one.dtype()))
      example = "--q " + printable(source + unknown.front());
    problems.add(unknown_key(document.name, unknown.front(),
                             !ignore.empty()
                                 ? ignore
                                 : "arrays of a job have the names of inputs, such as Q, K, V, "
                                   "embeddings, W_Q; to use an array of another name, write " +
                                       (example.empty() ? "the flag of its input" : example)));
  } else {
    problems.add(
        {.where = {document.name},
         .message = counted(unknown.size(), "array") + " are not job keys: " + named(kNamed),
         .hint = !ignore.empty() ? ignore
                                 : hint_for_arrays(parse_tensor_ref(document.name).path, example)});
  }
}

}  // namespace

std::vector<std::string> where_of(const Entry& entry) {
  if (entry.from_flag) return {entry.origin};
  return {entry.origin, entry.key};
}

std::string path_in(const std::string& folder, const std::string& path) {
  const bool is_complete = folder.empty() || path == "-" || path.rfind("-#", 0) == 0 ||
                           (!path.empty() && path[0] == '/');
  return is_complete ? path : folder + "/" + path;
}

void add_member(JsonObject& job, const std::string& key, Json value) {
  const std::size_t dot = key.find('.');
  if (dot == std::string::npos) {
    job.emplace_back(key, std::move(value));
    return;
  }
  const std::string group = key.substr(0, dot);
  auto found = std::find_if(job.begin(), job.end(),
                            [&](const auto& member) { return member.first == group; });
  if (found == job.end()) found = job.insert(job.end(), {group, Json{JsonObject{}}});
  found->second.get<JsonObject>()->emplace_back(key.substr(dot + 1), std::move(value));
}

std::string job_json(const Document& document, int indent) {
  JsonObject job;
  for (const Entry& entry : document.entries) {
    Json value = entry.value;
    if (const auto text = value.get<std::string>();
        text != nullptr && entry.field->type == FieldType::tensor)
      value = Json{path_in(entry.folder, *text)};
    else if (entry.numbers)
      value = Json{"numbers of shape " + to_string(entry.numbers->shape())};
    add_member(job, entry.key, std::move(value));
  }
  return to_json(Json{std::move(job)}, indent);
}

const Entry* Document::find(std::string_view key) const {
  for (const Entry& entry : entries)
    if (same_name(entry.key, key)) return &entry;
  return nullptr;
}

const Entry& Document::at(std::string_view key) const {
  if (const Entry* entry = find(key)) return *entry;
  throw Error(ErrorKind::internal, "no key '" + std::string(key) + "'");
}

void Document::set(Entry entry) {
  entry.field = find_field(entry.key);
  for (Entry& old : entries) {
    if (same_name(old.key, entry.key)) {
      old = std::move(entry);
      return;
    }
  }
  entries.push_back(std::move(entry));
}

void Document::erase(std::string_view key) {
  std::erase_if(entries, [&](const Entry& entry) { return same_name(entry.key, key); });
}

void Document::set_all(Document other) {
  name = std::move(other.name);
  if (entries.empty()) return entries.swap(other.entries);
  for (Entry& entry : other.entries) set(std::move(entry));
}

bool KeySelection::has(std::string_view key) const {
  return keys.empty() || std::any_of(keys.begin(), keys.end(), [&](const std::string& selected) {
           return key.starts_with(selected) &&
                  (key.size() == selected.size() || key[selected.size()] == '.');
         });
}

KeySelection selected_keys(const std::vector<std::string>& names) {
  KeySelection selection;
  for (const std::string& name : names) {
    const Field* const field = field_spelled(name);
    if (field == nullptr && known_members(name).empty())
      fail_usage("--only: unknown key '" + printable(name) + "'" +
                 did_you_mean(name, known_keys(), NameKind::input));
    selection.keys.push_back(field == nullptr ? name : field->key);
  }
  return selection;
}

Document parse_document(std::string_view json, const std::string& name, const std::string& folder,
                        ReadBudget* budget, Json* id, const KeySelection& only) {
  Document document;
  document.name = name;
  MemoryCharge charge(budget, name);
  Json parsed = parse_json(json, name, charge);
  charge.keep();
  const auto members = parsed.get<JsonObject>();
  if (members == nullptr)
    fail_data({.where = {name},
               .expected = "a job (an object)",
               .found = parsed.kind(),
               .hint = parsed.is_array() ? "'attn batch -' reads several jobs from standard "
                                           "input, one per line"
                                         : ""});
  ProblemList problems;
  document.entries.reserve(members->size());
  MemberReader reader(document, folder, only, problems);
  for (auto& [key, value] : *members) {
    if (id != nullptr && key == "id")
      *id = std::move(value);
    else
      reader.add(key, std::move(value));
  }
  if (!problems.empty()) problems.raise(ErrorKind::data);
  return document;
}

void add_tensors(Document& document, const TensorMap& tensors, ReadBudget& budget) {
  ProblemList problems;
  for (const auto& [name, tensor] : tensors) {
    const Field* field = field_spelled(name);
    if (field == nullptr)
      problems.add(unknown_key(document.name, name, "attn schema lists the keys of a job"));
    else if (document.find(field->names_tensors ? name : field->key) != nullptr)
      problems.add(given_twice(document, name));
    else if (field->type == FieldType::tensor)
      document.set({.key = field->names_tensors ? name : field->key,
                    .value = Json{},
                    .origin = document.name,
                    .folder = "",
                    .numbers = std::make_shared<const Tensor>(tensor)});
    else
      document.set({field->key, option_from(tensor, name, budget), document.name, ""});
  }
  if (!problems.empty()) problems.raise(ErrorKind::data);
}

void read_numbers(Document& document) {
  for (Entry& entry : document.entries) {
    if (entry.field->type != FieldType::tensor || !entry.value.is_array()) continue;
    entry.numbers = std::make_shared<const Tensor>(within(entry.origin, [&] {
      return tensor_from_json(entry.value, entry.from_flag ? "" : entry.key);
    }));
    entry.value = Json{};
  }
}

namespace {

Document parse_job_file(const FileBytes& file, const std::string& path, const KeySelection& only,
                        ReadBudget& budget) {
  try {
    return parse_document(file.text(), file.name(), folder_of(path), &budget, nullptr, only);
  } catch (const Error& error) {
    if (!path.ends_with(".ndjson") && !path.ends_with(".jsonl")) throw;
    std::vector<Problem> problems = error.problems();
    problems.back().hint = "for one job per line: attn batch - < " + printable(path);
    throw Error(error.kind(), std::move(problems));
  }
}

/// A job file. Errors: as TensorFiles::file().
const FileBytes& job_file(const std::string& path, TensorFiles& files) {
  try {
    return files.file(path);
  } catch (const Error&) {
    std::error_code ignored;
    if (!std::filesystem::is_directory(path, ignored) || hint_for_model(path).empty()) throw;
    throw Error(ErrorKind::no_input, Problem{.where = {path},
                                             .message = "is the folder of a model",
                                             .hint = hint_for_model(path)});
  }
}

}  // namespace

bool is_job_document(std::string_view path) {
  const FormatRow* format = format_of_suffix(path);
  return format != nullptr && format->is_document();
}

Document read_document(const std::string& path, TensorFiles& files, const KeySelection& only) {
  Document document;
  document.name = path;
  if (const TensorRef layer = parse_tensor_ref(path); !layer.member.empty()) {
    ProblemList problems;
    const std::string source = layer.path + "#" + layer.member;
    add_arrays(document, files.below(layer.path, layer.member), source, only, problems,
               files.budget());
    if (!problems.empty()) problems.raise(ErrorKind::data);
    return document;
  }
  const FileBytes& file = job_file(path, files);
  ProblemList problems;
  const FormatRow& format = format_of(file);
  if (format.is_archive()) {
    add_arrays(document, files.all(path), path + "#", only, problems, files.budget());
  } else if (format.is_document()) {
    return parse_job_file(file, path, only, files.budget());
  } else {
    fail_data({.where = {file.name()},
               .expected = "a job (" + listed_suffixes(&FormatRow::holds_several) + ")",
               .found = "one array (" + std::string(format.title) + ")",
               .hint = "give it with the flag of its input, such as --embeddings " +
                       printable(path) + "; 'attn batch --pattern' makes jobs of such files"});
  }
  if (!problems.empty()) problems.raise(ErrorKind::data);
  return document;
}

}  // namespace attn
