// A CSV file: the matrix that is read is equal after writing and reading it again.
#include "attn/io/csv.h"

#include "support/fuzz.h"

using namespace attn;

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const FileBytes file = fuzz::file_of(fuzz::text_of(data, size), "input.csv");
  Tensor matrix;
  if (!fuzz::accepted([&] { matrix = read_csv(file, "input.csv"); })) return 0;
  fuzz::require(matrix.rank() == 2 && matrix.size() > 0, "a matrix with elements");
  fuzz::require(matrix.size() <= size, "no more elements than the file has bytes");

  const std::string text = to_csv(matrix, "matrix");
  fuzz::require(fuzz::same(read_csv(fuzz::file_of(text), "again"), matrix), "written and read");
  return 0;
}
