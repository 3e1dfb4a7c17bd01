#include "attn/io/npz.h"

#include <algorithm>
#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "attn/base/error.h"
#include "attn/base/text.h"
#include "attn/io/digest.h"
#include "attn/io/elements.h"
#include "attn/io/json_write.h"
#include "attn/io/npy.h"
#include "attn/io/zip_directory.h"
#include "attn/io/zip_format.h"

namespace attn {
namespace {

constexpr std::string_view kSuffix = ".npy";
// Members of at most this many bytes may have any ratio (NpzLimits::ratio).
constexpr std::size_t kRatioMinimum = std::size_t{64} << 20;

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
void require_supported(const ZipMember& member, const std::string& name, const NpzLimits& limits,
                       std::size_t& expanded) {
  if (member.is_encrypted()) fail_at({name}, "is encrypted");
  const bool deflated = member.method == zip::kDeflated;
  if (!deflated && member.method != zip::kStored)
    fail_at({name},
            "is compressed with " + method_name(member.method) + ": expected stored or deflated");
  const std::size_t packed = member.packed.size();
  const std::string claim =
      "claims to expand " + std::to_string(packed) + " bytes to " + std::to_string(member.size);
  if (!deflated && member.size != packed) fail_at({name}, claim + ", but is stored uncompressed");
  if (member.size > kRatioMinimum && member.size / limits.ratio > packed)
    fail_at({name}, claim + ", more than " + std::to_string(limits.ratio) +
                        " to 1; --max-expand raises the limit");
  if (!deflated) return;
  if (member.size > limits.expanded - expanded)
    fail_at({name}, "would expand the archive to " + std::to_string(expanded + member.size) +
                        " bytes, more than " + std::to_string(limits.expanded) +
                        "; --max-expand raises the limit");
  expanded += member.size;
}

FileBytes expanded_member(const ZipMember& member) {
  const std::shared_ptr<std::byte> data = allocate_bytes(member.size);
  if (const std::string problem = expand(member, data.get()); !problem.empty())
    fail_at({member.name}, problem);
  return {member.name, data, member.size};
}

/// The numbers of a member, which is named without ".npy"; nothing if it has strings.
std::optional<Tensor> read_member(const ZipMember& member, ReadBudget* budget) {
  MemoryCharge expanded(budget, member.name);
  expanded.add(member.size);
  expanded.add(MemoryCharge::kTensor + 4 * member.name.size());
  const FileBytes bytes = expanded_member(member);
  const NpyHeader header = parse_npy_header(bytes.bytes(), member.name);
  if (header.has_strings()) return std::nullopt;
  expanded.keep();
  return read_npy(bytes, header, member.name, budget);
}

[[noreturn]] void fail_without_arrays(const ZipDirectory& directory, const std::string& file) {
  for (const ZipMember& member : directory.members)
    if (member.name.ends_with("data.pkl")) fail_at({file}, kTorchFile);
  fail_at({file}, "has no array of numbers");
}

}  // namespace

bool is_zip(std::span<const std::byte> bytes) {
  const std::string_view text = text_of(bytes);
  return text.starts_with("PK\3\4") || text.starts_with("PK\5\6");
}

namespace {

/// The directory entries of members that are not arrays are checked as well.
NpzIndex index_of(const ZipDirectory& directory, const FileBytes& file, const NpzLimits& limits,
                  MemoryCharge& charge) {
  constexpr std::size_t kEntry = 320;  // a member and nodes of two maps
  NpzIndex index;
  index.comment = directory.comment;
  index.start = file.data.get();
  std::map<std::string_view, std::string_view>
      seen;  // the key that NumPy gives a member -> its name
  std::size_t expanded = 0;
  for (const ZipMember& member : directory.members) {
    const std::string_view name = member.name;
    const bool is_array = name.ends_with(kSuffix);
    const std::string_view key = name.substr(0, name.size() - (is_array ? kSuffix.size() : 0));
    charge.add(kEntry + 2 * name.size());
    const auto [other, is_new] = seen.emplace(key, name);
    if (!is_new)
      fail_at({file.name()}, "has both '" + printable(std::string(other->second)) + "' and '" +
                                 printable(member.name) + "', which name the same array");
    if (!is_array) continue;
    if (key.empty()) fail_at({file.name()}, "has an array without a name");
    const std::string array(key);
    within(file.name(), [&] { require_supported(member, array, limits, expanded); });
    index.by_name.emplace(array, index.arrays.size());
    index.arrays.push_back(member);
    index.arrays.back().name = array;
  }
  return index;
}

}  // namespace

NpzIndex read_npz_index(const FileBytes& file, const NpzLimits& limits, MemoryCharge& charge) {
  return index_of(
      read_zip_directory(file.bytes(), file.name(), {limits.members, limits.name}, charge), file,
      limits, charge);
}

namespace {

/// The index entry of an array in newly mapped bytes; nothing if absent.
std::optional<ZipMember> member_in(const FileBytes& file, const NpzIndex& index,
                                   std::string_view key) {
  const auto found = index.by_name.find(key);
  if (found == index.by_name.end()) return std::nullopt;
  ZipMember member = index.arrays[found->second];
  const auto offset = static_cast<std::size_t>(member.packed.data() - index.start);
  member.packed = file.bytes().subspan(offset, member.packed.size());
  return member;
}

}  // namespace

std::optional<Tensor> read_npz_array(const FileBytes& file, const NpzIndex& index,
                                     std::string_view key, ReadBudget* budget) {
  const std::optional<ZipMember> member = member_in(file, index, key);
  if (!member) return std::nullopt;
  return within(file.name(), [&] {
    std::optional<Tensor> tensor = read_member(*member, budget);
    if (!tensor) refuse_strings(member->name);
    return tensor;
  });
}

FileMetadata npz_metadata(const FileBytes& file, const NpzIndex& index, ReadBudget* budget) {
  FileMetadata metadata = {{"", index.comment}};
  for (const char* const name : {"tokens", "key_tokens"})
    within(file.name(), [&] {
      const std::optional<ZipMember> member = member_in(file, index, name);
      if (!member) return;
      MemoryCharge charge(budget, member->name);
      charge.add(member->size);
      const FileBytes bytes = expanded_member(*member);
      const NpyHeader header = parse_npy_header(bytes.bytes(), member->name);
      if (!header.has_strings() || header.shape.size() != 1) return;
      charge.add(member->size, kBytesOfStringByte);
      metadata.emplace_back(name, to_json(json_strings(read_npy_strings(bytes, member->name))));
    });
  return metadata;
}

TensorMap read_npz(const FileBytes& file, FileMetadata* metadata, const NpzLimits& limits,
                   ReadBudget* budget) {
  MemoryCharge charge(budget, file.name());
  const ZipDirectory directory =
      read_zip_directory(file.bytes(), file.name(), {limits.members, limits.name}, charge);
  TensorMap tensors;
  const NpzIndex index = index_of(directory, file, limits, charge);
  if (metadata != nullptr) *metadata = npz_metadata(file, index, budget);
  for (const ZipMember& member : index.arrays)
    if (std::optional<Tensor> tensor =
            within(file.name(), [&] { return read_member(member, budget); }))
      tensors.set(member.name, *std::move(tensor));
  if (tensors.empty() && !directory.members.empty()) fail_without_arrays(directory, file.name());
  return tensors;
}

namespace {

constexpr std::uint16_t kVersion = 20,
                        kVersionZip64 = 45;      // of the format that readers must support
constexpr std::uint16_t kUnix = 3 << 8;          // made on Unix: attributes are Unix modes
constexpr std::uint16_t kFirstDay = 1 << 5 | 1;  // 1980-01-01
constexpr std::uint32_t kMode = 0100644u << 16;  // a regular file, rw-r--r--

struct Member {
  std::string name;
  std::uint32_t checksum = 0;
  std::uint64_t size = 0, offset = 0;
};

class Record {
 public:
  Record& u16(std::uint64_t value) { return append(static_cast<std::uint16_t>(value)); }
  Record& u32(std::uint64_t value) { return append(static_cast<std::uint32_t>(value)); }
  Record& u64(std::uint64_t value) { return append(value); }
  Record& text(const std::string& text) {
    bytes_ += text;
    return *this;
  }
  const std::string& bytes() const { return bytes_; }

 private:
  template <class T>
  Record& append(T value) {
    append_little_endian(bytes_, value);
    return *this;
  }
  std::string bytes_;
};

std::uint64_t clipped(std::uint64_t value) { return std::min(value, zip::kFull32); }

std::uint16_t flags(const std::string& name) {
  for (const char c : name)
    if (static_cast<unsigned char>(c) >= 0x80) return zip::kUtf8;
  return 0;
}

/// The zip64 field: the 64-bit values that do not fit 32-bit fields, in order.
std::string extra_field(const std::vector<std::uint64_t>& values) {
  if (values.empty()) return "";
  Record record;
  record.u16(1).u16(8 * values.size());
  for (const std::uint64_t value : values) record.u64(value);
  return record.bytes();
}

/// The fields that local header and central directory share.
void put_member(Record& record, const Member& member, const std::string& extra) {
  record.u16(extra.empty() ? kVersion : kVersionZip64)
      .u16(flags(member.name))
      .u16(0)
      .u16(0)
      .u16(kFirstDay);
  record.u32(member.checksum).u32(clipped(member.size)).u32(clipped(member.size));
  record.u16(member.name.size()).u16(extra.size());
}

std::string local_header(const Member& member) {
  const std::string extra =
      member.size < zip::kFull32 ? "" : extra_field({member.size, member.size});
  Record record;
  put_member(record.u32(zip::kLocal), member, extra);
  return record.text(member.name).text(extra).bytes();
}

std::string central_header(const Member& member) {
  std::vector<std::uint64_t> large;
  if (member.size >= zip::kFull32) large = {member.size, member.size};
  if (member.offset >= zip::kFull32) large.push_back(member.offset);
  const std::string extra = extra_field(large);
  Record record;
  record.u32(zip::kCentral).u16(kUnix | kVersionZip64);
  put_member(record, member, extra);
  record.u16(0).u16(0).u16(0).u32(kMode).u32(clipped(member.offset));
  return record.text(member.name).text(extra).bytes();
}

std::string end_of_archive(std::uint64_t count, std::uint64_t start, std::uint64_t size,
                           const std::string& comment) {
  Record record;
  if (count >= zip::kFull16 || start >= zip::kFull32 || size >= zip::kFull32) {
    record.u32(zip::kEnd64).u64(44).u16(kUnix | kVersionZip64).u16(kVersionZip64).u32(0).u32(0);
    record.u64(count).u64(count).u64(size).u64(start);
    record.u32(zip::kLocator64).u32(0).u64(start + size).u32(1);
  }
  const std::uint64_t shown = std::min(count, zip::kFull16);
  record.u32(zip::kEnd).u16(0).u16(0).u16(shown).u16(shown).u32(clipped(size)).u32(clipped(start));
  return record.u16(comment.size()).text(comment).bytes();
}

/// Refuses what read_npz() would not read.
void refuse_unreadable(const std::vector<TensorSpec>& specs, const std::string& path) {
  const NpzLimits limits;
  const auto refuse = [&](const std::string& what) {
    fail_data({.where = {path}, .message = what});
  };
  if (specs.size() > limits.members)
    refuse("an .npz file can have at most " + std::to_string(limits.members) + " arrays, found " +
           std::to_string(specs.size()));
  for (const auto& [name, dtype, shape] : specs) {
    if (name.size() + kSuffix.size() > limits.name)
      refuse("names in an .npz file can have at most " +
             std::to_string(limits.name - kSuffix.size()) + " bytes, found one of " +
             std::to_string(name.size()));
    if (name.find('\0') != std::string::npos)
      refuse("a name in an .npz cannot contain a NUL, found '" + printable(name) + "'");
  }
}

}  // namespace

FileLayout npz_layout(const std::vector<TensorSpec>& specs,
                      const std::vector<std::uint32_t>& checksums, const std::string& comment,
                      const std::string& path) {
  if (comment.size() > zip::kFull16) throw Error(ErrorKind::internal, "archive comment too long");
  refuse_unreadable(specs, path);
  FileLayout layout;
  std::string directory;
  std::uint64_t offset = 0;
  for (std::size_t i = 0; i < specs.size(); ++i) {
    const TensorSpec& spec = specs[i];
    const std::string npy = npy_header(spec.dtype, spec.shape);
    const Member member{spec.name + std::string(kSuffix),
                        crc32_of_both(crc32_of(bytes_of(npy)), checksums[i], spec.bytes()),
                        npy.size() + spec.bytes(), offset};
    const std::string header = local_header(member);
    layout.push_back({header + npy, i});
    directory += central_header(member);
    offset += header.size() + member.size;
  }
  const std::string end = end_of_archive(specs.size(), offset, directory.size(), comment);
  layout.push_back({directory + end, {}});
  return layout;
}

}  // namespace attn
