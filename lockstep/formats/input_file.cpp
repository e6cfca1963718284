#include "lockstep/formats/input_file.h"

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <csignal>
#include <fcntl.h>
#include <limits>
#include <mutex>
#include <new>
#include <sys/mman.h>
#include <system_error>
#include <unistd.h>
#include <zlib.h>

#include "lockstep/core/error.h"
#include "lockstep/formats/byte_fields.h"

namespace lockstep {

// Note [Lost pages]: the kernel sends SIGBUS to a thread that reads a mapped page which its file no
// longer has. The handler puts zeros in the place of all that follows, and marks the range; whoever
// reads asks afterwards. The list of ranges only grows and its nodes are used again, so that the
// handler can walk it whatever the other threads do. A range cannot go while one of them reads it.
struct GuardedRange {
  std::atomic<std::uintptr_t> begin{0}, end{0};  ///< both 0: unused
  std::atomic<bool> is_broken{false};
  GuardedRange* next = nullptr;
};

namespace {

[[noreturn]] void throw_not_opened(const std::string& name) {
  const int code = errno;
  if (code == ENOENT || code == ENOTDIR || code == ELOOP || code == ENAMETOOLONG || code == ENXIO) {
    throw DataError(concat(
        name, ": cannot be opened: ", std::generic_category().message(code), "; check the path"));
  }
  throw_errno("open", name);
}

void require_regular(int descriptor, const std::string& name) {
  struct stat status {};
  if (::fstat(descriptor, &status) != 0) throw_errno("fstat", name);
  if (S_ISREG(status.st_mode)) return;
  const char* kind = S_ISDIR(status.st_mode)    ? "a directory"
                     : S_ISFIFO(status.st_mode) ? "a FIFO"
                                                : "a device";
  refuse_at(name, 0, "a regular file is needed, this is ", kind);
}

FileDescriptor open_regular_file(const std::filesystem::path& path) {
  // Without O_NONBLOCK the opening of a FIFO waits for a writer, perhaps for ever.
  FileDescriptor file(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY));
  if (!file) throw_not_opened(path.string());
  require_regular(file.get(), path.string());
  return file;
}

constexpr std::size_t kBufferBytes = 64 * 1024;
constexpr int kGzipOnly = 16 + MAX_WBITS;  // as zlib's manual says of inflateInit2

bool starts_as_gzip(const z_stream& stream) {
  return stream.avail_in >= 2 && stream.next_in[0] == 0x1f && stream.next_in[1] == 0x8b;
}

std::atomic<GuardedRange*> ranges{nullptr};
std::uintptr_t page_bytes = 0;
struct sigaction earlier_action {};

// Only what a signal handler may do: atomics, and mmap(), which is a bare call of the kernel.
bool replace_lost_pages(std::uintptr_t address) {
  for (GuardedRange* range = ranges.load(); range != nullptr; range = range->next) {
    const std::uintptr_t end = range->end.load();
    if (address < range->begin.load() || address >= end) continue;
    const std::uintptr_t page = address / page_bytes * page_bytes;
    constexpr int kFlags = MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED;
    void* const zeros = ::mmap(reinterpret_cast<void*>(page), end - page, PROT_READ, kFlags, -1,
        0);  // NOLINT(performance-no-int-to-ptr)
    range->is_broken.store(true);
    return zeros != MAP_FAILED;
  }
  return false;
}

void pass_on(int signal, siginfo_t* info, void* context) {
  if ((earlier_action.sa_flags & SA_SIGINFO) != 0) {
    earlier_action.sa_sigaction(signal, info, context);
  } else if (earlier_action.sa_handler != SIG_DFL && earlier_action.sa_handler != SIG_IGN) {
    earlier_action.sa_handler(signal);
  } else {
    // Ends the process as if we had never been there, once this handler has returned.
    ::signal(signal, SIG_DFL);
    ::raise(signal);
  }
}

void on_lost_page(int signal, siginfo_t* info, void* context) {
  const int error = errno;
  const bool is_fault = info->si_code > 0;  // else somebody sent it
  const bool is_ours =
      is_fault && replace_lost_pages(reinterpret_cast<std::uintptr_t>(info->si_addr));
  if (!is_ours) pass_on(signal, info, context);
  errno = error;
}

void take_signal_once() {
  static const bool kTaken = [] {
    page_bytes = static_cast<std::uintptr_t>(::sysconf(_SC_PAGESIZE));
    struct sigaction action {};
    action.sa_sigaction = on_lost_page;
    action.sa_flags = SA_SIGINFO | SA_ONSTACK | SA_RESTART;
    ::sigemptyset(&action.sa_mask);
    return ::sigaction(SIGBUS, &action, &earlier_action) == 0;
  }();
  if (!kTaken) throw_errno("take SIGBUS for mapped files");
}

GuardedRange* unused_range() {
  for (GuardedRange* range = ranges.load(); range != nullptr; range = range->next)
    if (range->end.load() == 0) return range;
  auto* const made = new GuardedRange;  // for ever: the handler may look at it at any time
  made->next = ranges.load();
  ranges.store(made);
  return made;
}

std::mutex& ranges_mutex() {
  static std::mutex mutex;
  return mutex;
}

GuardedRange* guard(const void* start, std::size_t size) {
  take_signal_once();
  const std::lock_guard<std::mutex> lock(ranges_mutex());
  GuardedRange* const range = unused_range();
  range->is_broken.store(false);
  range->begin.store(reinterpret_cast<std::uintptr_t>(start));
  range->end.store(range->begin.load() + size);
  return range;
}

void release(GuardedRange* range) {
  const std::lock_guard<std::mutex> lock(ranges_mutex());
  range->begin.store(0);
  range->end.store(0);
}

bool is_same_time(const timespec& one, const timespec& other) {
  return one.tv_sec == other.tv_sec && one.tv_nsec == other.tv_nsec;
}

}  // namespace

InputFile::InputFile(const std::filesystem::path& path)
    : name_(path.string()), file_(open_regular_file(path)) {}

std::size_t InputFile::read(std::span<std::uint8_t> out) {
  std::size_t filled = 0;
  while (filled < out.size()) {
    const auto rest = out.subspan(filled);
    const ssize_t count = retried([&] { return ::read(file_.get(), rest.data(), rest.size()); });
    if (count < 0) throw_errno("read", name_);
    if (count == 0) break;
    filled += static_cast<std::size_t>(count);
  }
  return filled;
}

void GunzipSource::EndInflate::operator()(z_stream_s* stream) const noexcept {
  inflateEnd(stream);
  delete stream;
}

GunzipSource::GunzipSource(ByteSource& compressed)
    : compressed_(compressed), buffer_(kBufferBytes), stream_(new z_stream()) {
  if (inflateInit2(stream_.get(), kGzipOnly) != Z_OK) throw std::bad_alloc();
  refill();
  is_gzip_ = starts_as_gzip(*stream_);
  inside_member_ = is_gzip_;
}

std::size_t GunzipSource::read(std::span<std::uint8_t> out) {
  std::size_t filled = 0;
  while (filled < out.size()) {
    const auto rest = out.subspan(filled);
    const std::size_t count = is_gzip_ ? inflate_some(rest) : copy_some(rest);
    if (count == 0) break;
    filled += count;
  }
  return filled;
}

std::size_t GunzipSource::copy_some(std::span<std::uint8_t> out) {
  if (stream_->avail_in == 0) {
    const std::size_t count = compressed_.read(out);
    bytes_taken_ += count;
    return count;
  }
  const std::size_t count = std::min<std::size_t>(out.size(), stream_->avail_in);
  std::copy_n(stream_->next_in, count, out.begin());
  stream_->next_in += count;
  stream_->avail_in -= static_cast<uInt>(count);
  return count;
}

std::size_t GunzipSource::inflate_some(std::span<std::uint8_t> out) {
  const auto wanted =
      static_cast<uInt>(std::min<std::size_t>(out.size(), std::numeric_limits<int>::max()));
  stream_->next_out = out.data();
  stream_->avail_out = wanted;
  while (stream_->avail_out == wanted) {
    if (stream_->avail_in == 0) refill();
    if (!inside_member_ && !start_next_member()) return 0;
    const int status = inflate(stream_.get(), Z_NO_FLUSH);
    if (status == Z_STREAM_END) {
      inside_member_ = false;
    } else if (status == Z_BUF_ERROR) {
      fail("the gzip stream ends too early");
    } else if (status == Z_MEM_ERROR) {
      throw std::bad_alloc();
    } else if (status != Z_OK) {
      fail(concat("the gzip stream is damaged: ",
          stream_->msg != nullptr ? stream_->msg : "unknown reason"));
    }
  }
  return wanted - stream_->avail_out;
}

bool GunzipSource::start_next_member() {
  if (stream_->avail_in == 1) refill();
  if (stream_->avail_in == 0) return false;
  if (!starts_as_gzip(*stream_)) fail("bytes that are not a gzip member follow the last one");
  inflateReset(stream_.get());
  inside_member_ = true;
  return true;
}

void GunzipSource::refill() {
  const std::size_t kept = stream_->avail_in;
  std::copy_n(stream_->next_in, kept, buffer_.begin());
  const std::size_t added = compressed_.read(std::span(buffer_).subspan(kept));
  bytes_taken_ += added;
  stream_->next_in = buffer_.data();
  stream_->avail_in = static_cast<uInt>(kept + added);
}

void GunzipSource::fail(const std::string& reason) const {
  throw DataError(
      concat(name(), ": compressed offset ", bytes_taken_ - stream_->avail_in, ": ", reason));
}

MappedFile::MappedFile(const std::filesystem::path& path)
    : name_(path.string()), path_(std::filesystem::absolute(path)) {
  const FileDescriptor file = open_regular_file(path);
  if (::fstat(file.get(), &opened_) != 0) throw_errno("fstat", name_);
  const auto size = static_cast<std::size_t>(opened_.st_size);
  if (size == 0) return;  // the kernel maps no empty files
  void* start = ::mmap(nullptr, size, PROT_READ, MAP_PRIVATE, file.get(), 0);
  if (start == MAP_FAILED) throw_errno("mmap", name_);
  bytes_ = {static_cast<const std::uint8_t*>(start), size};
  range_ = guard(start, size);
}

MappedFile::~MappedFile() {
  if (bytes_.empty()) return;
  ::munmap(const_cast<std::uint8_t*>(bytes_.data()), bytes_.size());
  release(range_);
}

void MappedFile::forget(std::span<const std::uint8_t> bytes) const {
  const auto address = [](const std::uint8_t* byte) {
    return reinterpret_cast<std::uintptr_t>(byte);
  };
  const std::uintptr_t begin = address(bytes.data()), end = begin + bytes.size();
  const std::uintptr_t first = address(bytes_.data());
  if (bytes.empty() || begin < first || end > first + bytes_.size()) return;
  const std::uintptr_t page = begin / page_bytes * page_bytes;
  ::madvise(reinterpret_cast<void*>(page), end - page,  // NOLINT(performance-no-int-to-ptr)
      MADV_DONTNEED);                                   // only a hint
}

// One that was replaced or removed is whole as long as it is mapped.
void MappedFile::require_unchanged() const {
  struct stat now {};
  const bool has_name = ::stat(path_.c_str(), &now) == 0;
  if (!has_name && errno != ENOENT && errno != ENOTDIR) throw_errno("stat", name_);
  if (!has_name || now.st_ino != opened_.st_ino || now.st_dev != opened_.st_dev) now = opened_;
  const auto size = static_cast<std::uint64_t>(now.st_size);
  if (size != bytes_.size()) {
    refuse_at(name_, std::min<std::uint64_t>(size, bytes_.size()),
        "another program changed the file while it was read, from ", bytes_.size(), " to ", size,
        " bytes; try again when it is complete");
  }
  const bool is_broken = range_ != nullptr && range_->is_broken.load();
  if (is_broken || !is_same_time(now.st_mtim, opened_.st_mtim)) {
    refuse_at(name_, 0,
        "another program wrote to the file, or the disk lost a part of it, while it was read; try "
        "again when it is complete");
  }
}

}  // namespace lockstep
