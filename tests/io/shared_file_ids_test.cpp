// Files that several processes note in shared memory.
#include "attn/io/shared_file_ids.h"

#include <catch2/catch.hpp>
#include <memory>
#include <vector>

using namespace attn;

TEST_CASE("a used file is found after a process was killed while it noted another one") {
  const auto ids = std::make_unique<SharedFileIds>();
  SharedFileIdReader reader;
  const auto read = [&] {
    std::vector<FileId> files;
    reader.read(*ids, [&](const FileId& id) { files.push_back(id); });
    return files;
  };
  ids->add({1, 10});
  const std::size_t unwritten = ids->take_place();  // by a process that stops here
  ids->add({1, 0});                                 // also with inode 0
  ids->add({1, 12});
  CHECK(read() == std::vector<FileId>{{1, 10}, {1, 0}, {1, 12}});
  CHECK(read().empty());
  ids->put(unwritten, {1, 11});  // it was only slow
  CHECK(read() == std::vector<FileId>{{1, 11}});
  ids->add({1, 13});
  CHECK(read() == std::vector<FileId>{{1, 13}});
}
