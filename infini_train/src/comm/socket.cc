#include "infini_train/src/comm/socket.h"

#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <climits>
#include <cstring>
#include <memory>
#include <string>
#include <system_error>
#include <utility>

#include "infini_train/include/common/error.h"
#include "infini_train/include/common/str_cat.h"

namespace infini_train::comm {
namespace {

constexpr int kType = SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC;

struct FreeAddresses {
    void operator()(addrinfo* addresses) const { freeaddrinfo(addresses); }
};
using Addresses = std::unique_ptr<addrinfo, FreeAddresses>;

std::string ErrorText(int error) {
    return std::generic_category().message(error);
}

/// Null when the name cannot be found: *problem says why.
Addresses Resolve(const std::string& address, int port, std::string* problem) {
    addrinfo hints = {};
    hints.ai_socktype = SOCK_STREAM;
    addrinfo* found = nullptr;
    const int result = getaddrinfo(address.c_str(), StrCat(port).c_str(), &hints, &found);
    if (result != 0) {
        *problem = result == EAI_SYSTEM ? ErrorText(errno) : gai_strerror(result);
        return nullptr;
    }
    return Addresses(found);
}

bool IsLoopback(const std::string& address) {
    return address == "localhost" || address == "::1" || address.starts_with("127.");
}

void SetOption(const Descriptor& socket, int level, int option, int value) {
    // One that the kernel does not know only makes a lost host seen later.
    (void)setsockopt(socket.fd(), level, option, &value, sizeof(value));
}

/// Small messages go at once; a host that is gone is seen by the kernel, too.
void SetUpConnection(const Descriptor& socket) {
    SetOption(socket, IPPROTO_TCP, TCP_NODELAY, 1);
    SetOption(socket, SOL_SOCKET, SO_KEEPALIVE, 1);
    SetOption(socket, IPPROTO_TCP, TCP_KEEPIDLE, 5);              // seconds
    SetOption(socket, IPPROTO_TCP, TCP_KEEPINTVL, 2);             // seconds
    SetOption(socket, IPPROTO_TCP, TCP_KEEPCNT, 3);               // probes
    SetOption(socket, IPPROTO_TCP, TCP_USER_TIMEOUT, 10 * 1000);  // ms without an acknowledgement
}

/// 0, or why not.
int BindAndListen(const Descriptor& socket, const sockaddr* address, socklen_t size) {
    SetOption(socket, SOL_SOCKET, SO_REUSEADDR, 1);  // a port whose last connections have just ended is free
    if (bind(socket.fd(), address, size) != 0 || listen(socket.fd(), SOMAXCONN) != 0) {
        return errno;
    }
    return 0;
}

/// For all networks: version 6 takes version 4 with it, where the host has it.
int ListenForAll(int port, Descriptor* listener) {
    const auto network_port = htons(static_cast<uint16_t>(port));
    *listener = Descriptor(socket(AF_INET6, kType, 0));
    if (listener->fd() >= 0) {
        SetOption(*listener, IPPROTO_IPV6, IPV6_V6ONLY, 0);
        sockaddr_in6 address = {};
        address.sin6_family = AF_INET6;
        address.sin6_port = network_port;
        address.sin6_addr = in6addr_any;
        const int error = BindAndListen(*listener, reinterpret_cast<const sockaddr*>(&address), sizeof(address));
        if (error == 0 || error == EADDRINUSE || error == EACCES) {
            return error;
        }
    }
    *listener = Descriptor(socket(AF_INET, kType, 0));
    if (listener->fd() < 0) {
        return errno;
    }
    sockaddr_in address = {};
    address.sin_family = AF_INET;
    address.sin_port = network_port;
    address.sin_addr.s_addr = htonl(INADDR_ANY);
    return BindAndListen(*listener, reinterpret_cast<const sockaddr*>(&address), sizeof(address));
}

/// At the first of the addresses that this host has; a taken port ends the search: whoever connects tries the same
/// order.
int ListenAt(const addrinfo* addresses, Descriptor* listener) {
    int error = EADDRNOTAVAIL;
    for (const addrinfo* a = addresses; a != nullptr; a = a->ai_next) {
        *listener = Descriptor(socket(a->ai_family, kType, 0));
        error = listener->fd() < 0 ? errno : BindAndListen(*listener, a->ai_addr, a->ai_addrlen);
        if (error == 0 || error == EADDRINUSE) {
            break;
        }
    }
    return error;
}

/// Of a socket that connects to a port of this host while nobody listens there and that by chance has that very port.
bool IsConnectedToItself(const Descriptor& socket) {
    sockaddr_storage own = {};
    sockaddr_storage peer = {};
    socklen_t own_size = sizeof(own);
    socklen_t peer_size = sizeof(peer);
    return getsockname(socket.fd(), reinterpret_cast<sockaddr*>(&own), &own_size) == 0 &&
           getpeername(socket.fd(), reinterpret_cast<sockaddr*>(&peer), &peer_size) == 0 && own_size == peer_size &&
           std::memcmp(&own, &peer, own_size) == 0;
}

/// 0, or why not.
int Connect(const Descriptor& socket, const addrinfo& address, double timeout_s) {
    if (socket.fd() < 0) {
        return errno;
    }
    if (connect(socket.fd(), address.ai_addr, address.ai_addrlen) != 0 && errno != EINPROGRESS && errno != EINTR) {
        return errno;
    }
    pollfd ready = {.fd = socket.fd(), .events = POLLOUT, .revents = 0};
    const int num_ready = poll(&ready, 1, static_cast<int>(std::clamp(timeout_s, 0.0, 60.0) * 1000));
    if (num_ready < 1) {
        return num_ready == 0 ? ETIMEDOUT : errno;
    }
    int error = 0;
    socklen_t size = sizeof(error);
    if (getsockopt(socket.fd(), SOL_SOCKET, SO_ERROR, &error, &size) != 0) {
        return errno;
    }
    return error == 0 && IsConnectedToItself(socket) ? ECONNREFUSED : error;
}

}  // namespace

Descriptor::~Descriptor() {
    if (fd_ >= 0) {
        close(fd_);
    }
}

Descriptor::Descriptor(Descriptor&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}

Descriptor& Descriptor::operator=(Descriptor&& other) noexcept {
    std::swap(fd_, other.fd_);
    return *this;
}

Descriptor Listen(const std::string& address, int port) {
    Descriptor listener(-1);
    int error = 0;
    std::string problem;
    if (IsLoopback(address)) {
        const Addresses addresses = Resolve(address, port, &problem);
        error = addresses == nullptr ? EADDRNOTAVAIL : ListenAt(addresses.get(), &listener);
    } else {
        error = ListenForAll(port, &listener);
    }
    if (error == EADDRINUSE) {
        throw Error({.where = StrCat("process 0 (", HostName(), ")"),
                     .what = StrCat("port ", port,
                                    " is taken: another program, or a second process 0 of this run, "
                                    "listens there; set MASTER_PORT to a free one"),
                     .kind = Error::Kind::kRuntime});
    }
    if (error != 0) {
        throw Error({.where = StrCat("process 0 (", HostName(), ")"),
                     .what = StrCat("cannot listen at ", address, " port ", port, ": ",
                                    problem.empty() ? ErrorText(error) : problem),
                     .kind = Error::Kind::kRuntime});
    }
    return listener;
}

std::string ProblemOfOwnAddress(const std::string& address) {
    std::string problem;
    const Addresses addresses = Resolve(address, /*port=*/0, &problem);
    if (addresses == nullptr) {
        return StrCat("; ", address, ": ", problem);
    }
    for (const addrinfo* a = addresses.get(); a != nullptr; a = a->ai_next) {
        const Descriptor socket(::socket(a->ai_family, kType, 0));
        if (socket.fd() >= 0 && bind(socket.fd(), a->ai_addr, a->ai_addrlen) == 0) {
            return "";
        }
    }
    return StrCat("; ", address, " is no address of ", HostName());
}

std::optional<Descriptor> Accept(const Descriptor& listener, bool* is_out_of_descriptors) {
    Descriptor socket(accept4(listener.fd(), nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC));
    if (socket.fd() < 0) {
        if (is_out_of_descriptors != nullptr) {
            *is_out_of_descriptors = errno == EMFILE || errno == ENFILE;
        }
        return std::nullopt;  // none waits, or the one that did is gone
    }
    SetUpConnection(socket);
    return socket;
}

std::optional<Descriptor> TryConnect(const std::string& address, int port, double timeout_s, std::string* problem) {
    const Addresses addresses = Resolve(address, port, problem);
    for (const addrinfo* a = addresses.get(); a != nullptr; a = a->ai_next) {
        Descriptor socket(::socket(a->ai_family, kType, 0));
        const int error = Connect(socket, *a, timeout_s);
        if (error == 0) {
            SetUpConnection(socket);
            return socket;
        }
        *problem = ErrorText(error);
    }
    return std::nullopt;
}

std::string PeerOf(const Descriptor& socket) {
    sockaddr_storage peer = {};
    socklen_t size = sizeof(peer);
    std::array<char, NI_MAXHOST> host = {};
    std::array<char, NI_MAXSERV> port = {};
    if (getpeername(socket.fd(), reinterpret_cast<sockaddr*>(&peer), &size) != 0 ||
        getnameinfo(reinterpret_cast<sockaddr*>(&peer), size, host.data(), host.size(), port.data(), port.size(),
                    NI_NUMERICHOST | NI_NUMERICSERV) != 0) {
        return "an unknown address";
    }
    return StrCat(host.data(), " port ", port.data());
}

std::string HostName() {
    std::array<char, HOST_NAME_MAX + 1> name = {};
    if (gethostname(name.data(), name.size() - 1) != 0) {
        return "unknown host";
    }
    return name.data();
}

}  // namespace infini_train::comm
