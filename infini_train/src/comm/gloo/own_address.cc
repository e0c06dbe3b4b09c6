#include "infini_train/src/comm/gloo/own_address.h"

#include <netdb.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <memory>
#include <system_error>

#include "infini_train/include/common/error.h"
#include "infini_train/include/common/str_cat.h"
#include "infini_train/src/comm/socket.h"

namespace infini_train::comm {
namespace {

struct FreeAddresses {
    void operator()(addrinfo* addresses) const { freeaddrinfo(addresses); }
};

/// Empty, with the reason in errno, when there is no way to it.
std::string SourceTowards(const addrinfo& target) {
    // The kernel looks for the way when a datagram socket is connected, and sends nothing.
    const Descriptor socket(::socket(target.ai_family, SOCK_DGRAM | SOCK_CLOEXEC, 0));
    sockaddr_storage own = {};
    socklen_t size = sizeof(own);
    if (socket.fd() < 0 || connect(socket.fd(), target.ai_addr, target.ai_addrlen) != 0 ||
        getsockname(socket.fd(), reinterpret_cast<sockaddr*>(&own), &size) != 0) {
        return "";
    }
    std::array<char, NI_MAXHOST> text = {};
    const int result = getnameinfo(reinterpret_cast<const sockaddr*>(&own), size, text.data(), text.size(), nullptr, 0,
                                   NI_NUMERICHOST);
    return result == 0 ? text.data() : "";
}

/// Of a loopback interface, which other hosts cannot reach.
bool IsLoopbackAddress(const std::string& address) {
    return address == "::1" || address.starts_with("127.");
}

}  // namespace

std::string AddressTowards(const std::string& address, int port) {
    addrinfo hints = {};
    hints.ai_socktype = SOCK_DGRAM;
    addrinfo* found = nullptr;
    const int result = getaddrinfo(address.c_str(), StrCat(port).c_str(), &hints, &found);
    std::string problem = result == 0 ? "" : gai_strerror(result);
    if (result == 0) {
        const std::unique_ptr<addrinfo, FreeAddresses> addresses(found);
        for (const addrinfo* target = found; target != nullptr; target = target->ai_next) {
            const std::string own = SourceTowards(*target);
            if (!own.empty()) {
                return own;
            }
            problem = std::generic_category().message(errno);
        }
    }
    throw Error({.where = HostName(),
                 .what = StrCat("no address of this host reaches ", address, ": ", problem),
                 .kind = Error::Kind::kRuntime});
}

std::string OwnAddress(const ProcessPlace& place,
                       const std::function<std::vector<std::string>(const std::string&)>& exchange_text) {
    const std::string own = AddressTowards(place.master_address, place.master_port);
    const std::vector<std::string> all = exchange_text(own);
    const auto other = std::find_if_not(all.begin(), all.end(), IsLoopbackAddress);
    return IsLoopbackAddress(own) && other != all.end() ? AddressTowards(*other, place.master_port) : own;
}

}  // namespace infini_train::comm
