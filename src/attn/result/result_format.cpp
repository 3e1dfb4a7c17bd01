#include "attn/result/result_format.h"

#include "attn/io/json_write.h"
#include "attn/io/npy.h"
#include "attn/io/npz.h"
#include "attn/io/npz_writer.h"
#include "attn/io/safetensors.h"

namespace attn {
namespace {

constexpr std::size_t kMaxComment = 65535;  // bytes in a zip archive
constexpr std::size_t kSmallResult = 1500;  // characters

Json tokens_json(const Result& result) {
  JsonArray tokens;
  for (const std::string& token : result.tokens) tokens.push_back(Json{token});
  return Json{std::move(tokens)};
}

std::string metadata_text(const Result& result, bool with_tokens) {
  if (!with_tokens || result.tokens.empty()) return to_json(result.made_by);
  Json made_by = result.made_by;
  std::get<JsonObject>(made_by.value).emplace_back("tokens", tokens_json(result));
  return to_json(made_by);
}

/// The comment with tokens if they fit, otherwise without them, otherwise empty.
std::string zip_comment(const Result& result) {
  for (const bool with_tokens : {true, false}) {
    std::string text = metadata_text(result, with_tokens);
    if (text.size() <= kMaxComment) return text;
  }
  return "";
}

/// The values are strings, as the format requires.
SafetensorsMetadata safetensors_metadata(const Result& result) {
  SafetensorsMetadata metadata = {{"schema", "attn/1"}, {"made_by", metadata_text(result, false)}};
  if (!result.tokens.empty()) metadata.emplace_back("tokens", to_json(tokens_json(result)));
  return metadata;
}

}  // namespace

void append_result_json(std::string& text, const Result& result, int indent,
                        const std::string& members) {
  const bool compact = indent < 0;
  text.reserve(text.size() + kSmallResult);
  text += compact ? "{\"schema\":\"attn/1\"" : "{\n  \"schema\": \"attn/1\"";
  if (!members.empty()) text.append(",").append(members);
  const auto member = [&](const std::string& name, const auto& value, int column) {
    text.append(compact ? "," : ",\n  ").append(json_quoted(name)).append(compact ? ":" : ": ");
    append_json(text, value, column);
  };
  member("made_by", result.made_by, indent);
  if (!result.tokens.empty()) member("tokens", tokens_json(result), indent);
  for (const auto& [name, tensor] : result.outputs)
    member(name, tensor, compact ? indent : indent + 2);
  text += compact ? "}" : "\n}";
}

std::string result_json(const Result& result, int indent) {
  std::string text;
  append_result_json(text, result, indent);
  return text;
}

bool is_binary(Format format) {
  return format == Format::npy || format == Format::npz || format == Format::safetensors;
}

DType stored_dtype(Format format, DType dtype) {
  return format == Format::safetensors ? dtype : npy_dtype(dtype);
}

bool stores_provenance(Format format) { return format != Format::npy && format != Format::csv; }

FileLayout layout_of(Format format, const std::vector<TensorSpec>& specs,
                     const std::vector<std::uint32_t>& checksums, const Result& result,
                     const std::string& path) {
  if (format == Format::npz) return npz_layout(specs, checksums, zip_comment(result), path);
  if (format == Format::npy) return npy_layout(specs[0]);
  return safetensors_layout(specs, safetensors_metadata(result), path);
}

}  // namespace attn
