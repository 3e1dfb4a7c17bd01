#include "attn/run/result_file.h"

#include <catch2/catch.hpp>

#include "attn/io/npz.h"
#include "attn/io/safetensors.h"
#include "attn/run/result_writer.h"
#include "support/run_attn.h"

using namespace attn;

namespace {

const TensorMap& weights() {
  static const TensorMap tensors = [] {
    TensorMap one;
    one.set("weights", Tensor::of<double>({1}, {1}));
    return one;
  }();
  return tensors;
}

ResultFile read(const std::string& path) {
  TensorFiles files;
  return read_result(path, files);
}

}  // namespace

TEST_CASE("an archive's comment is read as a result's metadata only if it is JSON") {
  const ScratchFolder folder;
  const std::string path = folder.path() / "a.npz";
  const auto read_with = [&](const std::string& comment) {
    OutputFile file(path, {.force = true});
    write_tensors(row_of(Format::npz), weights(), {{"", comment}}, file);
    file.commit();
    return read(path);
  };
  const ResultFile whole = read_with(R"({"job": {"heads": 2}, "tokens": ["a", "b"]})");
  CHECK(whole.tokens == std::vector<std::string>{"a", "b"});
  REQUIRE(whole.job("heads") != nullptr);
  CHECK(*whole.job("heads")->get<std::int64_t>() == 2);
  CHECK(whole.job("scale") == nullptr);
  for (const char* const comment :
       {"", "made by hand", "3", "{\"tokens\": 3}", "{\"tokens\": [\"a\", 3]}", "{\"job\": [1]}"}) {
    CAPTURE(comment);
    const ResultFile result = read_with(comment);
    CHECK(result.tokens.empty());
    CHECK(result.job("heads") == nullptr);
    CHECK(result.tensors.contains("weights"));
  }
}

TEST_CASE("metadata too long for an archive's comment is omitted") {
  const ScratchFolder folder;
  const auto read_again = [&](const std::vector<std::string>& tokens, std::size_t bytes) {
    const std::string path = folder.path() / "a.npz";
    const Json job{JsonObject{{"note", Json{std::string(bytes, 'n')}}}};
    ResultWriter writer({parse_target(path)}, {"weights"}, {.force = true});
    writer.write(Result{weights(), {}, tokens, Json{JsonObject{{"job", job}}}, {}});
    writer.commit();
    ResultFile result = read(path);
    CHECK(result.tensors.contains("weights"));
    return result;
  };
  const ResultFile whole = read_again({"a"}, 60000);
  CHECK(whole.tokens == std::vector<std::string>{"a"});
  CHECK(whole.job("note")->get<std::string>()->size() == 60000);
  const ResultFile cut = read_again({std::string(10000, 't')}, 60000);
  CHECK(cut.tokens.empty());
  CHECK(cut.job("note") != nullptr);
  const ResultFile none = read_again({"a"}, 70000);
  CHECK(none.tokens.empty());
  CHECK(none.job("note") == nullptr);
}

TEST_CASE("invalid metadata in .safetensors and JSON is ignored") {
  const ScratchFolder folder;
  const std::string path = folder.path() / "a.safetensors";
  OutputFile file(path, {});
  write_tensors(row_of(Format::safetensors), weights(),
                {{"made_by", "{\"job\": {"}, {"tokens", "[\"a\"]"}, {"x", "y"}}, file);
  file.commit();
  CHECK(read(path).tokens == std::vector<std::string>{"a"});
  CHECK(read(path).job("heads") == nullptr);
  const std::string json =
      folder.write("a.json", R"({"weights": [[1]], "tokens": "a", "made_by": {}})");
  CHECK(read(json).tokens.empty());
  CHECK(read(json).tensors.contains("weights"));
  CHECK(read(folder.write("b.json", R"({"weights": [[1]]})")).job("heads") == nullptr);
  CHECK(read(folder.write("c.csv", "1,2\n")).tokens.empty());
}
