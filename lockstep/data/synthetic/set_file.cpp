#include "lockstep/data/synthetic/set_file.h"

#include <array>
#include <new>
#include <zlib.h>

namespace lockstep::data {
namespace {

constexpr std::size_t kBuffer = 256 * 1024;
constexpr int kGzip = 16 + MAX_WBITS;  // as zlib's manual says of deflateInit2
constexpr int kMemoryLevel = 8;

}  // namespace

void SetFile::EndDeflate::operator()(z_stream_s* stream) const noexcept {
  deflateEnd(stream);
  delete stream;
}

SetFile::SetFile(const std::filesystem::path& path, bool gzip) : file_(path) {
  if (!gzip) return;
  stream_.reset(new z_stream());
  const int status = deflateInit2(
      stream_.get(), Z_BEST_SPEED, Z_DEFLATED, kGzip, kMemoryLevel, Z_DEFAULT_STRATEGY);
  if (status != Z_OK) throw std::bad_alloc();
}

SetFile::~SetFile() = default;

void SetFile::put(std::span<const std::uint8_t> bytes) {
  if (stream_) {
    deflate_some(bytes, Z_NO_FLUSH);
  } else {
    buffer_.insert(buffer_.end(), bytes.begin(), bytes.end());
  }
  flush_if_full();
}

std::uint64_t SetFile::close() {
  if (stream_) deflate_some({}, Z_FINISH);
  flush();
  file_.close();
  return bytes_;
}

void SetFile::deflate_some(std::span<const std::uint8_t> bytes, int flush) {
  std::array<std::uint8_t, 16 * 1024> packed{};
  stream_->next_in = const_cast<Bytef*>(bytes.data());  // zlib's interface knows no const
  stream_->avail_in = static_cast<uInt>(bytes.size());
  do {
    stream_->next_out = packed.data();
    stream_->avail_out = static_cast<uInt>(packed.size());
    deflate(stream_.get(), flush);
    const auto made = std::span(packed).first(packed.size() - stream_->avail_out);
    buffer_.insert(buffer_.end(), made.begin(), made.end());
  } while (stream_->avail_out == 0);
}

void SetFile::flush_if_full() {
  if (buffer_.size() >= kBuffer) flush();
}

void SetFile::flush() {
  file_.write(buffer_);
  bytes_ += buffer_.size();
  buffer_.clear();
}

}  // namespace lockstep::data
