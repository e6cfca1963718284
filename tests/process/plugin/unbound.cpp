// A library that needs a function which nobody has.

extern "C" int lockstep_nobody_has_this();
extern "C" int lockstep_something_else() { return lockstep_nobody_has_this(); }
