#include "attn/io/tensor_file.h"

#include <sys/stat.h>

#include "attn/io/csv.h"
#include "attn/io/npy.h"
#include "attn/io/npz.h"
#include "attn/tensor/error.h"

namespace attn {

std::string_view name_of(Format format) {
  switch (format) {
    case Format::npy:
      return "npy";
    case Format::npz:
      return "npz";
    case Format::json:
      return "json";
    case Format::csv:
      break;
  }
  return "csv";
}

std::optional<Format> format_of_suffix(const std::string& path) {
  for (const Format format : {Format::npy, Format::npz, Format::json, Format::csv})
    if (path.ends_with("." + std::string(name_of(format)))) return format;
  return std::nullopt;
}

Format format_of(const FileBytes& file) {
  if (is_npy(file.bytes())) return Format::npy;
  if (is_zip(file.bytes())) return Format::npz;
  const std::size_t first = file.text().find_first_not_of(" \t\r\n");
  if (first != std::string_view::npos && (file.text()[first] == '{' || file.text()[first] == '['))
    return Format::json;
  if (const auto format = format_of_suffix(file.path)) return *format;
  throw Error(ErrorKind::data, printable(file.path) + ": expected .npy, .npz, JSON or CSV");
}

TensorRef parse_tensor_ref(const std::string& text) {
  struct stat status {};
  const std::size_t hash = text.rfind('#');
  if (hash == std::string::npos || stat(text.c_str(), &status) == 0) return {text, ""};
  return {text.substr(0, hash), text.substr(hash + 1)};
}

TensorMap read_tensors(const FileBytes& file) {
  const std::string name = printable(file.path);
  TensorMap tensors;
  switch (format_of(file)) {
    case Format::npy:
      tensors.set("", read_npy(file, name));
      break;
    case Format::npz:
      return read_npz(file);
    case Format::csv:
      tensors.set("", read_csv(file, name));
      break;
    case Format::json: {
      const Json json = parse_json(file.text(), name);
      const auto* members = json.get<JsonObject>();
      if (members == nullptr)
        tensors.set("", tensor_from_json(json, name));
      else
        for (const auto& [key, value] : *members)
          if (value.is_array()) tensors.set(key, tensor_from_json(value, name + ": " + key));
    }
  }
  return tensors;
}

const FileBytes& TensorFiles::file(const std::string& path) {
  const auto found = files_.find(path);
  return found != files_.end() ? found->second : files_.emplace(path, read_file(path)).first->second;
}

const TensorMap& TensorFiles::all(const std::string& path) {
  const auto found = tensors_.find(path);
  return found != tensors_.end() ? found->second
                                 : tensors_.emplace(path, read_tensors(file(path))).first->second;
}

Tensor TensorFiles::read(const TensorRef& ref) {
  const TensorMap& tensors = all(ref.path);
  const Tensor* tensor = tensors.find(ref.member);
  if (tensor == nullptr && ref.member.empty() && tensors.size() == 1) return tensors.begin()->second;
  if (tensor != nullptr) return *tensor;
  throw Error(ErrorKind::data, printable(ref.path) + ": no tensor '" + printable(ref.member) + "'" +
                                   did_you_mean(ref.member, tensors.names()));
}

}  // namespace attn
