#include "attn/io/npy_header.h"

#include <array>
#include <bit>
#include <charconv>
#include <cstdint>
#include <limits>
#include <optional>
#include <string_view>
#include <utility>

#include "attn/base/error.h"
#include "attn/base/printable.h"
#include "attn/base/utf8.h"
#include "attn/io/bytes.h"
#include "attn/io/npy.h"

namespace attn {
namespace {

constexpr std::size_t kLongestHeader = 10000;  // NumPy's limit
constexpr std::size_t kPrefix = 8;             // magic and version

constexpr std::array<std::pair<std::string_view, DType>, 12> kCodes = {{{"f8", DType::f64},
                                                                        {"f4", DType::f32},
                                                                        {"f2", DType::f16},
                                                                        {"i1", DType::i8},
                                                                        {"i2", DType::i16},
                                                                        {"i4", DType::i32},
                                                                        {"i8", DType::i64},
                                                                        {"u1", DType::u8},
                                                                        {"u2", DType::u16},
                                                                        {"u4", DType::u32},
                                                                        {"u8", DType::u64},
                                                                        {"b1", DType::boolean}}};

[[noreturn]] void fail(const std::string& name, const std::string& problem) {
  throw Error(ErrorKind::data, Problem{.where = {name}, .message = problem});
}

std::string quoted(std::string_view text) {
  return std::string("'").append(printable(std::string(text))).append("'");
}

/// The reason for refusing a dtype.
std::string unsupported(std::string_view kind) {
  if (kind.starts_with('O')) return "object arrays hold pickles, which attn never loads";
  if (kind.starts_with('V'))
    return "raw bytes without a type (NumPy saves bfloat16 so: save it as float32)";
  if (kind.starts_with('U') || kind.starts_with('S') || kind.starts_with('a'))
    return "strings are not numbers";
  if (kind.starts_with('M') || kind.starts_with('m')) return "dates and times are not numbers";
  if (kind.starts_with('c')) return "complex numbers are not supported";
  return "expected float16, float32, float64, int8 to int64, uint8 to uint64 or bool";
}

/// "<f8", "=f8", "f8", "float64", …
void parse_descr(std::string_view descr, NpyHeader& header, const std::string& name) {
  std::string_view kind = descr;
  constexpr std::string_view kOrders = "<>=|";
  const bool has_order = !kind.empty() && kOrders.find(kind[0]) != std::string_view::npos;
  if (has_order) kind.remove_prefix(1);
  constexpr bool kBigHost = std::endian::native == std::endian::big;
  header.big_endian = has_order && descr[0] != '=' && descr[0] != '|' ? descr[0] == '>' : kBigHost;
  for (const auto& [code, dtype] : kCodes) {
    if (kind != code && (has_order || kind != name_of(dtype))) continue;
    header.dtype = dtype;
    return;
  }
  fail(name, "dtype " + quoted(descr) + ": " + unsupported(kind));
}

class Scanner {
 public:
  Scanner(std::string_view text, const std::string& name) : text_(text), name_(name) {}

  NpyHeader dictionary() {
    NpyHeader header;
    bool has_descr = false, has_order = false, has_shape = false;
    expect('{');
    while (!accept('}')) {
      const std::string_view key = string("a key");
      bool& seen = key == "descr"           ? has_descr
                   : key == "fortran_order" ? has_order
                   : key == "shape"         ? has_shape
                                            : unknown(key);
      if (std::exchange(seen, true)) fail(name_, "header has " + quoted(key) + " twice");
      expect(':');
      if (key == "descr") parse_descr(descr(), header, name_);
      if (key == "fortran_order") header.fortran_order = boolean();
      if (key == "shape") header.shape = shape();
      if (accept(',')) continue;
      expect('}');
      break;
    }
    skip_space();
    if (at_ != text_.size()) wrong("nothing more");
    for (const auto& [seen, key] :
         {std::pair(has_descr, "descr"), {has_order, "fortran_order"}, {has_shape, "shape"}})
      if (!seen) fail(name_, "header has no '" + std::string(key) + "'");
    return header;
  }

 private:
  [[noreturn]] bool& unknown(std::string_view key) const {
    fail(name_,
         "header has an unknown key " + quoted(key) + ": expected descr, fortran_order and shape");
  }

  [[noreturn]] void wrong(const std::string& expected) const {
    const std::string_view found = text_.substr(at_, 20);
    fail(name_, "header, byte " + std::to_string(at_) + ": expected " + expected + ", found " +
                    (found.empty() ? "its end" : quoted(found)));
  }

  void skip_space() {
    constexpr std::string_view kSpace = " \t\n\r\f";
    while (at_ < text_.size() && kSpace.find(text_[at_]) != std::string_view::npos) ++at_;
  }

  bool accept(char wanted) {
    skip_space();
    if (at_ == text_.size() || text_[at_] != wanted) return false;
    ++at_;
    return true;
  }

  void expect(char wanted) {
    if (!accept(wanted)) wrong(quoted({&wanted, 1}));
  }

  bool accept_word(std::string_view word) {
    skip_space();
    if (!text_.substr(at_).starts_with(word)) return false;
    at_ += word.size();
    return true;
  }

  std::string_view string(const std::string& what) {
    skip_space();
    const char quote = at_ < text_.size() ? text_[at_] : '\0';
    if (quote != '\'' && quote != '"') wrong(what + " in quotes");
    const std::size_t start = at_ + 1;
    const std::size_t end = text_.find(quote, start);
    if (end == std::string_view::npos) wrong(what + " in quotes");
    const std::string_view inside = text_.substr(start, end - start);
    if (inside.find_first_of(std::string_view("\\\n\r\0", 4)) != std::string_view::npos)
      wrong(what + " without escapes or line ends");
    at_ = end + 1;
    return inside;
  }

  std::string_view descr() {
    skip_space();
    if (at_ < text_.size() && text_[at_] == '[')
      fail(name_, "structured dtypes are not supported: save each field as an array");
    if (at_ < text_.size() && text_[at_] == '(')
      fail(name_, "sub-array dtypes are not supported: save a plain array");
    return string("a dtype");
  }

  bool boolean() {
    if (accept_word("True")) return true;
    if (!accept_word("False")) wrong("True or False for fortran_order");
    return false;
  }

  Shape shape() {
    Shape shape;
    if (!accept('(')) wrong("a shape such as (4, 3)");
    while (!accept(')')) {
      if (shape.size() == Shape::kMaxAxes)
        fail(name_, "shape has more than " + std::to_string(Shape::kMaxAxes) + " axes");
      shape.push_back(extent());
      if (accept(',')) continue;
      if (shape.size() == 1) wrong("',' (the shape of one axis is written (4,))");
      expect(')');
      break;
    }
    return shape;
  }

  std::size_t extent() {
    skip_space();
    const std::size_t start = at_;
    while (at_ < text_.size() && text_[at_] >= '0' && text_[at_] <= '9') ++at_;
    const std::string_view digits = text_.substr(start, at_ - start);
    const bool leading_zero = digits.size() > 1 && digits[0] == '0';
    std::int64_t value = 0;
    const auto error = std::from_chars(digits.data(), digits.data() + digits.size(), value).ec;
    if (digits.empty() || leading_zero || error != std::errc()) {
      at_ = start;
      wrong("a length from 0 to 2^63 - 1");
    }
    if (at_ < text_.size() && text_[at_] == 'L') ++at_;
    return static_cast<std::size_t>(value);
  }

  std::string_view text_;
  const std::string& name_;
  std::size_t at_ = 0;
};

}  // namespace

NpyHeader parse_npy_header(std::span<const std::byte> bytes, const std::string& name) {
  if (bytes.empty()) fail(name, "is empty");
  if (!is_npy(bytes))
    fail(name,
         "not a .npy file: expected \\x93NUMPY, found " + quoted(text_of(bytes).substr(0, 6)));
  if (bytes.size() < kPrefix) fail(name, "ends inside the .npy version");
  const auto major = std::to_integer<int>(bytes[6]), minor = std::to_integer<int>(bytes[7]);
  if (major < 1 || major > 3 || minor != 0)
    fail(name, ".npy version " + std::to_string(major) + "." + std::to_string(minor) +
                   " is not one of 1.0, 2.0 and 3.0");
  const std::size_t start = kPrefix + (major == 1 ? 2 : 4);
  if (bytes.size() < start) fail(name, "ends inside the .npy header's length");
  const std::size_t length = major == 1 ? little_endian<std::uint16_t>(bytes.subspan(kPrefix))
                                        : little_endian<std::uint32_t>(bytes.subspan(kPrefix));
  if (length > kLongestHeader)
    fail(name, "header of " + std::to_string(length) + " bytes; at most " +
                   std::to_string(kLongestHeader) + " are read");
  if (length > bytes.size() - start)
    fail(name, "header of " + std::to_string(length) + " bytes, of which the file has " +
                   std::to_string(bytes.size() - start));
  const std::string_view text = text_of(bytes.subspan(start, length));
  if (major == 3 && find_invalid_utf8(text) != std::string_view::npos)
    fail(name, "header of version 3.0 is not UTF-8");
  NpyHeader header = Scanner(text, name).dictionary();
  header.data_offset = start + length;
  return header;
}

}  // namespace attn
