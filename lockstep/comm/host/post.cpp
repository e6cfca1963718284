#include "lockstep/comm/host/post.h"

#include <algorithm>
#include <cstring>

#include "lockstep/core/error.h"

namespace lockstep::host {
namespace {

std::string describe_tensor(std::int32_t element, std::int64_t elements) {
  return concat(c10::toString(static_cast<at::ScalarType>(element)), ", ", elements, " elements");
}

void move_front(auto& queue, auto move) {
  while (!queue.empty() && move(*queue.front())) {
    if (!queue.front()->complete) continue;
    queue.pop_front();
  }
}

}  // namespace

std::string Message::describe() const {
  return concat(outgoing ? "send to rank " : "recv from rank ", peer, ", tag ", tag, " (",
      describe_tensor(static_cast<std::int32_t>(tensor.scalar_type()), tensor.numel()), ")");
}

Post::Post(const SharedRegion& region, int rank)
    : region_(region),
      rank_(rank),
      outgoing_(static_cast<std::size_t>(region.size())),
      incoming_(static_cast<std::size_t>(region.size())) {}

std::shared_ptr<Message> Post::add(const torch::Tensor& tensor, int peer, int tag, bool outgoing) {
  auto message = std::make_shared<Message>(Message{tensor, peer, tag, outgoing});
  (outgoing ? outgoing_ : incoming_)[static_cast<std::size_t>(peer)].push_back(message);
  return message;
}

void Post::poll() {
  for (Queue& queue : outgoing_)
    move_front(queue, [this](Message& message) { return write_letter(message); });
  for (Queue& queue : incoming_)
    move_front(queue, [this](Message& message) { return read_letter(message); });
}

bool Post::write_letter(Message& message) {
  Mailbox& box = region_.mailbox(rank_, message.peer);
  const std::uint64_t written = box.written.load(std::memory_order_relaxed);
  if (written - box.read.load(std::memory_order_acquire) == Mailbox::kSlots) return false;
  Mailbox::Letter& letter = box.letters[written % Mailbox::kSlots];
  letter.tag = message.tag;
  letter.element = static_cast<std::int32_t>(message.tensor.scalar_type());
  letter.elements = message.tensor.numel();
  const std::size_t bytes = std::min(message.tensor.nbytes() - message.moved, Mailbox::kSlotBytes);
  if (bytes > 0) {
    std::memcpy(letter.content,
        static_cast<const std::byte*>(message.tensor.data_ptr()) + message.moved, bytes);
  }
  message.moved += bytes;
  message.complete = message.moved == message.tensor.nbytes();
  box.written.store(written + 1, std::memory_order_release);
  std::atomic_thread_fence(std::memory_order_seq_cst);  // Note [Alarms]
  region_.alarm(message.peer).ring();
  return true;
}

bool Post::read_letter(Message& message) {
  Mailbox& box = region_.mailbox(message.peer, rank_);
  const std::uint64_t read = box.read.load(std::memory_order_relaxed);
  if (box.written.load(std::memory_order_acquire) == read) return false;
  const Mailbox::Letter& letter = box.letters[read % Mailbox::kSlots];
  const bool fits = letter.tag == message.tag && letter.elements == message.tensor.numel() &&
                    letter.element == static_cast<std::int32_t>(message.tensor.scalar_type());
  if (!fits) {
    throw InvalidArgument(concat(message.describe(), ": the sender's next message has tag ",
        letter.tag, " (", describe_tensor(letter.element, letter.elements), ")"));
  }
  const std::size_t bytes = std::min(message.tensor.nbytes() - message.moved, Mailbox::kSlotBytes);
  if (bytes > 0) {
    std::memcpy(
        static_cast<std::byte*>(message.tensor.data_ptr()) + message.moved, letter.content, bytes);
  }
  message.moved += bytes;
  message.complete = message.moved == message.tensor.nbytes();
  box.read.store(read + 1, std::memory_order_release);
  std::atomic_thread_fence(std::memory_order_seq_cst);
  const std::uint64_t unread = box.written.load(std::memory_order_relaxed) - read;
  if (unread == Mailbox::kSlots) region_.alarm(message.peer).ring();  // it may wait for room
  return true;
}

bool Post::idle() const {
  const auto empty = [](const Queue& queue) { return queue.empty(); };
  return std::all_of(outgoing_.begin(), outgoing_.end(), empty) &&
         std::all_of(incoming_.begin(), incoming_.end(), empty);
}

std::vector<torch::Tensor> Post::fail(const std::exception_ptr& error) {
  std::vector<torch::Tensor> tensors;
  for (auto* queues : {&outgoing_, &incoming_}) {
    for (Queue& queue : *queues) {
      for (const auto& message : queue) {
        message->error = error;
        message->complete = true;
        tensors.push_back(message->tensor);
      }
      queue.clear();
    }
  }
  return tensors;
}

}  // namespace lockstep::host
