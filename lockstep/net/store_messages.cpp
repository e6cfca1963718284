#include "lockstep/net/store_messages.h"

#include "lockstep/core/error.h"
#include "lockstep/net/message_bytes.h"

namespace lockstep::net {
namespace {

template <typename Enum>
Enum enum_of(ByteReader& reader, Enum last) {
  const std::uint8_t value = reader.byte();
  if (value > static_cast<std::uint8_t>(last)) throw DataError("store: no such message");
  return static_cast<Enum>(value);
}

bool has_its_parts(const StoreRequest& request) {
  const std::size_t keys = request.keys.size(), values = request.values.size();
  switch (request.op) {
    case StoreOp::kSet:
      return values == keys;
    case StoreOp::kGet:
    case StoreOp::kWait:
    case StoreOp::kCheck:
      return values == 0;
    case StoreOp::kCompareSet:
      return keys == 1 && values == 2;
    case StoreOp::kAppend:
      return keys == 1 && values == 1;
    case StoreOp::kAdd:
    case StoreOp::kDelete:
      return keys == 1 && values == 0;
    case StoreOp::kCount:
      return keys == 0 && values == 0;
  }
  return false;
}

}  // namespace

std::string bytes_of(const StoreRequest& request) {
  ByteWriter writer;
  writer.byte(static_cast<std::uint8_t>(request.op)).count(request.id).number(request.number);
  return writer.texts(request.keys).texts(request.values).take();
}

std::string bytes_of(const StoreReply& reply) {
  ByteWriter writer;
  writer.byte(static_cast<std::uint8_t>(reply.status)).count(reply.id).number(reply.number);
  return writer.texts(reply.values).take();
}

StoreRequest store_request_of(std::string_view bytes) {
  ByteReader reader(bytes);
  StoreRequest request;
  request.op = enum_of(reader, StoreOp::kAppend);
  request.id = reader.count();
  request.number = reader.number();
  request.keys = reader.texts();
  request.values = reader.texts();
  reader.finish();
  if (!has_its_parts(request)) throw DataError("store: a request with other parts than it needs");
  return request;
}

StoreReply store_reply_of(std::string_view bytes) {
  ByteReader reader(bytes);
  StoreReply reply;
  reply.status = enum_of(reader, StoreStatus::kRefused);
  reply.id = reader.count();
  reply.number = reader.number();
  reply.values = reader.texts();
  reader.finish();
  return reply;
}

}  // namespace lockstep::net
