#include "lockstep/launch/rendezvous/messages.h"

#include <algorithm>

#include "lockstep/core/environment.h"
#include "lockstep/core/error.h"
#include "lockstep/core/text.h"

namespace lockstep::launch {
namespace {

constexpr int kMostWorkersOfANode = 4096;

std::string value_of(const NodeFacts& facts, const std::string& name) {
  const auto found = std::find_if(
      facts.same.begin(), facts.same.end(), [&](const auto& each) { return each.first == name; });
  return found == facts.same.end() ? "not given" : printable_path(found->second);
}

void write(net::ByteWriter& writer, const NodeFacts& facts) {
  writer.text(facts.host).text(facts.address).number(facts.port).number(facts.workers);
  writer.byte(facts.serves ? 1 : 0).number(facts.standby_port).text(facts.run);
  std::vector<std::string> words;
  for (const auto& [name, value] : facts.same) words.insert(words.end(), {name, value});
  writer.texts(words);
}

NodeFacts read_node_facts(net::ByteReader& reader) {
  NodeFacts facts;
  facts.host = printable_path(reader.text());
  facts.address = printable_path(reader.text());
  facts.port = reader.within(0, 65535);
  facts.workers = reader.within(1, kMostWorkersOfANode);
  facts.serves = reader.byte() != 0;
  facts.standby_port = reader.within(0, 65535);
  facts.run = printable_path(reader.text());
  const std::vector<std::string> words = reader.texts();
  if (words.size() % 2 != 0) throw DataError("rendezvous: a fact without a value");
  for (std::size_t i = 0; i < words.size(); i += 2)
    facts.same.emplace_back(printable_path(words[i]), words[i + 1]);
  return facts;
}

constexpr int kMostOfAnInt = 1 << 30;
constexpr std::int64_t kNone = -1;
constexpr int kMostGroups = 1 << 16;  // of the ranks of one node

void write_end(net::ByteWriter& writer, const NodeEnd& end) {
  writer.number(end.generation).number(end.code).byte(end.failure ? 1 : 0);
  const ExitStatus failure = end.failure.value_or(ExitStatus{});
  writer.number(failure.code).number(failure.signal);
  writer.number(end.signal.value_or(0)).number(end.step.value_or(kNone)).number(end.port);
  writer.text(end.run);
}

NodeEnd read_end(net::ByteReader& reader) {
  NodeEnd end;
  end.generation = reader.number();
  end.code = reader.within(0, 255);
  const bool failed = reader.byte() != 0;
  ExitStatus failure;
  failure.code = reader.within(0, 255);
  failure.signal = reader.within(0, 127);
  if (failed) end.failure = failure;
  const int signal = reader.within(0, 127);
  if (signal != 0) end.signal = signal;
  const std::int64_t step = reader.number();
  if (step >= 0) end.step = step;
  end.port = reader.within(0, 65535);
  end.run = printable_path(reader.text());
  return end;
}

void write_wait(net::ByteWriter& writer, const std::optional<NodeWait>& wait) {
  writer.byte(wait ? 1 : 0);
  if (!wait) return;
  writer.byte(wait->in_step ? 1 : 0);
  writer.text(wait->text).number(static_cast<std::int64_t>(wait->begun.size()));
  for (const auto& [group, begun] : wait->begun)
    writer.number(static_cast<std::int64_t>(group)).number(static_cast<std::int64_t>(begun));
}

std::optional<NodeWait> read_wait(net::ByteReader& reader) {
  if (reader.byte() == 0) return std::nullopt;
  const bool in_step = reader.byte() != 0;
  NodeWait wait{.begun = {}, .text = reader.text(), .in_step = in_step};
  for (int left = reader.within(0, kMostGroups); left > 0; --left) {
    const auto group = static_cast<std::uint64_t>(reader.number());
    wait.begun[group] = static_cast<std::uint64_t>(reader.number());
  }
  return wait;
}

void write_plan(net::ByteWriter& writer, const NodePlan& plan) {
  writer.number(plan.generation).number(plan.node_rank).number(plan.nodes);
  writer.number(plan.first_rank).number(plan.world_size);
  writer.text(plan.master_address).number(plan.master_port);
  writer.number(plan.restart).number(plan.max_restarts).text(plan.store_key).texts(plan.successors);
  writer.number(plan.history.restarts).number(plan.history.furthest.value_or(kNone));
  writer.number(plan.history.code_at_furthest).number(plan.history.loops);
  writer.number(plan.founder).text(plan.origin);
}

NodePlan read_plan(net::ByteReader& reader) {
  const int most = static_cast<int>(kMostRanks);
  NodePlan plan;
  plan.generation = reader.number();
  plan.node_rank = reader.within(0, most);
  plan.nodes = reader.within(1, most);
  plan.first_rank = reader.within(0, most);
  plan.world_size = reader.within(1, most);
  plan.master_address = reader.text();
  plan.master_port = reader.within(0, 65535);
  plan.restart = reader.within(0, kMostOfAnInt);
  plan.max_restarts = reader.within(0, kMostOfAnInt);
  plan.store_key = reader.text();
  plan.successors = reader.texts();
  plan.history.restarts = reader.within(0, kMostOfAnInt);
  const std::int64_t furthest = reader.number();
  if (furthest >= 0) plan.history.furthest = furthest;
  plan.history.code_at_furthest = reader.within(0, 255);
  plan.history.loops = reader.within(0, kMostOfAnInt);
  plan.founder = reader.number();
  plan.origin = reader.text();
  return plan;
}

}  // namespace

std::string difference(const NodeFacts& node, const NodeFacts& other) {
  std::vector<std::string> found;
  const auto compare = [&](const NodeFacts& names) {
    for (const auto& [name, ignored] : names.same) {
      const std::string here = value_of(node, name), there = value_of(other, name);
      const std::string text =
          concat(name, " is ", here, ", on host ", other.host, " it is ", there);
      const bool is_known = std::find(found.begin(), found.end(), text) != found.end();
      if (here != there && !is_known) found.push_back(text);
    }
  };
  compare(node);
  compare(other);
  return joined(found, "; ");
}

std::string bytes_of(const AgentMessage& message) {
  net::ByteWriter writer;
  writer.byte(message.kind).number(message.generation);
  writer.text(message.text).number(message.founder);
  if (message.kind == AgentMessage::Kind::kJoin) write(writer, message.facts);
  write_end(writer, message.end);
  if (message.kind == AgentMessage::Kind::kWaits) write_wait(writer, message.wait);
  return writer.take();
}

AgentMessage agent_message_of(std::string_view bytes) {
  net::ByteReader reader(bytes);
  AgentMessage message;
  message.kind = reader.one_of(AgentMessage::Kind::kMoved, "rendezvous");
  message.generation = reader.number();
  message.text = reader.text();
  message.founder = reader.number();
  if (message.kind == AgentMessage::Kind::kJoin) message.facts = read_node_facts(reader);
  message.end = read_end(reader);
  if (message.kind == AgentMessage::Kind::kWaits) message.wait = read_wait(reader);
  reader.finish();
  return message;
}

std::string bytes_of(const Order& order) {
  net::ByteWriter writer;
  writer.byte(order.kind).number(order.generation);
  writer.byte(order.gently ? 1 : 0).number(order.code).text(order.text);
  write_plan(writer, order.plan);
  return writer.take();
}

Order order_of(std::string_view bytes) {
  net::ByteReader reader(bytes);
  Order order;
  order.kind = reader.one_of(Order::Kind::kMove, "rendezvous");
  order.generation = reader.number();
  order.gently = reader.byte() != 0;
  order.code = reader.within(0, 255);
  order.text = reader.text();
  order.plan = read_plan(reader);
  reader.finish();
  return order;
}

}  // namespace lockstep::launch
