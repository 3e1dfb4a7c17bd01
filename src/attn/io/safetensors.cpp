#include "attn/io/safetensors.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>
#include <numeric>

#include "attn/base/error.h"
#include "attn/base/printable.h"
#include "attn/base/suggestion.h"
#include "attn/base/utf8.h"
#include "attn/io/bytes.h"
#include "attn/io/elements.h"
#include "attn/io/json.h"
#include "attn/io/json_write.h"
#include "attn/io/safetensors_header.h"

namespace attn {
namespace {

using Coding = SafetensorsKind::Coding;

[[noreturn]] void fail(const std::string& name, const std::string& problem) {
  throw Error(ErrorKind::data, Problem{.where = {name}, .message = problem});
}

[[noreturn]] void fail_in(const std::string& file, const std::string& tensor,
                          const std::string& problem) {
  throw Error(ErrorKind::data, Problem{.where = {file, tensor}, .message = problem});
}

/// Four exponent bits with bias 7, three fraction bits; no infinity, one NaN of each sign.
float e4m3(std::uint8_t bits) {
  const int exponent = bits >> 3 & 0xF, fraction = bits & 7;
  const float magnitude = exponent == 0xF && fraction == 7 ? std::numeric_limits<float>::quiet_NaN()
                          : exponent == 0
                              ? std::ldexp(static_cast<float>(fraction), -9)
                              : std::ldexp(static_cast<float>(8 + fraction), exponent - 10);
  return std::copysign(magnitude, bits < 0x80 ? 1.0F : -1.0F);
}

/// The upper byte of a binary16.
float e5m2(std::uint8_t bits) {
  Half half;
  half.bits = static_cast<std::uint16_t>(bits << 8);
  return static_cast<float>(half);
}

Tensor widened(const FileBytes& file, const SafetensorsEntry& entry, ReadBudget* budget) {
  MemoryCharge copy(budget, file.name());
  copy.add(element_count(entry.shape), sizeof(float));
  copy.keep();
  std::array<float, 256> values;
  for (std::size_t bits = 0; bits < values.size(); ++bits) {
    const auto byte = static_cast<std::uint8_t>(bits);
    values[bits] = entry.kind->coding == Coding::e4m3 ? e4m3(byte) : e5m2(byte);
  }
  Tensor tensor(DType::f32, entry.shape);
  const std::span<const std::byte> bytes = file.bytes().subspan(entry.begin, tensor.size());
  std::transform(bytes.begin(), bytes.end(), tensor.mutable_data<float>().begin(),
                 [&](std::byte byte) { return values[std::to_integer<std::size_t>(byte)]; });
  return tensor;
}

Tensor tensor_of(const FileBytes& file, const SafetensorsEntry& entry, ReadBudget* budget) {
  if (entry.kind->coding == Coding::unsupported)
    fail_in(file.name(), entry.name,
            "dtype " + std::string(entry.kind->name) +
                " is not supported; other tensors of the file can be read with FILE#NAME");
  if (entry.kind->coding != Coding::plain) return widened(file, entry, budget);
  if (entry.kind->dtype == DType::boolean || !is_aligned(file, entry.begin, entry.kind->dtype)) {
    MemoryCharge copy(budget, file.name());
    copy.add(entry.end - entry.begin);
    copy.keep();
  }
  return little_endian_elements(elements_at(file, entry.begin, entry.kind->dtype, entry.shape));
}

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

std::string metadata_text(const SafetensorsMetadata& metadata) {
  std::string text;
  for (const auto& [key, value] : metadata)
    text += (text.empty() ? "" : ",") + json_quoted(key) + ":" + json_quoted(value);
  return "\"__metadata__\":{" + text + "}";
}

/// The length, then the header, padded to a multiple of 8.
std::string header_of(const std::vector<TensorSpec>& specs, const std::vector<std::size_t>& order,
                      const SafetensorsMetadata& metadata, const std::string& file) {
  std::string text = metadata.empty() ? "" : metadata_text(metadata);
  std::uint64_t offset = 0;
  for (const std::size_t i : order) {
    const std::string& name = specs[i].name;
    if (name == "__metadata__")
      fail(file, "a .safetensors file cannot have a tensor named '__metadata__'");
    if (find_invalid_utf8(name) != std::string::npos)
      fail_in(file, name, "the name is not UTF-8, as .safetensors requires");
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

TensorMap read_safetensors(const FileBytes& file, SafetensorsMetadata* metadata,
                           ReadBudget* budget) {
  MemoryCharge charge(budget, file.name());
  SafetensorsHeader header = parse_safetensors_header(file, charge);
  TensorMap tensors;
  for (const SafetensorsEntry& entry : header.entries)
    tensors.set(entry.name, tensor_of(file, entry, budget));
  if (metadata != nullptr) *metadata = std::move(header.metadata);
  return tensors;
}

Tensor read_safetensor(const FileBytes& file, const std::string& name, ReadBudget* budget) {
  MemoryCharge charge(budget, file.name());
  const SafetensorsHeader header = parse_safetensors_header(file, charge);
  std::vector<std::string> names;
  for (const SafetensorsEntry& entry : header.entries) {
    if (entry.name == name) return tensor_of(file, entry, budget);
    names.push_back(entry.name);
  }
  fail(file.name(), "has no tensor '" + printable(name) + "'" + did_you_mean(name, names));
}

FileLayout safetensors_layout(const std::vector<TensorSpec>& specs,
                              const SafetensorsMetadata& metadata, const std::string& path) {
  const std::vector<std::size_t> order = in_order(specs);
  FileLayout layout = {{header_of(specs, order, metadata, path), {}}};
  for (const std::size_t i : order) layout.push_back({"", i});
  return layout;
}

void write_safetensors(const TensorMap& tensors, const SafetensorsMetadata& metadata,
                       OutputFile& out) {
  std::vector<TensorSpec> specs;
  std::vector<Elements> elements;
  for (const auto& [name, tensor] : tensors) {
    specs.push_back({name, tensor.dtype(), tensor.shape()});
    elements.push_back(elements_of(tensor, tensor.dtype()));
  }
  write_layout(safetensors_layout(specs, metadata, out.path()), specs, elements, out);
}

}  // namespace attn
