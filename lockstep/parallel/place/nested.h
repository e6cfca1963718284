#pragma once

#include <algorithm>
#include <array>
#include <concepts>
#include <cstddef>
#include <map>
#include <optional>
#include <string>
#include <tuple>
#include <type_traits>
#include <unordered_map>
#include <utility>
#include <vector>

#include <c10/util/Exception.h>
#include <torch/ordered_dict.h>
#include <torch/types.h>

#include "lockstep/core/error.h"

namespace lockstep {

// Note [Nested values]
// What goes into a module and comes out of it is a tensor or a structure of tensors: pair, tuple,
// array, vector, optional, map, unordered_map, torch::OrderedDict, within each other. Everything
// else (a number, a string, a vector of numbers) is plain and passed on as it is.
//
// The order of the tensors is that of the elements; of a map, that of its keys, so that two equal
// maps have one order; of an OrderedDict, that of insertion. Undefined tensors count.

namespace nested {

/// The access to the tensors of one type; this is the case of a plain one.
template <typename T>
struct Traits {
  static constexpr bool kHoldsTensors = false;

  template <typename Visitor>
  static void visit(const T&, const Visitor&) {}

  static bool alike(const T& a, const T& b) {
    static_assert(std::equality_comparable<T>,
        "a plain value that several computations return must be comparable, to see whether they "
        "agree: give it an operator==, or return tensors");
    return a == b;
  }
};

template <>
struct Traits<torch::Tensor> {
  static constexpr bool kHoldsTensors = true;

  template <typename Value, typename Visitor>
  static void visit(Value& tensor, const Visitor& visitor) {
    visitor(tensor);
  }

  static bool alike(const torch::Tensor& a, const torch::Tensor& b) {
    return a.defined() == b.defined();
  }
};

}  // namespace nested

/// A type whose values may hold tensors.
template <typename T>
concept Nested = nested::Traits<std::remove_cvref_t<T>>::kHoldsTensors;

/// Calls `visitor(tensor)` for each tensor of a value, in order; it may change those of a mutable
/// value.
template <typename T, typename Visitor>
void visit_tensors(T& value, const Visitor& visitor) {
  if constexpr (Nested<T>) nested::Traits<std::remove_cvref_t<T>>::visit(value, visitor);
}

/// Returns whether two values have the same structure: the same sizes and keys, tensors defined in
/// the same places, and equal plain values.
template <typename T>
bool same_structure(const T& a, const T& b) {
  return nested::Traits<T>::alike(a, b);
}

/// Lists the tensors of a value, in order.
template <typename T>
std::vector<torch::Tensor> flatten(const T& value) {
  std::vector<torch::Tensor> tensors;
  visit_tensors(value, [&](const torch::Tensor& tensor) { tensors.push_back(tensor); });
  return tensors;
}

/// Makes a value like `structure` that holds these tensors, in order. Throws InvalidArgument unless
/// there are as many as the structure has.
template <typename T>
T unflatten(T structure, const std::vector<torch::Tensor>& tensors) {
  std::size_t next = 0;
  visit_tensors(structure, [&](torch::Tensor& tensor) {
    if (next < tensors.size()) tensor = tensors[next];
    ++next;
  });
  check(next == tensors.size(), "unflatten: the structure has ", next, " tensors, but these are ",
      tensors.size());
  return structure;
}

namespace nested {

/// The access to the elements of what std::apply knows: pair, tuple, array.
template <typename Tuple, typename... Elements>
struct TupleTraits {
  static constexpr bool kHoldsTensors = (Nested<Elements> || ...);

  template <typename Value, typename Visitor>
  static void visit(Value& value, const Visitor& visitor) {
    std::apply([&](auto&... elements) { (visit_tensors(elements, visitor), ...); }, value);
  }

  static bool alike(const Tuple& a, const Tuple& b) {
    return [&]<std::size_t... Index>(std::index_sequence<Index...>) {
      return (same_structure(std::get<Index>(a), std::get<Index>(b)) && ...);
    }
    (std::index_sequence_for<Elements...>());
  }
};

template <typename First, typename Second>
struct Traits<std::pair<First, Second>> : TupleTraits<std::pair<First, Second>, First, Second> {};

template <typename... Elements>
struct Traits<std::tuple<Elements...>> : TupleTraits<std::tuple<Elements...>, Elements...> {};

/// The access to the elements of a sequence.
template <typename Sequence, typename Element>
struct SequenceTraits {
  static constexpr bool kHoldsTensors = Nested<Element>;

  template <typename Value, typename Visitor>
  static void visit(Value& value, const Visitor& visitor) {
    for (auto& element : value) visit_tensors(element, visitor);
  }

  static bool alike(const Sequence& a, const Sequence& b) {
    return std::equal(a.begin(), a.end(), b.begin(), b.end(),
        [](const auto& x, const auto& y) { return same_structure<Element>(x, y); });
  }
};

template <typename Element, std::size_t size>
struct Traits<std::array<Element, size>> : SequenceTraits<std::array<Element, size>, Element> {};

template <typename Element>
struct Traits<std::vector<Element>> : SequenceTraits<std::vector<Element>, Element> {};

template <typename Element>
struct Traits<std::optional<Element>> {
  static constexpr bool kHoldsTensors = Nested<Element>;

  template <typename Value, typename Visitor>
  static void visit(Value& value, const Visitor& visitor) {
    if (value) visit_tensors(*value, visitor);
  }

  static bool alike(const std::optional<Element>& a, const std::optional<Element>& b) {
    return a.has_value() == b.has_value() && (!a || same_structure(*a, *b));
  }
};

/// The access to the values of a map, in the order of its keys.
template <typename Map>
struct MapTraits {
  using Key = typename Map::key_type;
  using Mapped = typename Map::mapped_type;
  static constexpr bool kHoldsTensors = Nested<Mapped>;

  static std::vector<Key> sorted_keys(const Map& map) {
    std::vector<Key> keys;
    for (const auto& [key, mapped] : map) keys.push_back(key);
    std::sort(keys.begin(), keys.end());
    return keys;
  }

  template <typename Value, typename Visitor>
  static void visit(Value& map, const Visitor& visitor) {
    for (const Key& key : sorted_keys(map)) visit_tensors(map.at(key), visitor);
  }

  static bool alike(const Map& a, const Map& b) {
    const auto keys = sorted_keys(a);
    if (keys != sorted_keys(b)) return false;
    return std::all_of(keys.begin(), keys.end(),
        [&](const Key& key) { return same_structure<Mapped>(a.at(key), b.at(key)); });
  }
};

template <typename Key, typename Mapped>
struct Traits<std::map<Key, Mapped>> : MapTraits<std::map<Key, Mapped>> {};

template <typename Key, typename Mapped>
struct Traits<std::unordered_map<Key, Mapped>> : MapTraits<std::unordered_map<Key, Mapped>> {};

template <typename Key, typename Mapped>
struct Traits<torch::OrderedDict<Key, Mapped>> {
  using Dict = torch::OrderedDict<Key, Mapped>;
  static constexpr bool kHoldsTensors = Nested<Mapped>;

  template <typename Value, typename Visitor>
  static void visit(Value& dict, const Visitor& visitor) {
    for (auto& item : dict) visit_tensors(item.value(), visitor);
  }

  static bool alike(const Dict& a, const Dict& b) {
    return a.keys() == b.keys() &&
           SequenceTraits<std::vector<Mapped>, Mapped>::alike(a.values(), b.values());
  }
};

}  // namespace nested
}  // namespace lockstep
