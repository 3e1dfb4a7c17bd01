#include "attn/io/safetensors_header.h"

#include <algorithm>
#include <array>
#include <cstdint>
#include <numeric>

#include "attn/base/error.h"
#include "attn/base/printable.h"
#include "attn/base/suggestion.h"
#include "attn/io/bytes.h"
#include "attn/io/json.h"
#include "attn/io/json_parse.h"

namespace attn {
namespace {

using enum SafetensorsKind::Coding;

constexpr std::size_t kLengthBytes = 8;
constexpr std::size_t kLongestHeader = 100'000'000;
constexpr std::string_view kMetadata = "__metadata__";

// In the order of the reference implementation.
constexpr std::array<SafetensorsKind, 22> kKinds = {{{"BOOL", 8, plain, DType::boolean},
                                                     {"F4", 4, unsupported, DType::f32},
                                                     {"F6_E2M3", 6, unsupported, DType::f32},
                                                     {"F6_E3M2", 6, unsupported, DType::f32},
                                                     {"U8", 8, plain, DType::u8},
                                                     {"I8", 8, plain, DType::i8},
                                                     {"F8_E5M2", 8, e5m2, DType::f32},
                                                     {"F8_E4M3", 8, e4m3, DType::f32},
                                                     {"F8_E8M0", 8, unsupported, DType::f32},
                                                     {"F8_E4M3FNUZ", 8, unsupported, DType::f32},
                                                     {"F8_E5M2FNUZ", 8, unsupported, DType::f32},
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

[[noreturn]] void fail(const std::string& name, const std::string& problem) {
  throw Error(ErrorKind::data, Problem{.where = {name}, .message = problem});
}

[[noreturn]] void fail_in(const std::string& file, const std::string& tensor,
                          const std::string& problem) {
  throw Error(ErrorKind::data, Problem{.where = {file, tensor}, .message = problem});
}

/// The text of the header, after checking its length.
std::string_view header_text(const FileBytes& file) {
  const std::string name = file.name();
  if (file.size < kLengthBytes)
    fail(name, "not a .safetensors file: expected 8 bytes of header length, found " +
                   std::to_string(file.size));
  const auto length = little_endian<std::uint64_t>(file.bytes());
  const std::string header = "header of " + std::to_string(length) + " bytes";
  if (length > kLongestHeader)
    fail(name, header + ": expected at most " + std::to_string(kLongestHeader));
  if (length > file.size - kLengthBytes)
    fail(name, header + ", of which the file has " + std::to_string(file.size - kLengthBytes));
  const std::string_view text = file.text().substr(kLengthBytes, length);
  if (!text.starts_with('{')) fail(name, header + ": expected it to begin with '{'");
  return text;
}

const SafetensorsKind& kind_named(const Json& json, const std::string& name) {
  const std::string* word = json.get<std::string>();
  if (word == nullptr) fail(name, "dtype: expected a string, found " + json.kind());
  for (const SafetensorsKind& kind : kKinds)
    if (*word == kind.name) return kind;
  std::vector<std::string> known;
  for (const SafetensorsKind& kind : kKinds) known.emplace_back(kind.name);
  fail(name, "unknown dtype '" + printable(*word) + "'" + did_you_mean(*word, known));
}

/// A list of integers from 0 to 2^63 - 1.
Shape sizes_in(const Json& json, const std::string& what, const std::string& name) {
  const auto* array = json.get<JsonArray>();
  if (array != nullptr && array->empty()) return {};
  const auto* integers = json.get<JsonIntegers>();
  if (integers == nullptr || std::any_of(integers->begin(), integers->end(),
                                         [](std::int64_t number) { return number < 0; }))
    fail(name, what + ": expected a list of integers from 0 to 2^63 - 1, found " +
                   (json.is_array() ? "other values in it" : json.kind()));
  if (integers->size() > Shape::kMaxAxes)
    fail(name, what + ": expected at most " + std::to_string(Shape::kMaxAxes) + " numbers, found " +
                   std::to_string(integers->size()));
  return {integers->begin(), integers->end()};
}

const Json& member(const Json& entry, const char* key, const std::string& name) {
  const Json* value = entry.find(key);
  if (value == nullptr) fail(name, std::string("expected the key '") + key + "', found none");
  return *value;
}

std::size_t count_of(const Shape& shape, const std::string& name) {
  try {
    return element_count(shape);
  } catch (const Error& error) {
    fail(name, error.what());
  }
}

/// The size of the elements in bytes.
std::size_t bytes_asked(const SafetensorsEntry& entry, const std::string& name) {
  std::size_t bits = 0;
  if (__builtin_mul_overflow(count_of(entry.shape, name), entry.kind->bits, &bits))
    fail(name, "shape " + to_string(entry.shape) + " has more than 2^64 bits");
  if (bits % 8 != 0)
    fail(name, "shape " + to_string(entry.shape) + " of " + std::string(entry.kind->name) +
                   " does not fill whole bytes");
  return bits / 8;
}

/// Sets the offsets, relative to the end of the header, after which the file has `available` bytes.
void place(SafetensorsEntry& entry, const Json& json, const std::string& name,
           std::size_t available) {
  const Shape offsets = sizes_in(member(json, "data_offsets", name), "data_offsets", name);
  if (offsets.size() != 2)
    fail(name, "data_offsets: expected 2 numbers, found " + std::to_string(offsets.size()));
  const std::string span =
      "data_offsets [" + std::to_string(offsets[0]) + ", " + std::to_string(offsets[1]) + "]";
  if (offsets[0] > offsets[1]) fail(name, span + ": expected the end not before the start");
  if (offsets[1] > available)
    fail(name, span + ": the file has " + std::to_string(available) + " bytes after the header");
  const std::size_t bytes = bytes_asked(entry, name);
  if (offsets[1] - offsets[0] != bytes)
    fail(name, "shape " + to_string(entry.shape) + " of " + std::string(entry.kind->name) +
                   " takes " + std::to_string(bytes) + " bytes, " + span + " has " +
                   std::to_string(offsets[1] - offsets[0]));
  entry.begin = offsets[0];
  entry.end = offsets[1];
}

SafetensorsEntry entry_of(const std::string& key, const Json& json, const FileBytes& file,
                          std::size_t data_start) {
  const std::string& name = key;
  const auto* members = json.get<JsonObject>();
  if (members == nullptr) fail(name, "expected an object, found " + json.kind());
  const std::vector<std::string> known = {"dtype", "shape", "data_offsets"};
  for (const auto& [found, value] : *members)
    if (std::find(known.begin(), known.end(), found) == known.end())
      fail(name, "unknown key '" + printable(found) + "'" + did_you_mean(found, known));
  SafetensorsEntry entry;
  entry.name = key;
  entry.kind = &kind_named(member(json, "dtype", name), name);
  entry.shape = sizes_in(member(json, "shape", name), "shape", name);
  place(entry, json, name, file.size - data_start);
  entry.begin += data_start;
  entry.end += data_start;
  return entry;
}

/// Checks that the tensors fill the file without gaps or overlaps.
void require_no_gap(const SafetensorsHeader& header, const FileBytes& file, std::size_t start) {
  std::vector<std::size_t> order(header.entries.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  const auto place = [&](std::size_t i) {
    return std::pair(header.entries[i].begin, header.entries[i].end);
  };
  std::sort(order.begin(), order.end(),
            [&](std::size_t i, std::size_t j) { return place(i) < place(j); });
  std::size_t end = start;
  for (const std::size_t i : order) {
    const SafetensorsEntry& entry = header.entries[i];
    const std::string offset = std::to_string(entry.begin - start);
    if (entry.begin < end)
      fail_in(file.name(), entry.name,
              "begins at offset " + offset + ", inside another tensor, which ends at " +
                  std::to_string(end - start));
    if (entry.begin > end)
      fail_in(file.name(), entry.name,
              "begins at offset " + offset + "; expected " + std::to_string(end - start) +
                  ", where the tensor before it ends");
    end = entry.end;
  }
  if (end != file.size)
    fail(file.name(), std::to_string(file.size - end) +
                          " bytes follow the last tensor: expected nothing after it");
}

SafetensorsMetadata metadata_of(const Json& json) {
  const std::string name(kMetadata);
  const auto* members = json.get<JsonObject>();
  if (members == nullptr) fail(name, "expected an object of strings, found " + json.kind());
  SafetensorsMetadata metadata;
  for (const auto& [key, value] : *members) {
    const std::string* text = value.get<std::string>();
    if (text == nullptr)
      fail(name, "'" + printable(key) + "': expected a string, found " + value.kind());
    metadata.emplace_back(key, *text);
  }
  return metadata;
}

}  // namespace

SafetensorsHeader parse_safetensors_header(const FileBytes& file, MemoryCharge& charge) {
  const std::string_view text = header_text(file);
  const Json json = within(file.name(), [&] { return parse_json(text, "header", charge); });
  const std::size_t start = kLengthBytes + text.size();
  SafetensorsHeader header;
  constexpr std::size_t kTensor = 1024;  // memory of an entry and its Tensor
  for (const auto& member : *json.get<JsonObject>()) {
    const std::string& key = member.first;
    const Json& value = member.second;
    if (key.empty()) fail(file.name(), "has a tensor without a name");
    charge.add(kTensor + 4 * key.size());
    within(file.name(), [&] {
      if (key == kMetadata)
        header.metadata = metadata_of(value);
      else
        header.entries.push_back(entry_of(key, value, file, start));
    });
  }
  require_no_gap(header, file, start);
  return header;
}

const SafetensorsKind& safetensors_kind(DType dtype) {
  return *std::find_if(kKinds.begin(), kKinds.end(), [&](const SafetensorsKind& kind) {
    return kind.coding == plain && kind.dtype == dtype;
  });
}

}  // namespace attn
