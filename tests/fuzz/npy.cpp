// A .npy file: it never has more elements than bytes, and the array is equal after writing and
// reading it again.
#include "attn/io/npy.h"

#include "attn/io/format.h"
#include "support/fuzz.h"
#include "support/memory_file.h"

using namespace attn;

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const FileBytes file = fuzz::file_of(fuzz::text_of(data, size));
  Tensor tensor;
  if (!fuzz::accepted([&] { tensor = read_npy(file, "input"); })) return 0;
  fuzz::require(is_npy(file.bytes()), "a file that is read has the signature of .npy");
  fuzz::require(tensor.bytes() <= size, "no more elements than the file has bytes");

  const std::string bytes = fuzz::written(
      [&](OutputFile& out) { write_tensors(row_of(Format::npy), unnamed(tensor), {}, out); });
  fuzz::require(fuzz::same(read_npy(fuzz::file_of(bytes), "again"), tensor), "written and read");
  return 0;
}
