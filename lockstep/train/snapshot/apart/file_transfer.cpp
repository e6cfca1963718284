#include "lockstep/train/snapshot/apart/file_transfer.h"

#include <algorithm>
#include <cstring>
#include <exception>
#include <utility>

#include <ATen/ops/empty.h>
#include <ATen/ops/full.h>

#include "lockstep/device/host_tensor.h"

namespace lockstep {
namespace {

constexpr std::int64_t kPiece = std::int64_t{4} << 20;
// In the place of the number of bytes that follow.
constexpr std::int64_t kEnd = -1;
constexpr std::int64_t kGivenUp = -2;

torch::Tensor number(std::int64_t value) { return at::full({1}, value, on_host(torch::kLong)); }

torch::Tensor empty_piece() { return at::empty({kPiece}, on_host(torch::kByte)); }

class Nowhere final : public ByteSink {
  void put(std::span<const std::uint8_t>) override {}
};

}  // namespace

FileSender::FileSender(const ProcessGroup& group, std::vector<int> receivers)
    : group_(group), receivers_(std::move(receivers)), piece_(empty_piece()) {}

void FileSender::put(std::span<const std::uint8_t> bytes) {
  while (!bytes.empty() && !receivers_.empty()) {
    const auto room = static_cast<std::size_t>(kPiece - filled_);
    const auto part = bytes.first(std::min(room, bytes.size()));
    std::memcpy(piece_.mutable_data_ptr<std::uint8_t>() + filled_, part.data(), part.size());
    filled_ += std::ssize(part);
    bytes = bytes.subspan(part.size());
    if (filled_ == kPiece) send_piece();
  }
}

void FileSender::send_piece() {
  if (filled_ == 0) return;
  send(number(filled_));
  send(piece_.narrow(0, 0, filled_));
  filled_ = 0;
}

void FileSender::send(const torch::Tensor& tensor) {
  std::vector<Work> sent;
  for (const int receiver : receivers_) sent.push_back(group_.send(tensor, receiver));
  for (Work& work : sent) work.wait();
}

void FileSender::finish() {
  send_piece();
  send(number(kEnd));
}

void FileSender::give_up() { send(number(kGivenUp)); }

bool receive_file(const ProcessGroup& group, int sender, ByteSink& sink) {
  const torch::Tensor size = number(0), piece = empty_piece();
  std::exception_ptr failure;
  while (true) {
    group.recv(size, sender).wait();
    const auto bytes = size.item<std::int64_t>();
    if (bytes == kGivenUp) return false;
    if (bytes == kEnd) break;
    group.recv(piece.narrow(0, 0, bytes), sender).wait();
    try {
      const auto count = static_cast<std::size_t>(bytes);
      if (!failure) sink.write(std::span(piece.const_data_ptr<std::uint8_t>(), count));
    } catch (...) {
      failure = std::current_exception();
    }
  }
  if (failure) std::rethrow_exception(failure);
  return true;
}

void discard_file(const ProcessGroup& group, int sender) {
  Nowhere nowhere;
  receive_file(group, sender, nowhere);
}

}  // namespace lockstep
