#include "attn/cli/axis_names.h"

#include <algorithm>
#include <string_view>
#include <vector>

#include "attn/core/attention.h"

namespace attn {
namespace {

struct GivenShape {
  std::string_view name, shape;
};

/// Given tensors whose rows mean something, packed.
constexpr GivenShape kGivenShapes[] = {
    {"embeddings", "(B, L, M)"}, {"memory", "(B, S, Mk)"},    {"memory_V", "(B, S, Mv)"},
    {"Q", "(B, L, H*D)"},        {"K", "(B, S, G*D)"},        {"V", "(B, S, G*Dv)"},
    {"past_K", "(B, G, P, D)"},  {"past_V", "(B, G, P, Dv)"}, {"mask", "(B, H, L, S)"},
    {"key_mask", "(B, S)"},
};

std::string_view shape_of(std::string_view name) {
  for (const OutputName& output : kOutputNames)
    if (output.name == name) return output.shape;
  for (const GivenShape& given : kGivenShapes)
    if (given.name == name) return given.shape;
  return "";
}

/// "(B, H, L)" as B, H, L.
std::vector<std::string_view> letters_of(std::string_view shape) {
  std::vector<std::string_view> letters;
  while (shape.size() > 1) {
    shape.remove_prefix(shape.front() == '(' ? 1 : 2);
    const std::string_view letter = shape.substr(0, shape.find_first_of(",)"));
    letters.push_back(letter);
    shape.remove_prefix(letter.size());
  }
  return letters;
}

bool is_head(std::string_view letter) { return letter == "H" || letter == "G"; }

/// Whether a job is known and said nothing of heads.
bool without_heads(const ResultFile& result) {
  return result.made_by.find("job") != nullptr && result.job("heads") == nullptr;
}

/// The letters that this tensor has: heads are an axis where the job asked for them or has it.
std::vector<std::string_view> letters_in(const ResultFile& result, const std::string& name) {
  const std::size_t rank = result.tensors.at(name).rank();
  std::vector<std::string_view> letters = letters_of(shape_of(name));
  const bool packed = !letters.empty() && letters.back().find('*') != std::string_view::npos;
  if (packed && rank == 4) {  // heads apart
    const Json* layout = result.job("layout");
    const auto* word = layout == nullptr ? nullptr : layout->get<std::string>();
    letters.insert(letters.begin() + (word != nullptr && *word == "blhd" ? 2 : 1), "H");
  } else if (without_heads(result) && rank < letters.size()) {
    std::erase_if(letters, is_head);
  }
  return letters;
}

std::string name_of(std::string_view letter, const char* otherwise) {
  return letter == "L"                    ? "queries"
         : letter == "S" || letter == "P" ? "keys"
         : is_head(letter)                ? "heads"
         : letter == "B"                  ? "batches"
                                          : otherwise;
}

}  // namespace

AxisNames axis_names(const ResultFile& result, const std::string& name) {
  AxisNames names;
  const std::size_t rank = result.tensors.at(name).rank();
  const std::vector<std::string_view> letters = letters_in(result, name);
  const auto from_end = [&](std::size_t place) {
    return place <= std::min(rank, letters.size()) ? letters[letters.size() - place] : "";
  };
  const std::string_view width = from_end(1);
  names.columns = name_of(width, "columns");
  names.rows = name_of(from_end(2), "rows");
  const bool of_tokens = width == "M" || width == "Mk" || width == "Mv";
  if (of_tokens && names.rows != "rows") names.rows = "tokens";
  names.known = !letters.empty();
  const bool batched = names.known ? from_end(3) == "B" : without_heads(result) && rank == 3;
  if (batched) names.third = "batch";
  return names;
}

}  // namespace attn
