#include "attn/io/tensor_file.h"

#include <algorithm>
#include <filesystem>
#include <span>
#include <system_error>

#include "attn/base/error.h"
#include "attn/base/suggestion.h"
#include "attn/base/text.h"
#include "attn/io/checked_text.h"
#include "attn/io/csv.h"
#include "attn/io/json_parse.h"
#include "attn/io/json_tensor.h"
#include "attn/io/npy.h"
#include "attn/io/npz.h"
#include "attn/io/open_file.h"
#include "attn/io/safetensors.h"

namespace attn {
namespace {

constexpr Format kFormats[] = {Format::npy, Format::npz, Format::safetensors, Format::json,
                               Format::csv};

/// Counts of the innermost elements of nested arrays.
struct Leaves {
  std::size_t numbers = 0;  ///< and booleans
  std::size_t words = 0;    ///< "NaN" and the like, numbers only in arrays that contain numbers
  std::size_t others = 0;
};

void count_leaves(const Json& json, Leaves& leaves) {
  double number = 0;
  if (const JsonArray* array = json.get<JsonArray>()) {
    for (const Json& member : *array) count_leaves(member, leaves);
  } else if (json.is_array() || json.get<bool>() != nullptr) {
    ++leaves.numbers;
  } else if (json.as_number(number)) {
    ++(json.get<std::string>() == nullptr ? leaves.numbers : leaves.words);
  } else {
    ++leaves.others;
  }
}

/// Whether a member of a document is meant as a tensor. ["I", "am"] and false are not; a mixture of
/// numbers and strings is, so that an error is reported for it.
bool is_tensor(const Json& json) {
  if (json.get<bool>() != nullptr) return false;
  Leaves leaves;
  count_leaves(json, leaves);
  return leaves.numbers > 0 || leaves.others == 0;
}

TensorMap read_json_tensors(const FileBytes& file, ReadBudget* budget) {
  const std::string name = file.name();
  MemoryCharge parsed(budget, name), elements(budget, name);
  const Json document = parse_json(file.text(), name, parsed);
  TensorMap tensors;
  const JsonObject* const object = document.get<JsonObject>();
  if (object == nullptr) {
    tensors.set("", tensor_from_json(document, name, elements));
  } else {
    const bool is_result = document.find("schema") != nullptr;  // whose "id" names a batch's job
    for (const auto& member : *object) {
      const std::string& key = member.first;
      const Json& value = member.second;
      if (!is_tensor(value) || (is_result && key == "id")) continue;
      if (key.empty()) fail_at({file.name()}, "has an array without a name");
      elements.add(MemoryCharge::kTensor + 4 * key.size());
      tensors.set(key, within(name, [&] { return tensor_from_json(value, key, elements); }));
    }
  }
  if (tensors.empty()) fail_at({file.name()}, "has no array of numbers");
  elements.keep();
  return tensors;
}

/// Whether bytes may be CSV: not empty, and without control characters.
bool is_plain_text(std::string_view text) {
  constexpr std::size_t kProbedLength = 4096;
  const std::string_view start = text.substr(0, kProbedLength);
  return !start.empty() && std::none_of(start.begin(), start.end(), [](char c) {
    return static_cast<unsigned char>(c) < 0x20 && c != '\t' && c != '\r' && c != '\n';
  });
}

/// "Q, K, V", or the first few names and the number of others.
std::string list_of(const std::vector<std::string>& names) {
  constexpr std::size_t kMaxListed = 8;
  const std::span first = std::span(names).first(std::min(names.size(), kMaxListed));
  std::string text = join(first, ", ", printable);
  if (names.size() > kMaxListed)
    text += " and " + std::to_string(names.size() - kMaxListed) + " more";
  return text;
}

}  // namespace

std::string_view name_of(Format format) {
  switch (format) {
    case Format::npy:
      return "npy";
    case Format::npz:
      return "npz";
    case Format::safetensors:
      return "safetensors";
    case Format::json:
      return "json";
    case Format::csv:
      break;
  }
  return "csv";
}

std::optional<Format> format_of_suffix(const std::string& path) {
  for (const Format format : kFormats)
    if (path.ends_with(std::string(".").append(name_of(format)))) return format;
  return std::nullopt;
}

Format format_of(const FileBytes& file) {
  if (is_npy(file.bytes())) return Format::npy;
  if (is_zip(file.bytes())) return Format::npz;
  if (is_safetensors(file.bytes()) || format_of_suffix(file.path) == Format::safetensors)
    return Format::safetensors;
  const std::string_view text = without_byte_order_mark(file.text());
  const std::size_t start = text.find_first_not_of(" \t\r\n");
  const char first = start == std::string_view::npos ? '\0' : text[start];
  if (first == '{' || first == '[') return Format::json;
  // A broken file: the reader of the format in its name reports the error.
  if (const std::optional<Format> format = format_of_suffix(file.path)) return *format;
  // Standard input has no suffix.
  if (is_stream(file.path) && is_plain_text(file.text())) return Format::csv;
  // The magic number of PyTorch before version 1.6, pickled.
  if (file.text().starts_with("\x80\x02\x8a\x0al\xfc\x9c\x46\xf9 j\xa8P\x19"))
    fail_at({file.name()}, kTorchFile);
  fail_at({file.name()},
          file.size == 0 ? "is empty" : "is not a .npy, .npz, .safetensors, JSON or CSV file");
}

TensorRef parse_tensor_ref(const std::string& text) {
  const std::size_t last = text.rfind('#');
  std::error_code ignored;
  if (last == std::string::npos || std::filesystem::exists(text, ignored)) return {text, ""};
  const std::size_t quote = text.find("#'");
  if (quote != std::string::npos && quote + 3 < text.size() && text.ends_with('\''))
    return {text.substr(0, quote), text.substr(quote + 2, text.size() - quote - 3)};
  const auto split = [&](std::size_t hash) {
    return TensorRef{text.substr(0, hash), text.substr(hash + 1)};
  };
  for (std::size_t hash = last; hash != std::string::npos && hash > 0;
       hash = text.rfind('#', hash - 1)) {
    TensorRef ref = split(hash);
    if (ref.path == "-" || std::filesystem::exists(ref.path, ignored)) return ref;
  }
  return split(last);
}

TensorMap read_tensors(const FileBytes& file, const ReadLimits& limits, ReadBudget* budget) {
  if (file.size == 0) fail_at({file.name()}, "is empty");
  const Format format = format_of(file);
  if (format == Format::npz) return read_npz(file, nullptr, limits.npz, budget);
  if (format == Format::safetensors) return read_safetensors(file, nullptr, budget);
  if (format == Format::json) return read_json_tensors(file, budget);
  const std::string name = file.name();
  TensorMap tensors;
  tensors.set("",
              format == Format::npy ? read_npy(file, name, budget) : read_csv(file, name, budget));
  return tensors;
}

void TensorFiles::add(FileBytes file) {
  budget_.charge(file.size, file.name());
  files_.insert_or_assign(file.path, std::move(file));
}

const FileBytes& TensorFiles::file(const std::string& path) {
  const auto found = files_.find(path);
  if (found != files_.end()) return found->second;
  if (shared_ == nullptr) {
    FileBytes file = read_file(path, budget_.left(), limits_.access);
    add(std::move(file));
    return files_.at(path);
  }
  // Keep the version whose digest is recorded, for tensors requested later.
  const auto held = held_.emplace(path, shared_->file(path)).first;
  add(held->second->bytes());
  return files_.at(path);
}

std::set<std::string> TensorFiles::paths() const {
  std::set<std::string> all;
  for (const auto& [path, file] : files_) all.insert(path);
  return all;
}

void TensorFiles::require_unchanged() const {
  for (const auto& [path, file] : files_) file.require_unchanged();
}

const TensorMap& TensorFiles::all(const std::string& path) {
  const auto found = tensors_.find(path);
  if (found != tensors_.end()) return *found->second;
  const FileBytes& bytes = file(path);
  auto tensors = is_own(path)
                     ? std::make_shared<const TensorMap>(read_tensors(bytes, limits_, &budget_))
                     : shared_->tensors(*held_.at(path));
  return *tensors_.emplace(path, std::move(tensors)).first->second;
}

Tensor TensorFiles::read(const TensorRef& ref) {
  const FileBytes& bytes = file(ref.path);
  if (!ref.member.empty() && format_of(bytes) == Format::safetensors)
    return read_safetensor(bytes, ref.member, &budget_);
  if (!ref.member.empty() && is_own(ref.path) && !tensors_.contains(ref.path) &&
      format_of(bytes) == Format::npz)
    if (const std::optional<Tensor> tensor =
            read_npz_array(bytes, ref.member, limits_.npz, &budget_))
      return *tensor;
  const TensorMap& tensors = all(ref.path);
  if (ref.member.empty() && tensors.size() == 1) return tensors.begin()->second;
  const std::vector<std::string> names = tensors.names();
  if (names.empty()) fail_at({bytes.name()}, "has no arrays");
  if (ref.member.empty())
    fail_at({bytes.name()}, "has several arrays (" + list_of(names) +
                                "); select one, for example " +
                                printable(ref.path + "#" + names.front()));
  if (const Tensor* tensor = tensors.find(ref.member)) return *tensor;
  const std::string member = std::string("'").append(printable(ref.member)).append("'");
  if (names == std::vector<std::string>{""})
    fail_at({bytes.name()}, "has no array " + member + "; its only array is unnamed");
  fail_at({bytes.name()}, "has no array " + member + printable(did_you_mean(ref.member, names)) +
                              "; its arrays: " + list_of(names));
}

}  // namespace attn
