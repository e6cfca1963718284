#include "lockstep/launch/rendezvous/node_facts.h"

#include <algorithm>

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

}  // namespace

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

}  // namespace lockstep::launch
