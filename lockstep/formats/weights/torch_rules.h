#pragma once

#include <string>

#include "lockstep/formats/weights/pickle_value.h"

// What the names in a pickle of torch.save mean. Nothing is executed: each of the few callables
// that a state dictionary needs is a function here, any other is refused. What is refused throws
// DataError with the reason alone; the reader of the pickle adds file and offset.
namespace lockstep::pickle {

/// Refuses a name that is neither such a callable nor one of PyTorch's types.
void check_name(const std::string& name);

/// Gives what calling `callable` with these arguments gives in Python.
Value call(const Value& callable, const Value& arguments, Arena& arena);

/// Gives the storage that a persistent id stands for.
Value storage_of(const Value& id, Arena& arena);

}  // namespace lockstep::pickle
