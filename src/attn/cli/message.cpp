#include <cstdio>

#include "attn/cli/command.h"
#include "attn/io/output_file.h"

namespace attn {
namespace {

bool g_quiet = false;

}  // namespace

void set_quiet(bool quiet) { g_quiet = quiet; }

bool is_quiet() { return g_quiet; }

void note(const std::string& text) {
  if (!g_quiet) std::fprintf(stderr, "attn: %s\n", text.c_str());
}

void print(const std::string& text) {
  OutputFile out("-", {});
  out.write(text);
  out.commit();
}

}  // namespace attn
