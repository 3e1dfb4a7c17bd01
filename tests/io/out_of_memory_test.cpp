// Each allocation fails once while a file is read or text is formatted; the result is an error.
#include <catch2/catch.hpp>

#include "attn/io/csv.h"
#include "attn/io/json_write.h"
#include "attn/io/tensor_file.h"
#include "support/failing_new.h"
#include "support/run_attn.h"

using namespace attn;

namespace {

struct File {
  const char* name;
  const char* text;
};

const std::vector<File> kFiles = {
    {"a.csv", ",x,\"y\"\na, 1 ,2.5\nb,\"nan\",-inf\n"},
    {"ragged.csv", "1,2\n3\n"},
    {"words.csv", "1,2\n3,four\n"},
    {"semicolon.csv", "1;2\n"},
    {"open.csv", "1,\"2\n"},
    {"hex.csv", "0x10,1\n"},
    {"a.json",
     R"({"Q": [[1, 2.5], ["NaN", 3]], "n": [18446744073709551615], "t": [[true]], "w": "x"})"},
    {"deep.json", "[[[[[[[[[[[1]]]]]]]]]]]"},
    {"ragged.json", "[[1, 2], [3]]"},
    {"words.json", "[[1, \"two\"]]"},
    {"twice.json", R"({"a": 1, "a": 2})"},
    {"comment.json", "[1, // one\n2]"},
    {"python.json", "[None, 'a']"},
    {"zero.json", "[01]"},
    {"nan.json", "[nan, 1]"},
    {"cut.json", "[1, 2"},
    {"long.json", "[1, thisisawordthatisfartoolongtobeshownwholeinanerrormessageofoneline]"},
    {"escape.json", "[\"\\x\"]"},
    {"magic.npy", "\x93NUMPY"},
    {"cut.safetensors", "\x10"},
    {"nothing", ""}};

Tensor numbers() { return Tensor::of<double>({2, 3}, {1, -2.5, 3e300, 4, 5, INFINITY}); }

std::string (*const kTexts[])() = {
    [] { return to_csv(numbers(), "M"); }, [] { return to_json(numbers(), 2); },
    [] { return json_quoted("more than a small string holds\n\"\xff"); }};

}  // namespace

TEST_CASE("memory that runs out while a file is read is an error", "[memory]") {
  const ScratchFolder folder;
  for (const File& file : kFiles) {
    const std::string path = folder.write(file.name, file.text);
    CAPTURE(file.name);
    CHECK(fail_each_allocation([&] { TensorFiles().all(path); }) > 3);
  }
}

TEST_CASE("memory that runs out while a member is searched for is an error", "[memory]") {
  const ScratchFolder folder;
  const std::string path = folder.write("a.json", kFiles[6].text);
  for (const char* const member : {"Q", "K", "", "w"})
    CHECK(fail_each_allocation([&] { TensorFiles().read({path, member}); }) > 3);
}

TEST_CASE("text is complete or absent if memory runs out", "[memory]") {
  for (const auto make : kTexts) {
    const std::string whole = make();
    std::string text = whole;
    const auto same = [&](bool) {
      if (text != whole) FAIL("made something else");
    };
    CHECK(fail_each_allocation([&] { text = make(); }, same) > 0);
  }
}
