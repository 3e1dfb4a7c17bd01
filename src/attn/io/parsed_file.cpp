#include "attn/io/parsed_file.h"

#include <utility>

#include "attn/base/error.h"
#include "attn/base/text.h"
#include "attn/io/json_parse.h"
#include "attn/io/tensor_file.h"

namespace attn {
namespace {

/// Errors: data, unless `shard` is the name of a .safetensors file in the folder of the index.
void check_shard(const std::string& shard) {
  if (shard.find_first_of(std::string_view("/\0", 2)) == std::string::npos &&
      shard.ends_with(row_of(Format::safetensors).suffix))
    return;
  fail_data({.expected = "the name of a .safetensors file in the folder of the index",
             .found = "'" + printable(shard) + "'"});
}

ShardNames read_shards(const FileBytes& file, ReadBudget& budget, MemoryCharge& kept) {
  const std::string name = file.name();
  MemoryCharge parsed(&budget, name);
  const Json index = parse_json(file.text(), name, parsed);
  const Json* map = index.find("weight_map");
  const auto members = map == nullptr ? nullptr : map->get<JsonObject>();
  if (members == nullptr)
    fail_at({name}, "expected an object 'weight_map' with the file of each tensor, found " +
                        (map == nullptr ? "none" : map->kind()));
  ShardNames shards;
  for (const auto& member : *members) {
    const auto shard = member.second.get<std::string>();
    if (shard == nullptr)
      fail_at({name, "weight_map", member.first},
              "expected the name of a file, found " + member.second.kind());
    within(name, [&] { within(member.first, [&] { check_shard(*shard); }); });
    kept.add(MemoryCharge::kTensor + member.first.size() + shard->size());
    shards.emplace(member.first, *shard);
  }
  if (shards.empty()) fail_at({name}, "has no tensors");
  return shards;
}

}  // namespace

template <class T, class Read>
const T& ParsedFile::part(Part<T>& part, const FileBytes& file, ReadBudget& budget,
                          const Read& read) {
  const std::lock_guard lock(mutex_);
  MemoryCharge charge(&budget, file.name());
  if (part.value == nullptr) {
    part.value = std::make_unique<const T>(read(charge));
    part.bytes = charge.bytes();
  } else {
    charge.add(part.bytes);
  }
  charge.keep();
  return *part.value;
}

const SafetensorsHeader& ParsedFile::header(const FileBytes& file, ReadBudget& budget) {
  return part(header_, file, budget,
              [&](MemoryCharge& charge) { return parse_safetensors_header(file, charge); });
}

const NpzIndex& ParsedFile::archive(const FileBytes& file, const NpzLimits& limits,
                                    ReadBudget& budget) {
  return part(archive_, file, budget,
              [&](MemoryCharge& charge) { return read_npz_index(file, limits, charge); });
}

const ShardNames& ParsedFile::shards(const FileBytes& file, ReadBudget& budget) {
  return part(shards_, file, budget,
              [&](MemoryCharge& charge) { return read_shards(file, budget, charge); });
}

const Json& ParsedFile::document(const FileBytes& file, ReadBudget& budget) {
  return part(document_, file, budget,
              [&](MemoryCharge& charge) { return parse_json(file.text(), file.name(), charge); });
}

std::string ParsedFile::digest(const FileBytes& file) {
  const std::lock_guard lock(mutex_);
  if (digest_.empty()) digest_ = file.digest();
  return digest_;
}

std::size_t ParsedFile::size() {
  const std::lock_guard lock(mutex_);
  return header_.bytes + archive_.bytes + shards_.bytes + document_.bytes;
}

std::shared_ptr<ParsedFile> ParsedFiles::find(const std::string& path, const FileStamp& version) {
  Kept& kept = files_[path];
  if (kept.file == nullptr || !(kept.version == version))
    kept = {version, std::make_shared<ParsedFile>()};
  return kept.file;
}

void ParsedFiles::count(std::size_t bytes) {
  bytes_ += bytes;
  if (bytes_ <= capacity_) return;
  files_.clear();
  bytes_ = 0;
}

}  // namespace attn
