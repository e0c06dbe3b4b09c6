#pragma once

#include <optional>
#include <string>

namespace infini_train::comm {

/// A file descriptor that is closed with its owner, and not handed on to programs that this process starts.
class Descriptor {
 public:
    explicit Descriptor(int fd) : fd_(fd) {}
    ~Descriptor();
    Descriptor(Descriptor&& other) noexcept;
    Descriptor& operator=(Descriptor&& other) noexcept;

    int fd() const { return fd_; }

 private:
    int fd_;
};

/// All sockets are TCP and never block.

/// Listens at the port: on this host alone when the address is one of the loopback, for all networks otherwise. Throws
/// Error when the port is taken, or cannot be had for another reason.
Descriptor Listen(const std::string& address, int port);

/// Why other hosts may not find this one at the address, led by "; ". Empty when it is one of this host's.
std::string ProblemOfOwnAddress(const std::string& address);

/// A connection that waits to be accepted, if there is one. *is_out_of_descriptors: this process can open no more.
std::optional<Descriptor> Accept(const Descriptor& listener, bool* is_out_of_descriptors = nullptr);

/// Tries each address of the name once. Nothing when none could be reached: *problem says why.
std::optional<Descriptor> TryConnect(const std::string& address, int port, double timeout_s, std::string* problem);

/// The other end's address and port, for messages.
std::string PeerOf(const Descriptor& socket);

std::string HostName();

}  // namespace infini_train::comm
