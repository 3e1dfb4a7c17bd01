#include "attn/io/place_in_file.h"

#include <algorithm>
#include <array>
#include <span>

#include "attn/io/format.h"
#include "attn/io/npy.h"
#include "attn/io/safetensors.h"
#include "attn/io/zip_directory.h"
#include "attn/io/zip_format.h"

namespace attn {
namespace {

using Place = std::optional<TensorPlace>;

/// `bytes` starts like the contents of an .npy file.
Place place_in_npy(std::span<const std::byte> bytes, const std::string& name) {
  const NpyHeader header = parse_npy_header(bytes, name);
  if (header.has_strings()) refuse_strings(name);
  if (header.big_endian || header.fortran_order) return std::nullopt;
  return TensorPlace{.dtype = header.dtype, .offset = header.data_offset};
}

Place place_in_npz(const FileBytes& file, const std::string& name, const NpzLimits& limits,
                   ReadBudget& budget) {
  MemoryCharge charge(&budget, file.name());
  const NpzIndex index = read_npz_index(file, limits, charge);
  const auto found = index.by_name.find(name);
  if (found == index.by_name.end()) return std::nullopt;
  const ZipMember& member = index.arrays[found->second];
  const auto begin = static_cast<std::uint64_t>(member.packed.data() - file.data.get());
  if (member.method == zip::kStored) {
    Place place = place_in_npy(member.packed, name);
    if (place) place->offset += begin;
    return place;
  }
  std::array<std::byte, kLongestNpyHeader + 16> start;
  Place place = place_in_npy(expand_start(member, start), name);
  if (place) place->packed = {begin, member.packed.size()};
  return place;
}

Place place_in_safetensors(const FileBytes& file, const std::string& name, ReadBudget& budget) {
  MemoryCharge charge(&budget, file.name());
  const SafetensorsHeader header = parse_safetensors_header(file, charge);
  const SafetensorsEntry* const entry = header.find(name);
  if (entry == nullptr || entry->kind->coding != SafetensorsKind::Coding::plain)
    return std::nullopt;
  return TensorPlace{.dtype = entry->kind->dtype, .offset = entry->begin};
}

Place place_by_format(const FileBytes& file, const std::string& name, const NpzLimits& limits,
                      ReadBudget& budget) {
  switch (format_of(file).format) {
    case Format::npy:
      return place_in_npy(file.bytes(), file.name());
    case Format::npz:
      return place_in_npz(file, name, limits, budget);
    case Format::safetensors:
      return place_in_safetensors(file, name, budget);
    case Format::json:
    case Format::csv:
      break;
  }
  return std::nullopt;
}

}  // namespace

std::optional<TensorPlace> place_in_file(const FileBytes& file, const std::string& name,
                                         const NpzLimits& limits, ReadBudget& budget) {
  Place place = place_by_format(file, name, limits, budget);
  if (place) place->file_size = file.size;
  return place;
}

}  // namespace attn
