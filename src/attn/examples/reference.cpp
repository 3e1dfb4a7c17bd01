#include "attn/examples/reference.h"

#include <charconv>

#include "attn/base/error.h"
#include "attn/base/printable.h"

namespace attn {
namespace {

/// Parses a reference from left to right. Each take…() consumes only what it recognises.
class Reader {
 public:
  explicit Reader(const std::string& text) : text_(text) {}

  bool done() const { return at_ == text_.size(); }

  bool take(const std::string& symbol) {
    if (text_.compare(at_, symbol.size(), symbol) != 0) return false;
    at_ += symbol.size();
    return true;
  }

  std::string take_name() {
    const std::size_t end = std::min(text_.find_first_of(".[", at_), text_.size());
    const std::string name = text_.substr(at_, end - at_);
    at_ = end;
    return name;
  }

  bool take_index(std::size_t& index) {
    const char* end = text_.data() + text_.size();
    const auto [rest, error] = std::from_chars(text_.data() + at_, end, index);
    if (error != std::errc()) return false;
    at_ = static_cast<std::size_t>(rest - text_.data());
    return take("]");
  }

 private:
  const std::string& text_;
  std::size_t at_ = 0;
};

bool take_access(Reader& reader, Access& access) {
  using Kind = Access::Kind;
  if (reader.take("[")) {
    access.kind = Kind::index;
    return reader.take_index(access.index);
  }
  if (!reader.take(".")) return false;
  const std::string name = reader.take_name();
  if (name == "T")
    access.kind = Kind::transpose;
  else if (name == "joined")
    access.kind = Kind::joined;
  else if (name == "shape")
    access.kind = Kind::shape;
  else
    return false;
  return true;
}

}  // namespace

Reference parse_reference(const std::string& text, const std::string& where) {
  const Error malformed(
      ErrorKind::data, where +
                           ": expected RESULT.VALUE, then [INDEX], .T, .joined or .shape, found '" +
                           printable(text) + "'");
  Reader reader(text);
  Reference reference;
  reference.text = text;
  reference.result = reader.take_name();
  if (reference.result.empty() || !reader.take(".")) throw malformed;
  reference.value = reader.take_name();
  if (reference.value.empty()) throw malformed;
  while (!reader.done()) {
    Access access;
    if (!take_access(reader, access)) throw malformed;
    reference.accesses.push_back(access);
  }
  return reference;
}

}  // namespace attn
