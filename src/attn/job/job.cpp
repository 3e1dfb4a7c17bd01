#include "attn/job/job.h"

#include <algorithm>
#include <array>
#include <cctype>
#include <charconv>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <filesystem>

#include "attn/base/error.h"
#include "attn/base/text.h"
#include "attn/cache/flashmla.h"
#include "attn/cache/latent.h"
#include "attn/cache/listed_slots.h"
#include "attn/cache/pages.h"
#include "attn/cache/stored_rows.h"
#include "attn/io/json_parse.h"
#include "attn/io/json_tensor.h"
#include "attn/io/read_budget.h"
#include "attn/io/tensor_part.h"
#include "attn/job/conventions.h"
#include "attn/job/draws.h"
#include "attn/job/field_value.h"
#include "attn/job/fields.h"
#include "attn/job/random_spec.h"
#include "attn/job/recorded_visibility.h"
#include "attn/problem/inputs.h"
#include "attn/problem/layout.h"
#include "attn/tensor/shape.h"
#include "attn/tensor/transposed.h"

namespace attn {
namespace {

constexpr std::string_view kUnits = "KMGT";

/// "K" or "k" is 1024, "M" its square, ...; 0 for anything else. "B" and "iB" may follow.
double unit_named(std::string_view text) {
  if (text.empty() || text == "B") return 1;
  const auto letter = static_cast<char>(std::toupper(static_cast<unsigned char>(text[0])));
  const std::size_t power = kUnits.find(letter);
  const std::string_view rest = text.substr(1);
  const bool known = rest.empty() || rest == "B" || rest == "iB";
  return power == std::string_view::npos || !known
             ? 0
             : std::pow(1024.0, static_cast<double>(power + 1));
}

}  // namespace

std::size_t parse_size(const std::string& text, const std::string& flag) {
  double number = -1;
  const char* const end = text.data() + text.size();
  const auto [rest, error] = std::from_chars(text.data(), end, number, std::chars_format::fixed);
  const double bytes =
      number * unit_named(std::string_view(rest, static_cast<std::size_t>(end - rest)));
  if (error != std::errc() || !(bytes >= 1) || bytes >= 0x1p63)
    fail_usage(flag + ": expected a size such as 500M or 8G, found '" + printable(text) +
               "'; K, M, G and T are powers of 1024");
  return static_cast<std::size_t>(bytes);
}

std::string size_text(std::size_t bytes) {
  if (bytes < 1024) return std::to_string(bytes) + (bytes == 1 ? " byte" : " bytes");
  double number = static_cast<double>(bytes) / 1024;
  std::size_t unit = 0;
  for (; number >= 1024 && unit + 1 < kUnits.size(); ++unit) number /= 1024;
  char text[32];
  std::snprintf(text, sizeof text, "%.1f %ciB", number, kUnits[unit]);
  return text;
}

std::size_t default_memory() { return memory_of_this_process() / 10 * 9; }

namespace {

std::vector<std::string> strings(const Entry* entry) {
  return entry == nullptr ? std::vector<std::string>{} : strings_of(entry->value);
}

bool is_tensor(const Entry& entry) { return entry.field->input || entry.field->names_tensors; }

/// The tensors' entries, in the order of kInputs; those that are no inputs follow.
std::vector<const Entry*> tensor_entries(const Document& document) {
  const auto place = [](const Entry* entry) {
    return entry->field->input ? index_of(*entry->field->input) : kInputs.size();
  };
  const auto is_before = [&](const Entry* one, const Entry* other) {
    return place(one) < place(other);
  };
  std::vector<const Entry*> entries;
  entries.reserve(document.entries.size());
  for (const Entry& entry : document.entries)
    if (is_tensor(entry))  // sorted as they come: they are few
      entries.insert(std::upper_bound(entries.begin(), entries.end(), &entry, is_before), &entry);
  return entries;
}

/// "V": "K" states the default, that the keys are also the values.
bool states_default(const Entry& entry) {
  const auto word = entry.value.get<std::string>();
  return word != nullptr && is_word(*entry.field, *word);
}

/// Returns read(), and adds the entry to the errors that it throws.
template <class Read>
auto within_entry(const Entry& entry, Read&& read) {
  const auto inner = [&] { return entry.from_flag ? read() : within(entry.key, read); };
  return within(entry.origin, inner);
}

/// Reads the tensors of a job from files, inline numbers and one random stream.
class TensorReader {
 public:
  TensorReader(const Document& document, TensorFiles& files) : document_(document), files_(files) {}

  Tensor read(const Entry& entry) {
    if (entry.numbers) return *entry.numbers;
    const bool is_random = entry.value.get<JsonObject>() != nullptr;
    if (is_random) open_stream(entry);
    return within_entry(entry, [&] {
      if (const auto text = entry.value.get<std::string>()) return read_file(entry, *text);
      if (!is_random) return tensor_from_json(entry.value, "");
      files_.budget().charge(random_tensor_bytes(entry.value), "", "draw");
      return random_tensor(entry.value, *stream_);
    });
  }

  /// Adds the tensors of the list "draws" to `document`. A flag for the same input replaces them.
  void draw(const Entry& draws, Document& document) {
    std::size_t index = 0;
    for (const Json& item : *draws.value.get<JsonArray>()) {
      DrawnInputs inputs;
      within_entry(draws, [&] {
        within("step " + std::to_string(++index), [&] { inputs = run_step(item, draws); });
      });
      for (const auto& [key, tensor] : inputs.tensors) {
        const Entry* other = document.find(key);
        if (other != nullptr && other->from_flag) continue;
        if (other != nullptr)
          throw Error(draws.from_flag ? ErrorKind::usage : ErrorKind::data,
                      Problem{.where = where_of(draws),
                              .message = key + " is given twice: also by " +
                                         (other->numbers ? "another step" : "its key")});
        document.set({.key = key,
                      .value = Json{},
                      .origin = draws.origin,
                      .folder = "",
                      .numbers = std::make_shared<const Tensor>(tensor),
                      .in_out = inputs.in_out,
                      .needs_heads = inputs.needs_heads});
      }
    }
  }

 private:
  Tensor read_file(const Entry& entry, const std::string& text) {
    if (text.empty()) fail_data({.expected = "a file name", .found = "an empty string"});
    const TensorRef ref = parse_tensor_ref(path_in(entry.folder, text));
    if (ref.member.ends_with("in_proj_weight"))
      fail_data({.message = "in_proj_weight holds W_Q, W_K and W_V of "
                            "nn.MultiheadAttention",
                 .hint = "give the file as the job: attn run " + printable(ref.path) +
                         " --heads H --embeddings X"});
    try {
      return files_.read(ref);
    } catch (const Error& error) {
      const std::size_t bracket = text.find('[');
      const bool is_part = bracket != std::string::npos && text.find('#') == std::string::npos;
      if (error.kind() != ErrorKind::no_input || !(is_part || looks_like_numbers(text))) throw;
      std::vector<Problem> problems = error.problems();
      problems.back().hint = is_part ? "to select a part of a tensor, write " +
                                           printable(text.substr(0, bracket)) + "#" +
                                           printable(text.substr(bracket))
                                     : "to give numbers, write [" + text + "]";
      throw Error(error.kind(), std::move(problems));
    }
  }

  /// "2" or "0.5,1,-3": probably meant as numbers, not as a file name.
  static bool looks_like_numbers(const std::string& text) {
    return text.find_first_of("0123456789") != std::string::npos &&
           text.find_first_not_of("0123456789+-.eE, ") == std::string::npos;
  }

  DrawnInputs run_step(const Json& item, const Entry& draws) {
    const DrawStep step = parse_step(item);
    if (step.seed) {
      stream_ = make_stream(*step.seed, generator());
      return {};
    }
    open_stream(draws);
    const std::size_t bytes = random_tensor_bytes(step.spec);
    files_.budget().charge(bytes, "", "draw");
    DrawnInputs inputs = inputs_of(step, attn::draw(step.spec, *stream_));
    if (inputs.tensors.empty()) files_.budget().release(bytes);
    return inputs;
  }

  std::string generator() const {
    const Entry* entry = document_.find("generator");
    return entry == nullptr ? "RandomState" : *entry->value.get<std::string>();
  }

  /// Opens the job's random stream, unless it is open. Errors name `entry`, the tensor that needs
  /// it.
  void open_stream(const Entry& entry) {
    if (stream_) return;
    const Entry* seed = document_.find("seed");
    if (seed == nullptr)
      fail_data({.where = where_of(entry),
                 .message = "a random tensor needs a seed (key \"seed\" or --seed)"});
    try {
      stream_ = make_stream(seed->value, generator());
    } catch (const Error& error) {
      Problem problem = error.problems().front();
      problem.where = where_of(*seed), problem.subject.clear();
      throw Error(seed->from_flag ? ErrorKind::usage : error.kind(), std::move(problem));
    }
  }

  const Document& document_;
  TensorFiles& files_;
  std::optional<RandomStream> stream_;
};

/// The entry of a key. For the name of a group ("rotary") or an absent key of it, the entry of
/// another key of the group; a flag only if all of them are flags.
const Entry* entry_of(const Document& document, const std::string& name) {
  const Entry* found = document.find(name);
  if (found != nullptr) return found;
  const std::string object = name.substr(0, name.find('.')) + ".";
  for (const Entry& entry : document.entries)
    if (entry.key.rfind(object, 0) == 0 && (found == nullptr || found->from_flag)) found = &entry;
  return found;
}

/// A problem with a tensor names the tensor's file, and one with an option the flag that set it;
/// others name the job file.
Problem located(const Job& job, Problem problem) {
  const auto origin = job.origins.find(problem.subject);
  const Entry* entry = entry_of(job.document, problem.subject);
  std::string where = job.document.name;
  const bool is_transposed = job.transposed.contains(problem.subject);
  if (origin != job.origins.end()) {
    where = origin->second;
    const bool is_flag = entry != nullptr && entry->from_flag && where == entry->origin;
    if (is_flag && !entry->field->names_tensors) problem.subject.clear();
  } else if (entry != nullptr && entry->from_flag) {
    where = entry->origin;
    if (entry->key.rfind(problem.subject, 0) == 0) problem.subject.clear();
  }
  if (!where.empty()) problem.where.insert(problem.where.begin(), where);
  if (is_transposed && !problem.found.empty())
    problem.found += ", transposed by weights_layout out-in";
  return problem;
}

bool is_of_flag(const Job& job, const Problem& problem) {
  const Entry* entry = entry_of(job.document, problem.subject);
  return !job.origins.contains(problem.subject) && entry != nullptr && entry->from_flag;
}

/// Gives all weights the axes (in, out); to_user_layout() gives their gradients those of the job.
void apply_weights_layout(Job& job, const TensorFiles& files) {
  if (job.options.weights_layout == WeightsLayout::in_out) return;
  for (const Input input : kProjectionWeights) {
    const std::string key(name_of(input));
    const Tensor* W = job.tensors.find(key);
    if (W == nullptr || W->rank() != 2 || job.document.at(key).in_out) continue;
    const Tensor given = *W;
    job.tensors.set(key, deferred_transpose(given, files.releaser(given)));
    job.transposed.insert(key);
  }
}

/// Finds weights that are used as (in, out) by default although their shape does not determine
/// their layout and their name is one of torch's.
std::vector<std::string> ambiguous_weights(const Job& job) {
  std::vector<std::string> names;
  if (job.document.find("weights_layout") || job.options.weights_layout == WeightsLayout::out_in)
    return names;
  for (const Input input : kProjectionWeights) {
    const Tensor* W = find(job.tensors, input);
    if (W == nullptr || W->rank() != 2 || W->shape()[0] != W->shape()[1] || W->shape()[0] < 2)
      continue;
    const std::string key(name_of(input));
    const auto [name, part] = split_part(job.origins.at(key));
    if (name.ends_with(".weight") && part.find(".T") == std::string::npos) names.push_back(key);
  }
  return names;
}

bool is_alignment_given(const Document& document) {
  const Entry* causal = document.find("causal");
  return document.find("alignment") != nullptr || document.find("causal_offset") != nullptr ||
         document.find("convention") != nullptr ||
         (causal != nullptr && causal->value.get<std::string>() != nullptr);
}

const std::string& origin_of(const Job& job, Input input) {
  return job.origins.at(std::string(name_of(input)));
}

/// Replaces stored queries, keys and values by their numbers.
void decode_stored(Job& job, TensorFiles& files) {
  files.budget().charge(bytes_of_stored(job), "inputs", "read");
  const TensorMap numbers = with_stored_numbers(job);
  for (const auto& [name, tensor] : job.tensors)
    if (const Tensor* now = numbers.find(name); now == nullptr || now->rows() != tensor.rows())
      job.replaced.set(name, tensor);
  if (contains(numbers, Input::V) && !contains(job.tensors, Input::V)) {
    job.origins[std::string(name_of(Input::V))] = origin_of(job, Input::K);
    job.values_given = true;
  }
  job.tensors = numbers;
}

/// Keeps a tensor that is replaced by another form.
void keep_given(Job& job, Input input) {
  const std::string name(name_of(input));
  if (!job.replaced.contains(name)) job.replaced.set(name, job.tensors.at(name));
}

/// Cuts the lists of keys to their lengths.
void cut_lists(Job& job) {
  const TensorMap cut = with_cut_lists(job);
  keep_given(job, Input::key_indices);
  keep_given(job, Input::index_counts);
  job.tensors = cut;
}

/// Replaces the queries of absorbed latent attention by Q and, unless they are in pages, its keys
/// by K and V.
void join_latent(Job& job, TensorFiles& files) {
  files.budget().charge(bytes_of_latent(job.tensors), "inputs", "join");
  const TensorMap joined = with_latent_rows(job.tensors, job.options);
  for (const auto& [name, tensor] : job.tensors)
    if (!joined.contains(name)) job.replaced.set(name, tensor);
  for (const auto& [made, from] :
       {std::pair(Input::Q, Input::Q_nope), std::pair(Input::K, Input::CKV),
        std::pair(Input::V, Input::CKV)})
    if (contains(joined, made)) job.origins[std::string(name_of(made))] = origin_of(job, from);
  job.tensors = joined;
  job.values_given = true;
}

/// Replaces pages by K and V, which get the files of the pools as their origins. Causal masks and
/// windows are then aligned to the last key, unless the job states something else.
void gather_pages(Job& job, TensorFiles& files) {
  if (job.options.index_space == IndexSpace::cache) keep_given(job, Input::key_indices);
  const bool combined = contains(job.tensors, Input::KV_pages);
  const bool is_latent = contains(job.tensors, Input::CKV_pages);
  const PagedCache cache(job);
  files.budget().charge(cache.bytes(), "pages", "gather");
  const TensorMap gathered = cache.gathered();
  for (const auto& [name, tensor] : job.tensors)
    if (!gathered.contains(name)) job.replaced.set(name, tensor);
  job.tensors = gathered;
  for (const auto& [made, from] : {std::pair(Input::K, combined    ? Input::KV_pages
                                                       : is_latent ? Input::CKV_pages
                                                                   : Input::K_pages),
                                   std::pair(Input::V, combined    ? Input::KV_pages
                                                       : is_latent ? Input::CKV_pages
                                                                   : Input::V_pages)})
    job.origins[std::string(name_of(made))] = origin_of(job, from);
  job.values_given = true;
  const Entry* causal = job.document.find("causal");
  const bool aligned = job.document.find("alignment") != nullptr ||
                       job.document.find("causal_offset") != nullptr ||
                       (causal != nullptr && causal->value.get<std::string>() != nullptr);
  if (!aligned) job.options.alignment = Alignment::bottom_right;
  job.alignment_given = true;
}

}  // namespace

std::vector<Request> default_outputs(bool has_output) {
  std::vector<Request> outputs = {Output::scores, Output::weights, Output::context};
  if (has_output) outputs.emplace_back(Output::output);
  return outputs;
}

void check_values(const Document& document) {
  ProblemList problems;
  bool only_flags = true;
  for (const Entry& entry : document.entries) {
    std::optional<Problem> problem = problem_with(*entry.field, entry.value, entry.from_flag);
    if (!problem) continue;
    only_flags = only_flags && entry.from_flag;
    problem->where = where_of(entry);
    problems.add(std::move(*problem));
  }
  if (!problems.empty()) problems.raise(only_flags ? ErrorKind::usage : ErrorKind::data);
}

namespace {

/// The memory of a step of "draws", which has not been checked.
std::size_t bytes_of_step(const Json& step) {
  const auto members = step.get<JsonObject>();
  if (members == nullptr) return 0;
  std::size_t bytes = 0;
  for (const auto& member : *members)
    bytes = saturating_sum(bytes, random_tensor_bytes(Json{JsonObject{member}}));
  return bytes;
}

}  // namespace

std::set<std::string> files_to_read(const Document& document, TensorFiles& files) {
  std::set<std::string> paths;
  for (const Entry* entry : tensor_entries(document)) {
    if (entry->numbers || states_default(*entry)) continue;
    if (const auto path = entry->value.get<std::string>())
      paths.merge(files.paths_of(parse_tensor_ref(path_in(entry->folder, *path))));
  }
  return paths;
}

std::size_t bytes_to_read(const Document& document, TensorFiles& files) {
  std::set<std::string> paths = files_to_read(document, files);
  std::size_t bytes = 0;
  for (const Entry& entry : document.entries)
    if (is_tensor(entry) && !entry.numbers && entry.value.get<JsonObject>() != nullptr)
      bytes = saturating_sum(bytes, random_tensor_bytes(entry.value));
  if (const Entry* draws = document.find("draws"))
    if (const auto steps = draws->value.get<JsonArray>())
      for (const Json& step : *steps) bytes = saturating_sum(bytes, bytes_of_step(step));
  paths.erase(document.name);  // a job that is an archive has been read already
  for (const std::string& path : paths) {
    std::error_code error;
    const std::uintmax_t size = std::filesystem::file_size(path, error);
    if (!error) bytes = saturating_sum(bytes, size);
  }
  return bytes;
}

namespace {

/// The strings of this name in an input's .npz file, or if `of_rows`, the names of its rows in a
/// .csv file; empty if there are none, for a part of a tensor, and for another format.
std::vector<std::string> labels_of(const Entry* entry, TensorFiles& files, std::string_view name,
                                   bool of_rows) {
  if (entry == nullptr) return {};
  const auto text = entry->value.get<std::string>();
  if (text == nullptr) return {};
  const TensorRef ref = parse_tensor_ref(path_in(entry->folder, *text));
  const std::string& path = ref.path;
  const FormatRow* format = format_of_suffix(path);
  if (format == nullptr) return {};
  const bool has_tokens = format->index == FormatRow::Index::directory;
  if (!(format->names_rows || has_tokens) || !files.named_part(ref).part.empty()) return {};
  if (format->names_rows && of_rows) return files.csv_names(path).rows;
  if (!has_tokens) return {};
  for (const auto& [key, json] : files.metadata(path))
    if (key == name) {
      MemoryCharge charge(&files.budget(), path);
      return strings_of(parse_json(json, path, charge));
    }
  return {};
}

/// The tokens of a job that gives none: those of its embeddings, or of its queries if the keys have
/// the same. Beside a memory, they are labels of queries alone, so that keys need their own.
std::vector<std::string> default_tokens(const Job& job, TensorFiles& files) {
  const auto names_of = [&](Input input, bool of_rows) {
    return labels_of(job.document.find(attn::name_of(input)), files, "tokens", of_rows);
  };
  if (find(job.tensors, Input::embeddings) != nullptr) {
    const bool has_memory = find(job.tensors, Input::memory) != nullptr;
    if (has_memory && job.key_tokens.empty()) return {};
    return names_of(Input::embeddings, !has_memory);
  }
  std::vector<std::string> names = names_of(Input::Q, true);
  if (!names.empty() && names != names_of(Input::K, true)) names.clear();
  return names;
}

/// Sets the labels of keys. Those that the job does not give become part of it.
void set_key_tokens(Job& job, TensorFiles& files) {
  constexpr std::string_view kName = "key_tokens";
  if (const Entry* const given = job.document.find(kName)) {
    job.key_tokens = strings_of(given->value);
    return;
  }
  const bool has_memory = find(job.tensors, Input::memory) != nullptr;
  for (const Input keys : {Input::K, has_memory ? Input::memory : Input::embeddings})
    if (job.key_tokens.empty())
      job.key_tokens = labels_of(job.document.find(name_of(keys)), files, kName, false);
  if (!job.key_tokens.empty())
    job.document.set({std::string(kName), json_strings(job.key_tokens), "", "", false});
}

}  // namespace

Job make_job(Document given, TensorFiles& files) {
  check_values(given);
  Job job;
  job.document = std::move(given);
  const Document& document = job.document;
  TensorReader reader(document, files);
  std::optional<Document> without_drawn;
  if (document.find("draws") != nullptr)
    reader.draw(*without_drawn.emplace(document).find("draws"), job.document);
  for (const Entry* entry : tensor_entries(document)) {
    if (states_default(*entry)) continue;
    job.tensors.set(entry->key, reader.read(*entry));
    const auto path = entry->value.get<std::string>();
    job.origins[entry->key] = path != nullptr ? path_in(entry->folder, *path) : entry->origin;
  }
  if (const Entry* convention = document.find("convention")) {
    const std::string& name = *convention->value.get<std::string>();
    job.options = convention_options(name, job.tensors);
    apply_mask_convention(name, job.tensors);
  }
  for (const Entry& entry : document.entries) {
    if (entry.field->apply) entry.field->apply(entry.value, job.options);
  }
  if (job.options.layout == Layout::thd && job.options.heads == 0)
    if (const Tensor* Q = given_queries(job.tensors); Q != nullptr && Q->rank() == 3)
      job.options.heads = static_cast<std::int64_t>(Q->shape()[1]);
  apply_weights_layout(job, files);
  job.alignment_given = is_alignment_given(document);
  job.layout_given = document.find("layout") != nullptr || document.find("convention") != nullptr;
  job.mask_polarity_given = document.find("mask_polarity") != nullptr;
  job.values_given = document.find(name_of(Input::V)) != nullptr;
  job.ambiguous_weights = ambiguous_weights(job);
  for (const Entry& entry : document.entries)
    if (use_of_table(entry, document) == TableUse::warning) job.unused_tables.push_back(entry.key);
  set_key_tokens(job, files);
  const Entry* const tokens = document.find("tokens");
  job.tokens = tokens == nullptr ? default_tokens(job, files) : strings(tokens);
  check_key_requirements(job);
  if (has_stored(job)) with_origins(job, [&] { decode_stored(job, files); });
  if (is_flashmla(job.options.k_type) && job.options.value_width == 0)
    job.options.value_width = kFlashMlaValues;
  if (has_latent(job.tensors)) with_origins(job, [&] { join_latent(job, files); });
  with_origins(job, [&] { require_scale(job.options); });
  if (contains(job.tensors, Input::index_counts)) with_origins(job, [&] { cut_lists(job); });
  if (has_pages(job.tensors)) with_origins(job, [&] { gather_pages(job, files); });
  job.options.q_type = job.options.k_type = job.options.v_type = job.options.k_pe_type =
      StoredType::as_given;
  job.options.value_width = 0;
  job.options.index_space = IndexSpace::sequence;
  job.outputs = outputs_named(strings(document.find("outputs")), job);
  if (job.outputs.empty())
    job.outputs =
        default_outputs(contains(job.tensors, Input::W_O) || contains(job.tensors, Input::W_UV));
  files.budget().charge(bytes_of_conversions(job, false), "inputs", "convert");
  if (without_drawn) job.document = *std::move(without_drawn);
  return job;
}

Error located_error(const Job& job, const Error& error) {
  std::vector<Problem> problems;
  bool only_flags = true;
  for (const Problem& problem : error.problems()) {
    problems.push_back(located(job, problem));
    only_flags = only_flags && is_of_flag(job, problem);
  }
  return {only_flags ? ErrorKind::usage : ErrorKind::data, std::move(problems), error.omitted()};
}

bool needs_visibility(const Job& job) {
  bool has_pairs = false;
  for (const Request& output : job.outputs) {
    if (std::find(job.unstored.begin(), job.unstored.end(), output) != job.unstored.end()) continue;
    if (output == Request{Output::masked_scores}) return false;
    has_pairs = has_pairs || is_of_pairs(output);
  }
  return has_pairs;
}

std::vector<Request> outputs_named(const std::vector<std::string>& names, const Job& job) {
  const std::vector<Request> requests =
      with_origins(job, [&] { return requests_named(names, job); });
  std::vector<Request> outputs;
  for (const Request& request : requests)
    if (std::find(outputs.begin(), outputs.end(), request) == outputs.end())
      outputs.push_back(request);
  return outputs;
}

PreparedJob prepare_job(const Job& job, const OutputSet& offered) {
  return with_origins(job, [&] {
    PreparedJob prepared{make_inputs(job), {}};
    Plan& planned = prepared.plan;
    planned = plan(prepared.inputs, job.outputs, offered);
    planned.bytes = saturating_sum(planned.bytes, bytes_of_rule_tables(job.tensors));
    if (needs_visibility(job))
      planned.bytes = saturating_sum(planned.bytes, bytes_of_visibility(prepared.inputs));
    return prepared;
  });
}

bool prepare_again(const Job& job, PreparedJob& prepared) {
  const auto is_planned = [](const Request& request, const PlannedOutput& planned) {
    return request == planned.request;
  };
  const std::vector<PlannedOutput>& planned = prepared.plan.outputs;
  return std::equal(job.outputs.begin(), job.outputs.end(), planned.begin(), planned.end(),
                    is_planned) &&
         replace_numbers(prepared.inputs, job);
}

}  // namespace attn
