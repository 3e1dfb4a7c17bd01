#include "attn/cli/message.h"

#include <csignal>
#include <cstdio>
#include <new>

#include "attn/base/error.h"
#include "attn/base/printable.h"
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

int report_out_of_memory() {
  std::fputs("attn: not enough memory for this job\n", stderr);
  return static_cast<int>(ErrorKind::data);
}

int report_exception(const std::exception_ptr& exception) {
  try {
    std::rethrow_exception(exception);
  } catch (const BrokenPipe&) {
    return 128 + SIGPIPE;
  } catch (const Error& error) {
    for (const std::string& line : error.lines()) write_message(line);
    return static_cast<int>(error.kind());
  } catch (const std::bad_alloc&) {
    return report_out_of_memory();
  } catch (const std::exception& error) {
    write_message(std::string("internal error: ") + error.what());
    return static_cast<int>(ErrorKind::internal);
  }
}

void print(const std::string& text) {
  OutputFile out("-", {});
  out.write(text);
  out.commit();
}

}  // namespace attn
