#include <catch2/catch.hpp>
#include <cerrno>

#include "attn/base/error.h"
#include "attn/io/format.h"
#include "attn/io/open_file.h"
#include "attn/io/staged_file.h"
#include "support/run_attn.h"

using namespace attn;

namespace {

/// The message for writing these tensors; checks that no file is left.
template <class Write>
std::string refused(const Write& write) {
  const ScratchFolder folder;
  std::string message;
  try {
    OutputFile file(folder.path() / "out", {});
    write(file);
    file.commit();
  } catch (const Error& error) {
    message = error.what();
  }
  CHECK(folder.names().empty());
  const std::size_t at = message.find(folder.path().string() + "/");
  return at == std::string::npos ? message : message.substr(at + folder.path().string().size() + 1);
}

TensorMap named(const std::string& name) {
  TensorMap tensors;
  tensors.set(name, Tensor::of<double>({1}, {1}));
  return tensors;
}

}  // namespace

TEST_CASE("an .npz that could not be read back is not written") {
  TensorMap many;
  const Tensor one = Tensor::of<bool>({}, {true});
  for (int i = 0; i <= 65536; ++i) many.set(std::to_string(i), one);
  CHECK(refused([&](OutputFile& out) { write_tensors(row_of(Format::npz), many, {}, out); }) ==
        "out: an .npz file can have at most 65536 arrays, found 65537");
  const auto write = [](const std::string& name) {
    return refused(
        [&](OutputFile& out) { write_tensors(row_of(Format::npz), named(name), {}, out); });
  };
  CHECK(write(std::string(2000, 'n')).find("names in an .npz file can have at most 1020 bytes") !=
        std::string::npos);
  CHECK(write(std::string("a\0b", 3)).find("cannot contain a NUL, found 'a\\x00b'") !=
        std::string::npos);
  CHECK(refused([](OutputFile& out) {
          write_tensors(row_of(Format::npz), named("a"), {{"", std::string(70000, 'c')}}, out);
        }) == "archive comment too long");
}

TEST_CASE("a .safetensors with names that the format forbids is not written") {
  const auto write = [](const std::string& name) {
    return refused(
        [&](OutputFile& out) { write_tensors(row_of(Format::safetensors), named(name), {}, out); });
  };
  CHECK(write("a\xff").find("the name is not UTF-8") != std::string::npos);
  CHECK(write("__metadata__").find("__metadata__") != std::string::npos);
}

TEST_CASE("an output's path cannot contain a NUL") {
  CHECK_THROWS_WITH(OutputFile(std::string("a\0b", 3), {}),
                    Catch::Contains("a path cannot contain a NUL"));
}

TEST_CASE("paths that name a file descriptor are recognised") {
  CHECK(descriptor_named("/dev/stdin") == 0);
  CHECK(descriptor_named("/dev/stdout") == 1);
  CHECK(descriptor_named("/dev/stderr") == 2);
  CHECK(descriptor_named("/dev/fd/12") == 12);
  CHECK(descriptor_named("/proc/self/fd/3") == 3);
  for (const char* const path : {"/dev/fd/", "/dev/fd/x", "/dev/fd/1x", "/dev/fd/-1",
                                 "/dev/fd/99999999999", "/dev/std", "fd/1"})
    CHECK_FALSE(descriptor_named(path));
}

TEST_CASE("missing permission has its own error kind") {
  CHECK(system_error(ErrorKind::io, "f", EACCES).kind() == ErrorKind::permission);
  CHECK(system_error(ErrorKind::io, "f", EPERM).kind() == ErrorKind::permission);
  CHECK(system_error(ErrorKind::io, "f", ENOSPC).kind() == ErrorKind::io);
}
