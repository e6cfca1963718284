#include "lockstep/record/appended_file.h"

#include <algorithm>
#include <cerrno>
#include <fcntl.h>
#include <system_error>
#include <unistd.h>
#include <utility>

#include "lockstep/core/error.h"

namespace lockstep {

AppendedFile::AppendedFile(std::string verb, std::string path, bool goes_on)
    : verb_(std::move(verb)), path_(std::move(path)) {
  const int flags = goes_on ? O_RDWR : O_WRONLY | O_EXCL;
  constexpr int kAlways = O_CREAT | O_APPEND | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC;
  file_ = FileDescriptor(::open(path_.c_str(), flags | kAlways, 0644));
  if (!file_ && errno == ELOOP)
    throw DataError(path_ + ": is a link; links are not followed here: remove it");
  if (!file_) throw_errno(verb_ + ": cannot create", path_);
  if (::fstat(file_.get(), &facts_) != 0) throw_errno(verb_ + ": cannot look at", path_);
  if (!S_ISREG(facts_.st_mode)) throw DataError(path_ + ": is not a regular file: remove it");
}

std::string AppendedFile::tail(std::size_t most) const {
  const off_t size = ::lseek(file_.get(), 0, SEEK_END);
  std::string text(
      static_cast<std::size_t>(std::clamp<off_t>(size, 0, static_cast<off_t>(most))), '\0');
  const off_t from = size - static_cast<off_t>(text.size());
  const ssize_t read = ::pread(file_.get(), text.data(), text.size(), from);
  text.resize(static_cast<std::size_t>(std::max<ssize_t>(read, 0)));
  return text;
}

// What is written into a file without a name is lost without a word.
void AppendedFile::check_name() const {
  struct stat named {};
  if (::lstat(path_.c_str(), &named) == 0) {
    if (named.st_dev == facts_.st_dev && named.st_ino == facts_.st_ino) return;
    errno = ESTALE;
  } else if (errno != ENOENT && errno != ENOTDIR) {
    return;  // as while a server is away
  }
  throw_errno(
      verb_ + ": the run's folder or this file was removed, renamed or replaced during the run:",
      path_);
}

void AppendedFile::append(std::string_view record) {
  check_name();
  waiting_ += record;
  const int error = write_waiting();
  if (error == 0 || std::exchange(is_late_, true)) return;
  warning_ = concat(path_, ": ", std::generic_category().message(error),
      "; training continues, and what is recorded waits in memory until the disk takes it");
}

void AppendedFile::flush() {
  check_name();
  errno = write_waiting();
  if (errno != 0) throw_errno(verb_ + ": cannot write", path_);
}

std::string AppendedFile::take_warning() { return std::exchange(warning_, {}); }

int AppendedFile::write_waiting() {
  while (!waiting_.empty()) {
    const ssize_t written = ::write(file_.get(), waiting_.data(), waiting_.size());
    if (written > 0) {
      waiting_.erase(0, static_cast<std::size_t>(written));
    } else if (written == 0 || errno != EINTR) {
      return written == 0 ? ENOSPC : errno;
    }
  }
  is_late_ = false;
  return 0;
}

}  // namespace lockstep
