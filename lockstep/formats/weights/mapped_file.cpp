#include "lockstep/formats/weights/mapped_file.h"

#include <sys/mman.h>
#include <sys/stat.h>

#include "lockstep/formats/input_file.h"

namespace lockstep {

MappedFile::MappedFile(const std::filesystem::path& path) : name_(path.string()) {
  const FileDescriptor file = open_regular_file(path);
  struct stat status {};
  if (::fstat(file.get(), &status) != 0) throw_errno("fstat", name_);
  const auto size = static_cast<std::size_t>(status.st_size);
  if (size == 0) return;  // the kernel maps no empty files
  void* start = ::mmap(nullptr, size, PROT_READ, MAP_PRIVATE, file.get(), 0);
  if (start == MAP_FAILED) throw_errno("mmap", name_);
  bytes_ = {static_cast<const std::uint8_t*>(start), size};
}

MappedFile::~MappedFile() {
  if (!bytes_.empty()) ::munmap(const_cast<std::uint8_t*>(bytes_.data()), bytes_.size());
}

}  // namespace lockstep
