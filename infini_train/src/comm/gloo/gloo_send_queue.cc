#include "infini_train/src/comm/gloo/gloo_send_queue.h"

#include <pthread.h>

#include <algorithm>
#include <utility>

#include "infini_train/src/comm/thread_signals.h"

namespace infini_train::comm {

GlooSendQueue::GlooSendQueue(GlooConnections* connections) : connections_(connections) {
    const BlockSignals block_signals;
    thread_ = std::thread([this] { Run(); });
}

GlooSendQueue::~GlooSendQueue() {
    {
        const std::lock_guard lock(mutex_);
        is_last_ = true;
        changed_.notify_all();
    }
    thread_.join();
}

void GlooSendQueue::Push(Sent sent) {
    const std::lock_guard lock(mutex_);
    sent_.push_back(std::move(sent));
    changed_.notify_all();
}

void GlooSendQueue::Run() {
    pthread_setname_np(pthread_self(), "gloo send");
    std::unique_lock lock(mutex_);
    while (true) {
        changed_.wait(lock, [&] { return !sent_.empty() || is_last_; });
        if (sent_.empty()) {
            return;
        }
        Sent sent = std::move(sent_.front());
        sent_.pop_front();
        lock.unlock();
        // The last one first: then the others have ended, too, and the thread is woken once.
        const bool is_done =
            std::all_of(sent.transfers.rbegin(), sent.transfers.rend(),
                        [&](const GlooTransfer& transfer) { return connections_->WaitQuietly(transfer); });
        // Before the thread sleeps, and before what they read from.
        sent.transfers.clear();
        sent.memory.reset();
        if (!is_done) {
            return;
        }
        lock.lock();
    }
}

}  // namespace infini_train::comm
