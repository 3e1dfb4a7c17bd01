#include "attn/io/npy.h"

#include <algorithm>
#include <catch2/catch.hpp>
#include <cstring>

#include "attn/base/error.h"
#include "attn/io/elements.h"
#include "attn/io/format.h"
#include "support/run_attn.h"

using namespace attn;
using Catch::Matchers::Contains;

namespace {

FileBytes file_of(const std::string& bytes) {
  const std::shared_ptr<std::byte> data = allocate_bytes(bytes.size());
  std::copy(bytes.begin(), bytes.end(), reinterpret_cast<char*>(data.get()));
  return {"x.npy", data, bytes.size()};
}

/// A file of version 1.0 with exactly this header and these elements.
std::string npy(const std::string& header, const std::string& elements) {
  std::string bytes = std::string("\x93NUMPY\1\0", 8);
  append_little_endian(bytes, static_cast<std::uint16_t>(header.size()));
  return bytes + header + elements;
}

std::string header(const std::string& descr, const std::string& shape,
                   const std::string& fortran = "False") {
  return "{'descr': '" + descr + "', 'fortran_order': " + fortran + ", 'shape': " + shape + "}";
}

std::string bytes_of_numbers(const std::vector<double>& values) {
  std::string bytes(values.size() * sizeof(double), '\0');
  std::memcpy(bytes.data(), values.data(), bytes.size());
  return bytes;
}

std::vector<double> doubles(const Tensor& tensor) {
  const auto data = tensor.data<double>();
  return {data.begin(), data.end()};
}

void refuse(const std::string& bytes, const std::string& message) {
  try {
    read_npy(file_of(bytes), "x.npy");
    FAIL("accepted; expected: " << message);
  } catch (const Error& error) {
    CHECK(error.kind() == ErrorKind::data);
    CHECK_THAT(error.what(), Catch::Matchers::StartsWith("x.npy: ") && Contains(message));
    CHECK_THAT(error.what(), !Contains("\n"));
  }
}

}  // namespace

TEST_CASE("every spelling of a header that NumPy accepts is read") {
  const std::string six = bytes_of_numbers({0, 1, 2, 3, 4, 5});
  for (const char* text : {
           "{'descr': '<f8', 'fortran_order': False, 'shape': (2, 3), }          \n",
           "{'shape':(2,3),'descr':'<f8','fortran_order':False}",
           "{\"descr\": \"<f8\", \"fortran_order\": False, \"shape\": (2, 3,)}\n",
           " {\n'descr' :\t'<f8',\r\n 'fortran_order':False , 'shape': ( 2L , 3L )\n}\n\n",
           "{'descr': 'float64', 'fortran_order': False, 'shape': (2, 3)}",
           "{'descr': '=f8', 'fortran_order': False, 'shape': (2, 3)}",
           "{'descr': '|f8', 'fortran_order': False, 'shape': (2, 3)}",
           "{'descr': 'f8', 'fortran_order': False, 'shape': (2, 3)}",
       }) {
    CAPTURE(text);
    const Tensor tensor = read_npy(file_of(npy(text, six)), "x.npy");
    CHECK(tensor.shape() == Shape{2, 3});
    CHECK(doubles(tensor) == std::vector<double>{0, 1, 2, 3, 4, 5});
  }
}

TEST_CASE("versions 2.0 and 3.0 have a longer length field") {
  for (const char version : {'\2', '\3'}) {
    std::string bytes = std::string("\x93NUMPY") + version + '\0';
    const std::string text = header("<f8", "(1,)");
    append_little_endian(bytes, static_cast<std::uint32_t>(text.size()));
    const Tensor tensor = read_npy(file_of(bytes + text + bytes_of_numbers({7})), "x.npy");
    CHECK(doubles(tensor) == std::vector<double>{7});
  }
}

TEST_CASE("Fortran order and big-endian elements are converted") {
  const std::string columns = bytes_of_numbers({0, 3, 1, 4, 2, 5});
  const Tensor tensor = read_npy(file_of(npy(header("<f8", "(2, 3)", "True"), columns)), "x");
  CHECK(doubles(tensor) == std::vector<double>{0, 1, 2, 3, 4, 5});
  const std::string big("\0\0\1\2\xFF\xFE\0\0", 8);
  const Tensor swapped = read_npy(file_of(npy(header(">i4", "(2,)"), big)), "x");
  CHECK(swapped.data<std::int32_t>()[0] == 258);
  CHECK(swapped.data<std::int32_t>()[1] == -131072);
}

TEST_CASE("a Fortran array of any rank is transposed as by plain loops") {
  for (const Shape& shape : {Shape{3, 4, 5}, Shape{2, 1, 3, 2}, Shape{1, 7}, Shape{7, 1}}) {
    const std::size_t count = element_count(shape);
    std::vector<double> rows(count), columns(count);
    for (std::size_t flat = 0; flat < count; ++flat) {
      std::size_t rest = flat, place = 0, stride = count;
      for (std::size_t axis = shape.size(); axis-- > 0;) {  // the last index varies fastest
        stride /= shape[axis];
        place += rest % shape[axis] * stride;
        rest /= shape[axis];
      }
      rows[flat] = static_cast<double>(flat);
      columns[place] = static_cast<double>(flat);
    }
    const std::string text = header("<f8", to_string(shape), "True");
    CHECK(doubles(read_npy(file_of(npy(text, bytes_of_numbers(columns))), "x")) == rows);
  }
}

TEST_CASE("NaN payloads survive in either byte order") {
  const std::uint64_t signalling = 0x7FF0000000000ABCu;
  std::string bytes;
  append_little_endian(bytes, signalling);
  const auto bits = [](const Tensor& tensor) {
    std::uint64_t value = 0;
    std::memcpy(&value, tensor.raw(), sizeof value);
    return value;
  };
  CHECK(bits(read_npy(file_of(npy(header("<f8", "(1,)"), bytes)), "x")) == signalling);
  std::reverse(bytes.begin(), bytes.end());
  CHECK(bits(read_npy(file_of(npy(header(">f8", "(1,)"), bytes)), "x")) == signalling);
}

TEST_CASE("all bytes except 0 are true") {
  const Tensor tensor =
      read_npy(file_of(npy(header("|b1", "(4,)"), std::string("\0\1\2\xFF", 4))), "x");
  const std::string stored(reinterpret_cast<const char*>(tensor.raw()), tensor.size());
  CHECK(stored == std::string("\0\1\1\1", 4));
}

TEST_CASE("elements share the file's memory if they are aligned") {
  const FileBytes file = file_of(npy_header(DType::f64, {1}) + bytes_of_numbers({1}));
  CHECK(read_npy(file, "x").raw() == file.data.get() + 128);
  const FileBytes odd = file_of(npy(header("<f8", "(1,)") + " ", bytes_of_numbers({1})));
  const Tensor copy = read_npy(odd, "x");
  CHECK(reinterpret_cast<std::uintptr_t>(copy.raw()) % 8 == 0);
  CHECK(doubles(copy) == std::vector<double>{1});
}

TEST_CASE("headers that are not exactly a .npy header are refused by name") {
  const std::string one = bytes_of_numbers({1});
  refuse("", "is empty");
  refuse("\x93NUMPX\1", "not a .npy file");
  refuse("\x93NUMPY", "ends inside the .npy version");
  refuse(std::string("\x93NUMPY\1\1\0\0", 10), "version 1.1");
  refuse(std::string("\x93NUMPY\2\0\xFF\xFF\xFF\xFF", 12), "header of 4294967295 bytes");
  refuse(npy("", one), "expected '{', found the end of the header");
  refuse(npy("{'descr': '<f8'}", one), "no 'fortran_order'");
  refuse(npy("{'descr': '<f8', 'descr': '<f8'}", one), "'descr' twice");
  refuse(npy("{'descr': '<f8', 'colour': 1}", one), "unknown key 'colour'");
  refuse(npy(header("<f8", "(1,)") + "x", one), "expected the end of the header, found 'x'");
  refuse(npy(header("<f8", "(1)"), one), "written (4,)");
  refuse(npy(header("<f8", "[1]"), one), "expected a shape");
  for (const char* extent : {"-1", "01", "True", "9223372036854775808", ""})
    refuse(npy(header("<f8", std::string("(") + extent + ",)"), one), "expected a length");
  for (const char* extent : {"0x1", "1_0", "1.0", "1 L"})
    refuse(npy(header("<f8", std::string("(") + extent + ",)"), one), "expected ','");
  refuse(npy(header("<f8", "(1,)", "true"), one), "expected True or False");
  refuse(npy("{'descr': '<f\\x38'", one), "without escapes");
  refuse(npy("{'descr", one), "in quotes");
  refuse(npy("{b'descr': 1}", one), "in quotes");
}

TEST_CASE("unsupported dtypes are refused by name") {
  const std::string one = bytes_of_numbers({1});
  refuse(npy(header("|O", "(1,)"), one), "pickles, which attn never loads");
  refuse(npy(header("<V2", "(4,)"), one), "bfloat16");
  refuse(npy(header("<U2", "(1,)"), one), "strings");
  refuse(npy(header("|S8", "(1,)"), one), "strings");
  refuse(npy(header("<M8[ns]", "(1,)"), one), "dates");
  refuse(npy(header("<c8", "(1,)"), one), "complex");
  refuse(npy(header("<f16", "(1,)"), one), "'<f16': expected float16");
  refuse(npy(header("", "(1,)"), one), "dtype ''");
  refuse(npy("{'descr': [('x', '<f8')]", one), "structured");
  refuse(npy("{'descr': ('<f4', (2,))", one), "sub-array");
}

TEST_CASE("the data must have the size of the shape") {
  const std::string one = bytes_of_numbers({1});
  refuse(npy(header("<f8", "(2,)"), one), "takes 16 bytes, but only 8 follow");
  refuse(npy(header("<f8", "(1,)"), one + "x"), "and 1 more follow");
  refuse(npy(header("<f8", "(1000000000000,)"), one), "only 8 follow");
  refuse(npy(header("<f8", "(4611686018427387905, 4)"), one), "more than 2^63 elements");
  refuse(npy(header("<f8", "(2305843009213693952,)"), one), "more than 2^64 bytes");
  CHECK(read_npy(file_of(npy(header("<f8", "(0, 5)"), "")), "x").shape() == Shape{0, 5});
  CHECK(read_npy(file_of(npy(header("<f8", "()"), one)), "x").rank() == 0);
}

TEST_CASE("arrays of all dtypes are written and read back bit for bit") {
  const ScratchFolder folder;
  for (int code = 0; code <= static_cast<int>(DType::boolean); ++code) {
    const auto dtype = static_cast<DType>(code);
    for (const Shape& shape : {Shape{}, Shape{0}, Shape{3}, Shape{2, 3}, Shape{2, 0, 2}}) {
      Tensor tensor(dtype, shape);
      for (std::size_t i = 0; i < tensor.bytes(); ++i)
        tensor.mutable_raw()[i] = static_cast<std::byte>(dtype == DType::boolean ? i % 2 : 7 * i);
      const std::string path = folder.path() / "x.npy";
      OutputFile out(path, {true, {}});
      write_tensors(row_of(Format::npy), unnamed(tensor), {}, out);
      out.commit();
      const FileBytes file = read_file(path);
      const Tensor back = read_npy(file, path);
      const Tensor wanted = dtype == DType::bf16 ? cast(tensor, DType::f32) : tensor;
      CHECK(back.dtype() == wanted.dtype());
      CHECK(back.shape() == shape);
      CHECK((std::equal(back.raw(), back.raw() + back.bytes(), wanted.raw())));
      CHECK(file.size % 64 == wanted.bytes() % 64);
    }
  }
}

TEST_CASE("the header equals that of NumPy 1.24 byte for byte") {
  const std::string text = npy_header(DType::f64, {4, 3});
  CHECK(text.size() == 128);
  CHECK(text.starts_with(std::string("\x93NUMPY\1\0v\0", 10) +
                         "{'descr': '<f8', 'fortran_order': False, 'shape': (4, 3), }   "));
  CHECK(text.ends_with("   \n"));
  CHECK_THAT(npy_header(DType::boolean, {}),
             Contains("'|b1', 'fortran_order': False, 'shape': ()"));
  CHECK_THAT(npy_header(DType::bf16, {1}), Contains("'<f4'"));
}
