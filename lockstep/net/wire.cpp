#include "lockstep/net/wire.h"

namespace lockstep::net {
namespace {

template <typename Number>
void put(std::string& bytes, Number value) {
  for (int shift = 8 * (static_cast<int>(sizeof(Number)) - 1); shift >= 0; shift -= 8)
    bytes += static_cast<char>(value >> shift & 0xff);
}

template <typename Number>
Number taken(std::string_view bytes) {
  Number value = 0;
  for (const char each : bytes)
    value = static_cast<Number>(value << 8 | static_cast<std::uint8_t>(each));
  return value;
}

constexpr std::size_t kHead = 4;

}  // namespace

ByteWriter& ByteWriter::byte(std::uint8_t value) {
  bytes_ += static_cast<char>(value);
  return *this;
}

ByteWriter& ByteWriter::count(std::uint32_t value) {
  put(bytes_, value);
  return *this;
}

ByteWriter& ByteWriter::number(std::int64_t value) {
  put(bytes_, static_cast<std::uint64_t>(value));
  return *this;
}

ByteWriter& ByteWriter::raw(std::string_view bytes) {
  bytes_ += bytes;
  return *this;
}

ByteWriter& ByteWriter::text(std::string_view bytes) {
  return count(static_cast<std::uint32_t>(bytes.size())).raw(bytes);
}

ByteWriter& ByteWriter::texts(const std::vector<std::string>& all) {
  count(static_cast<std::uint32_t>(all.size()));
  for (const std::string& each : all) text(each);
  return *this;
}

std::uint8_t ByteReader::byte() { return taken<std::uint8_t>(raw(1)); }

std::uint32_t ByteReader::count() { return taken<std::uint32_t>(raw(4)); }

std::int64_t ByteReader::number() {
  return static_cast<std::int64_t>(taken<std::uint64_t>(raw(8)));
}

std::string_view ByteReader::raw(std::size_t size) {
  if (size > rest_.size()) throw DataError("message: it ends too early");
  const std::string_view bytes = rest_.substr(0, size);
  rest_.remove_prefix(size);
  return bytes;
}

std::string ByteReader::text() { return std::string(raw(count())); }

std::vector<std::string> ByteReader::texts() {
  const std::uint32_t size = count();
  // Each takes at least four bytes, so a false count costs no memory.
  if (size > rest_.size() / 4) throw DataError("message: it announces more than it holds");
  std::vector<std::string> all;
  for (std::uint32_t i = 0; i < size; ++i) all.push_back(text());
  return all;
}

int ByteReader::within(int least, int most) {
  const std::int64_t value = number();
  if (value < least || value > most) throw DataError("message: a number is out of its range");
  return static_cast<int>(value);
}

void ByteReader::finish() const {
  if (!rest_.empty()) throw DataError("message: trailing bytes");
}

std::string frame_of(std::string_view message) { return ByteWriter().text(message).take(); }

void FrameDecoder::feed(std::string_view bytes) {
  bytes_.erase(0, begin_);
  begin_ = 0;
  bytes_ += bytes;
}

std::optional<std::string> FrameDecoder::next() {
  const std::string_view rest = std::string_view(bytes_).substr(begin_);
  if (rest.size() < kHead) return std::nullopt;
  const std::size_t size = ByteReader(rest).count();
  if (size == 0 || size > most_)
    throw DataError(concat("frame: ", size, " bytes are announced, 1 to ", most_, " are allowed"));
  if (rest.size() - kHead < size) return std::nullopt;
  begin_ += kHead + size;
  return std::string(rest.substr(kHead, size));
}

}  // namespace lockstep::net
