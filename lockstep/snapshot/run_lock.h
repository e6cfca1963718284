#pragma once

#include <chrono>
#include <string>

#include "lockstep/core/file_descriptor.h"
#include "lockstep/formats/open_directory.h"

namespace lockstep {

/// The lock file of a run's folder, held by rank 0, and that of its logs/, held by the launcher.
/// They alone do not make a folder a run's.
inline constexpr const char* kRunLock = ".lock";
inline constexpr const char* kLauncherLock = ".launcher.lock";

/// How long ranks that are started again wait for the lock of the rank 0 that died: a file server
/// gives it free when the lease of its host has ended, 90 s by default.
inline constexpr std::chrono::seconds kLockPatience{150};

/// The ownership of a run's folder by one process, as long as it lives.
///
/// Note [A run's folder]
/// The file RUN/.lock is locked (flock), so the operating system gives the folder free when its
/// owner dies, by whatever; a network file system does when the owner's host has been silent for
/// the time of its lease. The file also says who the owner is. Where files cannot be locked at all,
/// this record decides: an owner of this host that has ended is succeeded, one of another host
/// never, as nobody here can know. The owner removes the file at its end.
class RunLock {
 public:
  /// Takes the folder, made if it is missing. Throws InvalidArgument that names the owner if a run
  /// has it and keeps it for longer than the `patience`, std::system_error when the file cannot be
  /// made.
  explicit RunLock(const std::string& folder, std::string name = kRunLock,
      std::chrono::milliseconds patience = {});
  RunLock(const RunLock&) = delete;
  RunLock& operator=(const RunLock&) = delete;

  /// Removes the file, and the folder if this made it and nothing is in it.
  ~RunLock();

 private:
  bool made_folder_;
  OpenDirectory folder_;
  std::string name_;
  FileDescriptor file_;
};

/// Throws InvalidArgument if the owner that a folder names lives on this host. Takes nothing, so it
/// may be called by any process before rank 0 takes the lock.
void check_has_no_owner(const std::string& folder);

}  // namespace lockstep
