#include "tests/formats/weights/zip_bytes.h"

#include <zlib.h>

#include "lockstep/formats/byte_fields.h"

namespace lockstep::testing {
namespace {

std::string end_of(std::uint64_t entries, std::uint64_t start, std::uint64_t size, bool is_wide) {
  std::string end;
  if (is_wide) {
    end += numbers(4, {0x06064b50}) + numbers(8, {44}) + numbers(2, {45, 45}) + numbers(4, {0, 0}) +
           numbers(8, {entries, entries, size, start});
    end += numbers(4, {0x07064b50, 0}) + numbers(8, {start + size}) + numbers(4, {1});
  }
  return end + numbers(4, {0x06054b50}) + numbers(2, {0, 0, entries, entries}) +
         numbers(4, {size, start}) + numbers(2, {0});
}

}  // namespace

std::uint32_t checksum_of(const std::string& text) {
  const auto* bytes = reinterpret_cast<const Bytef*>(text.data());
  return static_cast<std::uint32_t>(crc32(0, bytes, static_cast<uInt>(text.size())));
}

std::string numbers(int bytes, const std::vector<std::uint64_t>& values) {
  std::string result;
  for (const std::uint64_t value : values) append_little_endian(result, value, bytes);
  return result;
}

std::vector<std::uint8_t> zip_bytes(const std::vector<ZipPart>& parts, bool is_wide) {
  std::string archive;
  std::string directory;
  for (const ZipPart& part : parts) {
    const std::uint64_t header = part.header.value_or(static_cast<std::uint32_t>(archive.size()));
    const std::uint64_t size = part.size.value_or(part.content.size());
    const std::uint64_t maker = part.mode == 0 ? 20 : 3 << 8 | 20;  // Unix is 3
    const std::uint64_t local_size =
        part.local_size.value_or(static_cast<std::uint32_t>(part.content.size()));
    const std::uint64_t checksum = part.checksum.value_or(checksum_of(part.content));
    const std::string local_name = part.local_name.value_or(part.name);
    archive += numbers(4, {0x04034b50}) + numbers(2, {20, part.flags, part.method, 0, 0}) +
               numbers(4, {checksum, local_size, part.unpacked.value_or(local_size)}) +
               numbers(2, {local_name.size(), part.local_extra.size()}) + local_name +
               part.local_extra + part.content + part.descriptor;
    directory += numbers(4, {0x02014b50}) + numbers(2, {maker, 20, part.flags, part.method, 0, 0}) +
                 numbers(4, {checksum, size, part.unpacked.value_or(size)}) +
                 numbers(2, {part.name.size(), part.extra.size(), 0, 0, 0}) +
                 numbers(4, {std::uint64_t{part.mode} << 16, header}) + part.name + part.extra;
  }
  const std::string end = end_of(parts.size(), archive.size(), directory.size(), is_wide);
  const std::string all = archive + directory + end;
  return {all.begin(), all.end()};
}

}  // namespace lockstep::testing
