#include "attn/io/npy.h"

#include <algorithm>
#include <array>
#include <bit>
#include <charconv>
#include <cstdint>
#include <cstring>
#include <limits>
#include <optional>
#include <string_view>
#include <utility>

#include "attn/base/error.h"
#include "attn/base/text.h"
#include "attn/base/utf8.h"
#include "attn/io/elements.h"

namespace attn {
namespace {

constexpr std::size_t kMagicSize = 8;  // magic and version

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

std::string quoted(std::string_view text) {
  return std::string("'").append(printable(std::string(text))).append("'");
}

/// The reason for refusing a dtype.
std::string unsupported_dtype(std::string_view kind) {
  if (kind.starts_with('O')) return "object arrays hold pickles, which attn never loads";
  if (kind == "V1" || kind == "f1")
    return "8-bit floats, whose type NumPy does not save; save x.view('uint8') and name the type, "
           "as "
           "in --k-type e4m3";
  if (kind.starts_with('V'))
    return "raw bytes without a type (NumPy saves bfloat16 this way; save it as float32)";
  if (kind.starts_with('M') || kind.starts_with('m')) return "dates and times are not numbers";
  if (kind.starts_with('c')) return "complex numbers are not supported";
  return "expected float16, float32, float64, int8 to int64, uint8 to uint64 or bool";
}

/// The number of characters in "U12", at least one; nothing if the text is something else.
std::optional<std::size_t> length_of_strings(std::string_view kind) {
  std::size_t length = 0;
  const char* const end = kind.data() + kind.size();
  if (kind.size() < 2 || (kind[0] != 'U' && kind[0] != 'S')) return std::nullopt;
  const auto [last, error] = std::from_chars(kind.data() + 1, end, length);
  const bool is_valid = error == std::errc() && last == end && length > 0;
  return is_valid ? std::optional(length) : std::nullopt;
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
  if (const std::optional<std::size_t> length = length_of_strings(kind)) {
    header.characters = *length;
    header.character_size = kind[0] == 'U' ? sizeof(char32_t) : 1;
    return;
  }
  fail_at({name}, "dtype " + quoted(descr) + ": " + unsupported_dtype(kind));
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
      if (std::exchange(seen, true)) fail_at({name_}, "header has " + quoted(key) + " twice");
      expect(':');
      if (key == "descr") parse_descr(descr(), header, name_);
      if (key == "fortran_order") header.fortran_order = boolean();
      if (key == "shape") header.shape = shape();
      if (accept(',')) continue;
      expect('}');
      break;
    }
    skip_space();
    if (at_ != text_.size()) wrong("the end of the header");
    for (const auto& [seen, key] :
         {std::pair(has_descr, "descr"), {has_order, "fortran_order"}, {has_shape, "shape"}})
      if (!seen) fail_at({name_}, "header has no '" + std::string(key) + "'");
    return header;
  }

 private:
  [[noreturn]] bool& unknown(std::string_view key) const {
    fail_at({name_}, "header has an unknown key " + quoted(key) +
                         ": expected descr, fortran_order and shape");
  }

  [[noreturn]] void wrong(const std::string& expected) const {
    const std::string_view found = text_.substr(at_, 20);
    fail_at({name_}, "header, byte " + std::to_string(at_) + ": expected " + expected + ", found " +
                         (found.empty() ? "the end of the header" : quoted(found)));
  }

  void skip_space() {
    constexpr std::string_view kPythonSpace = " \t\n\r\f";
    while (at_ < text_.size() && kPythonSpace.find(text_[at_]) != std::string_view::npos) ++at_;
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
      fail_at({name_}, "structured dtypes are not supported: save each field as an array");
    if (at_ < text_.size() && text_[at_] == '(')
      fail_at({name_}, "sub-array dtypes are not supported: save a plain array");
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
        fail_at({name_}, "shape has more than " + std::to_string(Shape::kMaxAxes) + " axes");
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
  if (bytes.empty()) fail_at({name}, "is empty");
  if (!is_npy(bytes))
    fail_at({name},
            "not a .npy file: expected \\x93NUMPY, found " + quoted(text_of(bytes).substr(0, 6)));
  if (bytes.size() < kMagicSize) fail_at({name}, "ends inside the .npy version");
  const auto major = std::to_integer<int>(bytes[6]), minor = std::to_integer<int>(bytes[7]);
  if (major < 1 || major > 3 || minor != 0)
    fail_at({name}, ".npy version " + std::to_string(major) + "." + std::to_string(minor) +
                        " is not supported; expected 1.0, 2.0 or 3.0");
  const std::size_t start = kMagicSize + (major == 1 ? 2 : 4);
  if (bytes.size() < start) fail_at({name}, "ends inside the .npy header's length");
  const std::size_t length = major == 1 ? little_endian<std::uint16_t>(bytes.subspan(kMagicSize))
                                        : little_endian<std::uint32_t>(bytes.subspan(kMagicSize));
  if (length > kLongestNpyHeader)
    fail_at({name}, "header of " + std::to_string(length) + " bytes; the limit is " +
                        std::to_string(kLongestNpyHeader));
  if (length > bytes.size() - start)
    fail_at({name}, "header of " + std::to_string(length) + " bytes, but the file has only " +
                        std::to_string(bytes.size() - start));
  const std::string_view text = text_of(bytes.subspan(start, length));
  if (major == 3 && find_invalid_utf8(text) != std::string_view::npos)
    fail_at({name}, "header of version 3.0 is not UTF-8");
  NpyHeader header = Scanner(text, name).dictionary();
  header.data_offset = start + length;
  return header;
}

namespace {

constexpr std::string_view kMagic = "\x93NUMPY";

std::string name_of_elements(const NpyHeader& header) {
  return header.has_strings() ? "strings of " + std::to_string(header.characters) + " characters"
                              : std::string(name_of(header.dtype));
}

/// Checks that the file has exactly as many bytes as the shape requires.
void require_bytes(const NpyHeader& header, std::size_t available, const std::string& name) {
  std::size_t size = size_of(header.dtype), bytes = 0;
  const bool overflows = header.has_strings() &&
                         __builtin_mul_overflow(header.characters, header.character_size, &size);
  if (overflows || __builtin_mul_overflow(checked_count(header.shape, name), size, &bytes))
    fail_at({name}, "shape " + to_string(header.shape) + " takes more than 2^64 bytes");
  const std::string expected = "shape " + to_string(header.shape) + " of " +
                               name_of_elements(header) + " takes " + std::to_string(bytes) +
                               " bytes";
  if (available < bytes)
    fail_at({name}, expected + ", but only " + std::to_string(available) + " follow the header");
  if (available > bytes)
    fail_at({name},
            expected + ", and " + std::to_string(available - bytes) + " more follow the array");
}

/// Copies a column-major array of at least two axes in row-major order.
template <class Bits>
void copy_row_major(const Bits* from, Bits* to, const Shape& shape) {
  const std::size_t rows = shape.front(), columns = shape.back();
  std::size_t middle = 1;  // elements of the axes between the first and the last
  for (std::size_t axis = 1; axis + 1 < shape.size(); ++axis) middle *= shape[axis];
  constexpr std::size_t kTile = 32;  // keeps the cache lines of a tile in the first-level cache
  for (std::size_t m = 0; m < middle; ++m) {
    // m counts the middle axes in row-major order; `source` is the same element in column-major
    // order.
    std::size_t source = 0, rest = m;
    for (std::size_t axis = shape.size() - 1; axis-- > 1;) {
      std::size_t stride = 1;
      for (std::size_t before = 1; before < axis; ++before) stride *= shape[before];
      source += rest % shape[axis] * stride;
      rest /= shape[axis];
    }
    const Bits* const block = from + source * rows;
    Bits* const target = to + m * columns;
    for (std::size_t i = 0; i < rows; i += kTile)
      for (std::size_t j = 0; j < columns; j += kTile)
        for (std::size_t row = i; row < std::min(i + kTile, rows); ++row)
          for (std::size_t column = j; column < std::min(j + kTile, columns); ++column)
            target[row * middle * columns + column] = block[column * rows * middle + row];
  }
}

Tensor row_major(const Tensor& fortran) {
  Tensor result(fortran.dtype(), fortran.shape());
  visit_bits(fortran.dtype(), [&]<class Bits>(Bits) {
    copy_row_major(reinterpret_cast<const Bits*>(fortran.raw()),
                   reinterpret_cast<Bits*>(result.mutable_raw()), fortran.shape());
  });
  return result;
}

}  // namespace

void refuse_strings(const std::string& name) { fail_at({name}, "has strings, not numbers"); }

bool is_npy(std::span<const std::byte> bytes) { return text_of(bytes).starts_with(kMagic); }

Tensor read_npy(const FileBytes& file, const std::string& name, ReadBudget* budget) {
  return read_npy(file, parse_npy_header(file.bytes(), name), name, budget);
}

Tensor read_npy(const FileBytes& file, const NpyHeader& header, const std::string& name,
                ReadBudget* budget) {
  if (header.has_strings()) refuse_strings(name);
  require_bytes(header, file.size - header.data_offset, name);
  const bool is_swapped = header.big_endian != (std::endian::native == std::endian::big);
  // Elements are copied if those in the file cannot be used unchanged.
  MemoryCharge copies(budget, name);
  if (is_swapped || header.fortran_order || header.dtype == DType::boolean ||
      !is_aligned(file, header.data_offset, header.dtype))
    copies.add(file.size - header.data_offset);
  if (header.fortran_order) copies.add(file.size - header.data_offset);
  copies.keep();
  Tensor tensor = elements_at(file, header.data_offset, header.dtype, header.shape);
  if (is_swapped && size_of(header.dtype) > 1) tensor = byte_swapped(std::move(tensor));
  if (header.fortran_order && tensor.rank() > 1 && tensor.size() > 1) tensor = row_major(tensor);
  return tensor;
}

std::vector<std::string> read_npy_strings(const FileBytes& file, const std::string& name) {
  const NpyHeader header = parse_npy_header(file.bytes(), name);
  if (!header.has_strings() || header.shape.size() != 1)
    fail_at({name}, "expected strings on one axis");
  require_bytes(header, file.size - header.data_offset, name);
  const bool is_swapped = header.big_endian != (std::endian::native == std::endian::big);
  const std::size_t count = header.shape[0], size = header.characters * header.character_size;
  std::vector<std::string> strings(count);
  for (std::size_t i = 0; i < count; ++i) {
    const std::byte* const from = file.data.get() + header.data_offset + i * size;
    std::string& text = strings[i];
    if (header.character_size == 1) {
      text = text_of({from, size});
    } else {
      for (std::size_t j = 0; j < header.characters; ++j) {
        std::uint32_t code = 0;
        std::memcpy(&code, from + j * sizeof code, sizeof code);
        append_utf8(text, is_swapped ? __builtin_bswap32(code) : code);
      }
    }
    text.resize(text.find_last_not_of('\0') + 1);
    if (find_invalid_utf8(text) != std::string_view::npos)
      fail_at({name}, "string " + std::to_string(i) + " is not Unicode text");
  }
  return strings;
}

std::string npy_header(DType dtype, const Shape& shape) {
  dtype = npy_dtype(dtype);
  const std::size_t size = size_of(dtype);
  const char kind = dtype == DType::boolean ? 'b'
                    : is_float(dtype)       ? 'f'
                    : is_signed(dtype)      ? 'i'
                                            : 'u';
  std::string text = std::string("{'descr': '") + (size == 1 ? '|' : '<') + kind +
                     std::to_string(size) +
                     "', 'fortran_order': False, 'shape': " + to_string(shape) + ", }";
  // NumPy leaves space for the first axis to grow to 21 digits in place.
  if (!shape.empty()) text.append(21 - std::to_string(shape[0]).size(), ' ');
  // At least one space, even if the length is a multiple of 64, as in NumPy.
  text.append(64 - (kMagic.size() + 4 + text.size() + 1) % 64, ' ');
  text += '\n';
  std::string header = std::string(kMagic) + '\1' + '\0';
  append_little_endian(header, static_cast<std::uint16_t>(text.size()));
  return header + text;
}

DType npy_dtype(DType dtype) { return dtype == DType::bf16 ? DType::f32 : dtype; }

FileLayout npy_layout(const TensorSpec& spec) { return {{npy_header(spec.dtype, spec.shape), 0}}; }

}  // namespace attn
