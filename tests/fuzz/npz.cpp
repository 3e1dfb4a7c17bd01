// An .npz archive, mostly with correct checksums: decompressed members stay within the limit, and
// the arrays are equal after writing and reading them again.
#include "attn/io/npz.h"

#include "attn/io/format.h"
#include "support/fuzz.h"
#include "support/memory_file.h"
#include "support/zip_repair.h"

using namespace attn;

namespace {

constexpr NpzLimits kLimits = {.members = 32, .name = 256, .expanded = 1 << 16};

}  // namespace

extern "C" std::size_t LLVMFuzzerCustomMutator(std::uint8_t* data, std::size_t size,
                                               std::size_t most, unsigned seed) {
  return fuzz::mutate_archive(data, size, most, seed);
}

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const FileBytes file = fuzz::file_of(fuzz::text_of(data, size), "input.npz");
  TensorMap tensors;
  if (!fuzz::accepted([&] { tensors = read_npz(file, nullptr, kLimits); })) return 0;
  std::string comment;
  fuzz::accepted([&] {
    ReadBudget budget(1 << 20);
    MemoryCharge charge(&budget, "input.npz");
    const NpzIndex index = read_npz_index(file, kLimits, charge);
    comment = index.comment;
    npz_metadata(file, index, &budget);
  });
  fuzz::require(is_zip(file.bytes()), "a file that is read has the signature of .npz");
  std::size_t bytes = 0;
  for (const auto& [name, tensor] : tensors) bytes += tensor.bytes();
  fuzz::require(bytes <= size + kLimits.expanded, "no more than the limit allows");

  const std::string copy = fuzz::written([&](OutputFile& out) {
    write_tensors(row_of(Format::npz), tensors, {{"", comment}}, out);
  });
  FileMetadata again;
  const TensorMap read = read_npz(fuzz::file_of(copy, "again.npz"), &again);
  fuzz::require(fuzz::same(read, tensors), "written and read");
  fuzz::require(read.names() == tensors.names() && again.front().second == comment,
                "in order, with its comment");
  return 0;
}
