#include "attn/io/format.h"

#include <algorithm>
#include <array>

#include "attn/base/error.h"
#include "attn/base/text.h"
#include "attn/io/checked_text.h"
#include "attn/io/csv.h"
#include "attn/io/file_cache.h"
#include "attn/io/json_parse.h"
#include "attn/io/json_tensor.h"
#include "attn/io/npy.h"
#include "attn/io/npz.h"
#include "attn/io/safetensors.h"

namespace attn {
namespace {

/// Counts of the innermost elements of nested arrays.
struct Leaves {
  std::size_t numbers = 0;  ///< and booleans
  std::size_t words = 0;    ///< "NaN" and the like, numbers only in arrays that contain numbers
  std::size_t others = 0;
};

void count_leaves(const Json& json, Leaves& leaves) {
  double number = 0;
  if (const auto array = json.get<JsonArray>()) {
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

TensorMap read_json_tensors(const FileBytes& file, FileMetadata*, const ReadLimits&,
                            ReadBudget* budget) {
  const std::string name = file.name();
  MemoryCharge parsed(budget, name), elements(budget, name);
  const Json document = parse_json(file.text(), name, parsed);
  TensorMap tensors;
  const auto object = document.get<JsonObject>();
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
  const bool is_empty = object != nullptr && object->empty();
  if (tensors.empty() && !is_empty) fail_at({file.name()}, "has no array of numbers");
  elements.keep();
  return tensors;
}

std::string json_text(const TensorMap& tensors, const std::string&) {
  if (const Tensor* alone = tensors.find("")) return to_json(*alone, 2) + "\n";
  std::string text;
  for (const auto& [name, tensor] : tensors)
    text += (text.empty() ? "{\n  " : ",\n  ") + json_quoted(name) + ": " + to_json(tensor, 4);
  return text.empty() ? "{}\n" : text + "\n}\n";
}

std::string csv_text(const TensorMap& tensors, const std::string& path) {
  const auto& [name, tensor] = *tensors.begin();
  return to_csv(tensor, name.empty() ? path : printable(path) + ": " + printable(name));
}

DType same_dtype(DType dtype) { return dtype; }

bool is_json_text(const FileBytes& file) {
  const std::string_view text = without_byte_order_mark(file.text());
  const std::size_t start = text.find_first_not_of(" \t\r\n");
  return start != std::string_view::npos && (text[start] == '{' || text[start] == '[');
}

// In the order in which messages list them. Files are recognised in this order, too: JSON comes
// after .safetensors, whose header may begin like it.
constexpr std::array<FormatRow, 5> kFormats = {{
    {.format = Format::npz,
     .suffix = ".npz",
     .title = ".npz",
     .contents = FormatRow::Contents::tensors,
     .index = FormatRow::Index::directory,
     .metadata = FormatRow::Metadata::one_text,
     .most_metadata = 65535,
     .has_checksums = true,
     .is = [](const FileBytes& file) { return is_zip(file.bytes()); },
     .read = [](const FileBytes& file, FileMetadata* metadata, const ReadLimits& limits,
                ReadBudget* budget) { return read_npz(file, metadata, limits.npz, budget); },
     .layout =
         [](const std::vector<TensorSpec>& specs, const std::vector<std::uint32_t>& checksums,
            const FileMetadata& metadata, const std::string& path) {
           return npz_layout(specs, checksums, metadata.empty() ? "" : metadata.front().second,
                             path);
         },
     .stored_dtype = npy_dtype},
    {.format = Format::npy,
     .suffix = ".npy",
     .title = ".npy",
     .contents = FormatRow::Contents::tensor,
     .is_mapped = true,
     .is = [](const FileBytes& file) { return is_npy(file.bytes()); },
     .read = [](const FileBytes& file, FileMetadata*, const ReadLimits&,
                ReadBudget* budget) { return unnamed(read_npy(file, file.name(), budget)); },
     .layout = [](const std::vector<TensorSpec>& specs, const std::vector<std::uint32_t>&,
                  const FileMetadata&, const std::string&) { return npy_layout(specs[0]); },
     .stored_dtype = npy_dtype},
    {.format = Format::safetensors,
     .suffix = ".safetensors",
     .title = ".safetensors",
     .contents = FormatRow::Contents::tensors,
     .index = FormatRow::Index::header,
     .metadata = FormatRow::Metadata::by_key,
     .most_metadata = std::size_t{1} << 20,
     .is_mapped = true,
     .names_are_utf8 = true,
     .is =
         [](const FileBytes& file) {
           return is_safetensors(file.bytes()) || file.path.ends_with(".safetensors");
         },
     .read = [](const FileBytes& file, FileMetadata* metadata, const ReadLimits&,
                ReadBudget* budget) { return read_safetensors(file, metadata, budget); },
     .layout = [](const std::vector<TensorSpec>& specs, const std::vector<std::uint32_t>&,
                  const FileMetadata& metadata,
                  const std::string& path) { return safetensors_layout(specs, metadata, path); },
     .stored_dtype = same_dtype},
    {.format = Format::json,
     .suffix = ".json",
     .title = "JSON",
     .contents = FormatRow::Contents::document,
     .metadata = FormatRow::Metadata::members,
     .is = is_json_text,
     .read = read_json_tensors,
     .text = json_text},
    {.format = Format::csv,
     .suffix = ".csv",
     .title = "CSV",
     .contents = FormatRow::Contents::tensor,
     .names_rows = true,
     .read = [](const FileBytes& file, FileMetadata*, const ReadLimits&,
                ReadBudget* budget) { return unnamed(read_csv(file, file.name(), budget)); },
     .text = csv_text},
}};

/// Whether bytes may be CSV: not empty, and without control characters.
bool is_plain_text(std::string_view text) {
  constexpr std::size_t kProbedLength = 4096;
  const std::string_view start = text.substr(0, kProbedLength);
  return !start.empty() && std::none_of(start.begin(), start.end(), [](char c) {
    return static_cast<unsigned char>(c) < 0x20 && c != '\t' && c != '\r' && c != '\n';
  });
}

/// "a, b or c": a text for each format that has the property.
template <class TextOf>
std::string listed_formats(bool (FormatRow::*have)() const, const TextOf& text_of) {
  std::vector<std::string> texts;
  for (const FormatRow& row : kFormats)
    if (have == nullptr || (row.*have)()) texts.emplace_back(text_of(row));
  return join_or(texts);
}

}  // namespace

TensorMap unnamed(Tensor tensor) {
  TensorMap tensors;
  tensors.set("", std::move(tensor));
  return tensors;
}

std::span<const FormatRow> all_formats() { return kFormats; }

const FormatRow& row_of(Format format) {
  return *std::find_if(kFormats.begin(), kFormats.end(),
                       [&](const FormatRow& row) { return row.format == format; });
}

const FormatRow* format_of_suffix(std::string_view path) {
  for (const FormatRow& row : kFormats)
    if (path.ends_with(row.suffix)) return &row;
  return nullptr;
}

const FormatRow* format_named(std::string_view name) {
  for (const FormatRow& row : kFormats)
    if (row.name() == name) return &row;
  return nullptr;
}

const FormatRow& format_of(const FileBytes& file) {
  for (const FormatRow& row : kFormats)
    if (row.is != nullptr && row.is(file)) return row;
  // A broken file: the reader of the format in its name reports the error.
  if (const FormatRow* row = format_of_suffix(file.path)) return *row;
  // Standard input has no suffix.
  const bool may_be_csv = is_stream(file.path) || file.path.ends_with(".txt");
  if (may_be_csv && is_plain_text(file.text())) return row_of(Format::csv);
  // The magic number of PyTorch before version 1.6, pickled.
  if (file.text().starts_with("\x80\x02\x8a\x0al\xfc\x9c\x46\xf9 j\xa8P\x19"))
    fail_at({file.name()}, kTorchFile);
  const std::string titles =
      listed_formats(nullptr, [](const FormatRow& row) { return row.title; });
  fail_at({file.name()}, file.size == 0 ? "is empty" : "is not a " + titles + " file");
}

std::string listed_suffixes(bool (FormatRow::*have)() const) {
  return listed_formats(have, [](const FormatRow& row) { return row.suffix; });
}

std::string listed_names(bool (FormatRow::*have)() const) {
  return listed_formats(have, [](const FormatRow& row) { return row.name(); });
}

std::vector<std::string> format_names(std::vector<std::string> first,
                                      const std::vector<std::string>& last) {
  for (const FormatRow& row : kFormats) first.emplace_back(row.name());
  first.insert(first.end(), last.begin(), last.end());
  return first;
}

FileMetadata metadata_of(const FormatRow& format, const std::string& made_by,
                         const std::string& tokens) {
  if (made_by.empty()) return {};
  if (format.metadata == FormatRow::Metadata::one_text) return {{"", made_by}};
  FileMetadata metadata = {{"schema", "attn/1"}, {"made_by", made_by}};
  if (!tokens.empty()) metadata.emplace_back("tokens", tokens);
  return metadata;
}

void write_elements(const FormatRow& format, const std::vector<TensorSpec>& specs,
                    const std::vector<Elements>& elements, const FileMetadata& metadata,
                    OutputFile& out) {
  const std::vector<std::uint32_t> checksums = format.has_checksums
                                                   ? checksums_of(elements, specs)
                                                   : std::vector<std::uint32_t>(specs.size());
  write_layout(format.layout(specs, checksums, metadata, out.path()), specs, elements, out);
}

void write_tensors(const FormatRow& format, const TensorMap& tensors, const FileMetadata& metadata,
                   OutputFile& out) {
  if (!format.is_binary()) return out.write(format.text(tensors, out.path()));
  std::vector<TensorSpec> specs;
  std::vector<Elements> elements;
  for (const auto& [name, tensor] : tensors) {
    specs.push_back({name, format.stored_dtype(tensor.dtype()), tensor.shape()});
    elements.push_back(elements_of(tensor, specs.back().dtype));
  }
  write_elements(format, specs, elements, metadata, out);
}

}  // namespace attn
