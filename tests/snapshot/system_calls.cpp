// The C library's own checked forms of these functions would hide that some are defined here.
#undef _FORTIFY_SOURCE

#include "tests/snapshot/system_calls.h"

#include <algorithm>
#include <cerrno>
#include <climits>
#include <csignal>
#include <cstdarg>
#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>
#include <utility>

namespace lockstep::testing {
namespace {

WatchedCalls* watched = nullptr;
std::string foreign_path;

/// Returns nothing while nobody wants to know.
std::string path_of(int descriptor) {
  if (watched == nullptr && foreign_path.empty()) return {};
  const std::string link = "/proc/self/fd/" + std::to_string(descriptor);
  char path[PATH_MAX];
  const long size = ::syscall(SYS_readlinkat, AT_FDCWD, link.c_str(), path, sizeof path);
  return size < 0 ? std::string() : std::string(path, static_cast<std::size_t>(size));
}

std::string path_at(int folder, const char* name) {
  if (watched == nullptr) return {};
  if (name[0] == '/' || folder == AT_FDCWD) return name;
  return path_of(folder) + '/' + name;
}

[[noreturn]] void die() {
  ::syscall(SYS_kill, ::getpid(), SIGKILL);
  for (;;) ::pause();
}

}  // namespace

/// Lets one call through to those who watch, and to the kernel.
class CallGate {
 public:
  explicit CallGate(SystemCall call) : call_(std::move(call)) {
    const bool is_seen = watched != nullptr && call_.path.starts_with(watched->folder_);
    if (!is_seen) return;
    gate_ = std::exchange(watched, nullptr);  // what the judge does is not judged
    fate_ = gate_->judge_(call_);
    if (fate_ == kKilled) die();
  }

  ~CallGate() {
    if (gate_ != nullptr) watched = gate_;
  }

  template <typename Kernel>
  long pass(Kernel kernel) {
    const bool is_close = call_.name == "close";
    long result = 0;
    if (fate_ <= 0 && fate_ != kPretended) result = kernel();
    if (fate_ > 0) {
      if (is_close) kernel();  // Linux closes, whatever it says
      errno = fate_;
      result = -1;
    }
    const int code = errno;
    if (gate_ != nullptr && gate_->witness_) gate_->witness_(call_, result);
    errno = code;
    return result;
  }

  /// Does the same with a call that moves bytes.
  template <typename Kernel>
  ssize_t pass_bytes(std::size_t size, Kernel kernel) {
    if (fate_ == kShort) size = std::min<std::size_t>(size, 7);
    if (fate_ == kTorn) size /= 2;
    const ssize_t result = pass([&] { return kernel(size); });
    if (fate_ == kTorn) die();
    return result;
  }

 private:
  SystemCall call_;
  WatchedCalls* gate_ = nullptr;
  int fate_ = kDone;
};

WatchedCalls::WatchedCalls(const std::filesystem::path& folder, Judge judge, Witness witness)
    : folder_(std::filesystem::canonical(folder).string()),
      judge_(std::move(judge)),
      witness_(std::move(witness)) {
  watched = this;
}

WatchedCalls::~WatchedCalls() { watched = nullptr; }

ForeignOwner::ForeignOwner(const std::filesystem::path& path) {
  foreign_path = std::filesystem::canonical(path).string();
}

ForeignOwner::~ForeignOwner() { foreign_path.clear(); }

namespace {

int opened(int folder, const char* path, int flags, mode_t mode) {
  const bool makes = (flags & O_CREAT) != 0;
  CallGate gate({makes ? "create" : "openat", path_at(folder, path), -1});
  return static_cast<int>(
      gate.pass([&] { return ::syscall(SYS_openat, folder, path, flags, mode); }));
}

int renamed(int from_folder, const char* from, int to_folder, const char* to, unsigned flags) {
  CallGate gate({flags == 0 ? "rename" : "exchange", path_at(from_folder, from), -1});
  return static_cast<int>(
      gate.pass([&] { return ::syscall(SYS_renameat2, from_folder, from, to_folder, to, flags); }));
}

}  // namespace
}  // namespace lockstep::testing

using lockstep::testing::CallGate;
using lockstep::testing::path_at;
using lockstep::testing::path_of;

extern "C" {

int openat(int folder, const char* path, int flags, ...) {
  va_list arguments;
  va_start(arguments, flags);
  const mode_t mode = (flags & O_CREAT) != 0 ? va_arg(arguments, mode_t) : mode_t{0};
  va_end(arguments);
  return lockstep::testing::opened(folder, path, flags, mode);
}

// What openat() becomes where the compiler checks its arguments.
// NOLINTNEXTLINE(readability-identifier-naming): glibc's name
int __openat_2(int folder, const char* path, int flags) {
  return lockstep::testing::opened(folder, path, flags, 0);
}

ssize_t read(int descriptor, void* bytes, std::size_t size) {
  CallGate gate({"read", path_of(descriptor), descriptor});
  return gate.pass_bytes(
      size, [&](std::size_t most) { return ::syscall(SYS_read, descriptor, bytes, most); });
}

ssize_t write(int descriptor, const void* bytes, std::size_t size) {
  CallGate gate({"write", path_of(descriptor), descriptor});
  return gate.pass_bytes(
      size, [&](std::size_t most) { return ::syscall(SYS_write, descriptor, bytes, most); });
}

int fsync(int descriptor) {
  CallGate gate({"fsync", path_of(descriptor), descriptor});
  return static_cast<int>(gate.pass([&] { return ::syscall(SYS_fsync, descriptor); }));
}

int flock(int descriptor, int operation) noexcept {
  CallGate gate({"flock", path_of(descriptor), descriptor});
  return static_cast<int>(gate.pass([&] { return ::syscall(SYS_flock, descriptor, operation); }));
}

int close(int descriptor) {
  CallGate gate({"close", path_of(descriptor), descriptor});
  return static_cast<int>(gate.pass([&] { return ::syscall(SYS_close, descriptor); }));
}

int fchmod(int descriptor, mode_t mode) noexcept {
  CallGate gate({"fchmod", path_of(descriptor), descriptor});
  return static_cast<int>(gate.pass([&] { return ::syscall(SYS_fchmod, descriptor, mode); }));
}

int mkdirat(int folder, const char* path, mode_t mode) noexcept {
  CallGate gate({"mkdir", path_at(folder, path), -1});
  return static_cast<int>(gate.pass([&] { return ::syscall(SYS_mkdirat, folder, path, mode); }));
}

int mkdir(const char* path, mode_t mode) noexcept { return mkdirat(AT_FDCWD, path, mode); }

int renameat2(
    int from_folder, const char* from, int to_folder, const char* to, unsigned flags) noexcept {
  return lockstep::testing::renamed(from_folder, from, to_folder, to, flags);
}

int renameat(int from_folder, const char* from, int to_folder, const char* to) noexcept {
  return lockstep::testing::renamed(from_folder, from, to_folder, to, 0);
}

int rename(const char* from, const char* to) noexcept {
  return lockstep::testing::renamed(AT_FDCWD, from, AT_FDCWD, to, 0);
}

int unlinkat(int folder, const char* path, int flags) noexcept {
  CallGate gate({flags == 0 ? "unlink" : "rmdir", path_at(folder, path), -1});
  return static_cast<int>(gate.pass([&] { return ::syscall(SYS_unlinkat, folder, path, flags); }));
}

int unlink(const char* path) noexcept { return unlinkat(AT_FDCWD, path, 0); }

int fstat(int descriptor, struct stat* status) noexcept {
  const long result = ::syscall(SYS_newfstatat, descriptor, "", status, AT_EMPTY_PATH);
  const std::string& foreign = lockstep::testing::foreign_path;
  if (result == 0 && !foreign.empty() && path_of(descriptor) == foreign) status->st_uid += 4242;
  return static_cast<int>(result);
}

}  // extern "C"
