#include "lockstep/formats/input_file.h"

#include <algorithm>
#include <cerrno>
#include <fcntl.h>
#include <limits>
#include <new>
#include <sys/stat.h>
#include <system_error>
#include <unistd.h>
#include <zlib.h>

#include "lockstep/core/error.h"
#include "lockstep/formats/byte_fields.h"

namespace lockstep {
namespace {

[[noreturn]] void throw_not_opened(const std::string& name) {
  const int code = errno;
  if (code == ENOENT || code == ENOTDIR || code == ELOOP || code == ENAMETOOLONG || code == ENXIO) {
    refuse_at(
        name, 0, "cannot be opened: ", std::generic_category().message(code), "; check the path");
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

constexpr std::size_t kBufferBytes = 64 * 1024;
constexpr int kGzipOnly = 16 + MAX_WBITS;  // as zlib's manual says of inflateInit2

bool starts_as_gzip(const z_stream& stream) {
  return stream.avail_in >= 2 && stream.next_in[0] == 0x1f && stream.next_in[1] == 0x8b;
}

}  // namespace

FileDescriptor open_regular_file(const std::filesystem::path& path) {
  // Without O_NONBLOCK the opening of a FIFO waits for a writer, perhaps for ever.
  FileDescriptor file(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY));
  if (!file) throw_not_opened(path.string());
  require_regular(file.get(), path.string());
  return file;
}

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

GunzipSource::~GunzipSource() = default;

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
  const std::size_t kept = buffered();
  std::copy_n(stream_->next_in, kept, buffer_.begin());
  const std::size_t added = compressed_.read(std::span(buffer_).subspan(kept));
  bytes_taken_ += added;
  stream_->next_in = buffer_.data();
  stream_->avail_in = static_cast<uInt>(kept + added);
}

std::size_t GunzipSource::buffered() const { return stream_->avail_in; }

void GunzipSource::fail(const std::string& reason) const {
  throw DataError(concat(name(), ": compressed offset ", bytes_taken_ - buffered(), ": ", reason));
}

}  // namespace lockstep
