#include "lockstep/formats/output_file.h"

#include <cerrno>

#include <fcntl.h>
#include <unistd.h>

namespace lockstep {

OutputFile::OutputFile(const std::filesystem::path& path)
    : name_(path.string()),
      file_(::open(
          path.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, mode_t{0644})) {
  if (!file_) throw_errno("make the file", name_);
}

void OutputFile::write(std::span<const std::uint8_t> bytes) {
  while (!bytes.empty()) {
    const ssize_t count = ::write(file_.get(), bytes.data(), bytes.size());
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) throw_errno("write", name_);
    bytes = bytes.subspan(static_cast<std::size_t>(count));
  }
}

void OutputFile::write(const std::string& text) {
  write(std::span(reinterpret_cast<const std::uint8_t*>(text.data()), text.size()));
}

void OutputFile::close() {
  if (::close(file_.release()) != 0) throw_errno("close", name_);
}

}  // namespace lockstep
