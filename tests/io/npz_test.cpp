#include "attn/io/npz.h"

#include <algorithm>
#include <catch2/catch.hpp>

#include "attn/base/error.h"
#include "attn/io/elements.h"
#include "attn/io/format.h"
#include "support/run_attn.h"

using namespace attn;
using Catch::Matchers::Contains;

namespace {

/// An archive of `tensors`, as bytes.
std::string archive_of(const TensorMap& tensors, const std::string& comment = "") {
  const ScratchFolder folder;
  OutputFile out((folder.path() / "x.npz").string(), {});
  write_tensors(row_of(Format::npz), tensors, {{"", comment}}, out);
  out.commit();
  return folder.read("x.npz");
}

FileBytes npz_file_of(const std::string& bytes) {
  const std::shared_ptr<std::byte> data = allocate_bytes(bytes.size());
  std::copy(bytes.begin(), bytes.end(), reinterpret_cast<char*>(data.get()));
  return {"x.npz", data, bytes.size()};
}

TensorMap two_arrays() {
  TensorMap tensors;
  tensors.set("Q", Tensor::of<double>({2, 2}, {1, 2, 3, 4}));
  tensors.set("K", Tensor::of<std::int64_t>({3}, {5, 6, 7}));
  return tensors;
}

void refuse_npz(const std::string& bytes, const std::string& message,
                const NpzLimits& limits = {}) {
  try {
    read_npz(npz_file_of(bytes), nullptr, limits);
    FAIL("accepted; expected: " << message);
  } catch (const Error& error) {
    CHECK(error.kind() == ErrorKind::data);
    CHECK_THAT(error.what(), Catch::Matchers::StartsWith("x.npz") && Contains(message));
    CHECK_THAT(error.what(), !Contains("\n"));
  }
}

// numpy.savez_compressed(file, A=numpy.zeros(1000), B=numpy.zeros(1000)): 2 times 8128 bytes.
constexpr std::string_view kDeflated =
    "504b0304140000000800000021004257125f6a000000c01f000005001400412e6e707901001000c01f000000"
    "0000006a00000000000000edc8210ec2301840e1623945dd0f4945e70841cf6dc120a69686b6412c2b690966"
    "e114bbf0ca15a6dfe7de5bfb47771f0eeaab16f1a13cb35cb5dce2458c9698f227bb794cd987ff6fdd5442fd"
    "e5e5dea1f6a9b1d69ab3d13fbdd751010000000000000000000000b501504b03041400000008000000210042"
    "57125f6a000000c01f000005001400422e6e707901001000c01f0000000000006a00000000000000edc8210e"
    "c2301840e1623945dd0f4945e70841cf6dc120a69686b6412c2b690966e114bbf0ca15a6dfe7de5bfb47771f"
    "0eeaab16f1a13cb35cb5dce2458c9698f227bb794cd987ff6fdd5442fde5e5dea1f6a9b1d69ab3d13fbdd751"
    "010000000000000000000000b501504b01021403140000000800000021004257125f6a000000c01f00000500"
    "00000000000000000000800100000000412e6e7079504b01021403140000000800000021004257125f6a0000"
    "00c01f00000500000000000000000000008001a1000000422e6e7079504b0506000000000200020066000000"
    "420100000000";

std::string from_hex(std::string_view hex) {
  std::string bytes;
  for (std::size_t i = 0; i < hex.size(); i += 2)
    bytes += static_cast<char>(std::stoi(std::string(hex.substr(i, 2)), nullptr, 16));
  return bytes;
}

void replace_all(std::string& text, const std::string& from, const std::string& to) {
  for (std::size_t at = text.find(from); at != std::string::npos; at = text.find(from, at + 1))
    text.replace(at, from.size(), to);
}

}  // namespace

TEST_CASE("an archive keeps its arrays, their order, names and comment") {
  TensorMap tensors = two_arrays();
  tensors.set("W_\xC3\xBC", Tensor::of<float>({}, {2.5f}));
  tensors.set("../up", Tensor(DType::f16, {0, 3}));
  FileMetadata metadata;
  const TensorMap back =
      read_npz(npz_file_of(archive_of(tensors, "{\"made\": \"by\"}")), &metadata);
  CHECK(back.names() == tensors.names());
  CHECK(metadata == FileMetadata{{"", "{\"made\": \"by\"}"}});
  for (const auto& [name, tensor] : tensors) {
    CHECK(back.at(name).dtype() == tensor.dtype());
    CHECK(back.at(name).shape() == tensor.shape());
    CHECK((std::equal(tensor.raw(), tensor.raw() + tensor.bytes(), back.at(name).raw())));
  }
}

TEST_CASE("the same arrays give the same bytes") {
  CHECK((archive_of(two_arrays(), "c") == archive_of(two_arrays(), "c")));
}

TEST_CASE("more members than a 16-bit count can express are written as zip64") {
  TensorMap tensors;
  for (int i = 0; i < 65536; ++i) tensors.set(std::to_string(i), Tensor::of<bool>({}, {true}));
  const std::string bytes = archive_of(tensors);
  CHECK(read_npz(npz_file_of(bytes)).size() == 65536);
  NpzLimits limits;
  limits.members = 65535;
  refuse_npz(bytes, "has 65536 members; the limit is 65535", limits);
}

TEST_CASE("flipping any bit of an archive gives an error or the same arrays") {
  const std::string bytes = archive_of(two_arrays());
  const TensorMap arrays = two_arrays();
  std::size_t errors = 0;
  for (std::size_t i = 0; i < bytes.size(); ++i) {
    std::string damaged = bytes;
    damaged[i] = static_cast<char>(damaged[i] ^ 1 << i % 8);
    try {
      for (const auto& [name, tensor] : read_npz(npz_file_of(damaged)))
        for (const auto& [known, original] : arrays)
          if (name == known && !std::equal(tensor.raw(), tensor.raw() + tensor.bytes(),
                                           original.raw(), original.raw() + original.bytes()))
            FAIL("byte " << i << " changed '" << name << "' without an error");
    } catch (const Error& error) {
      REQUIRE(error.kind() == ErrorKind::data);
      ++errors;
    }
  }
  CHECK(errors > bytes.size() / 2);
}

TEST_CASE("an archive truncated at any byte is an error") {
  const std::string bytes = archive_of(two_arrays());
  for (std::size_t size = 0; size < bytes.size(); ++size)
    CHECK_THROWS_AS(read_npz(npz_file_of(bytes.substr(0, size))), Error);
}

TEST_CASE("archives beyond the limits are refused") {
  const std::string bytes = archive_of(two_arrays());
  NpzLimits few, brief;
  few.members = 1;
  refuse_npz(bytes, "has 2 members; the limit is 1", few);
  brief.name = 4;
  refuse_npz(bytes, "name has 5 bytes; the limit is 4", brief);
  NpzLimits small;
  small.expanded = 2 * 8128;
  CHECK(read_npz(npz_file_of(from_hex(kDeflated)), nullptr, small).size() == 2);
  small.expanded -= 1;
  refuse_npz(from_hex(kDeflated),
             "x.npz: B: would expand the archive to 16256 bytes, more than 16255; --max-expand",
             small);
}

TEST_CASE("duplicate and missing names are refused") {
  std::string bytes = archive_of(two_arrays());
  replace_all(bytes, "K.npy", "Q.npy");
  refuse_npz(bytes, "x.npz: ");
  TensorMap tensors = two_arrays();
  tensors.set("Q.npy", Tensor::of<double>({}, {1}));  // becomes Q.npy.npy: another key
  CHECK(read_npz(npz_file_of(archive_of(tensors))).size() == 3);
  CHECK(read_npz(npz_file_of(archive_of({}))).empty());  // as in NumPy
  TensorMap nameless;
  nameless.set("", Tensor::of<double>({}, {1}));
  refuse_npz(archive_of(nameless), "without a name");
}

TEST_CASE("a corrupt member is detected by its checksum and named") {
  std::string bytes = archive_of(two_arrays());
  bytes[bytes.find("\n") + 1] = 'x';
  refuse_npz(bytes, "x.npz: Q: CRC error");
}
