#include "attn/cli/weights_files.h"

#include <algorithm>
#include <array>
#include <filesystem>
#include <span>
#include <string_view>

#include "attn/base/error.h"
#include "attn/base/text.h"
#include "attn/cli/rendering.h"
#include "attn/cli/terminal.h"
#include "attn/io/format.h"
#include "attn/job/labels.h"
#include "attn/tensor/shape.h"

namespace attn {
namespace {

namespace fs = std::filesystem;

/// Whether, by its name, a file in a folder may have weights.
bool may_have_weights(const fs::path& path) {
  const FormatRow* format = format_of_suffix(path.native());
  if (format == nullptr || format->names_rows) return false;
  // `attn run -o FOLDER/` names files after outputs.
  return !format->holds_one() || may_be_weights(path.stem().string());
}

/// The .npz, .safetensors, .npy and .json files in a folder and its subfolders that may have
/// weights, in natural order.
std::vector<std::string> tensor_files_in(const std::string& folder) {
  std::vector<std::string> paths;
  std::error_code error;
  fs::recursive_directory_iterator entry(folder, error);
  for (; !error && entry != fs::recursive_directory_iterator(); entry.increment(error)) {
    std::error_code ignored;
    const bool is_hidden = entry->path().filename().native().starts_with('.');
    if (entry->is_directory(ignored)) {
      if (is_hidden) entry.disable_recursion_pending();
    } else if (!is_hidden && may_have_weights(entry->path())) {
      paths.push_back(entry->path().string());
    }
  }
  if (error)
    throw Error(ErrorKind::no_input, Problem{.where = {folder}, .message = error.message()});
  if (paths.empty())
    throw Error(
        ErrorKind::no_input,
        Problem{.where = {folder}, .message = "has no .npz, .safetensors, .npy or .json files"});
  std::sort(paths.begin(), paths.end(), precedes_naturally);
  return paths;
}

/// Errors: data, if a tensor without elements has very long axes: a file of a few bytes can declare
/// any number of heads and queries.
void limit_empty_tensor(const Shape& shape) {
  constexpr std::size_t kMaxProduct = std::size_t{1} << 20;
  std::size_t product = 1;
  for (const std::size_t length : shape)
    product = saturating_product({product, std::max<std::size_t>(length, 1)});
  const bool is_empty = std::find(shape.begin(), shape.end(), 0u) != shape.end();
  if (is_empty && product > kMaxProduct)
    fail_data({.expected = "axes other than 0 with a product of at most " +
                           std::to_string(kMaxProduct) + " in a tensor without elements",
               .found = to_string(shape)});
}

/// Errors: data, if the labels say that the last axes are not queries and keys or, if `inner` is 1,
/// queries.
void require_queries(const Labels& labels, std::size_t inner) {
  const std::vector<std::string>& axes = labels.axes;
  const std::vector<std::string> wanted = {"query", "key"};
  if (axes.size() < inner ||
      std::equal(axes.end() - static_cast<std::ptrdiff_t>(inner), axes.end(), wanted.begin()))
    return;
  fail_data(
      {.expected = inner == 2 ? "queries and keys as the last axes" : "queries as the last axis",
       .found = "axes " + join(axes, ", ")});
}

}  // namespace

std::vector<std::string> files_of(const std::vector<std::string>& inputs) {
  std::vector<std::string> files;
  for (const std::string& input : inputs) {
    std::error_code ignored;
    if (fs::is_directory(input, ignored)) {
      const std::vector<std::string> inside = tensor_files_in(input);
      files.insert(files.end(), inside.begin(), inside.end());
    } else {
      files.push_back(input);
    }
  }
  return files;
}

HeadAxes head_axes(const ResultFile& result, const std::string& name, std::size_t inner) {
  const Shape& shape = result.tensors.at(name).shape();
  const auto refuse = [&] {
    fail_data({.expected = std::to_string(inner) + " to " + std::to_string(inner + 3) +
                           " axes: layer, batch, head, " + (inner == 2 ? "L, S" : "L"),
               .found = to_string(shape)});
  };
  if (shape.size() < inner || shape.size() > inner + 3) refuse();
  limit_empty_tensor(shape);
  constexpr std::array<std::string_view, 3> kOutermost = {"layer", "batch", "head"};
  const Labels labels = result.labels(name);
  if (result.made_by.find("job") != nullptr) require_queries(labels, inner);
  const std::size_t outer = shape.size() - inner;
  HeadAxes axes{.numbers = labels.layers};
  std::size_t next = 0;  // in kOutermost; each axis precedes those that it contains
  for (std::size_t k = 0; k < outer; ++k, ++next) {
    const std::string_view word =
        labels.axes.empty() ? kOutermost[kOutermost.size() - outer + k] : labels.axes[k];
    while (next < kOutermost.size() && kOutermost[next] != word) ++next;
    if (next == kOutermost.size()) refuse();
    if (word == "head") axes.heads = shape[k], axes.has_heads = true;
    if (word == "batch") axes.items = shape[k], axes.has_items = true;
    if (word == "layer") axes.layers = shape[k], axes.has_layers = true;
  }
  return axes;
}

void warn_of_batch(const ResultFile& result, const std::string& label, const Shape& shape,
                   const HeadAxes& axes) {
  if (shape.size() != 4 || axes.has_layers || axes.items < 2 || result.made_by.find("job")) return;
  note("warning: " + label + " " + to_string(shape) +
       ": the axes are taken as batch, head, L, S; if the first one is layers, save x[:, None], "
       "which is layer, batch, head, L, S");
}

ResultFile result_of(const TensorRef& ref, TensorFiles& files) {
  if (ref.member.empty()) return read_result(ref.path, files);
  ResultFile result{{}, {}, read_made_by(ref.path, files)};
  add_tensor(ref, ref.member, files, result);
  return result;
}

std::vector<std::string> weights_in(const TensorMap& tensors) {
  if (contains(tensors, Output::weights)) return {std::string(name_of(Output::weights))};
  std::vector<std::string> names, others;
  for (const auto& [name, tensor] : tensors) {
    const bool is_number = is_float(tensor.dtype()) || tensors.size() == 1;
    (is_number && may_be_weights(name) ? names : others).push_back(name);
  }
  std::sort(names.begin(), names.end(), precedes_naturally);
  if (!names.empty()) return names;
  constexpr std::size_t kNamed = 3;
  const std::span<const std::string> first(others.data(), std::min(others.size(), kNamed));
  fail_data({.message = others.empty()
                            ? "has no weights"
                            : "has no weights, but found " + printable(join(first, ", ")) +
                                  (others.size() > kNamed ? ", ..." : ""),
             .hint = others.empty() ? "" : "FILE#NAME uses a tensor of any name"});
}

}  // namespace attn
