#include "attn/io/tensor_file.h"

#include <catch2/catch.hpp>

#include "attn/base/error.h"
#include "attn/io/npy.h"
#include "attn/io/npz.h"
#include "support/run_attn.h"

using namespace attn;
using Catch::Matchers::Contains;

namespace {

std::string write_archive(const ScratchFolder& folder) {
  TensorMap tensors;
  tensors.set("Q", Tensor::of<double>({2}, {1, 2}));
  tensors.set("K", Tensor::of<double>({1}, {3}));
  tensors.set("values", Tensor::of<double>({1}, {4}));
  const std::string path = folder.path() / "x.npz";
  OutputFile out(path, {});
  write_tensors(row_of(Format::npz), tensors, {}, out);
  out.commit();
  return path;
}

std::string error_of(const std::string& ref) {
  try {
    TensorFiles().read(parse_tensor_ref(ref));
  } catch (const Error& error) {
    CHECK(error.kind() == ErrorKind::data);
    return error.what();
  }
  FAIL("accepted " << ref);
  return "";
}

}  // namespace

TEST_CASE("a format is detected by content, then by name") {
  const ScratchFolder folder;
  const auto format = [&](const std::string& name, const std::string& bytes) {
    return format_of(read_file(folder.write(name, bytes).string())).format;
  };
  CHECK(format("a.csv", "\x93NUMPY") == Format::npy);
  CHECK(format("a.npy", "PK\3\4") == Format::npz);
  CHECK(format("a.txt", " \n{\"Q\": 1}") == Format::json);
  CHECK(format("a", "[1]") == Format::json);
  CHECK(format("a.csv", "1,2") == Format::csv);
  CHECK(format("a.json", "7") == Format::json);
  const std::string header = std::string("\2\0\0\0\0\0\0\0{}", 10);
  CHECK(format("a.txt", header) == Format::safetensors);
  CHECK(format("a.txt", "{" + header.substr(1, 7) + "{" + std::string(122, ' ')) ==
        Format::safetensors);  // 123 bytes of header: a length that looks like JSON
  CHECK(format("a.safetensors", "{}") == Format::safetensors);
  CHECK(format("a.npy", "") == Format::npy);
  CHECK_THROWS_WITH(format("a.dat", "1,2"),
                    Contains("is not a .npz, .npy, .safetensors, JSON or CSV file"));
  CHECK_THROWS_WITH(format("a.txt", ""), Contains("a.txt: is empty"));
}

TEST_CASE("an output's format is determined by its suffix") {
  for (const FormatRow& format : all_formats()) {
    CHECK(format_of_suffix("d.x/a" + std::string(format.suffix)) == &format);
    CHECK(format_named(format.name()) == &format);
    CHECK(&row_of(format.format) == &format);
  }
  CHECK(format_of_suffix("npy") == nullptr);
  CHECK(format_of_suffix("a.txt") == nullptr);
}

TEST_CASE("FILE#NAME is split at the last '#' unless that file exists") {
  const ScratchFolder folder;
  const std::string odd = folder.write("a#b.npy", "");
  CHECK(parse_tensor_ref(odd).path == odd);
  CHECK(parse_tensor_ref(odd).member.empty());
  CHECK(parse_tensor_ref(odd + "#Q").path == odd);
  CHECK(parse_tensor_ref("x.npz#a#Q").path == "x.npz#a");
  CHECK(parse_tensor_ref("x.npz#Q").member == "Q");
  CHECK(parse_tensor_ref("-").path == "-");
}

TEST_CASE("a member of an archive is found by its name") {
  const ScratchFolder folder;
  const std::string path = write_archive(folder);
  TensorFiles files;
  CHECK(files.read({path, "Q"}).shape() == Shape{2});
  CHECK(files.read({path, "K"}).data<double>()[0] == 3);
  CHECK(files.files().size() == 1);
  CHECK_THAT(error_of(path),
             Contains("has several arrays (Q, K, values); select one, for example ") &&
                 Contains("x.npz#Q"));
  CHECK_THAT(error_of(path + "#value"),
             Contains("has no array 'value' (did you mean 'values'?); its arrays: Q, K, values"));
}

TEST_CASE("a file of one array needs no name and accepts none") {
  const ScratchFolder folder;
  const std::string path = folder.write("m.csv", "1,2\n3,4\n");
  TensorFiles files;
  CHECK(files.read({path, ""}).shape() == Shape{2, 2});
  CHECK_THAT(error_of(path + "#Q"), Contains("has no array 'Q'; its only array is unnamed"));
}

TEST_CASE("the arrays of a JSON document are its arrays of numbers") {
  const ScratchFolder folder;
  const std::string path = folder.write(
      "job.json",
      R"({"tokens": ["I", "NaN"], "Q": [[1, 2], [3, 4]], "causal": false, "seed": 7, "scale": "auto",
          "odd": ["NaN", 1.5], "all": ["NaN"], "mask": [[true], [false]], "options": {"a": [1]}})");
  const TensorMap tensors = read_tensors(read_file(path));
  CHECK(tensors.names() == std::vector<std::string>{"Q", "seed", "odd", "all", "mask"});
  CHECK(tensors.at("mask").dtype() == DType::boolean);
  CHECK(read_tensors(read_file(folder.write("empty.json", "{}"))).empty());
  CHECK_THAT(error_of(folder.write("none.json", R"({"tokens": ["I"]})")),
             Contains("has no array of numbers"));
  CHECK_THAT(error_of(folder.write("ragged.json", R"({"Q": [[1, 2], [3]]})")),
             Contains("ragged.json: Q"));
}
