#include "attn/job/job.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <filesystem>

#include "attn/base/error.h"
#include "attn/base/name_text.h"
#include "attn/base/printable.h"
#include "attn/base/same_name.h"
#include "attn/base/version.h"
#include "attn/core/attention.h"
#include "attn/core/inputs.h"
#include "attn/job/conventions.h"
#include "attn/job/fields.h"
#include "attn/job/needs.h"
#include "attn/job/random_spec.h"

namespace attn {
namespace {

/// causal: "top-left" beside an alignment that is another.
std::string contradiction(const Document& document) {
  const Entry *causal = document.find("causal"), *alignment = document.find("alignment");
  if (causal == nullptr || alignment == nullptr) return "";
  const auto *word = causal->value.get<std::string>(), *other = alignment->value.get<std::string>();
  if (word == nullptr || *word == *other) return "";
  return printable(causal->origin) + ": causal: expected the alignment " + *other + " of " +
         printable(alignment->origin) + ", found " + *word;
}

/// Errors: as check_values(), and data or usage for values that contradict each other.
void check_all_values(const Document& document) {
  check_values(document);
  const std::string against = contradiction(document);
  if (!against.empty())
    throw Error(document.name.empty() ? ErrorKind::usage : ErrorKind::data, against);
}

std::vector<std::string> strings(const Entry* entry) {
  std::vector<std::string> list;
  if (entry != nullptr)
    if (const auto* items = entry->value.get<JsonArray>())
      for (const Json& item : *items) list.push_back(*item.get<std::string>());
  return list;
}

/// The tensors' entries, in the order of kInputNames.
std::vector<const Entry*> tensor_entries(const Document& document) {
  std::vector<const Entry*> entries(kInputNames.size());
  for (const Entry& entry : document.entries) {
    std::size_t place = 0;
    while (place < entries.size() && !same_name(entry.key, kInputNames[place])) ++place;
    if (place < entries.size()) entries[place] = &entry;
  }
  std::erase(entries, nullptr);
  return entries;
}

std::string joined(const std::string& folder, const std::string& path) {
  const bool stands_alone = folder.empty() || path == "-" || path.rfind("-#", 0) == 0 ||
                            (!path.empty() && path[0] == '/');
  return stands_alone ? path : folder + "/" + path;
}

/// The tensors of a job, one after another from files, inline numbers and one random stream.
class TensorReader {
 public:
  TensorReader(const Document& document, TensorFiles& files) : document_(document), files_(files) {}

  Tensor read(const Entry& entry) {
    if (entry.numbers) return *entry.numbers;
    if (const auto* text = entry.value.get<std::string>()) return read_file(entry, *text);
    if (entry.value.get<JsonObject>() == nullptr)
      return tensor_from_json(entry.value, name_of(entry));
    Stream& numbers = stream(entry);
    try {
      require_room(entry.value);
      return draw(entry.value, numbers);
    } catch (const Error& error) {
      throw Error(error.kind(), name_of(entry) + ": " + error.what());
    }
  }

 private:
  /// For messages.
  static std::string name_of(const Entry& entry) {
    return printable(entry.origin) + (entry.from_flag ? "" : ": " + entry.key);
  }

  Tensor read_file(const Entry& entry, const std::string& text) {
    if (text.empty())
      throw Error(ErrorKind::data, name_of(entry) + ": expected the name of a file, found none");
    try {
      return files_.read(parse_tensor_ref(joined(entry.folder, text)));
    } catch (const Error& error) {
      std::vector<std::string> lines;
      for (const std::string& line : error.lines()) lines.push_back(name_of(entry) + ": " + line);
      if (error.kind() == ErrorKind::no_input && is_numbers(text))
        lines.back() += "; numbers stand in brackets: [" + text + "]";
      throw Error(error.kind(), std::move(lines));
    }
  }

  /// "2" or "0.5,1,-3": what is meant for a tensor, and read as the name of a file.
  static bool is_numbers(const std::string& text) {
    return text.find_first_of("0123456789") != std::string::npos &&
           text.find_first_not_of("0123456789+-.eE, ") == std::string::npos;
  }

  void require_room(const Json& spec) {
    drawn_ += static_cast<double>(bytes_of_draw(spec));
    if (drawn_ > static_cast<double>(files_.limits().memory))
      throw Error(ErrorKind::data,
                  "would bring what is drawn to " + std::to_string(std::llround(drawn_)) +
                      " bytes, expected at most " + std::to_string(files_.limits().memory) +
                      "; --max-memory permits more");
  }

  Stream& stream(const Entry& drawn) {
    if (stream_) return *stream_;
    const Entry* seed = document_.find("seed");
    const Entry* generator = document_.find("generator");
    if (seed == nullptr)
      throw Error(ErrorKind::data,
                  name_of(drawn) + ": a random tensor needs a seed (key \"seed\" or --seed)");
    try {
      stream_ = make_stream(
          seed->value, generator == nullptr ? "RandomState" : *generator->value.get<std::string>());
    } catch (const Error& error) {  // "seed: ..."
      throw Error(seed->from_flag ? ErrorKind::usage : error.kind(),
                  name_of(*seed) + std::string(error.what()).substr(std::strlen("seed")));
    }
    return *stream_;
  }

  const Document& document_;
  TensorFiles& files_;
  std::optional<Stream> stream_;
  double drawn_ = 0;  ///< bytes
};

/// Each once, in the order of its first mention.
std::vector<std::string> without_repeats(const std::vector<std::string>& names) {
  std::vector<std::string> once;
  for (const std::string& name : names)
    if (std::find(once.begin(), once.end(), name) == once.end()) once.push_back(name);
  return once;
}

std::vector<std::string> default_outputs(const Document& document) {
  std::vector<std::string> outputs = {"scores", "weights", "context"};
  if (document.find("W_O") != nullptr) outputs.push_back("output");
  return outputs;
}

/// The entry of an option; of an object ("position"), or a member that nobody set, that of another
/// member: a flag's only where flags set all that are set.
const Entry* entry_of(const Document& document, const std::string& name) {
  const Entry* found = document.find(name);
  if (found != nullptr) return found;
  const std::string object = name.substr(0, name.find('.')) + ".";
  for (const Entry& entry : document.entries)
    if (entry.key.rfind(object, 0) == 0 && (found == nullptr || found->from_flag)) found = &entry;
  return found;
}

/// Puts the file that a tensor came from before a message that begins with the tensor's name, and
/// the flag that set an option in the place of the option's own.
std::string with_origin(const Job& job, const Document& document, const std::string& line) {
  const std::string name = line.substr(0, line.find(':'));
  const auto origin = job.origins.find(name);
  const Entry* entry = entry_of(document, name);
  if (origin == job.origins.end() && entry != nullptr && entry->from_flag) {
    const bool is_its_own = entry->key.rfind(name, 0) == 0;
    return printable(entry->origin) + (is_its_own ? line.substr(name.size()) : ": " + line);
  }
  const std::string where = origin != job.origins.end() ? origin->second : document.name;
  return where.empty() ? line : printable(where) + ": " + line;
}

/// Whether a flag typed what an error is about.
bool is_of_flag(const Job& job, const Document& document, const std::string& line) {
  const std::string name = line.substr(0, line.find(':'));
  const Entry* entry = entry_of(document, name);
  return !job.origins.contains(name) && entry != nullptr && entry->from_flag;
}

/// What `compute` gives; the lines of its errors name files.
template <class Compute>
auto with_origins(const Job& job, const Document& document, Compute&& compute) {
  try {
    return compute();
  } catch (const Error& error) {
    // What a sink cannot write names its own file.
    if (error.kind() != ErrorKind::data && error.kind() != ErrorKind::usage) throw;
    std::vector<std::string> lines;
    bool only_flags = true;
    for (const std::string& line : error.lines()) {
      lines.push_back(with_origin(job, document, line));
      only_flags = only_flags && is_of_flag(job, document, line);
    }
    throw Error(only_flags ? ErrorKind::usage : ErrorKind::data, std::move(lines));
  }
}

/// What was typed for a key, short enough to stand in a result: inline numbers give their shape.
/// Takes the value out of the entry.
Json typed(Entry& entry, const Job& job) {
  const Field* field = find_field(entry.key);
  const Tensor* tensor = job.tensors.find(entry.key);
  const bool numbers = field->form == FieldForm::tensor && tensor != nullptr &&
                       entry.value.get<std::string>() == nullptr &&
                       entry.value.get<JsonObject>() == nullptr;
  return numbers ? Json{"numbers of shape " + to_string(tensor->shape())} : std::move(entry.value);
}

Json provenance(const Job& job, Document document, const TensorFiles& files) {
  JsonObject options, inputs;
  options.reserve(document.entries.size());
  for (Entry& entry : document.entries)
    if (entry.key != "schema" && entry.key != "tokens")
      options.emplace_back(entry.key, typed(entry, job));
  for (const auto& [path, file] : files.files())
    inputs.emplace_back(text_of_name(path), Json{file.digest()});
  return Json{JsonObject{{"schema", Json{std::string("attn/1")}},
                         {"program", Json{std::string("attn ") + kVersion}},
                         {"job", Json{std::move(options)}},
                         {"inputs", Json{std::move(inputs)}}}};
}

}  // namespace

void check_values(const Document& document) {
  std::vector<std::string> problems;
  bool only_flags = true;
  for (const Entry& entry : document.entries) {
    const std::string problem = problem_with(*find_field(entry.key), entry.value);
    if (problem.empty()) continue;
    only_flags = only_flags && entry.from_flag;
    problems.push_back(printable(entry.origin) + ": " + (entry.from_flag ? "" : entry.key + ": ") +
                       problem);
  }
  if (!problems.empty())
    throw Error(only_flags ? ErrorKind::usage : ErrorKind::data, std::move(problems));
}

std::size_t bytes_to_read(const Document& document) {
  std::set<std::string> paths;
  std::size_t bytes = 0;
  for (const Entry* entry : tensor_entries(document)) {
    if (entry->numbers) continue;
    if (entry->value.get<JsonObject>() != nullptr)
      bytes = sum(bytes, bytes_of_draw(entry->value));
    else if (const auto* path = entry->value.get<std::string>())
      paths.insert(parse_tensor_ref(joined(entry->folder, *path)).path);
  }
  paths.erase(document.name);  // an archive that is the job: it has been read
  for (const std::string& path : paths) {
    std::error_code error;
    const std::uintmax_t size = std::filesystem::file_size(path, error);
    if (!error) bytes = sum(bytes, size);
  }
  return bytes;
}

Job make_job(const Document& document, TensorFiles& files) {
  check_all_values(document);
  Job job;
  TensorReader reader(document, files);
  for (const Entry* entry : tensor_entries(document)) {
    job.tensors.set(entry->key, reader.read(*entry));
    const auto* path = entry->value.get<std::string>();
    job.origins[entry->key] = path != nullptr ? joined(entry->folder, *path) : entry->origin;
  }
  if (const Entry* convention = document.find("convention"))
    job.options = options_of_convention(*convention->value.get<std::string>(), job.tensors);
  for (const Entry& entry : document.entries) {
    const Field* field = find_field(entry.key);
    if (field->apply) field->apply(entry.value, job.options);
  }
  job.outputs = without_repeats(strings(document.find("outputs")));
  if (job.outputs.empty()) job.outputs = default_outputs(document);
  job.tokens = strings(document.find("tokens"));
  bool only_flags = true;
  std::vector<std::string> unmet = unmet_needs(job, document, only_flags);
  if (!unmet.empty())
    throw Error(only_flags ? ErrorKind::usage : ErrorKind::data, std::move(unmet));
  return job;
}

PreparedJob prepare_job(const Job& job, const Document& document,
                        const std::set<std::string>& offered) {
  return with_origins(job, document, [&] {
    PreparedJob prepared{make_inputs(job.tensors, job.options), {}};
    prepared.plan = plan(prepared.inputs, job.tensors, job.options, job.outputs, offered);
    return prepared;
  });
}

Result describe_job(const Job& job, Document document, const TensorFiles& files) {
  return {.outputs = {},
          .streamed = {},
          .tokens = job.tokens,
          .made_by = provenance(job, std::move(document), files),
          .overflows = {}};
}

void compute_job(const Job& job, const PreparedJob& prepared, const Document& document,
                 Result& result, const RowSinks& sinks) {
  result.outputs = with_origins(job, document, [&] {
    return attend(prepared.inputs, job.tensors, job.options, job.outputs, sinks, &result.overflows);
  });
}

}  // namespace attn
