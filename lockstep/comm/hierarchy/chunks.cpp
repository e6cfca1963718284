#include "lockstep/comm/hierarchy/chunks.h"

#include <algorithm>
#include <cstdlib>

namespace lockstep::hierarchy {
namespace {

constexpr std::int64_t kAligned = 64;  // elements: no two lanes write one cache line
constexpr std::int64_t kWorthALane = std::int64_t{64} << 10;
constexpr std::int64_t kLeastChunk = std::int64_t{256} << 10;  // bytes, of each lane
constexpr std::int64_t kMostChunk = std::int64_t{1} << 20;
constexpr std::int64_t kChunks = 8;  // of a message between the two

std::int64_t aligned_up(std::int64_t elements) {
  return (elements + kAligned - 1) / kAligned * kAligned;
}

}  // namespace

int lanes_for(std::int64_t bytes, int most) {
  return static_cast<int>(std::clamp<std::int64_t>(bytes / kWorthALane, 1, most));
}

std::vector<Part> cut_into_chunks(std::int64_t elements, std::size_t element_bytes, int lanes) {
  const auto width = static_cast<std::int64_t>(element_bytes);
  const std::int64_t of_lane =
      std::clamp(elements * width / lanes / kChunks, kLeastChunk, kMostChunk);
  const std::int64_t step = aligned_up(of_lane / width) * lanes;
  std::vector<Part> chunks;
  for (std::int64_t begin = 0; begin < elements; begin += step)
    chunks.push_back({begin, std::min(step, elements - begin)});
  return chunks;
}

Part part_of_lane(const Part& chunk, int lane, int lanes) {
  const std::int64_t step = aligned_up((chunk.count + lanes - 1) / lanes);
  const std::int64_t begin = std::min(lane * step, chunk.count);
  return {chunk.begin + begin, std::min(step, chunk.count - begin)};
}

}  // namespace lockstep::hierarchy
