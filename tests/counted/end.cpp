// For the programs that count branches (cmake/coverage.cmake): exits that run no destructors write
// the counts first, as a return from main() does. No faults are injected while counts are written.
#include <dlfcn.h>

extern "C" {

void __gcov_dump();
void __gcov_reset();
int __real_raise(int signal_number);
[[noreturn]] void __real__exit(int code);
[[noreturn]] void __real__Exit(int code);

/// Runs after the destructors of static objects and before that of libgcov.
[[gnu::destructor]] void end_faults() {
  using End = void (*)();
  if (const auto end = reinterpret_cast<End>(dlsym(RTLD_DEFAULT, "attn_end_faults"))) end();
}

static void write_counts() {
  end_faults();
  __gcov_dump();
  __gcov_reset();  // later code (a signal handler) is written separately
}

// The linker replaces raise(), _exit() and _Exit() by these (--wrap).

int __wrap_raise(int signal_number) {
  write_counts();
  return __real_raise(signal_number);
}

[[noreturn]] void __wrap__exit(int code) {
  write_counts();
  __real__exit(code);
}

[[noreturn]] void __wrap__Exit(int code) {
  write_counts();
  __real__Exit(code);
}

}  // extern "C"
