#include "attn/io/row_writer.h"

#include <algorithm>
#include <cstring>
#include <vector>

#include "attn/base/packing.h"

namespace attn {
namespace {

constexpr std::size_t kShortRow =
    2048;  // bytes; copying shorter rows is faster than a separate write
constexpr std::size_t kGatheredBytes = std::size_t{256} << 10;  // bytes of short rows in one write

}  // namespace

RowWriter::RowWriter(OutputFile& file, std::uint64_t start, std::size_t row_bytes,
                     bool with_checksum)
    : file_(file), start_(start), row_bytes_(row_bytes), with_checksum_(with_checksum) {}

void RowWriter::write(std::size_t first, std::size_t count, const std::byte* rows,
                      std::size_t stride) {
  if (count == 0 || row_bytes_ == 0) return;
  const std::uint64_t from = std::uint64_t{first} * row_bytes_;
  if (with_checksum_) checksums_.add(from, count * row_bytes_, checksum_of(count, rows, stride));
  if (stride == row_bytes_) {
    const std::span<const std::byte> all(rows, count * row_bytes_);
    file_.write_at(start_ + from, {&all, 1});
  } else if (row_bytes_ < kShortRow) {
    write_gathered(start_ + from, count, rows, stride);
  } else {
    write_scattered(start_ + from, count, rows, stride);
  }
  written_ += count * row_bytes_;
}

SharedRegion RowWriter::shared(const std::string& output, DType dtype) const {
  SharedRegion region = file_.shared();
  region.output = output;
  region.place.start = start_;
  region.place.row_bytes = row_bytes_;
  region.place.dtype = dtype;
  region.place.with_checksum = with_checksum_;
  return region;
}

std::string RowWriter::written_parts() const {
  std::string parts;
  pack(parts, written_.load());
  pack_text(parts, checksums_.packed());
  return parts;
}

void RowWriter::add_written(const std::string& parts) {
  Unpacker in(parts);
  written_ += in.number<std::uint64_t>();
  checksums_.add(in.text());
}

std::uint32_t RowWriter::checksum_of(std::size_t count, const std::byte* rows,
                                     std::size_t stride) const {
  std::uint32_t checksum = 0;
  for (std::size_t i = 0; i < count; ++i)
    checksum = crc32_of({rows + i * stride, row_bytes_}, checksum);
  return checksum;
}

void RowWriter::write_gathered(std::uint64_t offset, std::size_t count, const std::byte* rows,
                               std::size_t stride) {
  thread_local std::vector<std::byte> copy;
  const std::size_t at_once = std::min(count, kGatheredBytes / row_bytes_);
  copy.resize(at_once * row_bytes_);
  for (std::size_t i = 0; i < count; i += at_once) {
    const std::size_t few = std::min(at_once, count - i);
    for (std::size_t r = 0; r < few; ++r)
      std::memcpy(copy.data() + r * row_bytes_, rows + (i + r) * stride, row_bytes_);
    const std::span<const std::byte> all(copy.data(), few * row_bytes_);
    file_.write_at(offset + i * row_bytes_, {&all, 1});
  }
}

void RowWriter::write_scattered(std::uint64_t offset, std::size_t count, const std::byte* rows,
                                std::size_t stride) {
  thread_local std::vector<std::span<const std::byte>> parts;
  parts.clear();
  for (std::size_t i = 0; i < count; ++i) parts.emplace_back(rows + i * stride, row_bytes_);
  file_.write_at(offset, parts);
}

}  // namespace attn
