#include "lockstep/comm/device/nccl_api.h"

#include <atomic>
#include <cerrno>
#include <dlfcn.h>
#include <system_error>

#include "lockstep/core/error.h"

namespace lockstep::nccl {
namespace {

std::atomic<const Api*> other_api = nullptr;

[[noreturn]] void fail(const std::string& reason) {
  throw std::system_error(ENODEV, std::generic_category(),
      concat("nccl: ", reason, "; ./dev setup --gpu brings it, LibTorch for CUDA needs it too"));
}

// Some builds of libtorch_cuda have NCCL inside, others have loaded it.
void* open_library() {
  if (::dlsym(RTLD_DEFAULT, "ncclCommInitRankConfig") != nullptr) return RTLD_DEFAULT;
  void* const library = ::dlopen("libnccl.so.2", RTLD_NOW | RTLD_GLOBAL);
  if (library == nullptr) fail(concat("cannot be loaded: ", ::dlerror()));
  return library;
}

template <typename Function>
void find(void* library, const char* name, Function& function) {
  function = reinterpret_cast<Function>(::dlsym(library, name));
  if (function == nullptr) fail(concat("the library has no ", name, ": 2.14 or newer is needed"));
}

Api loaded() {
  void* const library = open_library();
  Api api{};
  find(library, "ncclGetVersion", api.version);
  find(library, "ncclGetUniqueId", api.get_unique_id);
  find(library, "ncclCommInitRankConfig", api.init_rank);
  find(library, "ncclCommFinalize", api.finalize);
  find(library, "ncclCommDestroy", api.destroy);
  find(library, "ncclCommAbort", api.abort);
  find(library, "ncclCommGetAsyncError", api.async_error);
  find(library, "ncclAllReduce", api.all_reduce);
  find(library, "ncclReduce", api.reduce);
  find(library, "ncclReduceScatter", api.reduce_scatter);
  find(library, "ncclBroadcast", api.broadcast);
  find(library, "ncclAllGather", api.all_gather);
  find(library, "ncclSend", api.send);
  find(library, "ncclRecv", api.recv);
  find(library, "ncclGroupStart", api.group_start);
  find(library, "ncclGroupEnd", api.group_end);
  find(library, "ncclGetErrorString", api.error_text);
  find(library, "ncclGetLastError", api.last_error);
  return api;
}

}  // namespace

const Api& api() {
  if (const Api* const other = other_api) return *other;
  static const Api kFound = loaded();
  return kFound;
}

std::string version() {
  int number = 0;
  api().version(&number);
  return concat(number / 10000, '.', number / 100 % 100, '.', number % 100);
}

void use_api(const Api* functions) { other_api = functions; }

}  // namespace lockstep::nccl
