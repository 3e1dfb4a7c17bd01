#include "attn/io/safetensors.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>
#include <numeric>

#include "attn/base/error.h"
#include "attn/base/suggestion.h"
#include "attn/base/text.h"
#include "attn/base/utf8.h"
#include "attn/io/elements.h"
#include "attn/io/json_parse.h"
#include "attn/io/json_write.h"
#include "attn/tensor/gathered_rows.h"

namespace attn {
namespace {

using Coding = SafetensorsKind::Coding;

/// float32 numbers, decoded when they are read, and a table of their rows.
Tensor coded_elements(const FileBytes& file, const SafetensorsEntry& entry, ReadBudget* budget) {
  const std::size_t width = entry.shape.empty() ? 1 : entry.shape.back();
  MemoryCharge table(budget, file.name());
  table.add(width == 0 ? 0 : element_count(entry.shape) / width, sizeof(std::int64_t));
  table.keep();
  Shape bytes = entry.shape;
  if (const std::size_t codes = codes_per_byte(entry.kind->code); codes > 1) {
    if (bytes.empty() || bytes.back() % codes != 0)
      fail_at({file.name(), entry.name}, "shape " + to_string(entry.shape) + " of " +
                                             std::string(entry.kind->name) +
                                             ": expected an even number of columns");
    bytes.back() /= codes;
  }
  return coded_tensor(entry.kind->code, elements_at(file, entry.begin, DType::u8, bytes));
}

}  // namespace

Tensor read_safetensor(const FileBytes& file, const SafetensorsEntry& entry, ReadBudget* budget) {
  if (entry.kind->coding == Coding::unsupported)
    fail_at({file.name(), entry.name},
            "dtype " + std::string(entry.kind->name) +
                " is not supported; other tensors of the file can be read with FILE#NAME");
  if (entry.kind->coding == Coding::coded) return coded_elements(file, entry, budget);
  if (entry.kind->dtype == DType::boolean || !is_aligned(file, entry.begin, entry.kind->dtype)) {
    MemoryCharge copy(budget, file.name());
    copy.add(entry.end - entry.begin);
    copy.keep();
  }
  return little_endian_elements(elements_at(file, entry.begin, entry.kind->dtype, entry.shape));
}

namespace {

/// The order of the tensors in the file.
std::vector<std::size_t> in_order(const std::vector<TensorSpec>& specs) {
  std::vector<std::size_t> order(specs.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::sort(order.begin(), order.end(), [&](std::size_t a, std::size_t b) {
    const auto *kind_a = &safetensors_kind(specs[a].dtype),
               *kind_b = &safetensors_kind(specs[b].dtype);
    return kind_a == kind_b ? specs[a].name < specs[b].name : kind_a > kind_b;
  });
  return order;
}

std::string metadata_text(const FileMetadata& metadata) {
  std::string text;
  for (const auto& [key, value] : metadata)
    text += (text.empty() ? "" : ",") + json_quoted(key) + ":" + json_quoted(value);
  return "\"__metadata__\":{" + text + "}";
}

/// The length, then the header, padded to a multiple of 8.
std::string header_of(const std::vector<TensorSpec>& specs, const std::vector<std::size_t>& order,
                      const FileMetadata& metadata, const std::string& file) {
  std::string text = metadata.empty() ? "" : metadata_text(metadata);
  std::uint64_t offset = 0;
  for (const std::size_t i : order) {
    const std::string& name = specs[i].name;
    if (name == "__metadata__")
      fail_at({file}, "a .safetensors file cannot have a tensor named '__metadata__'");
    if (find_invalid_utf8(name) != std::string::npos)
      fail_at({file, name}, "the name is not UTF-8, as .safetensors requires");
    const JsonIntegers shape(specs[i].shape.begin(), specs[i].shape.end());
    const std::uint64_t end = offset + specs[i].bytes();
    text += (text.empty() ? "" : ",") + json_quoted(name) + ":{\"dtype\":\"";
    text += safetensors_kind(specs[i].dtype).name;
    text += "\",\"shape\":" + to_json(Json{shape}) + ",\"data_offsets\":[";
    text += std::to_string(offset) + "," + std::to_string(end) + "]}";
    offset = end;
  }
  text = "{" + text + "}";
  text.resize((text.size() + 7) / 8 * 8, ' ');
  std::string header;
  append_little_endian(header, static_cast<std::uint64_t>(text.size()));
  return header + text;
}

}  // namespace

bool is_safetensors(std::span<const std::byte> bytes) {
  if (bytes.size() < 10 || bytes[8] != std::byte{'{'}) return false;
  return little_endian<std::uint64_t>(bytes) <= bytes.size() - 8;
}

TensorMap read_safetensors(const FileBytes& file, FileMetadata* metadata, ReadBudget* budget) {
  MemoryCharge charge(budget, file.name());
  SafetensorsHeader header = parse_safetensors_header(file, charge);
  TensorMap tensors;
  for (const SafetensorsEntry& entry : header.entries)
    tensors.set(entry.name, read_safetensor(file, entry, budget));
  if (metadata != nullptr) {
    MemoryCharge texts(budget, file.name());
    for (const auto& [key, text] : header.metadata) {
      texts.add_string(key.size());
      texts.add_string(text.size());
    }
    texts.keep();
    *metadata = std::move(header.metadata);
  }
  return tensors;
}

const SafetensorsEntry& entry_named(const SafetensorsHeader& header, const std::string& name,
                                    const FileBytes& file) {
  if (const SafetensorsEntry* entry = header.find(name)) return *entry;
  fail_at({file.name()}, "has no tensor '" + printable(name) + "'" +
                             did_you_mean(name, header.names_near(name), NameKind::tensor));
}

FileLayout safetensors_layout(const std::vector<TensorSpec>& specs, const FileMetadata& metadata,
                              const std::string& path) {
  const std::vector<std::size_t> order = in_order(specs);
  FileLayout layout = {{header_of(specs, order, metadata, path), {}}};
  for (const std::size_t i : order) layout.push_back({"", i});
  return layout;
}

namespace {

using enum SafetensorsKind::Coding;

constexpr std::size_t kLengthBytes = 8;
constexpr std::size_t kMaxHeaderLength = 100'000'000;
constexpr std::string_view kMetadata = "__metadata__";

// In the order of the reference implementation.
constexpr std::array<SafetensorsKind, 22> kKinds = {
    {{"BOOL", 8, plain, DType::boolean},
     {"F4", 4, coded, DType::f32, Code::e2m1},
     {"F6_E2M3", 6, unsupported, DType::f32},
     {"F6_E3M2", 6, unsupported, DType::f32},
     {"U8", 8, plain, DType::u8},
     {"I8", 8, plain, DType::i8},
     {"F8_E5M2", 8, coded, DType::f32, Code::e5m2},
     {"F8_E4M3", 8, coded, DType::f32, Code::e4m3},
     {"F8_E8M0", 8, coded, DType::f32, Code::e8m0},
     {"F8_E4M3FNUZ", 8, coded, DType::f32, Code::e4m3fnuz},
     {"F8_E5M2FNUZ", 8, coded, DType::f32, Code::e5m2fnuz},
     {"I16", 16, plain, DType::i16},
     {"U16", 16, plain, DType::u16},
     {"F16", 16, plain, DType::f16},
     {"BF16", 16, plain, DType::bf16},
     {"I32", 32, plain, DType::i32},
     {"U32", 32, plain, DType::u32},
     {"F32", 32, plain, DType::f32},
     {"C64", 64, unsupported, DType::f32},
     {"F64", 64, plain, DType::f64},
     {"I64", 64, plain, DType::i64},
     {"U64", 64, plain, DType::u64}}};

/// The text of the header, after checking its length.
std::string_view header_text(const FileBytes& file) {
  const std::string name = file.name();
  if (file.size < kLengthBytes)
    fail_at({name}, "not a .safetensors file: expected 8 bytes of header length, found " +
                        std::to_string(file.size));
  const auto length = little_endian<std::uint64_t>(file.bytes());
  const std::string header = "header of " + std::to_string(length) + " bytes";
  if (length > kMaxHeaderLength)
    fail_at({name}, header + ": expected at most " + std::to_string(kMaxHeaderLength));
  if (length > file.size - kLengthBytes)
    fail_at({name}, header + ", but the file has only " + std::to_string(file.size - kLengthBytes));
  const std::string_view text = file.text().substr(kLengthBytes, length);
  if (!text.starts_with('{')) fail_at({name}, header + ": expected '{' as its first character");
  return text;
}

const SafetensorsKind& kind_named(const Json& json, const std::string& name) {
  const auto word = json.get<std::string>();
  if (word == nullptr) fail_at({name}, "dtype: expected a string, found " + json.kind());
  for (const SafetensorsKind& kind : kKinds)
    if (*word == kind.name) return kind;
  fail_at({name},
          "unknown dtype '" + printable(*word) + "'" +
              did_you_mean(*word, texts_of(kKinds, &SafetensorsKind::name), NameKind::other));
}

/// A list of integers from 0 to 2^63 - 1.
Shape sizes_in(const Json& json, const std::string& what, const std::string& name) {
  const auto array = json.get<JsonArray>();
  if (array != nullptr && array->empty()) return {};
  const auto integers = json.get<JsonIntegers>();
  if (integers == nullptr || std::any_of(integers->begin(), integers->end(),
                                         [](std::int64_t number) { return number < 0; }))
    fail_at({name}, what + ": expected a list of integers from 0 to 2^63 - 1, found " +
                        (json.is_array() ? "other values in it" : json.kind()));
  if (integers->size() > Shape::kMaxAxes)
    fail_at({name}, what + ": expected at most " + std::to_string(Shape::kMaxAxes) +
                        " numbers, found " + std::to_string(integers->size()));
  return {integers->begin(), integers->end()};
}

const Json& member(const Json& entry, const char* key, const std::string& name) {
  const Json* value = entry.find(key);
  if (value == nullptr) fail_at({name}, std::string("expected the key '") + key + "', found none");
  return *value;
}

/// The size of the elements in bytes.
std::size_t bytes_of_entry(const SafetensorsEntry& entry, const std::string& name) {
  std::size_t bits = 0;
  if (__builtin_mul_overflow(checked_count(entry.shape, name), entry.kind->bits, &bits))
    fail_at({name}, "shape " + to_string(entry.shape) + " takes more than 2^64 bits");
  if (bits % 8 != 0)
    fail_at({name}, "shape " + to_string(entry.shape) + " of " + std::string(entry.kind->name) +
                        " does not fill whole bytes");
  return bits / 8;
}

/// Sets the offsets, relative to the end of the header, after which the file has `available` bytes.
void read_offsets(SafetensorsEntry& entry, const Json& json, const std::string& name,
                  std::size_t available) {
  const Shape offsets = sizes_in(member(json, "data_offsets", name), "data_offsets", name);
  if (offsets.size() != 2)
    fail_at({name}, "data_offsets: expected 2 numbers, found " + std::to_string(offsets.size()));
  const std::string span =
      "data_offsets [" + std::to_string(offsets[0]) + ", " + std::to_string(offsets[1]) + "]";
  if (offsets[0] > offsets[1]) fail_at({name}, span + ": the end precedes the start");
  if (offsets[1] > available)
    fail_at({name},
            span + ": the file has only " + std::to_string(available) + " bytes after the header");
  const std::size_t bytes = bytes_of_entry(entry, name);
  if (offsets[1] - offsets[0] != bytes)
    fail_at({name}, "shape " + to_string(entry.shape) + " of " + std::string(entry.kind->name) +
                        " takes " + std::to_string(bytes) + " bytes, " + span + " has " +
                        std::to_string(offsets[1] - offsets[0]));
  entry.begin = offsets[0];
  entry.end = offsets[1];
}

SafetensorsEntry entry_of(const std::string& key, const Json& json, const FileBytes& file,
                          std::size_t data_start) {
  const std::string& name = key;
  const auto members = json.get<JsonObject>();
  if (members == nullptr) fail_at({name}, "expected an object, found " + json.kind());
  const std::vector<std::string> known = {"dtype", "shape", "data_offsets"};
  for (const auto& [found, value] : *members)
    if (std::find(known.begin(), known.end(), found) == known.end())
      fail_at({name}, "unknown key '" + printable(found) + "'" +
                          did_you_mean(found, known, NameKind::other));
  SafetensorsEntry entry;
  entry.name = key;
  entry.kind = &kind_named(member(json, "dtype", name), name);
  entry.shape = sizes_in(member(json, "shape", name), "shape", name);
  read_offsets(entry, json, name, file.size - data_start);
  entry.begin += data_start;
  entry.end += data_start;
  return entry;
}

/// Checks that the tensors fill the file without gaps or overlaps.
void require_no_gap(const SafetensorsHeader& header, const FileBytes& file, std::size_t start) {
  std::vector<std::size_t> order(header.entries.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  const auto sort_key = [&](std::size_t i) {
    return std::pair(header.entries[i].begin, header.entries[i].end);
  };
  std::sort(order.begin(), order.end(),
            [&](std::size_t i, std::size_t j) { return sort_key(i) < sort_key(j); });
  std::size_t end = start;
  for (const std::size_t i : order) {
    const SafetensorsEntry& entry = header.entries[i];
    const std::string offset = std::to_string(entry.begin - start);
    if (entry.begin < end)
      fail_at({file.name(), entry.name}, "begins at offset " + offset +
                                             ", inside another tensor, which ends at " +
                                             std::to_string(end - start));
    if (entry.begin > end)
      fail_at({file.name(), entry.name}, "begins at offset " + offset + "; expected " +
                                             std::to_string(end - start) +
                                             ", where the tensor before it ends");
    end = entry.end;
  }
  if (end != file.size)
    fail_at({file.name()}, std::to_string(file.size - end) +
                               " bytes follow the last tensor: expected nothing after it");
}

FileMetadata metadata_of(const Json& json, MemoryCharge& charge) {
  const std::string name(kMetadata);
  const auto members = json.get<JsonObject>();
  if (members == nullptr) fail_at({name}, "expected an object of strings, found " + json.kind());
  FileMetadata metadata;
  for (const auto& [key, value] : *members) {
    const auto text = value.get<std::string>();
    if (text == nullptr)
      fail_at({name}, "'" + printable(key) + "': expected a string, found " + value.kind());
    charge.add_string(key.size());
    charge.add_string(text->size());
    metadata.emplace_back(key, *text);
  }
  return metadata;
}

}  // namespace

std::vector<std::size_t>::const_iterator SafetensorsHeader::first_from(
    std::string_view name) const {
  return std::lower_bound(
      by_name.begin(), by_name.end(), name,
      [&](std::size_t i, std::string_view wanted) { return entries[i].name < wanted; });
}

const SafetensorsEntry* SafetensorsHeader::find(std::string_view name) const {
  const auto found = first_from(name);
  return found == by_name.end() || entries[*found].name != name ? nullptr : &entries[*found];
}

std::size_t safetensors_header_size(const FileBytes& file) {
  return kLengthBytes + header_text(file).size();
}

std::vector<std::string> SafetensorsHeader::names_below(std::string_view prefix) const {
  const auto first = first_from(prefix);
  std::vector<std::size_t> below(first, std::find_if_not(first, by_name.end(), [&](std::size_t i) {
                                   return entries[i].name.starts_with(prefix);
                                 }));
  std::sort(below.begin(), below.end());
  std::vector<std::string> names;
  for (const std::size_t i : below) names.push_back(entries[i].name);
  return names;
}

std::vector<std::string> SafetensorsHeader::names_near(std::string_view name) const {
  const auto name_of = [&](std::size_t i) { return entries[i].name; };
  if (entries.size() > kMostSearched)
    return names_around(by_name.begin(), first_from(name), by_name.end(), name_of);
  return texts_of(entries, &SafetensorsEntry::name);
}

SafetensorsHeader parse_safetensors_header(const FileBytes& file, MemoryCharge& charge) {
  const std::string_view text = header_text(file);
  const Json json = within(file.name(), [&] { return parse_json(text, "header", charge); });
  const std::size_t start = kLengthBytes + text.size();
  SafetensorsHeader header;
  for (const auto& member : *json.get<JsonObject>()) {
    const std::string& key = member.first;
    const Json& value = member.second;
    if (key.empty()) fail_at({file.name()}, "has a tensor without a name");
    charge.add(MemoryCharge::kTensor + 4 * key.size());
    within(file.name(), [&] {
      if (key == kMetadata)
        header.metadata = metadata_of(value, charge);
      else
        header.entries.push_back(entry_of(key, value, file, start));
    });
  }
  require_no_gap(header, file, start);
  charge.add(MemoryCharge::kBlock + header.entries.size() * sizeof(std::size_t));
  header.by_name.resize(header.entries.size());
  std::iota(header.by_name.begin(), header.by_name.end(), std::size_t{0});
  std::sort(header.by_name.begin(), header.by_name.end(), [&](std::size_t i, std::size_t j) {
    return header.entries[i].name < header.entries[j].name;
  });
  return header;
}

const SafetensorsKind& safetensors_kind(DType dtype) {
  return *std::find_if(kKinds.begin(), kKinds.end(), [&](const SafetensorsKind& kind) {
    return kind.coding == plain && kind.dtype == dtype;
  });
}

}  // namespace attn
