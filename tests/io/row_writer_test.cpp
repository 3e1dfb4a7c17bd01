#include "attn/io/row_writer.h"

#include <catch2/catch.hpp>
#include <numeric>
#include <string>
#include <thread>
#include <vector>

#include "attn/io/elements.h"
#include "attn/io/file_layout.h"
#include "attn/io/npz.h"
#include "support/run_attn.h"

using namespace attn;
using Catch::Matchers::Contains;

namespace {

/// Rows of bytes that encode their position, `stride` bytes apart.
std::string rows_of_bytes(std::size_t count, std::size_t row, std::size_t stride) {
  std::string text(count * stride, '#');
  for (std::size_t i = 0; i < count; ++i)
    for (std::size_t j = 0; j < row; ++j)
      text[i * stride + j] = static_cast<char>((i * 31 + j * 7 + j / 256) % 251);
  return text;
}

}  // namespace

TEST_CASE("rows of any length and stride, in any order, are written at their offsets") {
  const ScratchFolder folder;
  const std::size_t count = 700;
  for (const std::size_t row : {1, 16, 2047, 2048, 9001})
    for (const std::size_t gap : {0, 64}) {
      const std::string rows = rows_of_bytes(count, row, row + gap);
      const std::string expected = rows_of_bytes(count, row, row);
      INFO(row << " bytes, " << gap << " apart");
      OutputFile out((folder.path() / "out").string(), {.force = true});
      RowWriter writer(out, 5, row, true);
      out.reserve(5 + count * row);
      // Blocks of 1 to 300 rows, the last ones first, by two threads.
      const std::size_t ends[] = {0, 1, 3, 300, 301, 600, 700};
      const auto write_every_other = [&](std::size_t last) {
        for (std::size_t i = last; i <= last; i -= 2) {
          if (i == 0) break;
          writer.write(ends[i - 1], ends[i] - ends[i - 1],
                       bytes_of(rows).data() + ends[i - 1] * (row + gap), row + gap);
        }
      };
      std::thread other([&] { write_every_other(6); });
      write_every_other(5);
      other.join();
      out.write("start");
      out.skip(count * row);
      out.write("end");
      out.commit();
      CHECK((folder.read("out") == "start" + expected + "end"));
      CHECK(writer.checksum(count * row) == crc32_of(bytes_of(expected)));
    }
}

TEST_CASE("writing no rows writes nothing") {
  const ScratchFolder folder;
  OutputFile out((folder.path() / "out").string(), {});
  RowWriter none(out, 0, 8, true), empty(out, 0, 0, true);
  none.write(0, 0, nullptr, 8);
  empty.write(0, 5, nullptr, 64);
  CHECK(none.checksum(0) == 0);
  out.reserve(0);
  out.commit();
  CHECK(folder.read("out").empty());
}

TEST_CASE("a file with missing or misplaced rows is not completed") {
  const ScratchFolder folder;
  const std::vector<TensorSpec> specs = {{"w", DType::f32, {3, 4}}};
  const FileLayout layout = {{"header", 0}};
  const std::string rows = rows_of_bytes(3, 16, 16);
  const auto refuse = [&](std::uint64_t start, std::size_t count) {
    OutputFile out((folder.path() / "out").string(), {});
    RowWriter writer(out, start, 16, false);
    writer.write(0, count, bytes_of(rows).data(), 16);
    CHECK_THROWS_WITH(write_layout(layout, specs, {{{}, &writer}}, out), Contains("rows are"));
  };
  refuse(6, 2);
  refuse(7, 3);
}

TEST_CASE("checksums equal bitwise division for all lengths, starts and alignments") {
  const auto divided = [](std::span<const std::byte> bytes, std::uint32_t start) {
    std::uint32_t state = ~start;
    for (const std::byte byte : bytes) {
      state ^= std::to_integer<std::uint32_t>(byte);
      for (int bit = 0; bit < 8; ++bit) state = state >> 1 ^ ((state & 1) != 0 ? 0xEDB88320 : 0);
    }
    return ~state;
  };
  const std::string text = rows_of_bytes(1, 2000, 2000);
  std::uint32_t start = 0;
  for (std::size_t size = 0; size < 1990; size += size < 200 ? 1 : 61) {
    const auto bytes = bytes_of(text).subspan(size % 7, size);
    INFO(size);
    const std::uint32_t checksum = crc32_of(bytes, start);
    CHECK(checksum == divided(bytes, start));
    start = checksum;
  }
}

TEST_CASE("checksums of parts combine to that of the whole, and a missing part is detected") {
  const std::string text = rows_of_bytes(1, 1000, 1000);
  const auto part = [&](std::size_t from, std::size_t size) {
    return crc32_of(bytes_of(text).subspan(from, size));
  };
  PartChecksums parts;
  parts.add(600, 400, part(600, 400));
  parts.add(0, 10, part(0, 10));
  CHECK_THROWS_WITH(parts.all(1000), Contains("found parts up to 10"));
  parts.add(10, 590, part(10, 590));
  CHECK(parts.all(1000) == part(0, 1000));
  CHECK_THROWS_WITH(parts.all(1001), Contains("up to 1000"));
  CHECK(crc32_of(bytes_of("123456789")) == 0xCBF43926);  // the check value of CRC-32/ISO-HDLC
}

TEST_CASE("free space is not determined for a device") {
  OutputFile device("/dev/null", {});
  CHECK_THROWS_WITH(device.reserve(10), Contains("/dev/null: "));
}

TEST_CASE("members beyond 4 GiB are written as zip64 at the recorded offsets") {
  const std::vector<TensorSpec> specs = {{"small", DType::f32, {2, 3}},
                                         {"large", DType::f32, {32768, 32768}},
                                         {"last", DType::f64, {5}}};
  const FileLayout layout = npz_layout(specs, {1, 2, 3}, "", "out.npz");
  const std::vector<std::uint64_t> offsets = offsets_of(layout, specs);
  REQUIRE(layout.size() == 4);
  const auto u32 = [](const std::string& text, std::size_t at) {
    return little_endian<std::uint32_t>(bytes_of(text).subspan(at));
  };
  const auto u64 = [](const std::string& text, std::size_t at) {
    return little_endian<std::uint64_t>(bytes_of(text).subspan(at));
  };
  const std::uint64_t size = 128 + (std::uint64_t{1} << 32);
  // APPNOTE 4.3.7: sizes at 18 and 22, the name from 30 on, then the extra field.
  const std::string& local = layout[1].text;
  CHECK(u32(local, 18) == 0xFFFFFFFF);
  CHECK(u32(local, 22) == 0xFFFFFFFF);
  CHECK(local.substr(30, 9) == "large.npy");
  CHECK(u64(local, 43) == size);
  CHECK(u64(local, 51) == size);
  CHECK(u32(layout[0].text, 18) == 128 + 24);
  // Each part's header ends where its elements begin.
  CHECK(offsets[0] == layout[0].text.size());
  CHECK(offsets[1] == offsets[0] + 24 + local.size());
  CHECK(offsets[2] == offsets[1] + (std::uint64_t{1} << 32) + layout[2].text.size());
  // The central directory has the offset of the last member's header, which exceeds 32 bits.
  const std::string& directory = layout[3].text;
  const std::size_t last = directory.find("last.npy") + 8;
  CHECK(u64(directory, last + 4) == offsets[1] + (std::uint64_t{1} << 32));
}
