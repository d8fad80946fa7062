// SPDX-FileCopyrightText: The ringbell authors
// SPDX-License-Identifier: Apache-2.0
#include "host/shared_mapping.hpp"

#include <algorithm>
#include <vector>

#include <unistd.h>

namespace ringbell::host {
namespace {

// Never destroyed: segments may be static objects of the application.
std::vector<std::weak_ptr<SharedMapping>>& registry() {
  static auto* const instance = new std::vector<std::weak_ptr<SharedMapping>>;
  return *instance;
}

}  // namespace

SharedMapping::SharedMapping(boost::interprocess::shared_memory_object object, const struct stat& info)
    : object_(std::move(object)),
      region_(object_, boost::interprocess::read_write, 0, static_cast<std::size_t>(info.st_size)),
      device_(info.st_dev),
      inode_(info.st_ino),
      owner_pid_(getpid()) {}

std::mutex& mapping_registry_mutex() {
  static auto* const mutex = new std::mutex;
  return *mutex;
}

std::shared_ptr<SharedMapping> registered_mapping(dev_t device, ino_t inode) {
  for (const auto& entry : registry()) {
    auto mapping = entry.lock();
    if (mapping && mapping->device() == device && mapping->inode() == inode && mapping->owner_pid() == getpid()) {
      return mapping;
    }
  }
  return nullptr;
}

void register_mapping(const std::shared_ptr<SharedMapping>& mapping) { registry().emplace_back(mapping); }

void release_mapping(std::shared_ptr<SharedMapping>& mapping) noexcept {
  if (!mapping) return;
  std::unique_lock lock(mapping_registry_mutex(), std::defer_lock);
  if (mapping->owner_pid() == getpid()) {
    lock.lock();
  } else if (!lock.try_lock()) {
    // A fork's child whose parent held the mutex: nobody will ever unlock it here. The child's exit unmaps.
    static_cast<void>(new std::shared_ptr<SharedMapping>(std::move(mapping)));
    return;
  }
  mapping.reset();
  auto& entries = registry();
  entries.erase(std::remove_if(entries.begin(), entries.end(), [](const auto& entry) { return entry.expired(); }),
                entries.end());
}

}  // namespace ringbell::host
