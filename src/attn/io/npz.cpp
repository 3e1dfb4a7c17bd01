#include "attn/io/npz.h"

#include <algorithm>
#include <map>

#include "attn/base/error.h"
#include "attn/base/printable.h"
#include "attn/io/bytes.h"
#include "attn/io/npy.h"
#include "attn/io/zip_directory.h"

namespace attn {
namespace {

constexpr std::string_view kSuffix = ".npy";
constexpr std::size_t kRatioFrom = std::size_t{64} << 20;
constexpr std::uint16_t kStored = 0, kDeflated = 8;

[[noreturn]] void fail(const std::string& name, const std::string& problem) {
  throw Error(ErrorKind::data, Problem{.where = {name}, .message = problem});
}

std::string method_name(std::uint16_t method) {
  switch (method) {
    case 9:
      return "deflate64";
    case 12:
      return "bzip2";
    case 14:
      return "LZMA";
    case 93:
      return "zstd";
    case 95:
      return "XZ";
    default:
      return "method " + std::to_string(method);
  }
}

/// Adds the member's size to `expanded`, the bytes of all deflated members before it.
void require_readable(const ZipMember& member, const std::string& name, const NpzLimits& limits,
                      std::size_t& expanded) {
  if (member.is_encrypted()) fail(name, "is encrypted");
  const bool deflated = member.method == kDeflated;
  if (!deflated && member.method != kStored)
    fail(name,
         "is compressed with " + method_name(member.method) + ": expected stored or deflated");
  const std::size_t packed = member.packed.size();
  const std::string claim =
      "claims to expand " + std::to_string(packed) + " bytes to " + std::to_string(member.size);
  if (!deflated && member.size != packed) fail(name, claim + ", but is stored uncompressed");
  if (member.size > kRatioFrom && member.size / limits.ratio > packed)
    fail(name,
         claim + ", more than " + std::to_string(limits.ratio) + " to 1; --max-expand permits it");
  if (!deflated) return;
  if (member.size > limits.expanded - expanded)
    fail(name, "would expand the archive to " + std::to_string(expanded + member.size) +
                   " bytes, more than " + std::to_string(limits.expanded) +
                   "; --max-expand raises that");
  expanded += member.size;
}

Tensor read_member(const ZipMember& member, const std::string& name, ReadBudget* budget) {
  MemoryCharge expanded(budget, name);
  expanded.add(member.size);
  expanded.keep();
  const std::shared_ptr<std::byte> data = allocate_bytes(member.size);
  if (const std::string problem = expand(member, data.get()); !problem.empty()) fail(name, problem);
  return read_npy({name, data, member.size}, name, budget);
}

/// All arrays, or the one that is `wanted`. The directory entries of the others are checked as
/// well, but they are not expanded.
TensorMap read_members(const ZipDirectory& directory, const FileBytes& file,
                       const NpzLimits& limits, const std::string* wanted, ReadBudget* budget) {
  TensorMap tensors;
  std::map<std::string_view, std::string_view>
      seen;  // the key that NumPy gives a member -> its name
  std::size_t expanded = 0;
  for (const ZipMember& member : directory.members) {
    const std::string_view name = member.name;
    const bool is_array = name.ends_with(kSuffix);
    const std::string_view key = name.substr(0, name.size() - (is_array ? kSuffix.size() : 0));
    const auto [other, is_new] = seen.emplace(key, name);
    if (!is_new)
      fail(file.name(), "has both '" + printable(std::string(other->second)) + "' and '" +
                            printable(member.name) + "', which have the same name as arrays");
    if (!is_array) continue;
    if (key.empty()) fail(file.name(), "has an array without a name");
    within(file.name(), [&] {
      const std::string array(key);
      require_readable(member, array, limits, expanded);
      if (wanted == nullptr || array == *wanted)
        tensors.set(array, read_member(member, array, budget));
    });
  }
  return tensors;
}

}  // namespace

bool is_zip(std::span<const std::byte> bytes) {
  const std::string_view text = text_of(bytes);
  return text.starts_with("PK\3\4") || text.starts_with("PK\5\6");
}

TensorMap read_npz(const FileBytes& file, std::string* comment, const NpzLimits& limits,
                   ReadBudget* budget) {
  MemoryCharge charge(budget, file.name());
  const ZipDirectory directory =
      read_zip_directory(file.bytes(), file.name(), {limits.members, limits.name}, charge);
  if (comment != nullptr) *comment = directory.comment;
  TensorMap tensors = read_members(directory, file, limits, nullptr, budget);
  if (tensors.empty()) fail(file.name(), "has no .npy member");
  return tensors;
}

std::optional<Tensor> read_npz_array(const FileBytes& file, const std::string& key,
                                     const NpzLimits& limits, ReadBudget* budget) {
  MemoryCharge charge(budget, file.name());
  const ZipDirectory directory =
      read_zip_directory(file.bytes(), file.name(), {limits.members, limits.name}, charge);
  const TensorMap tensors = read_members(directory, file, limits, &key, budget);
  if (tensors.empty()) return std::nullopt;
  return tensors.begin()->second;
}

}  // namespace attn
