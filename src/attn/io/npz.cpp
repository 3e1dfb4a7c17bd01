#include "attn/io/npz.h"

#include <zip.h>
#include <zlib.h>

#include <cstring>
#include <map>
#include <memory>
#include <new>
#include <set>

#include "attn/base/error.h"
#include "attn/base/printable.h"
#include "attn/io/bytes.h"
#include "attn/io/npy.h"

namespace attn {
namespace {

constexpr std::string_view kSuffix = ".npy";
constexpr std::size_t kRatioFrom = std::size_t{64} << 20;

using Archive = std::unique_ptr<zip_t, decltype(&zip_discard)>;
using Member = std::unique_ptr<zip_file_t, decltype(&zip_fclose)>;

[[noreturn]] void fail(const std::string& name, const std::string& problem) {
  throw Error(ErrorKind::data, printable(name) + ": " + problem);
}

bool is_out_of_memory(const zip_error_t* error) {
  const int code = zip_error_code_zip(error);
  return code == ZIP_ER_MEMORY ||
         (code == ZIP_ER_ZLIB && zip_error_code_system(error) == Z_MEM_ERROR);
}

/// What libzip found wrong.
[[noreturn]] void fail(const std::string& name, zip_error_t* error) {
  if (is_out_of_memory(error)) throw std::bad_alloc();
  fail(name, zip_error_strerror(error));
}

Archive open_archive(const FileBytes& file) {
  zip_error_t error;
  zip_error_init(&error);
  zip_source_t* const source = zip_source_buffer_create(file.data.get(), file.size, 0, &error);
  if (source == nullptr) throw std::bad_alloc();
  Archive archive(zip_open_from_source(source, ZIP_CHECKCONS | ZIP_RDONLY, &error), &zip_discard);
  if (archive == nullptr) {
    zip_source_free(source);
    if (is_out_of_memory(&error)) throw std::bad_alloc();
    const std::string reason = zip_error_strerror(&error);
    zip_error_fini(&error);
    fail(file.name(), "not a sound .npz archive: " + reason);
  }
  return archive;
}

std::string method_name(int method) {
  switch (method) {
    case ZIP_CM_DEFLATE64:
      return "deflate64";
    case ZIP_CM_BZIP2:
      return "bzip2";
    case ZIP_CM_LZMA:
      return "LZMA";
    case ZIP_CM_XZ:
      return "XZ";
    case 93:  // libzip 1.7 has no name for it
      return "zstd";
    default:
      return "method " + std::to_string(method);
  }
}

/// What the archive says about a member, once it is known to be readable and within the limits.
struct Entry {
  zip_uint64_t index = 0;
  std::size_t size = 0;
};

/// What the members so far take in the archive and out of it.
struct Sums {
  std::size_t packed = 0, expanded = 0;
};

Entry checked_entry(zip_t* archive, zip_uint64_t index, const std::string& name,
                    const NpzLimits& limits, const FileBytes& file, Sums& sums) {
  zip_stat_t stat;
  if (zip_stat_index(archive, index, 0, &stat) != 0) fail(name, zip_get_error(archive));
  if (stat.encryption_method != ZIP_EM_NONE) fail(name, "is encrypted");
  const bool deflated = stat.comp_method == ZIP_CM_DEFLATE;
  if (!deflated && stat.comp_method != ZIP_CM_STORE)
    fail(name,
         "is compressed with " + method_name(stat.comp_method) + ": expected stored or deflated");
  const std::string claim = "claims to expand " + std::to_string(stat.comp_size) + " bytes to " +
                            std::to_string(stat.size);
  if (!deflated && stat.size != stat.comp_size) fail(name, claim + ", but is stored as it is");
  if (stat.size > kRatioFrom && stat.size / limits.ratio > stat.comp_size)
    fail(name,
         claim + ", more than " + std::to_string(limits.ratio) + " to 1; --max-expand permits it");
  // Members that share bytes of the archive could otherwise grow with the square of its size.
  if (stat.comp_size > file.size - sums.packed) fail(name, "overlaps other members");
  sums.packed += stat.comp_size;
  if (deflated && stat.size > limits.expanded - sums.expanded)
    fail(name, "would expand the archive to " + std::to_string(sums.expanded + stat.size) +
                   " bytes, more than " + std::to_string(limits.expanded) +
                   "; --max-expand raises that");
  if (deflated) sums.expanded += stat.size;
  return {index, stat.size};
}

/// The member's bytes, after its checksum has been found right.
FileBytes inflate(zip_t* archive, const Entry& entry, const std::string& name) {
  const Member member(zip_fopen_index(archive, entry.index, 0), &zip_fclose);
  if (member == nullptr) fail(name, zip_get_error(archive));
  const std::shared_ptr<std::byte> data = allocate_bytes(entry.size);
  std::size_t size = 0;
  while (size < entry.size) {
    const zip_int64_t count = zip_fread(member.get(), data.get() + size, entry.size - size);
    if (count < 0) fail(name, zip_file_get_error(member.get()));
    if (count == 0)
      fail(name, "ends after " + std::to_string(size) + " of its " + std::to_string(entry.size) +
                     " bytes");
    size += static_cast<std::size_t>(count);
  }
  // Reading on to the end is what makes libzip compare the checksum.
  std::byte extra;
  const zip_int64_t more = zip_fread(member.get(), &extra, 1);
  if (more < 0) fail(name, zip_file_get_error(member.get()));
  if (more > 0) fail(name, "has more than its " + std::to_string(entry.size) + " bytes");
  return {name, data, size};
}

std::string member_name(zip_t* archive, zip_uint64_t index, const FileBytes& file,
                        const NpzLimits& limits) {
  const char* const text = zip_get_name(archive, index, ZIP_FL_ENC_GUESS);
  if (text == nullptr) fail(file.name(), zip_get_error(archive));
  std::string name = text;
  if (name.size() > limits.name)
    fail(file.name(), "a member's name has " + std::to_string(name.size()) + " bytes; at most " +
                          std::to_string(limits.name) + " are read");
  return name;
}

/// All arrays, or the one that is `wanted`; what the archive says about the others is checked all
/// the same, but they are not inflated.
TensorMap read_members(zip_t* archive, const FileBytes& file, const NpzLimits& limits,
                       const std::string* wanted) {
  const auto members = static_cast<zip_uint64_t>(zip_get_num_entries(archive, 0));
  if (members > limits.members)
    fail(file.name(), "has " + std::to_string(members) + " members; at most " +
                          std::to_string(limits.members) + " are read");
  TensorMap tensors;
  std::map<std::string, std::string> seen;  // the key that NumPy gives a member -> its name
  Sums sums;
  for (zip_uint64_t index = 0; index < members; ++index) {
    const std::string name = member_name(archive, index, file, limits);
    const bool is_array = name.ends_with(kSuffix);
    const std::string key = is_array ? name.substr(0, name.size() - kSuffix.size()) : name;
    const auto [other, is_new] = seen.emplace(key, name);
    if (!is_new)
      fail(file.name(), "holds both '" + printable(other->second) + "' and '" + printable(name) +
                            "': expected one array of a name");
    if (!is_array) continue;
    const std::string full_name = file.name() + ": " + key;
    if (key.empty()) fail(file.name(), "holds an array without a name");
    const Entry entry = checked_entry(archive, index, full_name, limits, file, sums);
    if (wanted == nullptr || key == *wanted)
      tensors.set(key, read_npy(inflate(archive, entry, full_name), full_name));
  }
  return tensors;
}

}  // namespace

bool is_zip(std::span<const std::byte> bytes) {
  const std::string_view text = text_of(bytes);
  return text.starts_with("PK\3\4") || text.starts_with("PK\5\6");
}

TensorMap read_npz(const FileBytes& file, std::string* comment, const NpzLimits& limits) {
  const Archive archive = open_archive(file);
  if (comment != nullptr) {
    int length = 0;
    const char* const text = zip_get_archive_comment(archive.get(), &length, ZIP_FL_ENC_RAW);
    comment->assign(text == nullptr ? "" : text, static_cast<std::size_t>(length > 0 ? length : 0));
  }
  TensorMap tensors = read_members(archive.get(), file, limits, nullptr);
  if (tensors.empty()) fail(file.name(), "holds no .npy member");
  return tensors;
}

std::optional<Tensor> read_npz_array(const FileBytes& file, const std::string& key,
                                     const NpzLimits& limits) {
  const Archive archive = open_archive(file);
  const TensorMap tensors = read_members(archive.get(), file, limits, &key);
  if (tensors.empty()) return std::nullopt;
  return tensors.begin()->second;
}

}  // namespace attn
