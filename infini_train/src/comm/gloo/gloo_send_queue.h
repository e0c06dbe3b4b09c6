#pragma once

#include <condition_variable>
#include <deque>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

#include "infini_train/src/comm/gloo/gloo_connections.h"

namespace infini_train::comm {

/// The sends of one link that are under way, in order, and what they read from. A thread waits for the end of each and
/// lets go of its memory then; the failure or the end of the connections ends it.
class GlooSendQueue {
 public:
    struct Sent {
        std::shared_ptr<const void> memory = nullptr;
        std::vector<GlooTransfer> transfers = {};
    };

    /// The connections live longer, and are failed or closing when this is destroyed.
    explicit GlooSendQueue(GlooConnections* connections);
    ~GlooSendQueue();
    GlooSendQueue(const GlooSendQueue&) = delete;
    GlooSendQueue& operator=(const GlooSendQueue&) = delete;

    void Push(Sent sent);

 private:
    void Run();

    GlooConnections* connections_;
    std::mutex mutex_;
    std::condition_variable changed_;
    std::deque<Sent> sent_;
    bool is_last_ = false;
    std::thread thread_;
};

}  // namespace infini_train::comm
