#pragma once

#include <filesystem>
#include <functional>
#include <string>

namespace lockstep::testing {

/// A call of the operating system that this program is about to make.
struct SystemCall {
  std::string name;  ///< such as `fsync`; `openat` that makes a file is `create`
  std::string path;  ///< of the file that it is about; of renames the old name
  int descriptor = -1;
};

/// The fate of a call; a positive number is the errno with which it fails.
enum Fate : int {
  kDone = 0,
  kPretended = -1,  ///< does nothing and says that it did
  kShort = -2,      ///< writes or reads seven bytes at most
  kTorn = -3,       ///< writes half, and the process is killed
  kKilled = -4,     ///< the process is killed before
};

/// Watches the calls of this process that are about files below a folder, as long as it lives.
///
/// It sees open, read, write, fsync, flock, close, fchmod, mkdir, rename and unlink in all their
/// forms, because this program defines functions of those names, which the linker prefers to the C
/// library's. One at a time; only the calls of one thread.
class WatchedCalls {
 public:
  using Judge = std::function<int(const SystemCall&)>;
  using Witness = std::function<void(const SystemCall&, long result)>;

  /// `judge` is asked before each call, `witness` told afterwards.
  WatchedCalls(const std::filesystem::path& folder, Judge judge, Witness witness = {});
  WatchedCalls(const WatchedCalls&) = delete;
  WatchedCalls& operator=(const WatchedCalls&) = delete;
  ~WatchedCalls();

 private:
  friend class CallGate;

  std::string folder_;
  Judge judge_;
  Witness witness_;
};

/// Lets fstat() tell of one file or folder that another user owns it, as long as it lives.
class ForeignOwner {
 public:
  explicit ForeignOwner(const std::filesystem::path& path);
  ForeignOwner(const ForeignOwner&) = delete;
  ForeignOwner& operator=(const ForeignOwner&) = delete;
  ~ForeignOwner();
};

}  // namespace lockstep::testing
