#include <cstdio>

#include "attn/base/printable.h"
#include "attn/cli/command.h"
#include "attn/io/output_file.h"

namespace attn {
namespace {

bool g_quiet = false;

}  // namespace

void set_quiet(bool quiet) { g_quiet = quiet; }

bool is_quiet() { return g_quiet; }

void write_message(const std::string& text) {
  std::fprintf(stderr, "attn: %s\n", printable_message(text).c_str());
}

void note(const std::string& text) {
  if (!g_quiet) write_message(text);
}

void print(const std::string& text) {
  OutputFile out("-", {});
  out.write(text);
  out.commit();
}

}  // namespace attn
