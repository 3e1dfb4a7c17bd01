#include "attn/io/zip_directory.h"

#include <zlib.h>

#include <algorithm>
#include <limits>
#include <new>
#include <optional>
#include <string_view>

#include "attn/base/error.h"
#include "attn/base/text.h"
#include "attn/base/utf8.h"
#include "attn/io/digest.h"
#include "attn/io/elements.h"
#include "attn/io/zip_format.h"

namespace attn {
namespace {

using Bytes = std::span<const std::byte>;

/// Reads the fields of a record in their order.
class Fields {
 public:
  explicit Fields(Bytes bytes) : bytes_(bytes) {}
  std::uint16_t u16() { return take<std::uint16_t>(); }
  std::uint32_t u32() { return take<std::uint32_t>(); }
  std::uint64_t u64() { return take<std::uint64_t>(); }
  Bytes bytes(std::size_t count) {
    const Bytes result = bytes_.first(count);
    bytes_ = bytes_.subspan(count);
    return result;
  }
  std::size_t left() const { return bytes_.size(); }

 private:
  template <class T>
  T take() {
    return little_endian<T>(bytes(sizeof(T)));
  }
  Bytes bytes_;
};

/// The values that a local header and a central entry both have.
struct Header {
  std::uint16_t flags = 0, method = 0;
  std::uint32_t checksum = 0;
  std::uint64_t packed = 0, size = 0;
  std::uint16_t name_length = 0, extra_length = 0;
};

Header read_header(Fields& fields) {
  Header header;
  fields.u16();  // version needed
  header.flags = fields.u16();
  header.method = fields.u16();
  fields.u32();  // time and date
  header.checksum = fields.u32();
  header.packed = fields.u32();
  header.size = fields.u32();
  header.name_length = fields.u16();
  header.extra_length = fields.u16();
  return header;
}

struct EndRecord {
  std::uint64_t members = 0, directory_start = 0, directory_size = 0;
};

struct DirectoryEntry {
  Header header;
  std::uint64_t offset = 0;
  Bytes raw_name;
};

/// UTF-8 of a name in code page 437, the encoding of names without flag bit 11.
std::string from_code_page_437(std::string_view name) {
  constexpr std::u16string_view kUpperHalf =
      u"ÇüéâäàåçêëèïîìÄÅÉæÆôöòûùÿÖÜ¢£¥₧ƒáíóúñÑªº¿⌐¬½¼¡«»░▒▓│┤╡╢╖╕╣║╗╝╜╛┐└┴┬├─┼╞╟╚╔╩╦╠═╬╧╨╤╥╙╘╒╓╫╪┘┌"
      u"█▄▌▐▀"
      u"αßΓπΣσµτΦΘΩδ∞φε∩≡±≥≤⌠⌡÷≈°∙·√ⁿ²■\u00A0";
  static_assert(kUpperHalf.size() == 128);
  std::string text;
  for (const char c : name) {
    const auto byte = static_cast<unsigned char>(c);
    if (byte < 0x80)
      text += c;
    else
      append_utf8(text, kUpperHalf[byte - 0x80u]);
  }
  return text;
}

class DirectoryReader {
 public:
  DirectoryReader(Bytes archive, const std::string& name, const ZipLimits& limits,
                  MemoryCharge& charge)
      : archive_(archive), name_(name), limits_(limits), charge_(charge) {}

  ZipDirectory read() {
    ZipDirectory directory;
    const EndRecord end = find_end(directory.comment);
    if (end.members > limits_.members)
      refuse("has " + std::to_string(end.members) + " members; the limit is " +
             std::to_string(limits_.members));
    constexpr std::size_t kMember = 512;  // bytes of a member here and in callers, without its name
    charge_.add(end.members, kMember);
    charge_.add(3, end.directory_size);  // a byte of code page 437 takes up to 3 in UTF-8
    std::vector<DirectoryEntry> entries = read_entries(end, directory);
    read_local_headers(entries, end.directory_start, directory);
    require_unique_names(directory);
    return directory;
  }

 private:
  [[noreturn]] void refuse(const std::string& problem) const {
    fail_data({.where = {name_}, .message = problem});
  }
  [[noreturn]] void invalid(const std::string& problem) const {
    refuse("not a valid .npz archive: " + problem);
  }
  [[noreturn]] void invalid(const ZipMember& member, const std::string& problem) const {
    invalid("member '" + printable(member.name) + "' " + problem);
  }

  std::uint32_t signature_at(std::uint64_t offset) const {
    if (offset > archive_.size() || archive_.size() - offset < 4) return 0;
    return little_endian<std::uint32_t>(archive_.subspan(offset));
  }

  /// The end record whose signature comes last in the file. A reader that uses the first one finds
  /// the same record, because all other bytes of the file belong to members and directory.
  EndRecord find_end(std::string& comment) const {
    const std::size_t from =
        archive_.size() - std::min<std::size_t>(archive_.size(), zip::kEndSize + zip::kFull16);
    const std::size_t found = text_of(archive_.subspan(from)).rfind("PK\5\6");
    if (found == std::string_view::npos) invalid("no end record");
    const std::size_t start = from + found;
    if (archive_.size() - start < zip::kEndSize) invalid("its end record is truncated");
    Fields fields(archive_.subspan(start + 4));
    bool one_disk = fields.u16() == 0;
    one_disk = fields.u16() == 0 && one_disk;
    const std::uint64_t here = fields.u16(), members = fields.u16();
    EndRecord end{members, 0, 0};
    end.directory_size = fields.u32();
    end.directory_start = fields.u32();
    const std::size_t comment_length = fields.u16();
    if (fields.left() < comment_length) invalid("its end record is truncated");
    if (fields.left() > comment_length)
      invalid(std::to_string(fields.left() - comment_length) + " bytes follow its end record");
    if (!one_disk || here != members) invalid("it is split over several disks");
    comment = text_of(fields.bytes(comment_length));
    const bool is_zip64 = start >= zip::kLocator64Size &&
                          signature_at(start - zip::kLocator64Size) == zip::kLocator64;
    const std::size_t directory_end =
        is_zip64 ? read_zip64_end(start - zip::kLocator64Size, end) : start;
    if (end.directory_start > directory_end ||
        directory_end - end.directory_start != end.directory_size)
      invalid("its end record states a directory at byte " + std::to_string(end.directory_start) +
              " of " + std::to_string(end.directory_size) + " bytes, which does not end at byte " +
              std::to_string(directory_end));
    if (end.directory_size / zip::kCentralSize < end.members)
      invalid("its directory is too small for " + std::to_string(end.members) + " members");
    return end;
  }

  /// Replaces the values that the end record leaves to the zip64 record. Returns the offset of that
  /// record.
  std::size_t read_zip64_end(std::size_t locator, EndRecord& end) const {
    Fields fields(archive_.subspan(locator + 4));
    const std::uint32_t disk = fields.u32();
    const std::uint64_t start = fields.u64();
    const std::uint32_t disks = fields.u32();
    if (locator < zip::kEnd64Size || start != locator - zip::kEnd64Size ||
        signature_at(start) != zip::kEnd64)
      invalid("no zip64 end record before its locator");
    fields = Fields(archive_.subspan(start + 4));
    const std::uint64_t size = fields.u64();
    fields.u32();  // versions
    const bool one_disk = fields.u32() == 0 && disk == 0 && disks <= 1;
    const std::uint32_t first_disk = fields.u32();
    const std::uint64_t here = fields.u64();
    const EndRecord large{fields.u64(), 0, 0};
    const std::uint64_t directory_size = fields.u64(), directory_start = fields.u64();
    if (size != zip::kEnd64Size - 12) invalid("its zip64 end record has an unknown extension");
    if (!one_disk || first_disk != 0 || here != large.members)
      invalid("it is split over several disks");
    const auto agrees = [](std::uint64_t narrow, std::uint64_t wide, std::uint64_t full) {
      return narrow == full || narrow == wide;
    };
    if (!agrees(end.members, large.members, zip::kFull16) ||
        !agrees(end.directory_size, directory_size, zip::kFull32) ||
        !agrees(end.directory_start, directory_start, zip::kFull32))
      invalid("its two end records differ");
    end = {large.members, directory_start, directory_size};
    return start;
  }

  std::vector<DirectoryEntry> read_entries(const EndRecord& end, ZipDirectory& directory) const {
    std::vector<DirectoryEntry> entries;
    entries.reserve(end.members);
    directory.members.reserve(end.members);
    Fields fields(archive_.subspan(end.directory_start, end.directory_size));
    for (std::uint64_t i = 0; i < end.members; ++i) {
      if (fields.left() < zip::kCentralSize || fields.u32() != zip::kCentral)
        invalid("entry " + std::to_string(i) + " of its directory is corrupt");
      fields.u16();  // version made by
      DirectoryEntry entry{read_header(fields), 0, {}};
      const std::size_t comment_length = fields.u16();
      const std::uint16_t disk = fields.u16();
      fields.u16();  // internal attributes
      fields.u32();  // external attributes
      entry.offset = fields.u32();
      const std::size_t name_length = entry.header.name_length;
      if (fields.left() < name_length + entry.header.extra_length + comment_length)
        invalid("entry " + std::to_string(i) + " of its directory is truncated");
      if (name_length > limits_.name)
        refuse("a member's name has " + std::to_string(name_length) + " bytes; the limit is " +
               std::to_string(limits_.name));
      entry.raw_name = fields.bytes(name_length);
      ZipMember member;
      member.name = decoded_name(entry);
      const Bytes extra = fields.bytes(entry.header.extra_length);
      fields.bytes(comment_length);
      if (disk != 0) invalid(member, "is on another disk");
      read_extra(extra, {&entry.header.size, &entry.header.packed, &entry.offset}, member,
                 entry.raw_name);
      member.flags = entry.header.flags;
      member.method = entry.header.method;
      member.checksum = entry.header.checksum;
      member.size = entry.header.size;
      directory.members.push_back(std::move(member));
      entries.push_back(entry);
    }
    if (fields.left() > 0)
      invalid("its directory has " + std::to_string(fields.left()) + " bytes after its last entry");
    return entries;
  }

  std::string decoded_name(const DirectoryEntry& entry) const {
    const std::string_view name = text_of(entry.raw_name);
    if (name.find('\0') != std::string_view::npos) invalid("a member's name contains a NUL");
    if ((entry.header.flags & zip::kUtf8) == 0) return from_code_page_437(name);
    if (find_invalid_utf8(name) != std::string_view::npos)
      invalid("a member's name is marked as UTF-8 but is not");
    return std::string(name);
  }

  /// The zip64 field (4.5.3) has a 64-bit value for each of `values` that is 2^32 - 1.
  void read_extra(Bytes extra, const std::vector<std::uint64_t*>& values, const ZipMember& member,
                  Bytes raw_name) const {
    constexpr std::uint16_t kZip64 = 1, kUnicodePath = 0x7075;
    bool has_zip64 = false;
    Fields fields(extra);
    while (fields.left() >= 4) {
      const std::uint16_t id = fields.u16();
      const std::uint16_t length = fields.u16();
      if (length > fields.left()) invalid(member, "has a truncated extra field");
      Fields field(fields.bytes(length));
      if (id == kZip64) {
        if (has_zip64) invalid(member, "has two zip64 fields");
        has_zip64 = true;
        for (std::uint64_t* const value : values) {
          if (*value != zip::kFull32) continue;
          if (field.left() < 8) invalid(member, "has a truncated zip64 field");
          *value = field.u64();
        }
      } else if (id == kUnicodePath) {
        // Another name, which some readers use instead.
        constexpr std::size_t kSignature = 5;  // version and checksum
        if (length < kSignature) invalid(member, "has a truncated Unicode name");
        field.bytes(kSignature);
        if (text_of(field.bytes(field.left())) != text_of(raw_name))
          invalid(member, "has two different names");
      }
    }
    const Bytes padding = fields.bytes(fields.left());
    if (std::any_of(padding.begin(), padding.end(), [](std::byte b) { return b != std::byte{0}; }))
      invalid(member, "has a truncated extra field");
  }

  /// Checks that the members fill the file up to `end`, and sets the bytes of each.
  void read_local_headers(const std::vector<DirectoryEntry>& entries, std::uint64_t end,
                          ZipDirectory& directory) const {
    std::vector<std::size_t> by_offset(entries.size());
    for (std::size_t i = 0; i < by_offset.size(); ++i) by_offset[i] = i;
    std::sort(by_offset.begin(), by_offset.end(),
              [&](std::size_t a, std::size_t b) { return entries[a].offset < entries[b].offset; });
    std::uint64_t covered = 0;
    for (std::size_t i = 0; i < by_offset.size(); ++i) {
      const DirectoryEntry& entry = entries[by_offset[i]];
      ZipMember& member = directory.members[by_offset[i]];
      const std::uint64_t next = i + 1 < by_offset.size() ? entries[by_offset[i + 1]].offset : end;
      if (entry.offset != covered && i == 0)
        invalid(std::to_string(entry.offset) + " bytes come before its first member");
      if (next > end) invalid(directory.members[by_offset[i + 1]], "starts after the members");
      member.packed = read_member(entry, member, archive_.subspan(covered, next - covered));
      covered = next;
    }
    if (covered != end) invalid(std::to_string(end) + " bytes come before its directory");
  }

  /// `bytes` go from the member's local header to the next one, or to the directory.
  Bytes read_member(const DirectoryEntry& entry, const ZipMember& member, Bytes bytes) const {
    if (bytes.size() < zip::kLocalSize || little_endian<std::uint32_t>(bytes) != zip::kLocal)
      invalid(member,
              bytes.size() < zip::kLocalSize ? "overlaps another member" : "has no local header");
    Fields fields(bytes.subspan(4));
    Header local = read_header(fields);
    const Header& central = entry.header;
    if (fields.left() < std::size_t{local.name_length} + local.extra_length)
      invalid(member, "has a truncated local header");
    if (text_of(fields.bytes(local.name_length)) != text_of(entry.raw_name))
      invalid(member, "has a different name in its local header");
    read_extra(fields.bytes(local.extra_length), {&local.size, &local.packed}, member,
               entry.raw_name);
    constexpr std::uint16_t kComparedFlags = 1u << 0 | zip::kHasDescriptor | zip::kUtf8;
    if (local.method != central.method || ((local.flags ^ central.flags) & kComparedFlags) != 0)
      invalid(member, "has a different method or different flags in its local header");
    const bool has_descriptor = (central.flags & zip::kHasDescriptor) != 0;
    const auto agrees = [&](std::uint64_t in_local, std::uint64_t in_central) {
      return in_local == in_central || (has_descriptor && in_local == 0);
    };
    if (!agrees(local.checksum, central.checksum) || !agrees(local.packed, central.packed) ||
        !agrees(local.size, central.size))
      invalid(member, "has a different checksum or size in its local header");
    if (fields.left() < central.packed) invalid(member, "overlaps what follows it");
    const Bytes packed = fields.bytes(central.packed);
    if (has_descriptor)
      check_descriptor(fields, central, member);
    else if (fields.left() > 0)
      invalid(member, "is followed by " + std::to_string(fields.left()) +
                          " bytes that belong to no member");
    return packed;
  }

  /// Checksum and sizes after the data (4.3.9), with or without a signature, of 32 or 64 bits.
  void check_descriptor(Fields fields, const Header& header, const ZipMember& member) const {
    const std::size_t size = fields.left();
    const bool has_signature = size == 16 || size == 24, is_wide = size >= 20;
    if ((size != 12 && size != 16 && size != 20 && size != 24) ||
        (has_signature && fields.u32() != zip::kDescriptor))
      invalid(member, "has no data descriptor");
    const std::uint32_t checksum = fields.u32();
    const std::uint64_t packed = is_wide ? fields.u64() : fields.u32();
    const std::uint64_t expanded = is_wide ? fields.u64() : fields.u32();
    if (checksum != header.checksum || packed != header.packed || expanded != header.size)
      invalid(member, "has a different checksum or size in its data descriptor");
  }

  void require_unique_names(const ZipDirectory& directory) const {
    std::vector<std::string_view> names;
    names.reserve(directory.members.size());
    for (const ZipMember& member : directory.members) names.push_back(member.name);
    std::sort(names.begin(), names.end());
    const auto twice = std::adjacent_find(names.begin(), names.end());
    if (twice != names.end())
      invalid("it has two members '" + printable(std::string(*twice)) + "'");
  }

  const Bytes archive_;
  const std::string& name_;
  const ZipLimits& limits_;
  MemoryCharge& charge_;
};

std::string inflate_member(const ZipMember& member, std::byte* out) {
  z_stream stream{};
  const int started = inflateInit2(&stream, -MAX_WBITS);
  if (started == Z_MEM_ERROR) throw std::bad_alloc();
  if (started != Z_OK) return "cannot be expanded: zlib has an incompatible version";
  // zlib counts with 32 bits at a time.
  constexpr std::size_t kMax = std::numeric_limits<uInt>::max();
  Bytes packed = member.packed;
  std::size_t left = member.size;
  std::byte extra{};  // receives bytes beyond `size`
  int status = Z_OK;
  while (status == Z_OK) {
    const std::size_t in = std::min(packed.size(), kMax);
    const std::size_t capacity = left > 0 ? std::min(left, kMax) : 1;
    stream.next_in = reinterpret_cast<Bytef*>(const_cast<std::byte*>(packed.data()));
    stream.avail_in = static_cast<uInt>(in);
    stream.next_out = reinterpret_cast<Bytef*>(left > 0 ? out : &extra);
    stream.avail_out = static_cast<uInt>(capacity);
    status = inflate(&stream, Z_NO_FLUSH);
    packed = packed.subspan(in - stream.avail_in);
    const std::size_t written = capacity - stream.avail_out;
    if (written > 0 && left == 0) {
      inflateEnd(&stream);
      return "expands to more than its " + std::to_string(member.size) + " bytes";
    }
    out += written;
    left -= written;
  }
  inflateEnd(&stream);
  if (status == Z_MEM_ERROR) throw std::bad_alloc();
  const std::string so_far =
      std::to_string(member.size - left) + " of its " + std::to_string(member.size) + " bytes";
  if (status == Z_BUF_ERROR) return "its compressed data ends after " + so_far;
  if (status != Z_STREAM_END) return "its compressed data is corrupt after " + so_far;
  if (left > 0) return "ends after " + so_far;
  if (!packed.empty()) return std::to_string(packed.size()) + " bytes follow its compressed data";
  return "";
}

}  // namespace

ZipDirectory read_zip_directory(std::span<const std::byte> archive, const std::string& name,
                                const ZipLimits& limits, MemoryCharge& charge) {
  return DirectoryReader(archive, name, limits, charge).read();
}

std::span<const std::byte> expand_start(const ZipMember& member, std::span<std::byte> out) {
  z_stream stream{};
  if (const int started = inflateInit2(&stream, -MAX_WBITS); started == Z_MEM_ERROR)
    throw std::bad_alloc();
  stream.next_in = reinterpret_cast<Bytef*>(const_cast<std::byte*>(member.packed.data()));
  stream.avail_in = static_cast<uInt>(
      std::min<std::size_t>(member.packed.size(), std::numeric_limits<uInt>::max()));
  stream.next_out = reinterpret_cast<Bytef*>(out.data());
  stream.avail_out = static_cast<uInt>(out.size());
  inflate(&stream, Z_SYNC_FLUSH);
  inflateEnd(&stream);
  return out.first(out.size() - stream.avail_out);
}

std::string expand(const ZipMember& member, std::byte* out) {
  if (member.method == zip::kDeflated) {
    std::string problem = inflate_member(member, out);
    if (!problem.empty()) return problem;
  } else {
    std::copy(member.packed.begin(), member.packed.end(), out);
  }
  const std::uint32_t found = crc32_of({out, member.size});
  return found == member.checksum ? "" : "CRC error: its data is corrupt";
}

}  // namespace attn
