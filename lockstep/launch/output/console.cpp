#include "lockstep/launch/output/console.h"

#include <algorithm>
#include <cerrno>
#include <unistd.h>

namespace lockstep::launch {
namespace {

constexpr std::size_t kRoom = std::size_t{1} << 20;

// A pipe that poll calls writable takes this much at once: the descriptor is shared with others and
// must stay blocking.
constexpr std::size_t kPiece = 4096;

bool is_writable(int descriptor) {
  pollfd waited{descriptor, POLLOUT, 0};
  return ::poll(&waited, 1, 0) == 1;
}

}  // namespace

void Console::write(Stream stream, std::string_view text) {
  Queue& queue = stream == Stream::kOutput ? output_ : errors_;
  queue.text.append(text);
  flush(queue);
}

void Console::flush() {
  flush(output_);
  flush(errors_);
}

bool Console::has_room() const { return output_.size() < kRoom && errors_.size() < kRoom; }

void Console::add_to(std::vector<pollfd>& waited) const {
  for (const Queue* queue : {&output_, &errors_}) {
    if (queue->size() > 0) waited.push_back({queue->descriptor, POLLOUT, 0});
  }
}

void Console::flush(Queue& queue) {
  while (queue.size() > 0 && is_writable(queue.descriptor)) {
    const std::size_t piece = std::min(queue.size(), kPiece);
    const ssize_t written = ::write(queue.descriptor, queue.text.data() + queue.start, piece);
    if (written < 0 && (errno == EINTR || errno == EAGAIN)) break;
    // Nobody reads any more, or nothing can be written: the run matters more than its output.
    queue.start += written < 0 ? queue.size() : static_cast<std::size_t>(written);
  }
  if (queue.start == queue.text.size() || queue.start > kRoom) {
    queue.text.erase(0, queue.start);
    queue.start = 0;
  }
}

}  // namespace lockstep::launch
