#pragma once

#include <string>

namespace lockstep {

/// Says whether a host is given as the loopback of whoever reads it: `localhost`, 127.x.y.z, ::1.
bool names_loopback(const std::string& host);

/// Throws InvalidArgument that begins with `what` if the host is given as the loopback, and this
/// host's is down: then nobody can be reached there.
void check_loopback(const std::string& what, const std::string& host);

/// Returns why connections cannot use the network interface of that name, after which its name can
/// stand, and which they can; empty if they can.
std::string obstacle_of_interface(const std::string& name);

/// Returns the numeric address from which this host sends to another, by the route to it: the one
/// of the right interface, by which the other can answer. Nothing is sent. Empty if the name has no
/// address, or there is no way there.
std::string address_towards(const std::string& host);

/// Returns the address from which this host sends to hosts outside: by the default route, or else
/// that of its first interface. Empty without any.
std::string address_outwards();

/// Returns how all hosts of a run reach a host of it. That is its name, except on the host itself
/// where its own /etc/hosts gives the name an address of the loopback, as Debian does (127.0.1.1):
/// there it is address_outwards().
std::string reachable_name(const std::string& host);

}  // namespace lockstep
