#include <catch2/catch.hpp>

#include "attn/base/error.h"
#include "attn/job/job.h"

using namespace attn;
using Catch::Matchers::Contains;

TEST_CASE("a size is a number and a unit, with steps of 1024") {
  const std::vector<std::pair<const char*, std::size_t>> sizes = {
      {"1", 1},       {"12B", 12},       {"1K", 1024},        {"1KB", 1024},
      {"1KiB", 1024}, {"1.5M", 1572864}, {"2G", 2147483648U}, {"1T", 1099511627776U}};
  for (const auto& [text, bytes] : sizes) {
    CAPTURE(text);
    CHECK(parse_size(text, "--max-memory") == bytes);
  }
  for (const char* const text : {"", "K", "0", "0.5", "-1", "1X", "1Ki", "1KBB", "1 K", "1e3",
                                 "nan", "inf", "9223372036854775808", "99999999T", "x"}) {
    CAPTURE(text);
    CHECK_THROWS_WITH(parse_size(text, "--max-memory"),
                      Contains("--max-memory: expected a size such as 500M or 8G, found '"));
  }
}

TEST_CASE("byte counts are formatted in a suitable unit") {
  CHECK(size_text(0) == "0 bytes");
  CHECK(size_text(1) == "1 byte");
  CHECK(size_text(1023) == "1023 bytes");
  CHECK(size_text(1536) == "1.5 KiB");
  CHECK(size_text(std::size_t{3} << 30) == "3.0 GiB");
  CHECK(size_text(std::size_t{1} << 62) == "4194304.0 TiB");
}
