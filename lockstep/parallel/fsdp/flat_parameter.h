#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <torch/types.h>

#include "lockstep/comm/process_group.h"
#include "lockstep/comm/work.h"
#include "lockstep/device/gradient_places.h"
#include "lockstep/formats/weights/tensor_parts.h"
#include "lockstep/parallel/ddp/replicated_state.h"
#include "lockstep/parallel/fsdp/gathered_cast.h"

namespace lockstep {

/// A rank's part of a parameter: a stretch of its elements, in the order of their memory.
struct ParameterPart {
  std::string name;                   ///< of the parameter
  std::vector<std::int64_t> sizes;    ///< of the whole parameter
  std::vector<std::int64_t> strides;  ///< of the whole parameter, which has no holes
  std::int64_t begin = 0;             ///< the first element
  /// As many dimensions as the parameter, all but the last of size 1: so rules that go by the
  /// number of dimensions, such as which weights decay, hold for parts too.
  torch::Tensor tensor;
};

/// Returns which elements of the whole it has, for the files of a snapshot.
TensorRange range_of(const ParameterPart& part);

/// A stretch of elements.
struct Stretch {
  std::int64_t begin = 0;
  std::int64_t count = 0;

  std::int64_t end() const { return begin + count; }
  friend bool operator==(const Stretch&, const Stretch&) = default;
};

/// Returns what two stretches have in common; nothing has no elements.
Stretch common(const Stretch& a, const Stretch& b);

/// Where parameters lie in one stretch of memory that is cut into equal shards.
struct FlatLayout {
  std::vector<std::int64_t> offsets;  ///< of each parameter, in elements
  std::int64_t shard = 0;             ///< elements of each rank's shard

  /// Lays parameters out one after the other. Each begins on a multiple of `unit` elements, as
  /// memory that is allocated for it would: the bits of some kernels depend on that. So do shards.
  FlatLayout(const std::vector<std::int64_t>& elements, std::int64_t unit, int ranks);
};

/// One-dimensional tensors of one purpose, which are used again and again.
class BufferPool {
 public:
  using Make = std::function<torch::Tensor(std::int64_t, const torch::TensorOptions&)>;

  explicit BufferPool(Make make) : make_(std::move(make)) {}

  /// Returns a tensor of that type and device with at least as many elements: the smallest that is
  /// free, or a new one in place of the largest that is.
  torch::Tensor take(std::int64_t elements, const torch::TensorOptions& options);
  void give(torch::Tensor buffer) { free_.push_back(std::move(buffer)); }

  /// Counts a tensor that was made elsewhere and serves as one of these for a while.
  void add(const torch::Tensor& other) { count(static_cast<std::int64_t>(other.nbytes())); }
  void drop(const torch::Tensor& other) { count(-static_cast<std::int64_t>(other.nbytes())); }

  /// Frees what nobody uses.
  void clear();

  /// Returns the most bytes that there have been.
  std::int64_t peak_bytes() const { return peak_; }

 private:
  void count(std::int64_t bytes);

  Make make_;
  std::vector<torch::Tensor> free_;
  std::int64_t bytes_ = 0;
  std::int64_t peak_ = 0;
};

/// The memory of flat parameters and their gradients while they are whole.
struct BufferPools {
  explicit BufferPools(const ProcessGroup& group);

  BufferPool parameters;
  BufferPool parts;      ///< of this rank, in the shorter type in which they are gathered
  BufferPool gradients;  ///< which the group reduces without copying
};

/// The ranks among which the parameters of a model are divided.
struct ShardingGroups {
  ProcessGroup shards;    ///< share one copy of the parameters
  ProcessGroup replicas;  ///< have the same part of each copy; this rank alone, if there is one

  /// Divides a group into copies: ranks that follow one another share one. Throws InvalidArgument
  /// unless the copies have as many ranks each. A collective.
  ShardingGroups(const ProcessGroup& all, int copies);

  void abort(const std::string& reason) const;
};

/// The types in which a flat parameter travels, where they are not its own.
struct TravelTypes {
  bool gathers_casts = false;  ///< in the type of autocast, see Note [Gathers in a shorter type]
  /// Gradients are divided by the number of ranks, cast, and added up.
  std::optional<at::ScalarType> gradients = {};
};

/// Parameters that are gathered and released together; of each, this rank keeps a part.
///
/// Note [Memory that is lent]
/// The parameters are views of one storage, whose memory is lent to it while they are whole. What
/// autograd has saved of them in forward so finds their values again in backward, wherever they
/// were gathered by then. Released, the storage has no memory, and LibTorch throws at any use.
/// What is lent comes from a pool, and the ranks' shards lie where the group reads them in place.
class FlatParameter {
 public:
  /// Takes the values of rank 0 and gives up the parameters' own memory. They have one type, one
  /// device, and all require gradients, or none. A collective.
  FlatParameter(const NamedTensors& parameters, const ShardingGroups& groups, BufferPools& pools,
      const TravelTypes& types);
  ~FlatParameter();
  FlatParameter(const FlatParameter&) = delete;
  FlatParameter& operator=(const FlatParameter&) = delete;

  std::size_t size() const { return members_.size(); }
  const torch::Tensor& parameter(std::size_t index) const { return members_[index].parameter; }
  bool is_trained() const { return members_.front().parameter.requires_grad(); }

  /// Returns this rank's part of a parameter; the tensor is undefined where it has none.
  const ParameterPart& part(std::size_t index) const { return members_[index].part; }

  /// Returns a number that is another one once a part has been changed.
  std::int64_t version() const;

  /// Begins to bring the parts of all ranks together, unless that is done; where casts are
  /// gathered, those to `cast`, if it is given. A collective.
  void begin_gather(std::optional<at::ScalarType> cast = {});
  /// Waits for it: the parameters can be used.
  void finish_gather();
  bool is_whole() const { return lent_.defined(); }
  /// Returns how often they have been brought together so far.
  std::int64_t gathers() const { return gathers_; }
  /// Returns whether a tensor is one of the parameters, or a view of one.
  bool holds(const torch::Tensor& tensor) const {
    if (!tensor.defined() || !tensor.has_storage()) return false;
    const void* const storage = tensor.storage().unsafeGetStorageImpl();
    return storage == whole_.unsafeGetStorageImpl() ||
           storage == cast_.storage.unsafeGetStorageImpl();
  }
  /// Returns which of the parameters a tensor is a view of, if it is one of all its elements in the
  /// same order.
  std::optional<std::size_t> index_of(const torch::Tensor& view) const;
  /// Takes the memory back.
  void release();
  /// Takes this rank's part of the whole parameters, which have been changed.
  void keep_part_of_whole();
  /// Gives the parameters, which are whole, memory of their own again.
  void give_back();

  /// Moves the gradient of a parameter, which backward has just completed, to the others of this
  /// pass and of those before that were not reduced.
  void take_gradient(std::size_t index);
  /// Adds a gradient of a parameter to them.
  void add_gradient(std::size_t index, torch::Tensor gradient);
  bool has_gradient(std::size_t index) const { return members_[index].has_gradient; }
  bool has_all_gradients() const { return gradients_ == members_.size(); }
  bool has_gradients() const { return gradients_ > 0; }

  /// Begins to average the gradients over the ranks, each of which gets its parts. A collective.
  void begin_reduce();
  /// Waits for it, and adds them to the parts' gradients.
  void finish_reduce();

  /// Carries forward what is under way.
  void poll();

 private:
  struct Member {
    std::string name;
    torch::Tensor parameter;
    std::vector<std::int64_t> sizes, strides;
    std::int64_t offset = 0;
    ParameterPart part;
    std::int64_t part_offset = 0;  // in the shard
    GradientPlace place = {};      // of the part's gradient
    bool has_gradient = false;     // whole, of this rank alone
  };

  /// Whole gradients of this rank alone: in a buffer of the pool, or where autograd has left them.
  struct Gradients {
    torch::Tensor all;
    bool is_of_pool = true;
  };

  void lay_out(const NamedTensors& parameters, const FlatLayout& layout);
  void move_to(const torch::Tensor& whole);
  void make_parts();
  void make_places();
  void lend(const torch::Storage& storage, void* memory) const;
  void lend_cast(at::ScalarType type);
  torch::Tensor part_to_send(at::ScalarType type);
  bool fills_shards() const;
  bool is_free(const Member& member, const torch::Tensor& gradient) const;
  void put_back(Gradients done);
  void shorten_gradients();
  bool sends_shorter() const;
  bool divides_at_end() const;
  ReduceOp step_of_reduction() const;
  void reduce_over_replicas();
  torch::Tensor own_shard_of(const torch::Tensor& whole) const;
  void add_to_part(Member& member, const torch::Tensor& averages);

  ProcessGroup group_;  // that shares this copy
  ProcessGroup replicas_;
  BufferPools& pools_;
  TravelTypes types_;
  torch::TensorOptions options_;
  std::int64_t shard_elements_;
  std::vector<Member> members_;
  torch::Storage whole_;
  torch::Tensor shard_;
  torch::Tensor gradient_shard_;  // from the first reduction on
  torch::Tensor lent_;
  GatheredCast cast_;   // lent instead
  torch::Tensor sent_;  // to others, while it is gathered
  Work gather_;
  std::int64_t gathers_ = 0;
  Gradients gradient_;
  std::size_t gradients_ = 0;
  Gradients reduced_;  // while it is
  bool is_within_copy_ = false;
  Work reduction_;
};

}  // namespace lockstep
