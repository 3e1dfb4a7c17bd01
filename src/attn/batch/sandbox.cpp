#include "attn/batch/sandbox.h"

#include <fcntl.h>
#include <linux/audit.h>
#include <linux/filter.h>
#include <linux/landlock.h>
#include <linux/seccomp.h>
#include <sched.h>
#include <sys/ioctl.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <cstddef>
#include <cstdint>

#include "attn/io/open_file.h"

namespace attn {
namespace {

// From later kernels than the headers of Debian 12.
#ifndef LANDLOCK_ACCESS_FS_TRUNCATE
constexpr std::uint64_t LANDLOCK_ACCESS_FS_TRUNCATE = 1ULL << 14;
#endif

#if defined(__x86_64__)
constexpr std::uint32_t kArchitecture = AUDIT_ARCH_X86_64;
#elif defined(__aarch64__)
constexpr std::uint32_t kArchitecture = AUDIT_ARCH_AARCH64;
#else
constexpr std::uint32_t kArchitecture = 0;  // no filter
#endif

// What the C library, its threads and allocator, OpenBLAS, sanitizers and attn call while jobs run.
// Numbers that an architecture lacks are left out. Calls with limited arguments are in Filter.
constexpr int kAllowed[] = {
    // Open files.
    SYS_read,
    SYS_write,
    SYS_pread64,
    SYS_pwrite64,
    SYS_readv,
    SYS_writev,
    SYS_preadv,
    SYS_pwritev,
    SYS_lseek,
    SYS_close,
    SYS_getdents64,
    SYS_ppoll,
    SYS_pipe2,
    // Status of files.
    SYS_fstat,
    SYS_newfstatat,
    SYS_statx,
    SYS_statfs,
    SYS_fstatfs,
    SYS_readlinkat,
    SYS_faccessat,
    SYS_faccessat2,
    SYS_getcwd,
    // Reading files: openat2() is used with O_PATH, and refuses links such as /proc/self/fd/5.
    SYS_openat2,
#ifdef SYS_stat
    SYS_stat,
    SYS_lstat,
    SYS_access,
    SYS_readlink,
    SYS_poll,
    SYS_pipe,
#endif
    // Memory.
    SYS_brk,
    SYS_mmap,
    SYS_munmap,
    SYS_mremap,
    SYS_mprotect,
    SYS_madvise,
    SYS_mincore,
    SYS_msync,
    // Threads and signals of this process.
    SYS_futex,
    SYS_set_robust_list,
    SYS_set_tid_address,
    SYS_rseq,
    SYS_sched_yield,
    SYS_sched_getaffinity,
    SYS_getcpu,
    SYS_rt_sigaction,
    SYS_rt_sigprocmask,
    SYS_rt_sigreturn,
    SYS_rt_sigtimedwait,
    SYS_sigaltstack,
    SYS_restart_syscall,
    SYS_exit,
    SYS_exit_group,
#ifdef SYS_arch_prctl
    SYS_arch_prctl,
#endif
#ifdef SYS_pause
    SYS_pause,
#endif
    // Time and facts.
    SYS_clock_gettime,
    SYS_clock_getres,
    SYS_clock_nanosleep,
    SYS_nanosleep,
    SYS_gettimeofday,
    SYS_getpid,
    SYS_getppid,
    SYS_gettid,
    SYS_getuid,
    SYS_geteuid,
    SYS_getgid,
    SYS_getegid,
    SYS_getrandom,
    SYS_getrlimit,
    SYS_getrusage,
    SYS_sysinfo,
    SYS_uname,
    SYS_times,
#ifdef SYS_time
    SYS_time,
#endif
};

// What writing results needs: allowed if there is a folder for them.
constexpr int kWriting[] = {
    SYS_fallocate, SYS_fsync,   SYS_fdatasync, SYS_linkat, SYS_renameat2,
    SYS_unlinkat,  SYS_mkdirat, SYS_renameat,
#ifdef SYS_link
    SYS_link,      SYS_rename,  SYS_unlink,    SYS_mkdir,  SYS_rmdir,
#endif
};

// The first call that has the same number on all architectures (Linux 5.1).
constexpr std::uint32_t kFirstRecentCall = 424;

/// A program of seccomp_data -> action.
class Filter {
 public:
  /// `writes`: results are written.
  explicit Filter(bool writes) {
    load(offsetof(seccomp_data, arch));
    unless_equal(kArchitecture, SECCOMP_RET_KILL_PROCESS);
    load(offsetof(seccomp_data, nr));
#if defined(__x86_64__)
    constexpr std::uint32_t kX32 = 0x40000000;  // system calls with 32-bit pointers
    add(BPF_JMP | BPF_JGE | BPF_K, kX32, 0, 1);
    end(kRefuse);
#endif
    for (const int call : kAllowed) if_equal(static_cast<std::uint32_t>(call), SECCOMP_RET_ALLOW);
    if (writes)
      for (const int call : kWriting) if_equal(static_cast<std::uint32_t>(call), SECCOMP_RET_ALLOW);
    allow_opening(SYS_openat, 2, writes);
#ifdef SYS_open
    allow_opening(SYS_open, 1, writes);
#endif
    // Only threads, only signals and limits of this process, only questions about terminals.
    allow_if(SYS_clone, 0, Test::has_bits, {CLONE_THREAD});
    allow_if(SYS_tgkill, 0, Test::is, {static_cast<std::uint32_t>(getpid())});
    allow_if(SYS_prlimit64, 0, Test::is, {0});
    allow_if(SYS_ioctl, 1, Test::is, {TCGETS});
    allow_if(SYS_fcntl, 1, Test::is, {F_DUPFD, F_DUPFD_CLOEXEC, F_GETFD, F_SETFD, F_GETFL});
    allow_if(SYS_prctl, 0, Test::is, {PR_SET_NAME, PR_GET_NAME, PR_GET_DUMPABLE, kNameMemory});
    // As on an older kernel, so that the C library does without: clone3(), whose flags a filter
    // cannot read, futex_waitv(), and calls that are not known yet.
    add(BPF_JMP | BPF_JGE | BPF_K, kFirstRecentCall, 0, 1);
    end(SECCOMP_RET_ERRNO | ENOSYS);
    end(kRefuse);
  }

  /// Whether the kernel has accepted the filter.
  bool install() {
    sock_fprog program{static_cast<unsigned short>(code_.size()), code_.data()};
    // The flag keeps the processor's speculation as it is: otherwise some kernels turn parts of it
    // off, which slows all code down.
    return syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, SECCOMP_FILTER_FLAG_SPEC_ALLOW,
                   &program) == 0;
  }

 private:
  static constexpr std::uint32_t kRefuse = SECCOMP_RET_ERRNO | EPERM;
  static constexpr std::uint32_t kNameMemory = 0x53564d41;  // PR_SET_VMA, of Linux 5.17

  void add(int code, std::uint32_t value, std::uint8_t if_true = 0, std::uint8_t if_false = 0) {
    code_.push_back({static_cast<std::uint16_t>(code), if_true, if_false, value});
  }
  /// The lower half of an argument, on machines with the lower byte first.
  static std::size_t argument(std::size_t index) {
    return offsetof(seccomp_data, args) + index * sizeof(std::uint64_t);
  }
  void load(std::size_t offset) {
    add(BPF_LD | BPF_W | BPF_ABS, static_cast<std::uint32_t>(offset));
  }
  void end(std::uint32_t action) { add(BPF_RET | BPF_K, action); }
  void if_equal(std::uint32_t value, std::uint32_t action) {
    add(BPF_JMP | BPF_JEQ | BPF_K, value, 0, 1);
    end(action);
  }
  enum class Test { is, has_bits, lacks_bits };
  /// Refuses the call unless argument `index` passes the test with one of the values.
  void allow_if(std::uint32_t call, std::size_t index, Test test,
                const std::vector<std::uint32_t>& values) {
    const auto rest = static_cast<std::uint8_t>(2 * values.size() + 2);
    add(BPF_JMP | BPF_JEQ | BPF_K, call, 0, rest);
    load(argument(index));
    for (const std::uint32_t value : values) {
      const bool if_set = test != Test::lacks_bits;
      add(BPF_JMP | (test == Test::is ? BPF_JEQ : BPF_JSET) | BPF_K, value, if_set ? 0 : 1,
          if_set ? 1 : 0);
      end(SECCOMP_RET_ALLOW);
    }
    end(kRefuse);
  }
  /// `index` is that of the flags.
  void allow_opening(std::uint32_t call, std::size_t index, bool writes) {
    if (writes) return if_equal(call, SECCOMP_RET_ALLOW);
    allow_if(call, index, Test::lacks_bits, {O_WRONLY | O_RDWR | O_CREAT | O_TRUNC});
  }
  void unless_equal(std::uint32_t value, std::uint32_t action) {
    add(BPF_JMP | BPF_JEQ | BPF_K, value, 1, 0);
    end(action);
  }

  std::vector<sock_filter> code_;
};

int landlock_version() {
  const long version =
      syscall(SYS_landlock_create_ruleset, nullptr, 0, LANDLOCK_CREATE_RULESET_VERSION);
  return version > 0 ? static_cast<int>(version) : 0;
}

/// All rights that change files, of this version of Landlock.
std::uint64_t rights_to_change(int version) {
  std::uint64_t rights = LANDLOCK_ACCESS_FS_WRITE_FILE | LANDLOCK_ACCESS_FS_REMOVE_DIR |
                         LANDLOCK_ACCESS_FS_REMOVE_FILE | LANDLOCK_ACCESS_FS_MAKE_CHAR |
                         LANDLOCK_ACCESS_FS_MAKE_DIR | LANDLOCK_ACCESS_FS_MAKE_REG |
                         LANDLOCK_ACCESS_FS_MAKE_SOCK | LANDLOCK_ACCESS_FS_MAKE_FIFO |
                         LANDLOCK_ACCESS_FS_MAKE_BLOCK | LANDLOCK_ACCESS_FS_MAKE_SYM;
  if (version >= 2) rights |= LANDLOCK_ACCESS_FS_REFER;
  if (version >= 3) rights |= LANDLOCK_ACCESS_FS_TRUNCATE;
  return rights;
}

void limit_files(const std::vector<std::string>& folders) {
  const int version = landlock_version();
  if (version == 0) return;
  landlock_ruleset_attr handled{};
  handled.handled_access_fs = rights_to_change(version) | LANDLOCK_ACCESS_FS_EXECUTE;
  const Descriptor rules(
      static_cast<int>(syscall(SYS_landlock_create_ruleset, &handled, sizeof handled, 0)));
  if (!rules.is_open()) return;
  for (const std::string& folder : folders) {
    const Descriptor opened(open(folder.c_str(), O_PATH | O_DIRECTORY | O_CLOEXEC));
    landlock_path_beneath_attr rule{};
    rule.allowed_access = rights_to_change(version);
    rule.parent_fd = opened.get();
    if (!opened.is_open() ||
        syscall(SYS_landlock_add_rule, rules.get(), LANDLOCK_RULE_PATH_BENEATH, &rule, 0) != 0)
      return;
  }
  if (syscall(SYS_landlock_restrict_self, rules.get(), 0) != 0) return;
}

}  // namespace

SandboxSupport sandbox_support() {
  std::uint32_t action = SECCOMP_RET_ERRNO;
  return {.has_seccomp =
              kArchitecture != 0 && syscall(SYS_seccomp, SECCOMP_GET_ACTION_AVAIL, 0, &action) == 0,
          .landlock = landlock_version()};
}

void enter_sandbox(const std::vector<std::string>& folders) {
  if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0) return;
  limit_files(folders);
  if (kArchitecture != 0) Filter(!folders.empty()).install();
}

}  // namespace attn
