#pragma once

#include <string>

#include "lockstep/core/file_descriptor.h"
#include "lockstep/formats/open_directory.h"

namespace lockstep {

/// A file that only one process at a time works on.
struct LockedFile {
  FileDescriptor file;  ///< holds the lock until it is closed
  int refusal = 0;      ///< errno of the lock: 0, it is ours; EWOULDBLOCK, another has it
};

/// Opens a file of a folder to read and to write, made (0600) if it is missing, and asks for its
/// lock without waiting.
///
/// Once the lock is ours, the name is still that of this file: one that another process has renamed
/// or removed meanwhile is left alone. No link is followed, nothing blocks, and what is not a
/// regular file of this user with one name is an InvalidArgument.
LockedFile open_locked(const OpenDirectory& folder, const std::string& name);

}  // namespace lockstep
