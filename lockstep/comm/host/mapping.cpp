#include "lockstep/comm/host/mapping.h"

#include <fcntl.h>
#include <string>
#include <sys/mman.h>
#include <unistd.h>
#include <utility>

#include "lockstep/core/error.h"

namespace lockstep::host {

Mapping::Mapping(int flags, int descriptor, std::size_t bytes) : bytes_(bytes) {
  void* address = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, flags, descriptor, 0);
  if (address == MAP_FAILED) throw_errno(concat("map ", bytes, " bytes of shared memory"));
  data_ = static_cast<std::byte*>(address);
}

Mapping Mapping::anonymous(std::size_t bytes) {
  return Mapping(MAP_SHARED | MAP_ANONYMOUS | MAP_NORESERVE, -1, bytes);
}

Mapping Mapping::shared(const FileDescriptor& file, std::size_t bytes) {
  return Mapping(MAP_SHARED | MAP_NORESERVE, file.get(), bytes);
}

Mapping::Mapping(Mapping&& other) noexcept
    : data_(std::exchange(other.data_, nullptr)), bytes_(std::exchange(other.bytes_, 0)) {}

Mapping& Mapping::operator=(Mapping&& other) noexcept {
  std::swap(data_, other.data_);
  std::swap(bytes_, other.bytes_);
  return *this;
}

Mapping::~Mapping() {
  if (data_ != nullptr) ::munmap(data_, bytes_);
}

FileDescriptor make_memory_file(std::size_t bytes) {
  FileDescriptor file(::memfd_create("lockstep", MFD_CLOEXEC));
  if (!file) throw_errno("create shared memory");
  if (::ftruncate(file.get(), static_cast<off_t>(bytes)) != 0) {
    throw_errno(concat("size shared memory to ", bytes, " bytes"));
  }
  return file;
}

FileDescriptor open_memory_file(int process, int descriptor) {
  const std::string path = concat("/proc/", process, "/fd/", descriptor);
  FileDescriptor file(::open(path.c_str(), O_RDWR | O_CLOEXEC));
  if (!file) {
    throw_errno(
        "open the shared memory of another rank (ranks on one host must run as one user and see "
        "one /proc)",
        path);
  }
  return file;
}

}  // namespace lockstep::host
