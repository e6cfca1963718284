#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace lockstep::net {

/// The questions that a rank may ask the store of its generation.
enum class StoreOp : std::uint8_t {
  kSet,         ///< each key to its value
  kGet,         ///< the values of all keys, when all are there; `number` is the patience in ms
  kWait,        ///< the same without the values
  kAdd,         ///< `number` to the number that the key is, 0 where it is not there
  kCompareSet,  ///< the second value, if the key has the first, or is not there and that is empty
  kCheck,       ///< whether all keys are there
  kDelete,      ///< the key; whether it was there
  kCount,       ///< of all keys
  kAppend,      ///< the value behind that of the key
};

struct StoreRequest {
  StoreOp op = StoreOp::kCount;
  std::uint32_t id = 0;  ///< that the reply has, too
  std::vector<std::string> keys = {};
  std::vector<std::string> values = {};
  std::int64_t number = 0;
};

enum class StoreStatus : std::uint8_t {
  kDone,
  kTooLate,  ///< the keys did not come in time
  kRefused,  ///< `values` has the reason
};

struct StoreReply {
  std::uint32_t id = 0;
  StoreStatus status = StoreStatus::kDone;
  std::vector<std::string> values = {};
  std::int64_t number = 0;
};

std::string bytes_of(const StoreRequest& request);
std::string bytes_of(const StoreReply& reply);

/// Reads a request of as many keys and values as its kind has. Throws DataError for another.
StoreRequest store_request_of(std::string_view bytes);
StoreReply store_reply_of(std::string_view bytes);

}  // namespace lockstep::net
