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

// System calls that fail with EPERM. Numbers that an architecture lacks are left out.
constexpr int kForbidden[] = {
    // Programs and processes. clone() is allowed for threads.
    SYS_execve,
    SYS_execveat,
    SYS_ptrace,
    SYS_process_vm_readv,
    SYS_process_vm_writev,
    SYS_kill,
    SYS_tkill,
    SYS_rt_sigqueueinfo,
    SYS_rt_tgsigqueueinfo,
    SYS_setns,
    SYS_unshare,
    SYS_personality,
    SYS_kcmp,
#ifdef SYS_fork
    SYS_fork,
    SYS_vfork,
#endif
#ifdef SYS_pidfd_open
    SYS_pidfd_open,
    SYS_pidfd_getfd,
    SYS_pidfd_send_signal,
#endif
#ifdef SYS_process_madvise
    SYS_process_madvise,
#endif
    // Sockets, and calls that do work outside of this filter.
    SYS_socket,
    SYS_socketpair,
    SYS_connect,
    SYS_bind,
    SYS_listen,
    SYS_accept,
    SYS_accept4,
    SYS_sendto,
    SYS_sendmsg,
    SYS_sendmmsg,
#ifdef SYS_io_uring_setup
    SYS_io_uring_setup,
    SYS_io_uring_enter,
    SYS_io_uring_register,
#endif
    // Rights and attributes of files.
    SYS_fchownat,
    SYS_fchown,
    SYS_setxattr,
    SYS_lsetxattr,
    SYS_fsetxattr,
    SYS_removexattr,
    SYS_lremovexattr,
    SYS_fremovexattr,
    SYS_mknodat,
    SYS_name_to_handle_at,
    SYS_open_by_handle_at,
    SYS_utimensat,
#ifdef SYS_chmod
    SYS_chmod,
    SYS_chown,
    SYS_lchown,
    SYS_mknod,
    SYS_utime,
    SYS_utimes,
    SYS_futimesat,
#endif
    SYS_fchmodat,
#ifdef SYS_fchmodat2
    SYS_fchmodat2,
#endif
    // Users.
    SYS_setuid,
    SYS_setgid,
    SYS_setreuid,
    SYS_setregid,
    SYS_setresuid,
    SYS_setresgid,
    SYS_setgroups,
    SYS_capset,
    // The system.
    SYS_mount,
    SYS_umount2,
    SYS_pivot_root,
    SYS_chroot,
    SYS_bpf,
    SYS_perf_event_open,
    SYS_userfaultfd,
    SYS_keyctl,
    SYS_add_key,
    SYS_request_key,
    SYS_init_module,
    SYS_finit_module,
    SYS_delete_module,
    SYS_kexec_load,
    SYS_reboot,
    SYS_swapon,
    SYS_swapoff,
    SYS_sethostname,
    SYS_setdomainname,
    SYS_settimeofday,
    SYS_clock_settime,
    SYS_adjtimex,
    SYS_clock_adjtime,
    SYS_acct,
    SYS_quotactl,
    SYS_syslog,
    SYS_vhangup,
#ifdef SYS_iopl
    SYS_iopl,
    SYS_ioperm,
    SYS_modify_ldt,
#endif
#ifdef SYS_fsopen
    SYS_fsopen,
    SYS_fsmount,
    SYS_fsconfig,
    SYS_fspick,
    SYS_move_mount,
    SYS_open_tree,
#endif
#ifdef SYS_mount_setattr
    SYS_mount_setattr,
#endif
};

/// A program of seccomp_data -> action.
class Filter {
 public:
  Filter() {
    load(offsetof(seccomp_data, arch));
    unless_equal(kArchitecture, SECCOMP_RET_KILL_PROCESS);
    load(offsetof(seccomp_data, nr));
#if defined(__x86_64__)
    constexpr std::uint32_t kX32 = 0x40000000;  // system calls with 32-bit pointers
    add(BPF_JMP | BPF_JGE | BPF_K, kX32, 0, 1);
    end(kRefuse);
#endif
    for (const int call : kForbidden) if_equal(static_cast<std::uint32_t>(call), kRefuse);
      // The flags of clone3() are in memory, which a filter cannot read. Without it the C library
      // uses clone().
#ifdef SYS_clone3
    if_equal(SYS_clone3, SECCOMP_RET_ERRNO | ENOSYS);
#endif
    // clone() only for threads.
    add(BPF_JMP | BPF_JEQ | BPF_K, SYS_clone, 0, 4);
    load(argument(0));
    add(BPF_JMP | BPF_JSET | BPF_K, CLONE_THREAD, 1, 0);
    end(kRefuse);
    end(SECCOMP_RET_ALLOW);
    // No text into the input of a terminal; signals and limits only for this process.
    refuse_if(SYS_ioctl, 1, TIOCSTI, true);
    refuse_if(SYS_tgkill, 0, static_cast<std::uint32_t>(getpid()), false);
    refuse_if(SYS_prlimit64, 0, 0, false);
    end(SECCOMP_RET_ALLOW);
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
  /// If argument `index` of `call` is (or is not) `value`.
  void refuse_if(std::uint32_t call, std::size_t index, std::uint32_t value, bool is_equal) {
    add(BPF_JMP | BPF_JEQ | BPF_K, call, 0, 4);
    load(argument(index));
    add(BPF_JMP | BPF_JEQ | BPF_K, value, is_equal ? 0 : 1, is_equal ? 1 : 0);
    end(kRefuse);
    end(SECCOMP_RET_ALLOW);
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
  if (kArchitecture != 0) Filter().install();
}

}  // namespace attn
