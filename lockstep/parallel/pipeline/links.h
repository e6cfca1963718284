#pragma once

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <exception>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <utility>
#include <vector>

#include <c10/core/Stream.h>
#include <torch/nn/modules/container/any_value.h>
#include <torch/types.h>

#include "lockstep/comm/process_group.h"
#include "lockstep/device/accelerator.h"
#include "lockstep/parallel/place/place.h"

namespace lockstep {

/// The forms in which values may pass from one stage to the next.
enum class ValueForm : std::int64_t {
  kTensor,
  kVector,  ///< std::vector<torch::Tensor>
  kPair,    ///< std::pair of tensors
  kTuple1,  ///< std::tuple of that many tensors
  kTuple2,
  kTuple3,
  kTuple4,
  kRecurrent  ///< std::tuple<Tensor, std::tuple<Tensor, Tensor>>, what an LSTM gives
};

/// Takes the tensors out of a value. Throws InvalidArgument that names the type if it has another
/// form.
std::vector<torch::Tensor> tensors_of(torch::nn::AnyValue& value, ValueForm& form);

/// Puts tensors into a value of that form.
torch::nn::AnyValue value_of(ValueForm form, const std::vector<torch::Tensor>& tensors);

/// The tensors that one stage hands to the next for one micro-batch, or their gradients on the way
/// back.
struct Payload {
  ValueForm form = ValueForm::kTensor;
  std::vector<torch::Tensor> values;  ///< the value's tensors, then the skips that cross
  std::size_t skips = 0;              ///< how many of them are skips
};

/// The direction of a payload.
enum class Direction : std::int64_t { kForward, kBackward };

/// The address of a payload: the stage that takes it, and the micro-batch.
struct Address {
  Direction direction = Direction::kForward;
  int stage = 0;
  int micro_batch = 0;
  friend auto operator<=>(
      const Address&, const Address&) = default;  // NOLINT(modernize-use-nullptr)
};

/// Returns address, form, types and shapes of a payload in numbers, to be sent before its tensors.
std::vector<std::int64_t> describe(const Address& address, const Payload& payload);

/// Reads a description and makes tensors, on a device, into which the payload's values are
/// received. Throws CommError if the numbers are not a description.
std::pair<Address, Payload> read_description(
    const std::vector<std::int64_t>& numbers, torch::Device device);

/// Sends the root's tensor to all ranks of a group, which need not know its type and shape and get
/// it on their device. A collective; only the root's tensor matters.
torch::Tensor broadcast_described(
    const torch::Tensor& tensor, int root, const ProcessGroup& group, torch::Device device);

/// The transport of payloads between the ranks of one pipeline.
///
/// A send does not wait for its receive, so ranks may run their schedules strictly in order; a
/// payload is received when an action needs it, so none waits earlier than it must.
///
/// Note [Transfers beside computing]
/// On accelerators a payload waits for the computing of its micro-batch in the stage that sends it,
/// and the computing of that micro-batch in the next stage waits for the payload: for nothing else
/// does either wait. So transfers have streams of their own, which an event ties to the computing
/// stream at both ends, and what arrives is memory of such a stream, not of the computing one.
class Links {
 public:
  virtual ~Links() = default;
  virtual void send(const Address& address, const Payload& payload) = 0;
  virtual Payload receive(const Address& address) = 0;
  /// Advances what is under way; throws if the pipeline was stopped.
  virtual void poll() = 0;
  /// Waits until everything sent has left.
  virtual void flush() = 0;
  /// Seconds spent in receive() since the start.
  double waited_seconds() const { return waited_seconds_; }

 protected:
  double waited_seconds_ = 0;
};

/// Thrown in the stages that end because another one failed.
class PipelineStopped : public std::exception {
 public:
  const char* what() const noexcept override { return "pipeline: another stage failed"; }
};

/// A payload between two places.
struct Parcel {
  ValueForm form = ValueForm::kTensor;
  PeerCopies values;
  std::size_t skips = 0;
};

/// The place where the threads of a pipeline in one process leave payloads for each other.
class Exchange {
 public:
  void put(const Address& address, Parcel parcel);
  /// Waits for the payload. Throws PipelineStopped after stop().
  Parcel take(const Address& address);
  void stop();
  void check_running();
  void restart();

 private:
  std::mutex mutex_;
  std::condition_variable arrived_;
  std::map<Address, Parcel> waiting_;
  bool stopped_ = false;
};

/// Links between threads of one process: tensors change hands. Only what goes to another device is
/// copied, from when it is computed: see Note [Transfers beside computing].
class LocalLinks final : public Links {
 public:
  /// Stage s is in places[s % places.size()].
  LocalLinks(Exchange& exchange, const std::vector<Place>& places);
  void send(const Address& address, const Payload& payload) override;
  Payload receive(const Address& address) override;
  void poll() override { exchange_.check_running(); }
  void flush() override {}

 private:
  Exchange& exchange_;
  std::vector<PeerCopier> copiers_;  // to each place
};

/// Links between the ranks of a process group; stage s is on rank s % size.
///
/// A payload is three messages or more: how long its description is, the description (form, types,
/// shapes), both from the host, and its tensors; so shapes may change from one micro-batch to the
/// next.
class GroupLinks final : public Links {
 public:
  /// Receives tensors on `device`.
  explicit GroupLinks(ProcessGroup group, torch::Device device = torch::kCPU);
  void send(const Address& address, const Payload& payload) override;
  Payload receive(const Address& address) override;
  void poll() override;
  void flush() override;

 private:
  struct Sent {
    Work work;
    torch::Tensor tensor;
  };
  void begin_send(const torch::Tensor& tensor, int to);
  std::pair<Address, Payload> make_room(const std::vector<std::int64_t>& description) const;
  std::vector<std::int64_t> receive_numbers(int from);
  void receive_into(const torch::Tensor& tensor, int from);
  int rank_of(int stage) const { return stage % group_.size(); }
  int source_of(const Address& address) const;

  ProcessGroup group_;
  torch::Device device_;
  std::optional<c10::Stream> arriving_;  // none on the host
  std::deque<Sent> sent_;
  std::map<Address, Payload> early_;
};

}  // namespace lockstep
