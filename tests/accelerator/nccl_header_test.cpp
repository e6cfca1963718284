// Lockstep declares NCCL's functions itself; where nccl.h is there, it must agree.

#include <cstddef>
#include <gtest/gtest.h>
#include <nccl.h>
#include <type_traits>

#include "lockstep/comm/device/nccl_api.h"

namespace lockstep::nccl {
namespace {

template <typename Theirs, typename Ours>
inline constexpr bool kIsAlike =
    sizeof(Theirs) == sizeof(Ours) && std::is_pointer_v<Theirs> == std::is_pointer_v<Ours>;

// As many arguments, each of the same size, pointers where there are pointers.
template <typename Theirs, typename Ours>
inline constexpr bool kIsSameFunction = false;
template <typename TheirResult, typename... Theirs, typename OurResult, typename... Ours>
requires(sizeof...(Theirs) ==
         sizeof...(Ours)) inline constexpr bool kIsSameFunction<TheirResult (*)(Theirs...),
    OurResult (*)(Ours...)> = kIsAlike<TheirResult, OurResult> && (kIsAlike<Theirs, Ours> && ...);

template <typename Ours, typename Theirs>
constexpr bool is_same(Ours ours, Theirs theirs) {
  return static_cast<int>(ours) == static_cast<int>(theirs);
}

TEST(NcclHeader, HasTheSameNumbers) {
  static_assert(sizeof(UniqueId) == sizeof(ncclUniqueId));
  static_assert(
      is_same(Result::kSuccess, ncclSuccess) && is_same(Result::kInProgress, ncclInProgress));
  static_assert(is_same(Type::kInt8, ncclInt8) && is_same(Type::kUint8, ncclUint8) &&
                is_same(Type::kInt32, ncclInt32) && is_same(Type::kInt64, ncclInt64));
  static_assert(is_same(Type::kFloat16, ncclFloat16) && is_same(Type::kFloat32, ncclFloat32) &&
                is_same(Type::kFloat64, ncclFloat64) && is_same(Type::kBfloat16, ncclBfloat16));
  static_assert(is_same(Operation::kSum, ncclSum) && is_same(Operation::kProduct, ncclProd) &&
                is_same(Operation::kMax, ncclMax) && is_same(Operation::kMin, ncclMin) &&
                is_same(Operation::kMean, ncclAvg));
  SUCCEED() << "compiled";
}

TEST(NcclHeader, HasTheSameFunctions) {
  EXPECT_TRUE((kIsSameFunction<decltype(&ncclGetVersion), decltype(Api::version)>));
  EXPECT_TRUE((kIsSameFunction<decltype(&ncclGetUniqueId), decltype(Api::get_unique_id)>));
  EXPECT_TRUE((kIsSameFunction<decltype(&ncclCommInitRankConfig), decltype(Api::init_rank)>));
  EXPECT_TRUE((kIsSameFunction<decltype(&ncclCommFinalize), decltype(Api::finalize)>));
  EXPECT_TRUE((kIsSameFunction<decltype(&ncclCommDestroy), decltype(Api::destroy)>));
  EXPECT_TRUE((kIsSameFunction<decltype(&ncclCommAbort), decltype(Api::abort)>));
  EXPECT_TRUE((kIsSameFunction<decltype(&ncclCommGetAsyncError), decltype(Api::async_error)>));
  EXPECT_TRUE((kIsSameFunction<decltype(&ncclAllReduce), decltype(Api::all_reduce)>));
  EXPECT_TRUE((kIsSameFunction<decltype(&ncclReduce), decltype(Api::reduce)>));
  EXPECT_TRUE((kIsSameFunction<decltype(&ncclReduceScatter), decltype(Api::reduce_scatter)>));
  EXPECT_TRUE((kIsSameFunction<decltype(&ncclBroadcast), decltype(Api::broadcast)>));
  EXPECT_TRUE((kIsSameFunction<decltype(&ncclAllGather), decltype(Api::all_gather)>));
  EXPECT_TRUE((kIsSameFunction<decltype(&ncclSend), decltype(Api::send)>));
  EXPECT_TRUE((kIsSameFunction<decltype(&ncclRecv), decltype(Api::recv)>));
  EXPECT_TRUE((kIsSameFunction<decltype(&ncclGroupStart), decltype(Api::group_start)>));
  EXPECT_TRUE((kIsSameFunction<decltype(&ncclGroupEnd), decltype(Api::group_end)>));
  EXPECT_TRUE((kIsSameFunction<decltype(&ncclGetErrorString), decltype(Api::error_text)>));
  EXPECT_TRUE((kIsSameFunction<decltype(&ncclGetLastError), decltype(Api::last_error)>));
}

// The members that we set, where NCCL's own initializer has them.
TEST(NcclHeader, HasTheSameConfiguration) {
  const ncclConfig_t theirs = NCCL_CONFIG_INITIALIZER;
  const Config ours;
  EXPECT_EQ(ours.magic, theirs.magic);
  EXPECT_LE(ours.version, theirs.version);
  EXPECT_EQ(ours.cluster_size, theirs.cgaClusterSize);
  EXPECT_EQ(offsetof(Config, version), offsetof(ncclConfig_t, version));
  EXPECT_EQ(offsetof(Config, blocking), offsetof(ncclConfig_t, blocking));
  EXPECT_EQ(offsetof(Config, cluster_size), offsetof(ncclConfig_t, cgaClusterSize));
}

}  // namespace
}  // namespace lockstep::nccl
