#include "lockstep/comm/host/post.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "lockstep/comm/backend.h"
#include "lockstep/core/error.h"
#include "lockstep/device/host_tensor.h"

namespace lockstep::host {
namespace {

using Header = Mailbox::Header;

std::string describe_tensor(std::int32_t element, std::int64_t elements) {
  return concat(c10::toString(static_cast<at::ScalarType>(element)), ", ", elements, " elements");
}

bool could_be_of(const Message& message, int peer) {
  return message.peer == peer || message.peer == kAnyRank;
}

void check_fits(const SharedRegion& region, const Message& message, const Header& header) {
  const bool fits = header.tag == message.tag && header.elements == message.tensor.numel() &&
                    header.element == static_cast<std::int32_t>(message.tensor.scalar_type());
  if (fits) return;
  throw InvalidArgument(concat(message.describe(region), ": the sender's next message has tag ",
      header.tag, " (", describe_tensor(header.element, header.elements), ")"));
}

}  // namespace

std::string Message::describe(const SharedRegion& region) const {
  const std::string other = peer == kAnyRank ? "any rank" : region.title(peer);
  return concat(outgoing ? "send to " : "recv from ", other, ", tag ", tag, " (",
      describe_tensor(static_cast<std::int32_t>(tensor.scalar_type()), tensor.numel()), ")");
}

Post::Post(const SharedRegion& region, int rank)
    : region_(region),
      rank_(rank),
      outgoing_(static_cast<std::size_t>(region.size())),
      arriving_(static_cast<std::size_t>(region.size())) {}

std::shared_ptr<Message> Post::add(const torch::Tensor& tensor, int peer, int tag, bool outgoing) {
  auto message = std::make_shared<Message>(Message{tensor, peer, tag, outgoing});
  (outgoing ? outgoing_[static_cast<std::size_t>(peer)] : awaited_).push_back(message);
  return message;
}

void Post::poll() {
  for (Queue& queue : outgoing_) {
    while (!queue.empty() && write_letter(*queue.front())) {
      if (!queue.front()->complete) continue;
      ended_.push_back(std::move(queue.front()));
      queue.pop_front();
    }
  }
  if (!awaited_.empty())
    for (const auto& aside : std::exchange(aside_, {})) hand_over(aside);
  for (int peer = 0; peer < region_.size(); ++peer)
    while (read_letter(peer)) {
    }
}

bool Post::write_letter(Message& message) {
  Mailbox& box = region_.mailbox(rank_, message.peer);
  const std::uint64_t written = box.written.load(std::memory_order_relaxed);
  if (written - box.read.load(std::memory_order_acquire) == Mailbox::kSlots) return false;
  Mailbox::Letter& letter = box.letters[written % Mailbox::kSlots];
  letter.header = {
      message.tag, static_cast<std::int32_t>(message.tensor.scalar_type()), message.tensor.numel()};
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

bool Post::is_awaited(int peer) const {
  return std::ranges::any_of(
      awaited_, [peer](const auto& message) { return could_be_of(*message, peer); });
}

// Returns the first that the message is for; null if nobody awaits it.
std::shared_ptr<Message> Post::take_awaited(int peer, const Header& header) {
  const auto found = std::ranges::find_if(awaited_, [&](const auto& message) {
    return could_be_of(*message, peer) && (!matches_tags_ || message->tag == header.tag);
  });
  if (found == awaited_.end()) return nullptr;
  check_fits(region_, **found, header);
  auto message = *found;
  awaited_.erase(found);
  message->peer = peer;
  return message;
}

// Returns what takes the next message of a rank.
std::shared_ptr<Message> Post::receiver_of(int peer, const Header& header) {
  if (auto message = take_awaited(peer, header)) return message;
  const auto type = static_cast<at::ScalarType>(header.element);
  return std::make_shared<Message>(Message{.tensor = torch::empty({header.elements}, on_host(type)),
      .peer = peer,
      .tag = header.tag,
      .is_aside = true});
}

// Gives what was set aside to the first who awaits it, or keeps it.
void Post::hand_over(const std::shared_ptr<Message>& aside) {
  const torch::Tensor& from = aside->tensor;
  const auto message = take_awaited(
      aside->peer, {aside->tag, static_cast<std::int32_t>(from.scalar_type()), from.numel()});
  if (!message) return aside_.push_back(aside);
  if (from.numel() > 0) std::memcpy(message->tensor.data_ptr(), from.data_ptr(), from.nbytes());
  message->complete = true;
  ended_.push_back(message);
}

bool Post::read_letter(int peer) {
  auto& arriving = arriving_[static_cast<std::size_t>(peer)];
  if (!arriving && !is_awaited(peer)) return false;
  Mailbox& box = region_.mailbox(peer, rank_);
  const std::uint64_t read = box.read.load(std::memory_order_relaxed);
  if (box.written.load(std::memory_order_acquire) == read) return false;
  const Mailbox::Letter& letter = box.letters[read % Mailbox::kSlots];
  if (!arriving) arriving = receiver_of(peer, letter.header);
  Message& message = *arriving;
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
  if (unread == Mailbox::kSlots) region_.alarm(peer).ring();  // it may wait for room
  if (message.complete) {
    const auto whole = std::exchange(arriving, nullptr);
    whole->is_aside ? hand_over(whole) : ended_.push_back(whole);
  }
  return true;
}

bool Post::idle() const {
  const auto empty = [](const Queue& queue) { return queue.empty(); };
  const auto absent = [](const auto& message) { return message == nullptr; };
  return awaited_.empty() && std::ranges::all_of(outgoing_, empty) &&
         std::ranges::all_of(arriving_, absent);
}

std::vector<torch::Tensor> Post::fail(const std::exception_ptr& error) {
  std::vector<torch::Tensor> tensors;
  const auto end = [&](const std::shared_ptr<Message>& message) {
    message->error = error;
    message->complete = true;
    tensors.push_back(message->tensor);
  };
  for (Queue& queue : outgoing_) std::ranges::for_each(std::exchange(queue, {}), end);
  std::ranges::for_each(std::exchange(awaited_, {}), end);
  for (auto& message : arriving_)
    if (message) end(std::exchange(message, nullptr));
  return tensors;
}

}  // namespace lockstep::host
