// A JSON document, and its tensor if it is one: both are equal after writing and reading them
// again.
#include "attn/io/json_parse.h"
#include "attn/io/json_tensor.h"
#include "attn/io/json_write.h"
#include "support/fuzz.h"

using namespace attn;

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const FileBytes file = fuzz::file_of(fuzz::text_of(data, size));
  Json json;
  if (!fuzz::accepted([&] { json = parse_json(file.text(), "input"); })) return 0;
  const std::string text = to_json(json);
  fuzz::require(to_json(parse_json(text, "again")) == text, "written and read");
  fuzz::require(to_json(parse_json(to_json(json, 2), "again")) == text, "the same in lines");

  Tensor tensor;
  if (!fuzz::accepted([&] { tensor = tensor_from_json(json, "input"); })) return 0;
  fuzz::require(tensor.size() <= size, "no more elements than the text has bytes");
  for (const int indent : {-1, 2}) {
    const Json again = parse_json(to_json(tensor, indent), "again");
    fuzz::require(fuzz::same(tensor_from_json(again, "again"), tensor), "a tensor again");
  }
  return 0;
}
