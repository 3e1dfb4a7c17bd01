// A file of any format, read as `attn convert` reads it, within --max-memory: each tensor alone is
// the same as among all, and everything is the same when written in any format and read back.
#include <functional>

#include "attn/cli/emit.h"
#include "attn/io/json_write.h"
#include "attn/io/npy.h"
#include "support/confined.h"
#include "support/fuzz.h"
#include "support/heap.h"
#include "support/memory_file.h"
#include "support/zip_repair.h"

using namespace attn;

namespace {

constexpr std::size_t kMaxMemory = std::size_t{1} << 17;  // --max-memory
// Memory of a run that is no part of a file: tables, buffers, messages.
constexpr std::size_t kProgram = std::size_t{256} << 10;

const std::string kPath = "input";

/// What --format FORMAT writes.
std::string converted(const TensorMap& tensors, const std::string& format) {
  static fuzz::MemoryFile memory;
  memory.set("");
  EmitArgs args;
  args.output = "/dev/fd/" + std::to_string(memory.descriptor());
  args.format = format;
  emit_tensors(tensors, args);
  return memory.bytes();
}

TensorMap read_back(const std::string& bytes, const std::string& suffix) {
  TensorFiles files;
  files.add(fuzz::file_of(bytes, "again." + suffix));
  return files.all("again." + suffix);
}

/// With the names and dtypes that the format stores.
TensorMap stored(const TensorMap& tensors, const FormatRow& format) {
  TensorMap result;
  for (const auto& [name, tensor] : tensors) {
    const bool keeps = format.stored_dtype(DType::bf16) == DType::bf16;
    result.set(name.empty() && !format.holds_one() ? "arr_0" : name,
               keeps ? tensor : cast(tensor, format.stored_dtype(tensor.dtype())));
  }
  return result;
}

/// Whether text has the numbers of `tensor`. It has no dtypes, NaN payloads or shapes without
/// elements.
bool same_numbers(const Tensor& text, const Tensor& tensor) {
  if (tensor.size() == 0) return text.size() == 0;
  return text.size() == tensor.size() &&
         to_json(cast(text, tensor.dtype()).reshaped(tensor.shape()), -1) == to_json(tensor, -1);
}

/// Calls `check` with what --format FORMAT writes, unless it is refused: text may exceed the memory
/// limit, and not every format stores every dtype, shape and name.
void with_converted(const TensorMap& tensors, const std::string& format,
                    const std::function<void(const std::string&)>& check) {
  std::string bytes;
  if (fuzz::accepted([&] { bytes = converted(tensors, format); })) check(bytes);
}

void require_same_when_read_back(const TensorMap& tensors) {
  for (const FormatRow& format : all_formats()) {
    if (!format.is_archive()) continue;
    const std::string suffix(format.name());
    with_converted(tensors, suffix, [&](const std::string& bytes) {
      fuzz::require(fuzz::same(read_back(bytes, suffix), stored(tensors, format)),
                    "the tensors are the same in a binary format");
    });
  }
  with_converted(tensors, "json", [&](const std::string& bytes) {
    const TensorMap json = read_back(bytes, "json");
    fuzz::require(json.names() == tensors.names(), "the names are the same in JSON");
    for (const auto& [name, tensor] : tensors)
      fuzz::require(same_numbers(*json.find(name), tensor), "the numbers are the same in JSON");
  });
  with_converted(tensors, "text", [](const std::string&) {});
  for (const auto& entry : tensors) {
    const Tensor& tensor = entry.second;
    TensorMap alone;
    alone.set("", tensor);
    with_converted(alone, "npy", [&](const std::string& bytes) {
      fuzz::require(fuzz::same(read_back(bytes, "npy"), stored(alone, row_of(Format::npy))),
                    "the tensor is the same in .npy");
    });
    with_converted(alone, "csv", [&](const std::string& bytes) {
      fuzz::require(tensor.size() == 0 || same_numbers(*read_back(bytes, "csv").find(""), tensor),
                    "the numbers are the same in CSV");
    });
  }
}

}  // namespace

extern "C" std::size_t LLVMFuzzerCustomMutator(std::uint8_t* data, std::size_t size,
                                               std::size_t most, unsigned seed) {
  return fuzz::mutate_archive(data, size, most, seed);
}

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  FileBytes bytes = fuzz::file_of(fuzz::text_of(data, size), kPath);
  TensorFiles files({.memory = kMaxMemory, .npz = {.expanded = kMaxMemory}});
  TensorMap tensors;
  const fuzz::HeapPeak heap;
  const bool done = fuzz::accepted([&] {
    const fuzz::Confined confined;
    files.add(std::move(bytes));
    tensors = files.all(kPath);
  });
  fuzz::require(heap.bytes() <= kMaxMemory + kProgram, "memory stays below the limit");
  if (!done || tensors.size() == 0) return 0;  // .npz and JSON files without an array are refused
  for (const auto& [name, tensor] : tensors) {
    if (name.empty()) continue;
    TensorFiles alone({.memory = kMaxMemory, .npz = {.expanded = kMaxMemory}});
    const fuzz::Confined confined;
    alone.add(fuzz::file_of(fuzz::text_of(data, size), kPath));
    fuzz::require(fuzz::same(alone.read({kPath, name}), tensor), "FILE#NAME");
  }
  require_same_when_read_back(tensors);
  return 0;
}
