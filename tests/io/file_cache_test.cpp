#include "attn/io/file_cache.h"

#include <sys/stat.h>

#include <catch2/catch.hpp>
#include <fstream>
#include <thread>

#include "attn/io/npy.h"
#include "attn/io/tensor_file.h"
#include "support/run_attn.h"

using namespace attn;

namespace {

void write(const std::string& path, double value, std::size_t size = 4) {
  OutputFile out(path, {.force = true});
  const Tensor tensor = Tensor::of<double>({size}, std::vector<double>(size, value));
  write_tensors(row_of(Format::npy), unnamed(tensor), {}, out);
  out.commit();
}

double first_of(const Tensor& tensor) { return tensor.data<double>().front(); }

}  // namespace

TEST_CASE("the bytes and the tensors of one job come from one version of a file") {
  const ScratchFolder folder;
  const std::string path = (folder.path() / "x.npy").string();
  write(path, 1);
  FileCache cache(1, {});  // too small to keep anything
  TensorFiles files(cache);
  const std::string digest = files.file(path).digest();
  write(path, 2);
  CHECK(first_of(files.read({path, ""})) == 1);
  CHECK(files.files().at(path).digest() == digest);
  TensorFiles others(cache);
  CHECK(first_of(others.read({path, ""})) == 2);
}

TEST_CASE("a file larger than the cache evicts no other file") {
  const ScratchFolder folder;
  const std::string small = (folder.path() / "small.npy").string();
  const std::string large = (folder.path() / "large.npy").string();
  write(small, 1);
  write(large, 1, 10000);
  FileCache cache(10000, {});
  const auto kept = cache.file(small);
  CHECK(cache.file(large) != cache.file(large));
  CHECK(cache.file(small) == kept);
}

TEST_CASE("the least recently used files are evicted first") {
  const ScratchFolder folder;
  FileCache cache(10000, {});
  std::vector<std::string> paths;
  for (int i = 0; i < 3; ++i) {
    paths.push_back((folder.path() / (std::to_string(i) + ".npy")).string());
    write(paths.back(), i, 500);  // the cache holds two of them
  }
  const auto zero = cache.file(paths[0]), one = cache.file(paths[1]);
  CHECK(cache.file(paths[0]) == zero);
  cache.file(paths[2]);
  CHECK(cache.file(paths[0]) == zero);
  CHECK(cache.file(paths[1]) != one);
}

TEST_CASE("a file that can be read only once is never evicted") {
  const ScratchFolder folder;
  const std::string source = (folder.path() / "source.npy").string();
  write(source, 1, 100);
  const std::string once = (folder.path() / "pipe").string();
  REQUIRE(mkfifo(once.c_str(), 0600) == 0);
  std::thread feeder([&] {
    std::ofstream(once, std::ios::binary) << std::ifstream(source, std::ios::binary).rdbuf();
  });
  FileCache cache(10000, {});
  const auto piped = cache.file(once);
  feeder.join();
  for (int i = 0; i < 4; ++i) {
    const std::string path = (folder.path() / (std::to_string(i) + ".npy")).string();
    write(path, i, 700);  // the cache holds one of them
    cache.file(path);
  }
  CHECK(cache.file(once) == piped);
}

TEST_CASE("files that can be read again are evicted when memory is short") {
  const ScratchFolder folder;
  const std::string path = (folder.path() / "a.npy").string();
  write(path, 1);
  FileCache cache(10000, {});
  const auto kept = cache.file(path);
  CHECK(cache.file(path) == kept);
  cache.clear();
  CHECK(cache.file(path) != kept);
}
