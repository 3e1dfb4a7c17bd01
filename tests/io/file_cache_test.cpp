#include "attn/io/file_cache.h"

#include <catch2/catch.hpp>

#include "support/run_attn.h"

using namespace attn;

TEST_CASE("a file is read once while it is held, and those asked for longest ago are dropped") {
  const ScratchFolder folder;
  FileCache cache(100, {});
  const auto first_bytes = [&](const std::string& names) {
    std::string bytes;
    for (const char name : names)
      bytes += cache.bytes(folder.path() / std::string(1, name)).text()[0];
    return bytes;
  };
  const auto write = [&](const std::string& first) {
    for (const char* const name : {"a", "b", "c"}) folder.write(name, first + std::string(39, '.'));
  };
  write("1");
  CHECK(first_bytes("aba") == "111");
  write("2");
  CHECK(first_bytes("ba") == "11");    // both are held
  CHECK(first_bytes("cab") == "212");  // b goes for c, then c for b
  write("3");
  CHECK(first_bytes("ac") == "13");
}

TEST_CASE("a file that is larger than all that may be held is read each time") {
  const ScratchFolder folder;
  FileCache cache(10, {});
  for (const char* const content : {"more than ten bytes", "and more than ten others"}) {
    folder.write("a", content);
    CHECK(cache.bytes(folder.path() / "a").text() == content);
  }
}
