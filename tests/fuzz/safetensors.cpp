// A .safetensors file: it never has more floats than bytes, and the tensors and the metadata are
// equal after writing and reading them again.
#include "attn/io/safetensors.h"

#include <algorithm>

#include "attn/io/format.h"
#include "support/fuzz.h"
#include "support/memory_file.h"

using namespace attn;

namespace {

FileMetadata sorted(FileMetadata metadata) {
  std::sort(metadata.begin(), metadata.end());
  return metadata;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const FileBytes file = fuzz::file_of(fuzz::text_of(data, size), "input.safetensors");
  FileMetadata metadata;
  TensorMap tensors;
  if (!fuzz::accepted([&] { tensors = read_safetensors(file, &metadata); })) return 0;
  fuzz::require(is_safetensors(file.bytes()),
                "a file that is read has the signature of safetensors");
  std::size_t elements = 0;
  MemoryCharge charge(nullptr, file.name());
  const SafetensorsHeader header = parse_safetensors_header(file, charge);
  for (const auto& [name, tensor] : tensors) {
    elements += tensor.size();
    fuzz::require(fuzz::same(read_safetensor(file, entry_named(header, name, file)), tensor),
                  "one of them alone");
  }
  fuzz::require(elements <= size, "no more elements than the file has bytes");

  const std::string bytes = fuzz::written(
      [&](OutputFile& out) { write_tensors(row_of(Format::safetensors), tensors, metadata, out); });
  FileMetadata again;
  const FileBytes copy = fuzz::file_of(bytes, "again.safetensors");
  fuzz::require(fuzz::same(read_safetensors(copy, &again), tensors), "written and read");
  fuzz::require(sorted(again) == sorted(metadata), "its metadata, too");
  return 0;
}
