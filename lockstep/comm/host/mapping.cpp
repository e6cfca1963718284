#include "lockstep/comm/host/mapping.h"

#include <algorithm>
#include <fcntl.h>
#include <random>
#include <sstream>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>
#include <utility>

#include "lockstep/core/error.h"
#include "lockstep/core/text.h"

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

namespace {

std::string random_label() {
  std::random_device device;
  return concat("lockstep-", std::hex, device(), "-", device());
}

std::string own_path(const FileDescriptor& file) { return concat("/proc/self/fd/", file.get()); }

// The kernel's own word for what was opened, whatever path led there.
std::string target_of(const FileDescriptor& file) {
  char target[256];
  const auto length = ::readlink(own_path(file).c_str(), target, sizeof(target));
  return {target, static_cast<std::size_t>(std::max<ssize_t>(length, 0))};
}

bool is_own_memory(const FileDescriptor& file, const std::string& label, std::size_t bytes) {
  struct stat status {};
  return ::fstat(file.get(), &status) == 0 && status.st_uid == ::geteuid() &&
         static_cast<std::size_t>(status.st_size) >= bytes &&
         target_of(file) == concat("/memfd:", label, " (deleted)");
}

}  // namespace

MemoryFile make_memory_file(std::size_t bytes) {
  const std::string label = random_label();
  FileDescriptor file(::memfd_create(label.c_str(), MFD_CLOEXEC));
  if (!file) throw_errno("create shared memory");
  if (::ftruncate(file.get(), static_cast<off_t>(bytes)) != 0)
    throw_errno(concat("size shared memory to ", bytes, " bytes"));
  std::string ticket = concat(::getpid(), " ", file.get(), " ", label);
  return {std::move(file), std::move(ticket)};
}

FileDescriptor open_memory_file(const std::string& ticket, std::size_t bytes) {
  std::istringstream text(ticket);
  int process = 0, descriptor = -1;
  std::string label;
  if (!(text >> process >> descriptor >> label))
    throw CommError("shared memory: a rank sent no ticket: " + printable(ticket));
  const std::string path = concat("/proc/", process, "/fd/", descriptor);
  // O_PATH first: opening what somebody else named could have effects, as with a device.
  const FileDescriptor found(::open(path.c_str(), O_PATH | O_CLOEXEC));
  if (!found) throw_errno("open the shared memory of another rank", path);
  if (!is_own_memory(found, label, bytes))
    throw CommError(concat("shared memory: ", path, " is not what a rank of this user has made"));
  FileDescriptor file(::open(own_path(found).c_str(), O_RDWR | O_CLOEXEC));
  if (!file) throw_errno("open the shared memory of another rank", path);
  return file;
}

}  // namespace lockstep::host
